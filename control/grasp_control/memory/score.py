"""The score of a memory row (E3): surprise of the critics plus novelty of the situation.

    score = 0.6 * |TD| / scale + w * (1 - cos(z', z_mean'))

`w` is the setting memory.novelty_weight. `scale` is a running mean of |TD|, so that the first term is about
0.6 whatever the rewards' units are.

Where the cosine's origin lies decides what it means. z is standardised, so its mean lies near the origin, and
the angle between a vector and a mean of almost no length is noise; without centring, features that never
change would dominate and every angle would be about zero. So both vectors get one more, constant component
as long as a typical z: z' = [z, sqrt(D)]. Then the cosine is 1 at the mean, 0.7 at a typical distance from it
and falls smoothly towards 0 (opposite to the mean: below) for what was never seen.

Shapes: B batch, D embedding dimension.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from grasp_control.memory.fetch import AHEAD, prefetch_row

TD_WEIGHT = 0.6

_TD_RATIO_LIMIT = 10.0  # One diverged critic must not decide the order of the whole memory.
_SCALE_RATE = 0.01
_LEAST_SCALE = 1e-8
_MEAN_HORIZON = 20_000  # rows


@njit(cache=True, fastmath=True)
def _novelty(z: np.ndarray, rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    dim = mean.size
    offset = np.float32(dim)  # The square of the constant component.
    mean_norm = offset
    for j in range(dim):
        mean_norm += mean[j] * mean[j]
    out = np.empty(rows.size, np.float32)
    for i in range(rows.size):
        if i + AHEAD < rows.size:
            prefetch_row(z, rows[i + AHEAD])
        row = rows[i]
        dot = offset
        norm = offset
        for j in range(dim):
            value = z[row, j]
            dot += value * mean[j]
            norm += value * value
        out[i] = np.float32(1.0) - dot / np.sqrt(norm * mean_norm)
    return out


def novelty(z: np.ndarray, mean: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """1 - cos(z', mean') of (B, D) embeddings, or of `rows` of them; (B,) float32 in 0-2."""
    return _novelty(z, np.arange(len(z)) if rows is None else rows, mean)


class Scorer:
    """The running quantities of the score: mean embedding and scale of |TD|."""

    def __init__(self, dim: int, novelty_weight: float) -> None:
        self.novelty_weight = novelty_weight
        self.mean = np.zeros(dim, np.float32)
        """(D,) moving average of z over about the last 20,000 rows; exact until there are as many."""
        self.mean_rows = 0
        """Rows that entered the average."""
        self.td_scale = 0.0
        """Running mean of |TD|; 0 before the first batch."""
        self.largest_td_term = TD_WEIGHT
        """The TD term given to rows no critic has seen yet: the largest so far."""

    def observe(self, z: np.ndarray) -> None:
        """Let (B, D) new embeddings enter the average."""
        rows = len(z)
        self.mean_rows += rows
        rate = max(rows / self.mean_rows, 1.0 - math.exp(-rows / _MEAN_HORIZON))
        self.mean += np.float32(rate) * (z.mean(axis=0) - self.mean)

    def recentre(self, z: np.ndarray) -> None:
        """Start the average again from all embeddings (B, D) of a new encoder."""
        self.mean = z.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.mean_rows = len(z)

    def td_terms(self, td_errors: np.ndarray) -> np.ndarray:
        """First term of the score for (B,) finite TD errors; they enter the running scale first."""
        magnitude = np.abs(td_errors)
        mean = float(magnitude.mean())
        self.td_scale = self.td_scale + _SCALE_RATE * (mean - self.td_scale) if self.td_scale else mean
        terms = TD_WEIGHT * np.minimum(magnitude / max(self.td_scale, _LEAST_SCALE), _TD_RATIO_LIMIT)
        self.largest_td_term = max(self.largest_td_term, float(terms.max()))
        return terms.astype(np.float32, copy=False)

    def novelty_terms(self, z: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Second term of the score for (B, D) embeddings, or for `rows` of them."""
        return self.novelty_weight * novelty(z, self.mean, rows)
