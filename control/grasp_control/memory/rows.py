"""What a finished episode becomes before it is stored: checked, and packed into rows.

Shapes: T steps, W window width, A action dimension, R values of a row.
"""

from __future__ import annotations

import numpy as np

from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.store import RowStore
from grasp_control.memory.targets import n_step_targets, peaks_within, returns_to_go
from grasp_control.types import Trajectory


def check_shapes(trajectory: Trajectory, window_width: int, action_dim: int) -> None:
    """Raise ValueError naming the first part of `trajectory` whose shape is wrong."""
    steps = len(trajectory.rewards)
    expected = {
        "windows": (steps + 1, window_width),
        "actions": (steps, action_dim),
        "intended_actions": (steps, action_dim),
        "rewards": (steps,),
        "forces": (steps,),
        "slips": (steps,),
        "gated": (steps,),
    }
    for name, shape in expected.items():
        if np.shape(getattr(trajectory, name)) != shape:
            raise ValueError(
                f"trajectory.{name} has shape {np.shape(getattr(trajectory, name))}, not {shape}."
            )
    if not steps:
        raise ValueError("an episode without steps cannot be stored.")


def is_finite(trajectory: Trajectory) -> bool:
    """No number in it is NaN or infinite."""
    parts = ("windows", "actions", "intended_actions", "rewards", "forces")
    return all(np.isfinite(getattr(trajectory, part)).all() for part in parts)


def packed_rows(store: RowStore, trajectory: Trajectory, config: MemoryConfig) -> np.ndarray:
    """(T, R) float32 values of the episode's rows, laid out as `store` says, with n-step targets ready."""
    rewards = np.asarray(trajectory.rewards, np.float64)
    sums, discounts, ends = n_step_targets(rewards, trajectory.terminated, config.n_step, config.gamma)
    packed = np.empty((len(rewards), store.width), np.float32)
    packed[:, store.window] = trajectory.windows[:-1]
    packed[:, store.bootstrap_window] = trajectory.windows[ends]
    packed[:, store.action] = trajectory.actions
    packed[:, store.intended_action] = trajectory.intended_actions
    packed[:, store.n_step_reward] = sums
    packed[:, store.discount] = discounts
    packed[:, store.return_to_go] = returns_to_go(rewards, trajectory.terminated, config.gamma)
    packed[:, store.peak_force] = peaks_within(trajectory.forces, config.n_step)
    return packed
