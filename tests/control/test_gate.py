"""Reward structures with known statistics, and what the memory gate makes of them (E10, R7, R8)."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.empo2.gate import PARTICIPATION, GateConfig, MemoryGate

STEPS = 100


def seen(*episodes: np.ndarray, structure: str = "adaptive") -> MemoryGate:
    gate = MemoryGate(GateConfig(structure=structure, episodes=50))
    for rewards in episodes:
        gate.observe(rewards)
    return gate


def sparse() -> np.ndarray:
    return np.r_[np.zeros(STEPS - 1), 1.0]


def dense() -> np.ndarray:
    return np.linspace(0.1, 1.0, STEPS)


def noisy(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=STEPS)


def test_sparse_rewards_are_rare_late_and_smooth():
    gate = seen(*[sparse()] * 3)
    assert gate.density == pytest.approx(1 / STEPS)
    assert gate.delay == 1.0
    assert gate.noise == pytest.approx(0.0, abs=0.02)
    assert gate.participation > 0.95


def test_dense_rewards_leave_the_memory_its_least_part_and_more_the_later_they_come():
    even, rising, falling = seen(np.ones(STEPS)), seen(dense()), seen(dense()[::-1])
    assert even.density == rising.density == 1.0
    assert rising.delay == pytest.approx(np.average(np.arange(1, STEPS + 1), weights=dense()) / STEPS)
    assert rising.noise < 0.01
    assert even.participation == pytest.approx(PARTICIPATION["dense"], abs=0.01)
    assert falling.participation == pytest.approx(PARTICIPATION["dense"], abs=0.01)
    assert rising.participation == pytest.approx(1.0 - 0.8 * (2.0 - 2.0 * rising.delay), abs=0.02)


def test_of_a_structure_that_is_given_only_rare_rewards_are_very_sparse():
    for structure, wanted in (("sparse", 1.0), ("delayed", 1.0), ("dense", 0.0), ("noisy", 0.0)):
        assert seen(np.zeros(STEPS), structure=structure).very_sparse == wanted


def test_white_noise_is_told_from_a_dense_reward():
    gate = seen(*[noisy(seed) for seed in range(20)])
    assert gate.noise == pytest.approx(1.0, abs=0.1)
    assert gate.participation == pytest.approx(PARTICIPATION["noisy"], abs=0.1)


def test_a_reward_that_never_comes_is_very_sparse_and_one_in_a_hundred_steps_is_not():
    assert seen().very_sparse == 0.0  # nothing is known yet
    nothing = seen(np.zeros(STEPS))
    assert nothing.very_sparse == 1.0
    assert np.isnan(nothing.delay)
    assert nothing.participation == 1.0
    assert seen(sparse(), np.zeros(STEPS)).very_sparse == pytest.approx(0.5)
    assert seen(sparse()).very_sparse == 0.0


def test_only_the_latest_episodes_count():
    gate = seen(*[dense()] * 60, *[sparse()] * 50)
    assert gate.density == pytest.approx(1 / STEPS)


@pytest.mark.parametrize("structure", PARTICIPATION)
def test_a_given_structure_overrules_what_was_seen(structure):
    assert seen(dense(), noisy(0), structure=structure).participation == PARTICIPATION[structure]


def test_an_unknown_structure_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match=r"structure=spase is not known. Did you mean 'sparse'"):
        GateConfig(structure="spase")


def test_a_loaded_gate_goes_on_where_the_saved_one_was():
    gate, other = seen(dense(), noisy(1)), seen()
    other.load(gate.state())
    for each in (gate, other):
        each.observe(sparse())
    assert other.state() == gate.state()
    assert other.participation == gate.participation
