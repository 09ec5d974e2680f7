"""What an episode's steps become before they are stored: n-step targets, returns-to-go, labels.

Shapes: T steps.
"""

from __future__ import annotations

import numpy as np

from grasp_control.types import Source, Trajectory


def n_step_targets(
    rewards: np.ndarray, terminated: bool, n: int, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets of (T,) rewards.

    Returns:
        (T,) sums of up to n discounted rewards; (T,) discounts of the value to bootstrap from, gamma^m with
        m = min(n, steps left), 0 where the episode terminated within them (a time-out is no termination);
        (T,) int64 indices t + m of the bootstrap's window among the T + 1.
    """
    steps = len(rewards)
    sums = np.zeros(steps, np.float64)
    for offset in range(min(n, steps)):
        sums[: steps - offset] += gamma**offset * rewards[offset:]
    ends = np.minimum(np.arange(steps) + n, steps)
    discounts = gamma ** (ends - np.arange(steps)).astype(np.float64)
    if terminated:
        discounts[ends == steps] = 0.0
    return sums, discounts, ends


def peaks_within(values: np.ndarray, n: int) -> np.ndarray:
    """(T,) largest of the up to n of `values` (T,) from each step on."""
    ends = np.full(n - 1, -np.inf, values.dtype)
    return np.lib.stride_tricks.sliding_window_view(np.concatenate([values, ends]), n).max(axis=1)


def returns_to_go(rewards: np.ndarray, terminated: bool, gamma: float) -> np.ndarray:
    """(T,) discounted sums of (T,) rewards from each step to the end of the episode.

    They bound values from below. After a time-out more would have come: if that may be negative, as some of
    the rewards are, there is no bound, and all are minus infinity.
    """
    if not terminated and rewards.min() < 0.0:
        return np.full(len(rewards), -np.inf)
    returns = np.empty(len(rewards), np.float64)
    tail = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        tail = rewards[t] + gamma * tail
        returns[t] = tail
    return returns


def label_sources(trajectory: Trajectory, slip_lookback: int) -> np.ndarray:
    """(T,) int8 `Source` of each step.

    A step is SLIP when the object slips during it or within the `slip_lookback` steps after it, in whatever
    episode: what led to a slip is no example, even if the object was caught again. The other steps of a
    successful episode are DEMO where they were demonstrated, else SUCCESS; those of a failed one are ONLINE,
    demonstrated or not.
    """
    sources = np.full(len(trajectory.rewards), Source.ONLINE, np.int8)
    if trajectory.success:
        sources[:] = np.where(trajectory.demonstration, Source.DEMO, Source.SUCCESS)
    for slip in np.flatnonzero(trajectory.slips):
        sources[max(slip - slip_lookback, 0) : slip + 1] = Source.SLIP
    return sources
