"""Rows of the long-term memory and the sum tree that draws them by priority.

A row is one packed float32 vector, so that a draw of 1024 rows touches each row's memory once. Slots are
freed in bulk (eviction) and refilled in ascending order; an id is `generation * capacity + slot`, and the
generation rises with every bulk release. So ids rise from row to row, are never used twice, and the slot of
an id is a remainder.

Shapes: N capacity, B batch, W window width, A action dimension, D embedding dimension.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from grasp_control.memory.fetch import LINE, aligned, gather, prefetch
from grasp_control.types import Source


@njit(cache=True)
def _set_leaves(tree: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    nodes = slots + tree.size // 2
    for i in range(nodes.size):
        tree[nodes[i]] = values[i]
    count, width = nodes.size, tree.size // 2
    while width > 1:
        # Neighbours share parents: with slots in order the work halves towards the root. A parent is formed
        # anew from its children, so rounding never accumulates and duplicates do no harm.
        kept, last = 0, np.int64(-1)
        for i in range(count):
            parent = nodes[i] >> 1
            nodes[kept] = parent
            kept += parent != last
            last = parent
        count = kept
        for i in range(count):
            tree[nodes[i]] = tree[2 * nodes[i]] + tree[2 * nodes[i] + 1]
        width >>= 1


@njit(cache=True)
def _rebuild(tree: np.ndarray) -> None:
    for node in range(tree.size // 2 - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@njit(cache=True)
def _find(tree: np.ndarray, targets: np.ndarray) -> np.ndarray:
    # Level by level for the whole batch: by the time a level is read, what the level before asked for has
    # arrived. Without branches, as half of them would be mispredicted; unsigned, as numba then leaves out
    # its care for negative indices.
    leaves = tree.size // 2
    nodes = np.ones(targets.size, np.uint64)
    width = 1
    while width < leaves:
        for i in range(nodes.size):
            left = nodes[i] << np.uint64(1)
            mass = tree[left]
            target = targets[i]
            right = target >= mass
            node = left + np.uint64(right)
            nodes[i] = node
            targets[i] = target - mass if right else target
            prefetch(tree.ctypes.data + np.int64(node << np.uint64(4)))
        width *= 2
    for i in range(nodes.size):
        # Rounding can push a target past the last mass below a node: the leaf with mass before it is meant.
        while tree[nodes[i]] == 0.0:
            nodes[i] -= np.uint64(1)
    return nodes.view(np.int64) - leaves


LABELS = np.dtype(
    [
        ("id", np.int64),  # -1 where the slot is free
        ("episode", np.int64),
        ("step", np.int32),
        ("version", np.int32),  # of the encoder that made the embedding
        ("td_term", np.float32),
        ("score", np.float32),
        ("source", np.int8),
        ("success", np.bool_),  # of the row's episode
        ("slip", np.bool_),  # during this very step
        ("gated", np.bool_),
    ],
    align=True,
)
"""What is known about a row besides its values: one record, so one cache line."""


class SumTree:
    """Priorities of N slots, drawn in proportion to them. Float64, as sums over a million float32 drift."""

    def __init__(self, capacity: int) -> None:
        leaves = 1 << max(capacity - 1, 1).bit_length()
        self._tree = np.empty(2 * leaves)  # Unlike `zeros`, this gets huge pages: far fewer TLB misses.
        self._tree[:] = 0.0
        self._leaves = leaves

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._tree[1])

    def __getitem__(self, slots: np.ndarray) -> np.ndarray:
        """Priorities (B,) of `slots`."""
        return self._tree[self._leaves + slots]

    def update(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities (B,) >= 0 of `slots` (B,); of duplicates the last counts."""
        _set_leaves(self._tree, slots, priorities)

    def assign(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Set `slots` and put every other slot to zero."""
        self._tree[:] = 0.0
        self._tree[self._leaves + slots] = priorities
        _rebuild(self._tree)

    def sample(self, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """(B,) slots, one from each of B equal parts of the total mass (stratified, lower variance)."""
        if not self.total > 0:
            raise ValueError("no slot has a priority above zero: there is nothing to draw.")
        targets = (np.arange(batch_size) + rng.random(batch_size)) * (self.total / batch_size)
        return _find(self._tree, targets)


class RowStore:
    """Fixed-capacity rows with their labels. Large arrays are only reserved; writing commits their pages."""

    def __init__(self, capacity: int, window_width: int, action_dim: int, embedding_dim: int) -> None:
        self.capacity = capacity
        w, a = window_width, action_dim
        self.window = slice(0, w)
        self.bootstrap_window = slice(w, 2 * w)
        self.action = slice(2 * w, 2 * w + a)
        self.intended_action = slice(2 * w + a, 2 * w + 2 * a)
        scalars = range(2 * w + 2 * a, 2 * w + 2 * a + 4)
        self.n_step_reward, self.discount, self.return_to_go, self.peak_force = scalars
        self.width = scalars.stop
        self.rows = aligned(capacity, -(-4 * self.width // LINE) * LINE // 4)
        """(N, R): `width` values each, padded to whole cache lines."""
        self.embeddings = aligned(capacity, embedding_dim)
        self.labels = np.empty(capacity, LABELS)
        """(N,) records of `LABELS`."""
        self.labels["id"] = -1
        self.tree = SumTree(capacity)
        self.generation = 0
        self._free = np.arange(capacity)
        self._cursor = 0
        self._groups = [_SlotList() for _ in Source]

    def __len__(self) -> int:
        return self.capacity - self.free_count

    @property
    def free_count(self) -> int:
        """Slots that can be taken before rows must be released."""
        return len(self._free) - self._cursor

    @property
    def row_bytes(self) -> int:
        """Bytes one row takes: values, labels, embedding, priority (two tree nodes) and group entry."""
        return 4 * (self.rows.shape[1] + self.embeddings.shape[1]) + LABELS.itemsize + 2 * 8 + 8

    def group(self, source: Source) -> np.ndarray:
        """Slots of the rows of `source`, in the order of their ids."""
        return self._groups[source].slots

    def live_slots(self) -> np.ndarray:
        """Taken slots in ascending order."""
        return np.flatnonzero(self.labels["id"] >= 0)

    def gather(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B, width) packed rows and (B,) labels of `slots` (B,)."""
        words = self.labels.view(np.int64).reshape(self.capacity, -1)
        labels = gather(words, slots, words.shape[1]).view(LABELS)[:, 0]
        return gather(self.rows, slots, self.width), labels

    def take(self, count: int, sources: np.ndarray) -> np.ndarray:
        """Reserve `count` slots for rows of `sources` (count,) and give them ids; returns the slots."""
        slots = self._free[self._cursor : self._cursor + count]
        if len(slots) < count:
            raise ValueError(f"{count} slots asked of a store with {self.free_count} free ones.")
        self._cursor += count
        self.labels["id"][slots] = self.generation * self.capacity + slots
        self.labels["source"][slots] = sources
        for source in np.unique(sources):
            self._groups[source].extend(slots[sources == source])
        return slots

    def release(self, slots: np.ndarray) -> None:
        """Free `slots`; their ids become stale."""
        self.labels["id"][slots] = -1
        self.tree.update(slots, np.zeros(len(slots)))
        self._restart()

    def slots_of(self, ids: np.ndarray) -> np.ndarray:
        """Slots of `ids`; -1 where the id is stale, was never given or is -1."""
        slots = ids % self.capacity
        return np.where((ids >= 0) & (self.labels["id"][slots] == ids), slots, -1)

    def restore(self, ids: np.ndarray, generation: int, free: np.ndarray) -> np.ndarray:
        """Take over saved ids, their slots and the order of free slots; returns the slots of `ids`.

        Rows, labels and priorities of those slots are the caller's to fill, labels before `regroup`.
        """
        slots = ids % self.capacity
        self.labels["id"][:] = -1
        self.labels["id"][slots] = ids
        self.generation, self._free, self._cursor = generation, free, 0
        return slots

    def remaining_free(self) -> np.ndarray:
        """Free slots in the order in which they will be taken."""
        return self._free[self._cursor :]

    def regroup(self) -> None:
        """Form the groups from the labels."""
        live = self.live_slots()
        live = live[np.argsort(self.labels["id"][live])]
        for source, group in zip(Source, self._groups, strict=True):
            group.replace(live[self.labels["source"][live] == source])

    def _restart(self) -> None:
        for group in self._groups:
            group.replace(group.slots[self.labels["id"][group.slots] >= 0])
        self._free = np.flatnonzero(self.labels["id"] < 0)
        self._cursor = 0
        self.generation += 1


class _SlotList:
    """A list of slots that grows by doubling, so that a uniform draw is one look-up."""

    def __init__(self) -> None:
        self._data = np.empty(64, np.int64)
        self._count = 0

    @property
    def slots(self) -> np.ndarray:
        return self._data[: self._count]

    def extend(self, slots: np.ndarray) -> None:
        needed = self._count + len(slots)
        if needed > len(self._data):
            grown = np.empty(max(needed, 2 * len(self._data)), np.int64)
            grown[: self._count] = self.slots
            self._data = grown
        self._data[self._count : needed] = slots
        self._count = needed

    def replace(self, slots: np.ndarray) -> None:
        self._data, self._count = np.array(slots, np.int64), len(slots)
