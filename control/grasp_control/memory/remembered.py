"""Neighbours that a learner asked for before (E5).

A learner draws every row many times and each time needs the neighbours of the row's windows; to search for
them takes far longer than to draw. So an answer serves several draws of its row. Between two searches it is a
little out of date: what entered the memory since is missing, what left it is left out.

Shapes: N slots, B batch, K neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DRAWS = 8
"""Draws of a row that one answer serves."""


class Remembered:
    """The neighbours' ids of each slot's row, and how many draws they still serve."""

    def __init__(self, capacity: int) -> None:
        self._left = np.zeros(capacity, np.int8)
        self._ids = np.empty((capacity, 0), np.int64)

    def forget(self, slots: np.ndarray | None = None) -> None:
        """Ask anew for `slots` (B,), which hold other rows now, or for all."""
        self._left[slots if slots is not None else slice(None)] = 0

    def ids(self, slots: np.ndarray, k: int, search: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """(B, K) ids for rows at `slots` (B,); -1 where there are fewer.

        `search` answers (S, K) for those S of the B rows, a mask (B,), that have to be asked for.
        """
        if self._ids.shape[1] != k:
            self._ids = np.empty((len(self._left), k), np.int64)
            self.forget()
        due = self._left[slots] == 0
        if due.any():
            self._ids[slots[due]] = search(due)
            self._left[slots[due]] = DRAWS
        self._left[slots] -= 1
        return self._ids[slots]

    def state(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays from which `restore` goes on, of the rows at `slots`."""
        return {"ids": self._ids[slots], "left": self._left[slots]}

    def restore(self, slots: np.ndarray, state: dict[str, np.ndarray]) -> None:
        """Inverse of `state`."""
        self._ids = np.empty((len(self._left), state["ids"].shape[1]), np.int64)
        self.forget()
        self._ids[slots], self._left[slots] = state["ids"], state["left"]
