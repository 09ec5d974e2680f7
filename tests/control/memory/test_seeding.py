"""Seeding from recorded episodes."""

from dataclasses import replace

import numpy as np
import pytest

from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.seeding import seed_memory, trajectory_from_episode
from grasp_control.memory.window import ShortTermMemory
from grasp_control.types import Source
from grasp_demos.episode import Episode, Metadata
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, ActionScale

CONTEXT = 4


def make_episode(kind="clean", success=True, steps=12, seed=0):
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (3, steps, ACTION_DIM)).astype(np.float32)
    flags = np.zeros((4, steps), np.bool_)
    flags[0, -1] = success
    return Episode(
        metadata=Metadata("lift", "servo", ActionScale(), kind=kind, success=success),
        states=np.zeros((steps + 1, 1)),
        observations=rng.standard_normal((steps + 1, OBSERVATION_DIM)).astype(np.float32),
        intended_actions=actions[0],
        requested_actions=actions[1],
        executed_actions=actions[2],
        rewards=flags[0].astype(np.float32),
        terminations=flags[0],
        truncations=flags[1],
        slips=flags[2],
        drops=flags[3],
        actors=np.zeros(steps, np.uint8),
        simulator_states=np.zeros((steps + 1, 0)),
    )


def new_memory(width=CONTEXT * (OBSERVATION_DIM + ACTION_DIM)):
    return LongTermMemory(MemoryConfig(capacity=1000), width, ACTION_DIM, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["clean", "human-like"])
def test_a_recording_becomes_what_acting_would_have_given(kind):
    episode = make_episode(kind)
    trajectory = trajectory_from_episode(episode, CONTEXT)
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=CONTEXT)
    short_term.reset(episode.observations[0])
    np.testing.assert_array_equal(trajectory.windows[0], short_term.policy_input())
    for t in range(len(episode)):
        short_term.append(episode.executed_actions[t], episode.observations[t + 1])
        np.testing.assert_array_equal(trajectory.windows[t + 1], short_term.policy_input())
    imitated = episode.intended_actions if kind == "clean" else episode.executed_actions
    np.testing.assert_array_equal(trajectory.intended_actions, imitated)
    np.testing.assert_array_equal(trajectory.actions, episode.executed_actions)
    assert trajectory.terminated
    assert np.all(trajectory.demonstration)
    assert trajectory.success


def test_drops_count_as_slips():
    episode = make_episode()
    episode.slips[3] = episode.drops[5] = True
    assert np.flatnonzero(trajectory_from_episode(episode, CONTEXT).slips).tolist() == [3, 5]


def test_seeding_labels_counts_and_fits_the_encoder():
    memory = new_memory()
    bad = make_episode(seed=1)
    bad.observations[2, 0] = np.nan
    failed = make_episode(success=False, seed=2)
    assert seed_memory(memory, [make_episode(), bad, failed]) == 2
    assert memory.counters.rejected_episodes == 1
    assert memory.encoder.version == 1
    assert [len(memory.store.group(source)) for source in Source] == [12, 0, 12, 0]


def test_a_recording_broken_off_is_no_success():
    episode = make_episode()
    broken = replace(episode, metadata=replace(episode.metadata, complete=False))
    assert not trajectory_from_episode(broken, CONTEXT).success


def test_episodes_of_another_task_are_refused():
    with pytest.raises(ValueError, match="do not divide the memory's window of 70"):
        seed_memory(new_memory(width=70), [make_episode()])
    memory = new_memory()
    assert seed_memory(memory, []) == 0
    assert memory.encoder.version == 0
