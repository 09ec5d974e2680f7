"""Slips near a query speak against the actions that led to them (E15)."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.memory.retrieval import support
from grasp_control.types import Retrieved


def rows(actions: list[list[float]], distances: list[float]) -> Retrieved:
    """One query's neighbours."""
    valid = np.isfinite(distances)[None]
    return Retrieved(
        ids=np.arange(len(actions))[None],
        actions=np.array([actions], np.float32),
        returns=np.zeros((1, len(actions)), np.float32),
        distances=np.array([distances], np.float32),
        valid=valid,
        support=valid.astype(np.float32),
    )


GOOD = rows([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0])


def test_only_the_action_like_the_slips_is_pushed_away():
    away, kept = support(GOOD, rows([[1.0, 0.1]] * 3, [1.0] * 3), width=0.3)[0]
    assert away < 0.3
    assert kept > 0.99


def test_slips_far_away_say_nothing():
    assert support(GOOD, rows([[1.0, 0.0]], [20.0]), width=0.3)[0].tolist() == pytest.approx([1.0, 1.0])


def test_as_many_successes_as_slips_with_one_action_leave_half():
    same = rows([[0.5, 0.0]], [2.0])
    assert support(same, same, width=0.3)[0, 0] == pytest.approx(0.5)


def test_neighbours_that_do_not_exist_have_no_support_and_no_say():
    missing = rows([[1.0, 0.0], [0.0, 0.0]], [1.0, np.inf])
    nothing = rows([[0.0, 0.0]], [np.inf])
    assert support(missing, nothing, width=0.3)[0].tolist() == [1.0, 0.0]
    assert support(nothing, nothing, width=0.3)[0].tolist() == [0.0]


def test_a_memory_with_slips_answers_with_less_support_there(make_memory, make_episode):
    memory = make_memory(slip_lookback=0)
    episode = make_episode(success=True, slips=np.arange(20) == 7, intended_actions=np.zeros((20, 3)))
    memory.add(episode._replace(actions=np.full((20, 3), 0.1, np.float32)))
    found, slips = (ask(episode.windows[6:8], 4) for ask in (memory.retrieve_repelled, memory.retrieve_slips))
    assert (slips.actions[slips.valid] == np.float32(0.1)).all()  # what led to the slip is what was executed
    expected = support(found, slips, memory.config.slip_repulsion)
    np.testing.assert_array_equal(found.support, expected)
    assert (found.support < 0.95).all()
    indifferent = make_memory(slip_lookback=0, slip_repulsion=0.0)
    indifferent.add(episode)
    assert (indifferent.retrieve_repelled(episode.windows[6:8], 4).support == 1.0).all()
