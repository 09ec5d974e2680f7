"""The episodic memory of the grid world: whole episodes that succeeded, asked for what was done nearby.

Shapes: T steps of an episode, N rows, B batch.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from grasp_control.memory.targets import returns_to_go
from grasp_control.study.filter import RepeatedSuccess
from grasp_sim.grid import SIZE

REACH = 1
"""Cells, up and down plus left and right, within which a row is near. One-hot observations know only the same
and not the same, so the memory measures on the grid."""
LATEST = 100
"""Writes whose returns are shown as what the memory is made of."""


class Found(NamedTuple):
    """What is remembered near a cell."""

    action: int
    distance: int
    """Cells, 0 to `REACH`."""


class _Episode(NamedTuple):
    """What is kept of an episode."""

    total: float
    outcome: int
    cells: np.ndarray
    """(T,)."""
    actions: np.ndarray
    """(T,)."""
    returns: np.ndarray
    """(T,) to go."""


class EpisodicMemory:
    """Rows (cell, action, return-to-go) of successful episodes, those with the highest returns.

    An episode is written whole, when it is over: then the last reward has arrived, and every row is tagged
    with what came after it, however late (R7). With a filter, episodes are written while their outcome is
    trusted, and forgotten when it no longer is.
    """

    def __init__(self, capacity: int, discount: float, *, filtered: bool) -> None:
        """Hold `capacity` rows at most; `discount` is that of the return-to-go."""
        self._capacity, self._discount = capacity, discount
        self._filter = RepeatedSuccess() if filtered else None
        self._episodes: list[_Episode] = []
        self._cells = np.zeros(0, np.int64)
        self._actions = np.zeros(0, np.int64)
        self._returns = np.zeros(0)
        self.latest: deque[float] = deque(maxlen=LATEST)
        """Returns of the latest episodes written."""
        self.writes = 0
        self.refused = 0
        """Successful episodes that the filter kept out."""

    def __len__(self) -> int:
        return len(self._cells)

    def write(self, cells: np.ndarray, actions: np.ndarray, rewards: np.ndarray, outcome: int) -> bool:
        """Take in an episode that is over; true where it was kept.

        Args:
            cells: (T,) where each step began.
            actions: (T,).
            rewards: (T,) as they were paid.
            outcome: the cell in which it ended.
        """
        total = float(rewards.sum())
        if self._filter is not None:
            self._filter.observe(outcome, total)
            if not self._filter.trusts(outcome):
                self._forget(outcome)
                self.refused += total > 0.0
                return False
        if total <= 0.0:
            return False
        self._episodes.append(
            _Episode(total, outcome, cells, actions, returns_to_go(rewards, True, self._discount))
        )
        written = True
        while sum(len(episode.cells) for episode in self._episodes) > self._capacity:
            worst = min(range(len(self._episodes)), key=lambda number: self._episodes[number].total)
            written = worst != len(self._episodes) - 1  # of equals the oldest goes
            del self._episodes[worst]
        self._index()
        if written:
            self.latest.append(total)
            self.writes += 1
        return written

    def _forget(self, outcome: int) -> None:
        kept = [episode for episode in self._episodes if episode.outcome != outcome]
        if len(kept) < len(self._episodes):
            self._episodes = kept
            self._index()

    def _index(self) -> None:
        """Lay the rows of all episodes side by side."""
        empty = _Episode(0.0, 0, *(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float64)))
        held = self._episodes or [empty]
        self._cells = np.concatenate([episode.cells for episode in held])
        self._actions = np.concatenate([episode.actions for episode in held])
        self._returns = np.concatenate([episode.returns for episode in held])

    def retrieve(self, cell: int) -> Found | None:
        """Of the nearest rows the one after which most was to come; None where none is near."""
        if not len(self):
            return None
        across = np.abs(self._cells // SIZE - cell // SIZE) + np.abs(self._cells % SIZE - cell % SIZE)
        nearest = int(across.min())
        if nearest > REACH:
            return None
        best = int(np.argmax(np.where(across == nearest, self._returns, -math.inf)))
        return Found(int(self._actions[best]), nearest)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cells, actions and returns-to-go, each (B,), of rows drawn uniformly."""
        drawn = rng.integers(len(self), size=count)
        return self._cells[drawn], self._actions[drawn], self._returns[drawn]
