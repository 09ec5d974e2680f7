"""Short-term memory (E1): the last steps of one environment, and the policy's input made from them.

The policy's input is the last `context` pairs of (observation, action executed just before it), oldest first,
flattened. At the start of an episode the first observation is repeated with zero actions. Lift is not Markov
in one observation: how long the fingers have been closing does not show in it.

Shapes: T steps, O observation dimension, A action dimension, C context, W = C * (O + A).
"""

from __future__ import annotations

from collections import deque

import numpy as np

MIN_LENGTH, MAX_LENGTH = 10, 20


def window_width(context: int, observation_dim: int, action_dim: int) -> int:
    """Width W of the flattened policy input."""
    return context * (observation_dim + action_dim)


def episode_windows(observations: np.ndarray, actions: np.ndarray, context: int) -> np.ndarray:
    """Policy inputs of a whole episode.

    Args:
        observations: (T + 1, O).
        actions: (T, A), as executed.
        context: C, number of pairs in a window.

    Returns:
        (T + 1, W) float32, equal to what `ShortTermMemory.policy_input` gave at each step.
    """
    steps = len(observations)
    previous = np.concatenate([np.zeros((1, actions.shape[1]), np.float32), actions.astype(np.float32)])
    pairs = np.concatenate([observations.astype(np.float32), previous], axis=1)
    # Before the first step: the first observation again, with a zero action, which is pair 0 itself.
    index = np.maximum(np.arange(steps)[:, None] + np.arange(1 - context, 1)[None, :], 0)
    return pairs[index].reshape(steps, -1)


def newest_observations(windows: np.ndarray, action_dim: int, context: int) -> np.ndarray:
    """(T + 1, O): the newest observation of each of an episode's windows (T + 1, W)."""
    return windows.reshape(len(windows), context, -1)[:, -1, :-action_dim]


class ShortTermMemory:
    """The last `length` steps of one environment (E1)."""

    def __init__(self, observation_dim: int, action_dim: int, *, context: int = 4, length: int = 16) -> None:
        """Raise ValueError unless 10 <= length <= 20 and 1 <= context <= length."""
        if not MIN_LENGTH <= length <= MAX_LENGTH:
            raise ValueError(f"short-term memory length {length} is outside {MIN_LENGTH}-{MAX_LENGTH}.")
        if not 1 <= context <= length:
            raise ValueError(f"context {context} must lie between 1 and the memory's length {length}.")
        self.context = context
        self.length = length
        self._observation_dim = observation_dim
        self._action_dim = action_dim
        self._pairs: deque[np.ndarray] = deque(maxlen=length)

    def reset(self, observation: np.ndarray) -> None:
        """Begin an episode at `observation` (O,)."""
        self._pairs.clear()
        self._append(np.zeros(self._action_dim, np.float32), observation)

    def append(self, action: np.ndarray, next_observation: np.ndarray) -> None:
        """Add one step: the executed action (A,) and the observation (O,) that followed it."""
        if not self._pairs:
            raise RuntimeError("ShortTermMemory.append before reset: there is no first observation.")
        self._append(action, next_observation)

    def policy_input(self) -> np.ndarray:
        """(W,) float32: the newest `context` pairs, oldest first."""
        return self.last(self.context).reshape(-1)

    def last(self, steps: int) -> np.ndarray:
        """(steps, O + A): the newest pairs, oldest first, padded at the front with the oldest held."""
        if not self._pairs:
            raise RuntimeError("ShortTermMemory is empty: call reset with the first observation.")
        held = list(self._pairs)[-steps:]
        return np.stack([held[0]] * (steps - len(held)) + held)

    def _append(self, action: np.ndarray, observation: np.ndarray) -> None:
        pair = np.concatenate([observation, action]).astype(np.float32)
        if pair.shape != (self._observation_dim + self._action_dim,):
            raise ValueError(
                f"observation {np.shape(observation)} and action {np.shape(action)} do not match "
                f"({self._observation_dim},) and ({self._action_dim},)."
            )
        self._pairs.append(pair)
