"""Windows that a policy bundle is tried on, and what its commands are compared with."""

from __future__ import annotations

import numpy as np

from grasp_sim.contract import ACTION_DIM, ActionScale, decode

_PROBES = 1000


def probes(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Windows (1000, W): near the statistics, far from them, and at the ends of what float32 holds."""
    rng = np.random.default_rng(0)  # always the same probes, so two checks of one bundle agree
    spread = 10.0 ** rng.uniform(-2.0, 2.0, size=(_PROBES, 1))
    windows = mean + std * spread * rng.standard_normal((_PROBES, len(mean)))
    extremes = np.array([0.0, 1e-30, 1.0, 1e4, 1e12, 1e30, np.finfo(np.float32).max])
    windows[-200:] = rng.choice(np.concatenate([-extremes, extremes]), size=(200, len(mean)))
    return windows.astype(np.float32)


def commands_of(actions: np.ndarray, scale: ActionScale) -> np.ndarray:
    """`contract.decode` of each row: actions (B, A) -> commands (B, 6) in m, m, m, rad, m, N, float64."""
    commands = [decode(action, scale) for action in actions]
    return np.array([[*c.delta_position, c.delta_yaw, c.opening, c.force_limit] for c in commands])


def command_difference_of(actions: np.ndarray, commands: np.ndarray, scale: ActionScale) -> float:
    """Largest |commands - contract.decode(actions)|, relative to each command's range; NaN if one is."""
    low, high = commands_of(np.stack([-np.ones(ACTION_DIM), np.ones(ACTION_DIM)]), scale)
    return float((np.abs(commands - commands_of(actions, scale)) / (high - low)).max())
