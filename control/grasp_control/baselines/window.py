"""The environment as a baseline sees it: the policy's window instead of a single observation.

Shapes: O observation dimension, A action dimension, C context, W = C * (O + A).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from grasp_control.memory.window import ShortTermMemory


class WindowEnv(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """Observations are the policy's input (W,) that EMPO2 gets: the last C observations and executed actions.

    At a time-out the observation is the true last window and only `truncated` is set, which is what
    Stable-Baselines3 bootstraps from. Of `info` only `is_success` is kept, the key that it reads: it copies
    the whole dictionary every step.
    """

    def __init__(self, env: gymnasium.Env, short_term: ShortTermMemory) -> None:
        """Take an environment of `grasp_sim.registry` and the window, which is reset with the episodes."""
        super().__init__(env)
        self._short_term = short_term
        assert env.observation_space.shape is not None
        assert env.action_space.shape is not None
        width = short_term.context * (env.observation_space.shape[0] + env.action_space.shape[0])
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; the window (W,) repeats the first observation."""
        observation, _ = self.env.reset(seed=seed, options=options)
        self._short_term.reset(observation)
        return self._short_term.policy_input(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step: window (W,), reward, terminated, truncated, info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._short_term.append(info["executed_action"], observation)
        window = self._short_term.policy_input()
        return window, float(reward), terminated, truncated, {"is_success": info["success"]}
