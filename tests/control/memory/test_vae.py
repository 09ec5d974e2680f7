"""The variational autoencoder of windows."""

import numpy as np
import pytest
import torch

from grasp_control.memory.encoder import WindowEncoder, standardised, statistics_of
from grasp_control.memory.vae import VaeEncoder

RNG = np.random.default_rng
WIDTH = 12


def new(seed=0, *, updates=100, beta=0.001, width=WIDTH):
    return VaeEncoder.create(width, 64, RNG(seed), beta=beta, updates=updates)


def two_moons(rows, rng):
    """Points (rows, W) of two interleaved half circles, and which of the two each is on."""
    moon = rng.integers(2, size=rows)
    angle = np.pi * (rng.random(rows) + moon)
    points = np.stack([np.cos(angle) + moon, np.sin(angle) + 0.5 * moon], axis=1)
    points = points + 0.05 * rng.standard_normal(points.shape)
    return (points @ RNG(3).standard_normal((2, WIDTH))).astype(np.float32), moon


def test_the_same_seed_gives_the_same_encoder_whatever_the_global_random_state():
    windows = two_moons(300, RNG(1))[0]
    answers = []
    for disturbance in (1, 2):
        np.random.seed(disturbance)  # noqa: NPY002
        torch.manual_seed(disturbance)
        answers.append(new(5, updates=10).refit(windows).refit(windows).encode(windows)[0])
    np.testing.assert_array_equal(*answers)
    assert not np.array_equal(new(6, updates=10).refit(windows).encode(windows)[0], answers[0])


def test_refit_makes_a_new_version_and_leaves_the_old_one_alone():
    windows = two_moons(300, RNG(1))[0]
    old = new(updates=10)
    before = old.encode(windows)
    first, again = old.refit(windows), old.refit(windows)
    assert (before[1], first.encode(windows)[1], first.refit(windows).version) == (0, 1, 2)
    np.testing.assert_array_equal(old.encode(windows)[0], before[0])
    np.testing.assert_array_equal(first.encode(windows)[0], again.encode(windows)[0])
    assert (first.dim, first.window_width) == (64, WIDTH)


def test_components_are_of_unit_size_over_the_fitted_windows():
    windows = two_moons(500, RNG(1))[0]
    z, _ = new().refit(windows).encode(windows)
    assert z.dtype == np.float32
    assert np.square(z).mean() == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-4)


def test_training_improves_the_reconstruction_and_a_refit_goes_on_from_where_it_was():
    windows = two_moons(1000, RNG(1))[0]
    inputs = torch.from_numpy(standardised(windows, *statistics_of(windows)))

    def error(encoder):
        return float(encoder._network.losses(inputs, torch.Generator().manual_seed(0))[0])

    fresh = new(updates=60)
    once = fresh.refit(windows)
    assert error(once) < 0.2 * error(fresh)
    assert error(once.refit(windows)) < error(once)


def test_near_windows_stay_near():
    windows, moon = two_moons(1000, RNG(1))
    unseen, of = two_moons(200, RNG(2))
    encoder = new(updates=300).refit(windows)
    stored, asked = encoder.encode(windows)[0], encoder.encode(unseen)[0]
    nearest = np.linalg.norm(asked[:, None] - stored[None], axis=-1).argmin(axis=1)
    apart = np.linalg.norm(unseen[:, None] - windows[None], axis=-1)
    rank = (apart < apart[np.arange(200), nearest][:, None]).sum(axis=1)
    assert (moon[nearest] == of).mean() > 0.97
    assert np.median(rank) < 10


@pytest.mark.parametrize("rows", [2, 300, 3000])
def test_a_refit_takes_the_updates_of_its_setting_whatever_the_rows(monkeypatch, rows):
    steps, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: steps.append(step(self)))
    new(updates=7).refit(two_moons(rows, RNG(1))[0])
    assert len(steps) == 7


@pytest.mark.parametrize("constant", [slice(0, 1), slice(0, WIDTH)])
def test_constant_columns_give_no_nan(constant):
    windows = two_moons(300, RNG(1))[0]
    windows[:, constant] = 7.0
    encoder = new(updates=20).refit(windows)
    assert np.isfinite(encoder.encode(windows)[0]).all()
    assert np.isfinite(encoder.encode(windows + np.float32(1e4))[0]).all()
    assert np.isfinite(encoder.refit(windows).encode(windows)[0]).all()


def test_absurd_windows_spoil_no_fit():
    windows = two_moons(300, RNG(1))[0]
    windows[::5] = np.float32(1e6) * windows[::5]
    assert np.isfinite(new(updates=50, width=WIDTH).refit(windows).encode(windows)[0]).all()


def test_a_restored_encoder_answers_and_refits_bit_for_bit():
    windows = two_moons(300, RNG(1))[0]
    encoder = new(1, updates=10).refit(windows)
    twin = new(2, updates=10).restored(encoder.state(), encoder.version)
    np.testing.assert_array_equal(twin.encode(windows)[0], encoder.encode(windows)[0])
    np.testing.assert_array_equal(
        twin.refit(windows).encode(windows)[0], encoder.refit(windows).encode(windows)[0]
    )
    assert twin.version == 1


@pytest.mark.parametrize("encoder", [new(), WindowEncoder.create(WIDTH, 64, RNG(0))])
def test_one_window_is_too_few_to_fit_to(encoder):
    with pytest.raises(ValueError, match="at least 2 windows, got 1"):
        encoder.refit(np.zeros((1, WIDTH), np.float32))


@pytest.mark.parametrize(("width", "dim"), [(12, 63), (12, 129), (0, 64)])
def test_sizes_are_checked(width, dim):
    with pytest.raises(ValueError, match=str(dim if width else width)):
        VaeEncoder.create(width, dim, RNG(0), beta=1.0, updates=1)
