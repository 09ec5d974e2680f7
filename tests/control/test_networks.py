"""Networks: shapes, bounds, and independence from torch's global random state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grasp_control.manifest import OBSERVATION_UNITS
from grasp_control.networks import (
    OBSERVATION_FLOORS,
    STD_MAX,
    STD_MIN,
    DistilledPolicy,
    GaussianPolicy,
    Normaliser,
    PolicyEnsemble,
    QEnsemble,
    draw,
    fit_normaliser,
    mlp,
    track,
    usual_normaliser,
)
from grasp_sim import registry
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, encode
from grasp_sim.expert import perform

W, A, B, N, M, K = 20, 6, 7, 5, 3, 4
HIDDEN = (16, 16)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(seed: int) -> list[torch.nn.Module]:
    g = generator(seed)
    return [
        mlp(W, A, g, hidden=HIDDEN),
        GaussianPolicy(W, A, g, hidden=HIDDEN),
        PolicyEnsemble(W, A, K, g, hidden=HIDDEN),
        QEnsemble(W, A, M, g, hidden=HIDDEN),
    ]


def test_building_neither_reads_nor_changes_the_global_random_state():
    before = torch.get_rng_state()
    first = build(3)
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(99)  # another global state must not matter
        second = build(3)
    for one, two in zip(first, second, strict=True):
        for name, value in one.state_dict().items():
            assert torch.isfinite(value).all()
            assert torch.equal(value, two.state_dict()[name])
    assert not torch.equal(next(first[0].parameters()), next(build(4)[0].parameters()))


def test_normaliser_matches_hand_computed_numbers():
    normaliser = Normaliser.fit(np.array([[1000.0, 5.0], [1004.0, 5.0]], np.float32))
    assert normaliser.mean.tolist() == [1002.0, 5.0]
    # A constant column gets the floor, not zero.
    np.testing.assert_allclose(normaliser.std.numpy(), [2.0, 1e-3])
    out = normaliser(torch.tensor([[1003.0, 5.0], [1e30, -1e30], [float("inf"), 5.001]]))
    np.testing.assert_allclose(out.numpy(), [[0.5, 0.0], [10.0, -10.0], [10.0, 1.0]], atol=1e-3)
    assert set(normaliser.state_dict()) == {"mean", "std"}
    assert not list(normaliser.parameters())


def test_fitted_statistics_serve_every_position_of_the_window():
    rows = np.zeros((2, len(OBSERVATION_FLOORS)))
    rows[:, 0] = 0.1, 0.5  # tcp_height: deviation 0.2 m, above its floor
    rows[:, 1] = 0.08, 0.084  # gripper_opening: 2 mm, below 10 mm
    rows[:, 2] = 10.0, 30.0  # gripper_force: 10 N, above 5 N
    rows[:, 7] = 1.0, 1.0  # object_yaw_cos: constant
    normaliser = fit_normaliser(rows, action_dim=2, context=3)
    mean = [0.3, 0.082, 20.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    std = [0.2, 0.01, 10.0, 0.01, 0.01, 0.01, 0.2, 0.2, 0.01, 0.01, 0.01, 0.01, 0.05, 1.0, 1.0]
    np.testing.assert_allclose(normaliser.mean.numpy(), mean * 3, rtol=1e-6)
    np.testing.assert_allclose(normaliser.std.numpy(), std * 3, rtol=1e-6)
    # Actions, the last two of each pair, pass through; the same observation reads the same anywhere.
    pair = np.array([*rows[0], 0.5, -1.0])
    out = normaliser(torch.tensor(np.tile(pair, 3), dtype=torch.float32)).reshape(3, -1)
    np.testing.assert_allclose(out[0, :3].numpy(), [-1.0, -0.2, -1.0], atol=1e-5)
    np.testing.assert_allclose(out[:, -2:].numpy(), [[0.5, -1.0]] * 3)
    assert torch.equal(out[0], out[2])


def test_every_observation_has_the_floor_of_its_unit():
    assert len(OBSERVATION_FLOORS) == len(OBSERVATION_UNITS)
    floors = {"m": 0.01, "N": 5.0, "1": 0.2, "s": 0.05}
    assert [floors[unit] for unit in OBSERVATION_UNITS] == list(OBSERVATION_FLOORS)
    constant = fit_normaliser(np.ones((5, len(OBSERVATION_FLOORS))), action_dim=A, context=1)
    np.testing.assert_allclose(constant.std.numpy()[:-A], OBSERVATION_FLOORS, rtol=1e-6)


@pytest.mark.parametrize(
    ("mean", "std"),
    [([0.0, 1.0], [1.0]), ([[0.0]], [[1.0]]), ([float("nan")], [1.0]), ([0.0], [float("inf")])],
)
def test_normaliser_refuses_bad_statistics(mean, std):
    with pytest.raises(ValueError, match=r"mean|finite"):
        Normaliser(np.array(mean), np.array(std))


def test_gaussian_policy_starts_undecided_and_stays_within_its_bounds():
    policy = GaussianPolicy(W, A, generator())
    mean, std = policy(torch.randn(B, W, generator=generator(1)))
    assert mean.shape == std.shape == (B, A)
    assert mean.abs().max() < 0.1
    np.testing.assert_allclose(std.detach().numpy(), 0.3, atol=0.02)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1e3)
    mean, std = policy(10 * torch.randn(B, W, generator=generator(1)))
    assert mean.abs().max() <= 1.0
    assert std.min() >= STD_MIN - 1e-6
    assert std.max() <= STD_MAX + 1e-6
    assert std.max() - std.min() > 0.1  # state-dependent


def decided_ensemble() -> PolicyEnsemble:
    """Members that differ clearly in mean and standard deviation; fresh ones are all near 0."""
    ensemble = PolicyEnsemble(W, A, K, generator(), hidden=HIDDEN)
    with torch.no_grad():
        for member in ensemble.members:
            member.net[-1].weight.mul_(100.0)
    return ensemble


def test_ensemble_gives_each_member_all_rows_or_rows_of_its_own():
    ensemble = decided_ensemble()
    windows = torch.randn(B, W, generator=generator(1))
    mean, std = ensemble(windows)
    assert mean.shape == std.shape == (K, B, A)
    own = torch.randn(K, B, W, generator=generator(2))
    own_mean, own_std = ensemble(own)
    for k, member in enumerate(ensemble.members):
        torch.testing.assert_close((mean[k], std[k]), member(windows))
        torch.testing.assert_close((own_mean[k], own_std[k]), member(own[k]))
    assert not torch.allclose(mean[0], mean[1], atol=0.1)
    # Rows of its own reach a member's gradient and no other's.
    own_mean[2].sum().backward()
    touched = [any((p.grad != 0).any() for p in member.parameters()) for member in ensemble.members]
    assert touched == [False, False, True, False]
    with pytest.raises(ValueError, match="zip"):
        ensemble(own[:2])


def test_ensemble_samples_are_seeded_bounded_and_distributed_as_stated():
    ensemble = decided_ensemble()
    windows = torch.randn(2, W, generator=generator(1))
    count = 10_000
    mean, std = ensemble(windows)
    samples = draw(mean, std, generator(5), count)
    assert samples.shape == (count * K, 2, A)
    assert not samples.requires_grad
    assert torch.equal(samples, draw(mean, std, generator(5), count))
    assert not torch.equal(samples, draw(mean, std, generator(6), count))
    assert samples.abs().max() == 1.0  # some draws lie outside and are clipped
    by_member = samples.reshape(count, K, 2, A)
    inside = mean.abs() + 3.0 * std < 1.0  # elsewhere the clip shifts both
    assert inside.any(dim=-1).any(dim=-1).sum() >= 2
    assert (by_member.mean(dim=0) - mean)[inside].abs().max() < 0.03
    assert (by_member.std(dim=0) - std)[inside].abs().max() < 0.03


def test_sampling_one_member_draws_from_that_members_distribution():
    ensemble = decided_ensemble()
    windows = torch.randn(3, W, generator=generator(1))
    for k, member in enumerate(ensemble.members):
        sample = ensemble.sample_member(k, windows, generator(7))
        assert sample.shape == (1, 3, A)
        assert not sample.requires_grad
        mean, std = member(windows)
        noise = torch.randn(mean.shape, generator=generator(7))
        torch.testing.assert_close(sample[0], (mean + std * noise).clamp(-1.0, 1.0).detach())
        assert torch.equal(sample, ensemble.sample_member(k, windows, generator(7)))


def test_sampling_leaves_the_global_random_state_alone():
    ensemble = PolicyEnsemble(W, A, K, generator(), hidden=HIDDEN)
    before = torch.get_rng_state()
    draw(*ensemble(torch.zeros(1, W)), generator(1), 3)
    ensemble.sample_member(0, torch.zeros(1, W), generator(1))
    assert torch.equal(before, torch.get_rng_state())


def test_q_of_many_actions_equals_q_of_each_and_the_unsplit_first_layer():
    critics = QEnsemble(W, A, M, generator(), hidden=HIDDEN)
    windows = torch.randn(B, W, generator=generator(1))
    actions = torch.rand(N, B, A, generator=generator(2)) * 2 - 1
    many = critics(windows, actions)
    assert many.shape == (M, N, B)
    for n in range(N):
        single = critics(windows, actions[n])
        assert single.shape == (M, B)
        torch.testing.assert_close(many[:, n], single)
    assert not torch.allclose(many[0], many[1])
    member = critics.members[0]
    joint = torch.cat([member.window.weight, member.action.weight], dim=1)
    unsplit = torch.cat([windows, actions[0]], dim=1) @ joint.T + member.window.bias
    torch.testing.assert_close(member.value(member.trunk(unsplit)).squeeze(-1), many[0, 0])


def test_gradients_reach_every_parameter_and_the_actions():
    critics = QEnsemble(W, A, M, generator(), hidden=HIDDEN)
    actions = torch.zeros(N, B, A, requires_grad=True)
    critics(torch.randn(B, W, generator=generator(1)), actions).sum().backward()
    assert actions.grad is not None
    assert actions.grad.abs().sum() > 0
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in critics.parameters())


def test_distilled_policy_takes_raw_windows():
    normaliser = Normaliser(np.full(W, 500.0), np.full(W, 20.0))
    network = mlp(W, A, generator(), hidden=HIDDEN)
    policy = DistilledPolicy(normaliser, network)
    raw = 500.0 + 20.0 * torch.randn(B, W, generator=generator(1))
    expected = torch.tanh(network((raw - 500.0) / 20.0))
    torch.testing.assert_close(policy(raw), expected)
    assert policy(raw * 1e6).abs().max() <= 1.0


def test_track_moves_the_target_by_the_rate():
    target, online = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])
    track([target], [online], 0.25)
    assert target.tolist() == [1.5, 2.0]
    with pytest.raises(ValueError, match="zip"):
        track([target], [], 0.25)


def test_draws_take_one_pass_over_the_network_and_keep_the_order_of_the_noise():
    ensemble = decided_ensemble()
    mean, std = ensemble(torch.randn(2, W, generator=generator(1)))
    noise = torch.randn((3, *mean.shape), generator=generator(5))
    samples = draw(mean, std, generator(5), 3)
    assert torch.equal(samples, (mean + std * noise).clamp(-1.0, 1.0).flatten(0, 1).detach())


def test_the_usual_normaliser_keeps_what_a_grasp_shows_within_a_few_deviations():
    normaliser = usual_normaliser(ACTION_DIM, 2)
    assert normaliser.mean.shape == (2 * (OBSERVATION_DIM + ACTION_DIM),)
    for name in ("pybullet-lift", "pybullet-objects"):
        env = registry.make(name).unwrapped
        for seed in range(3):
            observations = []
            for _, info in perform(env, seed):
                observations.append(encode(info["state"]))
            pairs = np.concatenate([observations, np.zeros((len(observations), ACTION_DIM))], axis=1)
            windows = torch.from_numpy(np.tile(pairs, 2).astype(np.float32))
            assert normaliser(windows).abs().max() < 6.0
        env.close()
