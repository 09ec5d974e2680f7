"""Filling the long-term memory with recorded and earlier episodes before training (E15).

Shapes: T steps, O observation dimension, A action dimension, C context, W = C * (O + A).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.window import episode_windows
from grasp_control.types import FORCE_COLUMN, Trajectory
from grasp_demos.episode import ACTORS, Episode


def trajectory_from_episode(episode: Episode, context: int) -> Trajectory:
    """What the memory stores of a recorded episode.

    Windows hold the executed actions, as they do when the policy acts; what is imitated is the episode's
    training action. Steps in which a policy acted, until a person took over, are no demonstration. A failed
    or broken-off recording has no success.

    Args:
        episode: T steps and T + 1 observations.
        context: C, pairs in a window.
    """
    steps = len(episode)
    return Trajectory(
        windows=episode_windows(episode.observations, episode.executed_actions, context),
        actions=episode.executed_actions,
        intended_actions=episode.training_actions,
        rewards=episode.rewards,
        slips=episode.slips | episode.drops,
        forces=episode.observations[1:, FORCE_COLUMN],
        terminated=bool(steps and episode.terminations[-1]),
        success=episode.is_demonstration,
        demonstration=episode.actors != ACTORS.index("policy"),
        gated=np.zeros(steps, np.bool_),
    )


def seed_memory(
    memory: LongTermMemory, episodes: Iterable[Episode], earlier: Iterable[Trajectory] = ()
) -> int:
    """Add recorded and earlier episodes and fit the encoder to them. Returns how many were stored.

    Episodes with NaN or infinity are refused and counted by the memory. Raises ValueError if the width of the
    memory's windows is no multiple of an episode's pair of observation and action.
    """
    stored = 0
    for episode in episodes:
        pair = episode.observations.shape[1] + episode.executed_actions.shape[1]
        context, remainder = divmod(memory.window_width, pair)
        if remainder or not context:
            raise ValueError(
                f"{episode}: {episode.observations.shape[1]} observations and "
                f"{episode.executed_actions.shape[1]} actions a step do not divide the memory's window of "
                f"{memory.window_width}: it was recorded for another task or contract."
            )
        stored += memory.add(trajectory_from_episode(episode, context)) >= 0
    stored += sum(memory.add(trajectory) >= 0 for trajectory in earlier)
    if stored:
        memory.refresh_encoder()
    return stored
