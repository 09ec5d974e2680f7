"""Trajectory feature and score."""

import numpy as np
import pytest

from grasp_control.memory.encoder import WindowEncoder
from grasp_control.memory.score import TD_WEIGHT, Scorer, novelty


def _distances(x):
    return np.linalg.norm(x[:, None] - x[None], axis=-1)


def test_projection_keeps_distances_exactly_when_there_is_room():
    x = np.random.default_rng(0).standard_normal((20, 40)).astype(np.float32)
    z, version = WindowEncoder.create(40, 64, np.random.default_rng(1)).encode(x)
    assert z.shape == (20, 64)
    assert version == 0
    np.testing.assert_allclose(_distances(z), _distances(x), atol=1e-4)


def test_projection_keeps_distances_in_expectation_otherwise():
    x = np.random.default_rng(0).standard_normal((60, 200)).astype(np.float32)
    z, _ = WindowEncoder.create(200, 64, np.random.default_rng(1)).encode(x)
    off = ~np.eye(60, dtype=bool)
    ratio = _distances(z)[off] / _distances(x)[off]
    assert abs(ratio.mean() - 1) < 0.03
    assert ratio.min() > 0.7
    assert ratio.max() < 1.3


def test_refit_standardises_and_leaves_the_old_version_alone():
    x = np.random.default_rng(0).standard_normal((500, 10)).astype(np.float32) * 0.01 + 7.0
    x[:, 3] = 2.0  # never changes: no division by zero
    old = WindowEncoder.create(10, 64, np.random.default_rng(1))
    before = old.encode(x)[0]
    new = old.refit(x)
    z, version = new.encode(x)
    assert (old.version, version) == (0, 1)
    np.testing.assert_array_equal(old.encode(x)[0], before)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1).mean() ** 2, 9, rtol=0.1)
    assert np.isfinite(z).all()


def test_same_generator_same_encoder():
    one, two = (WindowEncoder.create(76, 64, np.random.default_rng(5)).projection for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dim", [63, 129])
def test_dimension_is_checked(dim):
    with pytest.raises(ValueError, match=str(dim)):
        WindowEncoder.create(76, dim, np.random.default_rng(0))


def test_novelty_is_one_minus_the_cosine_with_a_constant_component():
    rng = np.random.default_rng(0)
    z, mean = rng.standard_normal((50, 64)).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    a, b = np.c_[z, np.full(50, 8.0)], np.r_[mean, 8.0]
    expected = 1 - a @ b / np.linalg.norm(a, axis=1) / np.linalg.norm(b)
    np.testing.assert_allclose(novelty(z, mean), expected, atol=1e-5)
    np.testing.assert_allclose(novelty(z, mean, np.array([7, 3])), expected[[7, 3]], atol=1e-5)


def test_novelty_grows_with_the_distance_from_the_mean_even_if_the_mean_is_the_origin():
    direction = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    z = np.linspace(0, 5, 20, dtype=np.float32)[:, None] * direction
    values = novelty(z, np.zeros(64, np.float32))
    assert values[0] == pytest.approx(0.0, abs=1e-6)
    assert (np.diff(values) > 0).all()


def test_td_terms_do_not_depend_on_the_unit_of_reward():
    errors = np.array([0.5, -1.0, 1.5], np.float32)
    small, large = Scorer(64, 1.2).td_terms(errors), Scorer(64, 1.2).td_terms(1000 * errors)
    np.testing.assert_allclose(small, TD_WEIGHT * np.array([0.5, 1.0, 1.5]), rtol=1e-5)
    np.testing.assert_allclose(large, small, rtol=1e-5)


def test_one_huge_td_error_is_bounded():
    scorer = Scorer(64, 1.2)
    scorer.td_terms(np.ones(1000, np.float32))
    assert scorer.td_terms(np.r_[np.ones(999), 1e9].astype(np.float32)).max() <= TD_WEIGHT * 10 + 1e-6


def test_zero_td_errors_are_no_division_by_zero():
    assert Scorer(64, 1.2).td_terms(np.zeros(3, np.float32)).tolist() == [0.0, 0.0, 0.0]


def test_mean_is_exact_at_first():
    z = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
    scorer = Scorer(64, 1.2)
    for start in (0, 100, 150):
        scorer.observe(z[start : {0: 100, 100: 150, 150: 300}[start]])
    np.testing.assert_allclose(scorer.mean, z.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(scorer.novelty_terms(z), 1.2 * novelty(z, scorer.mean))
