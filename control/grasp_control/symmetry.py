"""Augmentation of imitation batches by the task's symmetry about the vertical axis."""

from __future__ import annotations

import numpy as np

from grasp_control.types import MemoryBatch
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, rotate_about_vertical


def turned(batch: MemoryBatch, max_angle: float, rng: np.random.Generator) -> MemoryBatch:
    """`batch` with each row's window and actions turned by an angle of its own.

    The few starts that were demonstrated then stand for the same starts from other sides. Values and
    bootstrap windows stay: only imitation reads such a batch.

    Args:
        batch: B rows with windows of C pairs (observation, previous action).
        max_angle: rad; angles are uniform in +-max_angle.
        rng: draws the angles.
    """
    if max_angle == 0.0:
        return batch
    rows = len(batch.windows)
    angles = rng.uniform(-max_angle, max_angle, rows)
    pairs = batch.windows.reshape(rows, -1, OBSERVATION_DIM + ACTION_DIM)
    observations, previous = rotate_about_vertical(
        pairs[..., :OBSERVATION_DIM], pairs[..., OBSERVATION_DIM:], angles[:, None]
    )
    windows = np.concatenate([observations, previous], axis=-1).reshape(rows, -1)
    newest = observations[:, -1]
    _, executed = rotate_about_vertical(newest, batch.actions, angles)
    _, intended = rotate_about_vertical(newest, batch.intended_actions, angles)
    return batch._replace(windows=windows, actions=executed, intended_actions=intended)
