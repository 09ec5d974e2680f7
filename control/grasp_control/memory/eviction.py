"""Which rows survive when the memory is full (E6).

Shapes: N rows.
"""

from __future__ import annotations

import numpy as np

from grasp_control.types import Source


def surviving_rows(
    scores: np.ndarray, sources: np.ndarray, ids: np.ndarray, keep: int, demo_quota: int, slip_quota: int
) -> tuple[np.ndarray, float]:
    """Choose `keep` rows at most.

    Demonstrations survive whatever their score until there are more than `demo_quota`, of which the best
    remain; slip rows likewise with `slip_quota`. So neither is flushed, and neither takes over. All other
    rows compete for the places left.

    Args:
        scores: (N,) float32.
        sources: (N,) int8.
        ids: (N,) int64; of equal scores the higher id, the newer row, survives.
        keep: places in all, at least the sum of the quotas.
        demo_quota: places for demonstrations.
        slip_quota: places for slip rows.

    Returns:
        (N,) bool, and the threshold: the least score with which an unprotected row survived (inf if none).
    """
    demos, slips = sources == Source.DEMO, sources == Source.SLIP
    survive = np.zeros(len(scores), np.bool_)
    survive[_best(np.flatnonzero(demos), scores, ids, demo_quota)] = True
    survive[_best(np.flatnonzero(slips), scores, ids, slip_quota)] = True
    others = _best(np.flatnonzero(~demos & ~slips), scores, ids, keep - int(survive.sum()))
    survive[others] = True
    return survive, float(scores[others].min()) if len(others) else float("inf")


def _best(rows: np.ndarray, scores: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    if len(rows) <= count:
        return rows
    if count <= 0:
        return rows[:0]
    of_rows = scores[rows]
    threshold = np.partition(of_rows, len(rows) - count)[len(rows) - count]
    above = rows[of_rows > threshold]
    level = rows[of_rows == threshold]
    newest = level[np.argsort(ids[level])[len(level) - (count - len(above)) :]]
    return np.concatenate([above, newest])
