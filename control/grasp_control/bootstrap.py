"""Interquartile means, their intervals, and comparisons of runs (Agarwal et al. 2021, arXiv:2108.13264).

Every bootstrap draws runs anew within each task, and is seeded: a report made again is the same.

Shapes: R runs (seeds), T tasks, P evaluation points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

REPEATS = 2000
"""Bootstrap samples of an interval."""


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def written(self, form: str) -> str:
        """As in "0.95 (0.91 to 0.98)", each number in the format `form`."""
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


def intervals(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean of (R, T, P) scores over runs and tasks, its 95 % interval's ends: each (P,)."""
    return _estimate([scores], _iqm)


def improvement(ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Probability that a run of `ours` (R,) is better than one of `theirs` (R',)."""

    def of_pair(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        better, equal = x[:, None, 0] > y[None, :, 0], x[:, None, 0] == y[None, :, 0]
        return np.array([better.mean() + 0.5 * equal.mean()])

    return _of_one(_estimate([ours[:, None], theirs[:, None]], of_pair))


def difference(ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Interquartile mean of `ours` (R,) less that of `theirs` (R',)."""
    pair = [ours[:, None, None], theirs[:, None, None]]
    return _of_one(_estimate(pair, lambda x, y: _iqm(x) - _iqm(y)))


def _iqm(sample: np.ndarray) -> np.ndarray:
    """Mean (P,) of the middle half of (R, T, P)."""
    ordered = np.sort(sample.reshape(-1, sample.shape[-1]), axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def _of_one(answer: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Estimate:
    return Estimate(*(float(part[0]) for part in answer))


def _estimate(
    scores: list[np.ndarray], function: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`function` of the `scores`, each (R, T, ...), and the ends of its percentile interval: each (P,)."""
    rng = np.random.default_rng(0)

    def redrawn(one: np.ndarray) -> np.ndarray:
        runs = rng.integers(len(one), size=one.shape[:2])
        return one[runs, np.arange(one.shape[1])]

    samples = np.array([function(*map(redrawn, scores)) for _ in range(REPEATS)])
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    return function(*scores), low, high
