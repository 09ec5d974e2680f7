"""The loop of the grid world: the memory is the only difference between the arms (R2)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from grasp_control.study.agent import Agent, AgentConfig, Walk, v_trace
from grasp_control.study.arms import Arm
from grasp_control.study.grid_task import _retrieved
from grasp_control.study.hunt import Hunt
from grasp_sim.grid import GridEnv


def hunt(arm: str, structure: str = "sparse", seed: int = 3, steps: int = 4000) -> Hunt:
    return Hunt(GridEnv(structure, seed=0), Arm.parse(arm), seed, AgentConfig(), steps)


def same(one: Walk, other: Walk) -> bool:
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one[:4], other[:4], strict=True)
    )


@pytest.mark.parametrize("arm", ["on", "adaptive", "told", "on+filter"])
def test_with_and_without_memory_all_is_bit_equal_until_something_is_remembered(arm):
    off, on = hunt("off"), hunt(arm)
    compared = 0
    while not off.finished:
        assert on.memory is not None
        empty = not len(on.memory)
        one, other = off.episode(), on.episode()
        if not empty:
            break
        assert same(one, other)
        compared += 1
        if not len(on.memory):
            assert np.array_equal(off.agent.probabilities(), on.agent.probabilities())
    assert compared > 3


def test_a_memory_that_takes_no_part_changes_nothing():
    """Everything is written, and with a participation of 0 nothing of it is used."""
    off, idle = hunt("off", "dense", steps=2000), hunt("on", "dense", steps=2000)
    idle.participation._fixed = 0.0
    while not off.finished:
        assert same(off.episode(), idle.episode())
    assert idle.memory is not None
    assert len(idle.memory)


def test_the_same_seed_gives_the_same_run_and_measuring_leaves_it_alone():
    one, other = hunt("on", "noisy", steps=1500), hunt("on", "noisy", steps=1500)
    while not one.finished:
        assert same(one.episode(), other.episode())
        assert one.measure(2) == one.measure(2)
    assert not same(hunt("on", "noisy", seed=4).episode(), hunt("on", "noisy").episode())


def test_the_budget_is_kept_to_the_step():
    one = hunt("off", steps=100)
    while not one.finished:
        one.episode()
    assert one.env_steps == 100


def walk(retrieved: list[bool], rewards: list[float]) -> Walk:
    steps = len(rewards)
    return Walk(
        cells=np.zeros(steps, int),
        actions=np.zeros(steps, int),
        probabilities=np.ones(steps),
        rewards=np.array(rewards),
        last=0,
        terminated=True,
        success=False,
        retrieved=np.array(retrieved),
        distances=np.where(retrieved, 1.0, math.nan),
    )


def test_the_hit_rate_by_hand():
    """Three retrieved actions in a paid episode, one in an unpaid one, none in the last: 3 of 4 hit."""
    walks = [
        walk([True, True, False, True], [0.0, -0.5, 0.0, 1.0]),
        walk([False, True], [0.5, -0.5]),
        walk([False], [9.0]),
    ]
    found = _retrieved(walks)
    assert (found.retrievals, found.hits, found.distance) == (4, 3, 1.0)
    assert _retrieved([walk([False], [1.0])]) == (0, 0, "")


def test_v_trace_by_hand():
    rewards, values = np.array([1.0, 2.0]), np.array([0.5, 1.0, 4.0])
    targets, advantages = v_trace(rewards, values, np.ones(2), discount=0.5, trace=1.0)
    assert targets == pytest.approx([1.0 + 0.5 * 4.0, 2.0 + 0.5 * 4.0])  # plain discounted sums
    assert advantages == pytest.approx([1.0 + 0.5 * 4.0 - 0.5, 4.0 - 1.0])
    targets, _ = v_trace(rewards, values, np.ones(2), discount=0.5, trace=0.0)
    assert targets == pytest.approx([1.0 + 0.5 * 1.0, 4.0])  # one step, then the critic
    targets, advantages = v_trace(rewards, values, np.array([0.5, 0.0]), discount=0.5, trace=1.0)
    assert targets == pytest.approx([0.5 + 0.5 * (1.0 + 0.5 * 1.0 - 0.5), 1.0])  # never the policy's: no news
    assert advantages == pytest.approx([0.5 * 1.0, 0.0])


def test_what_was_remembered_is_imitated_where_it_went_better_than_expected():
    for returns, moves in ((5.0, True), (-5.0, False)):
        agent = Agent(AgentConfig(entropy=0.0), torch.Generator().manual_seed(0))
        before = agent.probabilities()[7, 2]
        idle = walk([False], [0.0])._replace(cells=np.array([50]))
        rows = np.full(8, 7), np.full(8, 2), np.full(8, returns)
        for _ in range(20):
            agent.update([idle], rows, 1.0)
        assert (agent.probabilities()[7, 2] > before + 0.05) == moves
