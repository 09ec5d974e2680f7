"""Rows of the memory that lie far from everything else (E13).

A row is judged by the length of its embedding z. z is standardised over the memory, so an ordinary row's
length is near sqrt(D), and a window that is absurd throughout is many times as long. One absurd value in an
ordinary window is not found: the encoder limits what a single value can do, here as in retrieval. The median
does not move as long as fewer than half of the rows are absurd.
"""

from __future__ import annotations

import numpy as np

from grasp_control.memory.store import RowStore
from grasp_control.types import Source


def outlier_ids(store: RowStore, ratio: float) -> np.ndarray:
    """(N,) ids of rows whose embedding is longer than `ratio` times the median length.

    Demonstrations are left out: they were checked when they were read, and there are few of them.
    """
    slots = store.live_slots()
    if not len(slots):
        return np.empty(0, np.int64)
    lengths = np.linalg.norm(store.embeddings[slots], axis=1)
    far = lengths > ratio * np.median(lengths)
    own = store.labels["source"][slots] != Source.DEMO
    return store.labels["id"][slots[far & own]]
