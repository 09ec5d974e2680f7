"""Whole episodes from the rows of a memory, with which another run can begin (E15).

Shapes: T steps, W window width, A action dimension, C context, W = C * (O + A).
"""

from __future__ import annotations

import numpy as np

from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.targets import n_step_targets
from grasp_control.memory.window import newest_observations
from grasp_control.types import FORCE_COLUMN, Source, Trajectory

_TOLERANCE = 1e-5
"""Of the largest return: returns and sums were rounded to float32 when they were stored."""


def successful_episodes(memory: LongTermMemory, context: int) -> tuple[list[Trajectory], int]:
    """The successful episodes of `memory` in the order in which they were stored.

    Demonstrations stay demonstrations, the agent's own successes stay its own. No step counts as driven by
    retrieval: that memory's hits are none of the next one's.

    Args:
        memory: whose rows were written by `LongTermMemory.add`.
        context: C.

    Returns:
        The episodes of which every row is still there, and how many were left out since rows are missing.

    Raises ValueError if the rewards that follow from an episode's returns do not give its stored n-step
    rewards and discounts.
    """
    labels = memory.store.labels
    slots = memory.store.live_slots()
    slots = slots[labels["success"][slots]]
    slots = slots[np.lexsort((labels["step"][slots], labels["episode"][slots]))]
    firsts = np.flatnonzero(np.diff(labels["episode"][slots])) + 1
    episodes = [_rebuild(memory, part, context) for part in np.split(slots, firsts) if len(part)]
    whole = [episode for episode in episodes if episode is not None]
    return whole, len(episodes) - len(whole)


def _rebuild(memory: LongTermMemory, slots: np.ndarray, context: int) -> Trajectory | None:
    """The episode whose rows are `slots` (T,), ascending by step; None if some of its rows are missing."""
    store = memory.store
    rows, labels = store.rows[slots], store.labels[slots]
    actions = rows[:, store.action]
    windows = np.concatenate([rows[:, store.window], rows[-1:, store.bootstrap_window]])
    if not np.array_equal(labels["step"], np.arange(len(slots))):
        return None
    # Only an episode's last row bootstraps from the very next window; from an earlier one it lies further on.
    if not _follows(windows[-2], actions[-1], windows[-1], context):
        return None
    gamma = memory.config.gamma
    returns = rows[:, store.return_to_go].astype(np.float64)
    rewards = returns - gamma * np.append(returns[1:], 0.0)
    terminated = bool(rows[-1, store.discount] == 0.0)
    sums, discounts, _ = n_step_targets(rewards, terminated, memory.config.n_step, gamma)
    tolerance = _TOLERANCE * max(1.0, float(np.abs(returns).max()))
    if not (
        np.allclose(sums, rows[:, store.n_step_reward], rtol=0.0, atol=tolerance)
        and np.allclose(discounts, rows[:, store.discount], rtol=0.0, atol=_TOLERANCE)
    ):
        raise ValueError(
            f"episode {labels['episode'][0]}: the rewards that follow from its returns do not give its "
            f"{memory.config.n_step}-step rewards"
        )
    return Trajectory(
        windows=windows,
        actions=actions,
        intended_actions=rows[:, store.intended_action],
        rewards=rewards.astype(np.float32),
        slips=labels["slip"],
        forces=newest_observations(windows, memory.action_dim, context)[1:, FORCE_COLUMN],
        terminated=terminated,
        success=True,
        demonstration=labels["source"] == Source.DEMO,
        gated=np.zeros(len(slots), np.bool_),
    )


def _follows(window: np.ndarray, action: np.ndarray, following: np.ndarray, context: int) -> bool:
    """Whether `following` (W,) is the window one step after `window` (W,), when `action` (A,) was sent."""
    pairs, later = window.reshape(context, -1), following.reshape(context, -1)
    return np.array_equal(pairs[1:], later[:-1]) and np.array_equal(later[-1, -len(action) :], action)
