"""Laws and hand-computed numbers of the critics' targets, the E-step, the M-step and the choice of action."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from grasp_control.empo2 import critics, mpo
from grasp_control.empo2.config import EMPO2Config
from grasp_control.empo2.exploration import choose, coloured_noise
from grasp_control.empo2.schedules import cosine, linear

T = torch.tensor


def test_schedules_meet_their_ends_and_middle():
    assert linear(0.8, 0.2, 0.0) == pytest.approx(0.8)
    assert linear(0.8, 0.2, 0.5) == pytest.approx(0.5)
    assert linear(0.8, 0.2, 2.0) == pytest.approx(0.2)
    assert cosine(0.3, 0.1, 0.0) == pytest.approx(0.3)
    assert cosine(0.3, 0.1, 0.25) == pytest.approx(0.1 + 0.1 * (1 + math.sqrt(0.5)))
    assert cosine(0.3, 0.1, 1.0) == pytest.approx(0.1)


def test_conservative_target_takes_the_lowest_critic_but_not_less_than_was_reached():
    target = critics.conservative_targets(
        T([0.0, 0.0, 1.0]), T([0.9, 0.9, 0.0]), T([[1.0, 0.2, 5.0], [0.5, 0.4, 7.0]]), T([0.0, 0.7, 1.0])
    )
    assert target.tolist() == pytest.approx([0.45, 0.7, 1.0])


def test_exploratory_target_takes_the_best_existing_candidate():
    next_values = T([[[0.1], [0.9], [5.0]], [[0.3], [0.5], [5.0]]])  # (M=2, C=3, B=1)
    valid = T([[True], [True], [False]])
    target = critics.exploratory_targets(T([0.1]), T([0.5]), next_values, valid, T([0.0]))
    assert target.tolist() == pytest.approx([0.1 + 0.5 * 0.7])


def test_critic_loss_is_the_weighted_square_summed_over_members():
    loss, td, stats = critics.critic_loss(T([[1.0, 2.0], [0.0, 2.0]]), T([0.0, 1.0]), T([1.0, 0.5]))
    assert float(loss) == pytest.approx((1 + 0.5) / 2 + (0 + 0.5) / 2)
    assert td.tolist() == pytest.approx([0.5, 1.0])
    assert stats["td_error"] == pytest.approx(0.75)


def test_blend_of_minimum_and_mean():
    q = critics.blend(T([[1.0], [0.0]]), T([[2.0], [4.0]]), eta=0.8)
    assert q.tolist() == pytest.approx([0.8 * 0.0 + 0.2 * 3.0])


def test_temperature_minimises_the_dual():
    generator = torch.Generator().manual_seed(3)
    q = torch.randn((16, 32), generator=generator)
    log_prior = torch.zeros_like(q)
    epsilon = 0.1
    best = float(mpo.solve_temperature(q, log_prior, epsilon))

    def dual(temperature: float) -> float:
        normalised = torch.log_softmax(log_prior, dim=0)
        return temperature * epsilon + temperature * float(
            torch.logsumexp(q / temperature + normalised, 0).mean()
        )

    grid = [dual(best * f) for f in (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)]
    assert dual(best) <= min(grid) + 1e-6


def test_temperature_stays_in_bounds_when_all_actions_are_equal():
    q = torch.zeros((4, 8))
    assert float(mpo.solve_temperature(q, torch.zeros_like(q), 0.1)) == pytest.approx(1e-4, rel=1e-3)


def test_weights_sum_to_one_and_ignore_missing_neighbours():
    q = T([[0.0], [1.0], [100.0]])
    log_prior = T([[0.0], [0.0], [-math.inf]])
    weights = mpo.improvement_weights(q, log_prior, T(1.0))
    e = math.e
    assert weights[:, 0].tolist() == pytest.approx([1 / (1 + e), e / (1 + e), 0.0])


def candidates(samples: int, retrieved: list[list[bool]]) -> torch.Tensor:
    """(samples + retrieved, B) validity: all draws from the policy, then the given neighbours."""
    neighbours = T(retrieved)
    return torch.cat([torch.ones((samples, neighbours.shape[1]), dtype=torch.bool), neighbours])


def test_prior_shares_the_policys_and_the_memorys_mass_evenly():
    valid = candidates(8, [[True], [False], [True], [False]])
    log_prior = mpo.candidate_log_prior(valid[8:].float(), samples=8, memory_share=0.3)
    draw, neighbour = math.log(0.7 / 8), math.log(0.3 / 2)
    expected = [draw] * 8 + [neighbour, -math.inf, neighbour, -math.inf]
    assert log_prior[:, 0].tolist() == pytest.approx(expected)


def test_prior_without_neighbours_is_the_policy():
    valid = candidates(5, [[False, True], [False, False]])
    log_prior = mpo.candidate_log_prior(valid[5:].float(), samples=5, memory_share=0.3)
    assert log_prior[:, 0].tolist() == pytest.approx([math.log(1 / 5)] * 5 + [-math.inf] * 2)
    assert log_prior[5, 1].item() == pytest.approx(math.log(0.3))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_prior_of_every_state_sums_to_one(share):
    generator = torch.Generator().manual_seed(1)
    neighbours = torch.rand((4, 50), generator=generator) < 0.4
    valid = candidates(8, neighbours.tolist())
    log_prior = mpo.candidate_log_prior(valid[8:].float(), samples=8, memory_share=share)
    assert log_prior.shape == (12, 50)
    assert log_prior.exp().sum(dim=0).tolist() == pytest.approx([1.0] * 50)
    assert torch.isinf(log_prior[~valid]).all()
    weights = mpo.improvement_weights(torch.zeros((12, 50)), log_prior, T(0.1))
    assert torch.allclose(weights, log_prior.exp(), atol=1e-6)


def test_a_much_better_retrieved_action_gains_weight_however_unlikely_the_policy_was_to_draw_it():
    """The E-step under the policy alone gives an action that it never draws no weight at all."""
    valid = candidates(8, [[True], [False]])
    log_prior = mpo.candidate_log_prior(valid[8:].float(), samples=8, memory_share=0.3)
    q = torch.zeros((10, 1))
    q[8] = 1.0
    q[9] = 100.0  # not there, whatever its value
    weights = mpo.improvement_weights(q, log_prior, T(0.25))
    better = 0.3 * math.exp(4.0)
    assert weights[8, 0].item() == pytest.approx(better / (better + 0.7))
    assert weights[9, 0].item() == 0.0
    # At the temperature that the bound allows it still gains, by no more than the bound.
    temperature = mpo.solve_temperature(q, log_prior, epsilon=0.1)
    bounded = mpo.improvement_weights(q, log_prior, temperature)[:, 0]
    assert bounded[8].item() > 0.5
    held = valid[:, 0]
    kl = (bounded[held] * (bounded[held].log() - log_prior[held, 0])).sum()
    assert kl.item() == pytest.approx(0.1, abs=1e-3)


def test_m_step_moves_the_mean_towards_the_weighted_action_and_keeps_width_apart():
    mean = torch.zeros((1, 1), requires_grad=True)
    std = torch.full((1, 1), 0.2, requires_grad=True)
    target = mpo.Gaussian(torch.zeros((1, 1)), torch.full((1, 1), 0.2))
    actions, weights = T([[[0.2]], [[-0.2]]]), T([[1.0], [0.0]])
    loss, stats = mpo.mpo_loss(mpo.Gaussian(mean, std), target, actions, weights, kl_mean=0.3, kl_std=3.0)
    loss.backward()
    assert mean.grad is not None
    assert std.grad is not None
    assert mean.grad.item() == pytest.approx(-0.2 / 0.04)
    # The only action lies one standard deviation from the target's mean: the width is already right.
    assert std.grad.item() == pytest.approx(0.0, abs=1e-5)
    assert stats["kl_mean"] == pytest.approx(0.0)


def test_kl_divergence_of_known_gaussians():
    p = mpo.Gaussian(T([[0.0, 1.0]]), T([[1.0, 0.5]]))
    q = mpo.Gaussian(T([[1.0, 1.0]]), T([[1.0, 1.0]]))
    expected = 0.5 + (math.log(2.0) + 0.125 - 0.5)
    assert mpo.kl_divergence(p, q).tolist() == pytest.approx([expected])


def test_the_policys_action_stands_unless_every_critic_agrees():
    # (M=2, C=3, B=2): in column 0 the critics disagree about candidate 1; in column 1 both prefer
    # candidate 2.
    conservative = T([[[0.5, 0.5], [0.9, 0.4], [0.4, 0.8]], [[0.5, 0.5], [0.1, 0.4], [0.4, 0.7]]])
    blended = T([[0.5, 0.5], [0.9, 0.9], [0.1, 0.6]])
    index = choose(conservative, blended, torch.ones((3, 2), dtype=torch.bool), margin=0.01)
    assert index.tolist() == [0, 2]


def test_a_missing_neighbour_is_never_chosen():
    conservative = T([[[0.0], [1.0]]])
    valid = T([[True], [False]])
    assert choose(conservative, T([[0.0], [1.0]]), valid, margin=0.0).tolist() == [0]


def test_batch_larger_than_the_warm_up_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"batch_size=2048.*warmup_steps=1024"):
        EMPO2Config(batch_size=2048)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("steps", [1, 2, 71])
def test_coloured_noise_has_unit_variance_and_is_the_same_for_a_seed(exponent, steps):
    noise = coloured_noise(steps, 5000, exponent, np.random.default_rng(0))
    assert noise.shape == (steps, 5000)
    assert noise.dtype == np.float32
    assert noise.std() == pytest.approx(1.0, abs=0.03)
    again = coloured_noise(steps, 5000, exponent, np.random.default_rng(0))
    np.testing.assert_array_equal(noise, again)


def test_the_higher_its_exponent_the_longer_noise_lasts():
    def one_step_correlation(exponent: float) -> float:
        noise = coloured_noise(70, 5000, exponent, np.random.default_rng(1))
        return float((noise[:-1] * noise[1:]).mean())

    white, pink, red = (one_step_correlation(exponent) for exponent in (0.0, 1.0, 2.0))
    assert white == pytest.approx(0.0, abs=0.02)
    assert 0.3 < pink < 0.8 < red < 1.0


def test_a_remembered_actions_mass_shrinks_with_its_support_and_goes_to_the_policy():
    log_prior = mpo.candidate_log_prior(torch.tensor([[1.0], [0.25], [0.0]]), samples=4, memory_share=0.4)
    assert log_prior.exp()[:, 0].tolist() == pytest.approx([0.75 / 4] * 4 + [0.2, 0.05, 0.0])


def test_the_end_of_coloured_noise_does_not_return_to_its_beginning():
    noise = coloured_noise(70, 5000, 2.0, np.random.default_rng(2))

    def correlation(lag: int) -> float:
        return float((noise[0] * noise[lag]).mean())

    assert correlation(1) > correlation(10) > correlation(30) > correlation(69)
