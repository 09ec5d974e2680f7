"""The estimates are what their theory says, on a language small enough to add everything up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from grasp_control.mapo.estimators import (
    Programs,
    hard_em_loss,
    mapo_loss,
    marginal_likelihood_loss,
    reinforce_loss,
)
from grasp_control.mapo.grammar import Grammar
from grasp_control.mapo.policy import ProgramPolicy

KEYS = ["train/0", "train/1"]
DRAWS = 4
REPEATS = 1500


class World(NamedTuple):
    """Of two problems and the N programs: probabilities (2, N), rewards (2, N), gradients (2, N, parameters)
    of the log probabilities."""

    probabilities: np.ndarray
    rewards: np.ndarray
    gradients: np.ndarray


@pytest.fixture(scope="module")
def world(tiny):
    task = tiny()
    policy = ProgramPolicy(Grammar(task), 5, torch.Generator().manual_seed(1), hidden=8)
    with torch.no_grad():  # so that programs differ in probability
        policy.output.weight.mul_(100.0)
    features = torch.from_numpy(np.stack([problem.features for problem in task.problems("train", 2)]))
    gradients, log_probs, rewards = [], [], []
    for row, key in enumerate(KEYS):
        for program in task.programs:
            log_p, _ = policy.log_probs(features[row : row + 1], [program])
            gradients.append(torch.cat([g.flatten() for g in gradient_of(log_p.sum(), policy)]))
            log_probs.append(float(log_p.detach()))
            rewards.append(task.execute(key, program))
    shape = (2, len(task.programs))
    return World(
        np.exp(np.array(log_probs)).reshape(shape),
        np.array(rewards).reshape(shape),
        torch.stack(gradients).numpy().reshape(*shape, -1),
    )


def gradient_of(loss, policy):
    return torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True, materialize_grads=True)


def in_memory(rewards: np.ndarray, count: int = 3) -> np.ndarray:
    """(2, N) bool: the first rewarded programs of each problem."""
    held = np.zeros(rewards.shape, dtype=bool)
    for row in range(2):
        held[row, np.flatnonzero(rewards[row] > 0)[:count]] = True
    assert held.sum() == 2 * count
    return held


def test_all_programs_together_have_probability_one(world):
    np.testing.assert_allclose(world.probabilities.sum(axis=1), 1.0, atol=1e-5)


def coefficients(loss, count: int) -> np.ndarray:
    """Minus the derivative of a loss by the log probabilities, of which all gradients are sums."""
    leaf, value = loss
    (gradient,) = torch.autograd.grad(value, leaf)
    assert len(gradient) == count
    return -gradient.numpy()


def estimate_mapo(world, held, rng, *, clip, baseline=0.0) -> np.ndarray:
    """One estimate (parameters,): the memory in full, DRAWS programs outside of it for each problem."""
    probabilities = world.probabilities
    inside = np.argwhere(held)
    outside = []
    for row in range(2):
        rest = np.where(held[row], 0.0, probabilities[row])
        chosen = rng.choice(len(rest), DRAWS, p=rest / rest.sum())  # what rejection amounts to
        outside += [(row, column) for column in chosen]
    return apply(
        world,
        [*map(tuple, inside), *outside],
        lambda log_p, r, owners: mapo_loss(
            Programs(log_p[: len(inside)], r[: len(inside)], owners[: len(inside)]),
            Programs(log_p[len(inside) :], r[len(inside) :], owners[len(inside) :]),
            2,
            clip=clip,
            baseline=baseline,
        )[0],
    )


def apply(world, places, loss) -> np.ndarray:
    probabilities, rewards, gradients = world
    log_p = torch.tensor([np.log(probabilities[place]) for place in places], requires_grad=True)
    r = torch.tensor([rewards[place] for place in places])
    owners = torch.tensor([place[0] for place in places])
    shares = coefficients((log_p, loss(log_p, r, owners)), len(places))
    return sum(share * gradients[place] for share, place in zip(shares, places, strict=True))


def estimate_reinforce(world, rng, *, baseline=0.0) -> np.ndarray:
    probabilities = world.probabilities
    places = []
    for row in range(2):
        chosen = rng.choice(probabilities.shape[1], DRAWS, p=probabilities[row] / probabilities[row].sum())
        places += [(row, column) for column in chosen]
    return apply(
        world,
        places,
        lambda log_p, r, owners: reinforce_loss(Programs(log_p, r, owners), 2, baseline=baseline),
    )


def exact(world, weights: np.ndarray) -> np.ndarray:
    """Mean over problems of the sum of weights (2, N) times the programs' gradients."""
    probabilities, rewards, gradients = world
    return np.einsum("pn,png->g", weights * probabilities * rewards, gradients) / 2.0


def agree(estimates: np.ndarray, wanted: np.ndarray) -> None:
    """Every parameter within 5 standard errors of its own, and their squared deviations as chance has it."""
    errors = estimates.std(axis=0) / np.sqrt(len(estimates))
    moved = errors > 1e-9
    z = (estimates.mean(axis=0) - wanted)[moved] / errors[moved]
    np.testing.assert_allclose(estimates.mean(axis=0)[~moved], wanted[~moved], atol=1e-6)
    assert np.abs(z).max() < 5.0
    assert np.mean(np.square(z)) < 2.5


@pytest.mark.parametrize("baseline", [0.0, 0.3])
def test_the_unclipped_estimate_is_unbiased_and_varies_less_than_reinforce(world, baseline):
    rewards = world.rewards
    held = in_memory(rewards)
    rng = np.random.default_rng(5)
    ours = np.stack([estimate_mapo(world, held, rng, clip=0.0, baseline=baseline) for _ in range(REPEATS)])
    plain = np.stack([estimate_reinforce(world, rng, baseline=baseline) for _ in range(REPEATS)])
    wanted = exact(world, np.ones_like(rewards))
    agree(ours, wanted)
    agree(plain, wanted)
    assert ours.var(axis=0).sum() < 0.9 * plain.var(axis=0).sum()


@pytest.mark.parametrize("clip", [0.3, 0.9])
def test_clipping_weighs_memory_and_the_rest_as_it_says(world, clip):
    probabilities, rewards, _ = world
    held = in_memory(rewards, 2)
    mass = (probabilities * held).sum(axis=1, keepdims=True)
    assert mass.max() < clip
    weights = np.where(held, clip / mass, (1.0 - clip) / (1.0 - mass))
    rng = np.random.default_rng(6)
    estimates = np.stack([estimate_mapo(world, held, rng, clip=clip) for _ in range(REPEATS)])
    agree(estimates, exact(world, weights))
    assert np.abs(exact(world, weights) - exact(world, np.ones_like(rewards))).max() > 1e-3


def test_clipping_does_nothing_once_the_memory_is_likely(world):
    held = in_memory(world.rewards)
    one, other = (estimate_mapo(world, held, np.random.default_rng(7), clip=clip) for clip in (0.0, 1e-6))
    np.testing.assert_array_equal(one, other)


def test_an_empty_memory_has_no_weight(world):
    """All is REINFORCE then, whatever the clip."""
    places = [(0, 1), (0, 4), (1, 2)]
    none = Programs(*(torch.zeros(0) for _ in range(2)), torch.zeros(0, dtype=torch.int64))
    ours = apply(world, places, lambda *p: mapo_loss(none, Programs(*p), 2, clip=0.5)[0])
    plain = apply(world, places, lambda *p: reinforce_loss(Programs(*p), 2))
    np.testing.assert_array_equal(ours, plain)


def test_a_memory_of_vanishing_probability_is_followed_and_finite():
    log_p = torch.tensor([-300.0, -301.0], requires_grad=True)
    none = Programs(*(torch.zeros(0) for _ in range(2)), torch.zeros(0, dtype=torch.int64))
    memory = Programs(log_p, torch.ones(2), torch.zeros(2, dtype=torch.int64))
    loss, stats = mapo_loss(memory, none, 1, clip=0.1)
    (gradient,) = torch.autograd.grad(loss, log_p)
    share = 1.0 / (1.0 + np.exp(-1.0))
    np.testing.assert_allclose(-gradient, [0.1 * share, 0.1 * (1.0 - share)], rtol=1e-5)
    assert stats == {"memory_mass": 0.0, "memory_weight": pytest.approx(0.1)}


def test_marginal_likelihood_is_the_log_of_what_the_memory_is_worth():
    log_p = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    memory = Programs(log_p, torch.tensor([1.0, 0.5, 1.0]), torch.tensor([0, 0, 2]))
    loss = marginal_likelihood_loss(memory, 3)
    assert float(loss.detach()) == pytest.approx(-(np.log(np.exp(-1) + 0.5 * np.exp(-2)) - 3.0) / 2.0)
    (gradient,) = torch.autograd.grad(loss, log_p)
    first = np.exp(-1) / (np.exp(-1) + 0.5 * np.exp(-2))
    np.testing.assert_allclose(-gradient * 2.0, [first, 1.0 - first, 1.0], rtol=1e-5)


def test_hard_em_follows_the_likeliest_of_the_best():
    log_p = torch.tensor([-1.0, -2.0, -1.5, -9.0], requires_grad=True)
    memory = Programs(log_p, torch.tensor([0.5, 1.0, 1.0, 0.2]), torch.tensor([0, 0, 0, 1]))
    (gradient,) = torch.autograd.grad(hard_em_loss(memory, 2), log_p)
    np.testing.assert_allclose(-gradient, [0.0, 0.0, 0.5, 0.5])
