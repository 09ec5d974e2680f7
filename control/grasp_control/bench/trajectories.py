"""Made-up episodes of the lift task's size and shape, for measuring without a simulator.

Two kinds, since what an approximate search can reach depends on how vectors lie:

- `approach`: episodes follow one course (approach, descend, close, lift) from different starts with smooth
  deviations, as a policy's episodes do; few directions carry most of the variance.
- `walk`: every observation is a random walk of its own and actions are noise: harder than real episodes.

Shapes: E episodes, T steps, O observation dimension, A action dimension, C context, W = C * (O + A).
"""

from __future__ import annotations

import numpy as np

from grasp_control.memory.window import window_width
from grasp_control.types import Trajectory
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM

KINDS = ("approach", "walk")
STEPS = 52
CONTEXT = 4
WIDTH = window_width(CONTEXT, OBSERVATION_DIM, ACTION_DIM)

_COURSE_DIM = 6


def episode_arrays(kind: str, episodes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Windows (E, T + 1, W) and actions (E, T, A) of `episodes` episodes, float32."""
    if kind == "approach":
        # The course and its mapping are the task's: the same for every call.
        task = np.random.default_rng(0)
        course = task.standard_normal((STEPS + 1, _COURSE_DIM)).cumsum(axis=0) * 0.3
        to_observation = task.standard_normal((_COURSE_DIM, OBSERVATION_DIM))
        to_action = task.standard_normal((_COURSE_DIM, ACTION_DIM)) * 0.5
        fading = np.linspace(1, 0.2, STEPS + 1)[:, None]
        start = rng.standard_normal((episodes, 1, _COURSE_DIM)) * fading
        wander = rng.standard_normal((episodes, STEPS + 1, _COURSE_DIM)).cumsum(axis=1) * 0.05
        path = course + start + wander
        observations = path @ to_observation
        actions = np.tanh(
            np.diff(path, axis=1) @ to_action + 0.15 * rng.standard_normal((episodes, STEPS, ACTION_DIM))
        )
    else:
        observations = rng.standard_normal((episodes, STEPS + 1, OBSERVATION_DIM)).cumsum(axis=1)
        actions = rng.uniform(-1, 1, (episodes, STEPS, ACTION_DIM))
    observations = observations + 0.02 * rng.standard_normal(observations.shape)
    previous = np.concatenate([np.zeros((episodes, 1, ACTION_DIM)), actions], axis=1)
    pairs = np.concatenate([observations, previous], axis=2).astype(np.float32)
    index = np.maximum(np.arange(STEPS + 1)[:, None] + np.arange(1 - CONTEXT, 1)[None, :], 0)
    return pairs[:, index].reshape(episodes, STEPS + 1, WIDTH), actions.astype(np.float32)


def windows(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """(rows, W) windows of as many episodes as it takes."""
    parts, made = [], 0
    while made < rows:
        part = episode_arrays(kind, 1000, rng)[0].reshape(-1, WIDTH)[: rows - made]
        parts.append(part)
        made += len(part)
    return np.concatenate(parts)


def trajectories(kind: str, episodes: int, rng: np.random.Generator) -> list[Trajectory]:
    """Whole episodes: half of them successful, of those 5 % demonstrations; 2 % of the steps slip."""
    inputs, actions = episode_arrays(kind, episodes, rng)
    success = rng.random(episodes) < 0.5
    demonstration = success & (rng.random(episodes) < 0.05)
    slips = rng.random((episodes, STEPS)) < 0.02
    rewards = np.zeros((episodes, STEPS), np.float32)
    rewards[success, -1] = 1.0
    gated, forces = np.zeros(STEPS, np.bool_), np.zeros(STEPS, np.float32)
    return [
        Trajectory(
            inputs[e],
            actions[e],
            actions[e],
            rewards[e],
            slips[e],
            forces,
            bool(success[e]),
            bool(success[e]),
            bool(demonstration[e]),
            gated,
        )
        for e in range(episodes)
    ]
