"""Networks: shapes, bounds, and independence from torch's global random state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grasp_control.networks import (
    STD_MAX,
    STD_MIN,
    DistilledPolicy,
    GaussianPolicy,
    Normaliser,
    QEnsemble,
    mlp,
    track,
)

W, A, B, N, M = 20, 6, 7, 5, 3
HIDDEN = (16, 16)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(seed: int) -> list[torch.nn.Module]:
    g = generator(seed)
    return [
        mlp(W, A, g, hidden=HIDDEN),
        GaussianPolicy(W, A, g, hidden=HIDDEN),
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


def test_sampling_is_seeded_bounded_and_distributed_as_stated():
    policy = GaussianPolicy(W, A, generator(), hidden=HIDDEN)
    windows = torch.randn(2, W, generator=generator(1))
    samples = policy.sample(windows, generator(5), 20_000)
    assert samples.shape == (20_000, 2, A)
    assert torch.equal(samples, policy.sample(windows, generator(5), 20_000))
    assert samples.abs().max() <= 1.0
    mean, std = policy(windows)
    np.testing.assert_allclose(samples.mean(0).numpy(), mean.detach().numpy(), atol=0.02)
    np.testing.assert_allclose(samples.std(0).numpy(), std.detach().numpy(), atol=0.02)


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
