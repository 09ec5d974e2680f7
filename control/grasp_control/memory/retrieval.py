"""Neighbours of the policy's situation among the stored rows (E4, E5, E15).

Shapes: B rows, Q queries, K neighbours, W window width, A action dimension, D embedding dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.encoder import Encoder
from grasp_control.memory.index import VectorIndex
from grasp_control.memory.remembered import Remembered
from grasp_control.memory.statistics import MemoryCounters
from grasp_control.memory.store import RowStore
from grasp_control.types import Retrieved, Source

GOOD = (Source.DEMO, Source.SUCCESS)
"""Rows worth imitating."""


@dataclass(frozen=True)
class EmbeddingSpace:
    """One encoder version and everything made with it: swapped as a whole, never mixed."""

    encoder: Encoder
    successes: VectorIndex
    """Rows of successful episodes."""
    slips: VectorIndex
    """Slip rows."""

    @classmethod
    def empty(
        cls,
        encoder: Encoder,
        store: RowStore,
        embeddings: np.ndarray,
        config: MemoryConfig,
        clock: Callable[[], float],
    ) -> EmbeddingSpace:
        """Empty indexes over `embeddings` (N, D), which `encoder` made of the slots of `store`."""

        def make() -> VectorIndex:
            return VectorIndex(
                encoder.dim,
                lambda ids: embeddings[store.slots_of(ids)],
                exact_below=config.exact_below,
                deadline_ms=config.deadline_ms,
                threads=config.index_threads,
                clock=clock,
            )

        return cls(encoder, make(), make())

    def add(self, ids: np.ndarray, sources: np.ndarray, embeddings: np.ndarray) -> None:
        """Index rows (B,), each where its source belongs."""
        good, slip = np.isin(sources, GOOD), sources == Source.SLIP
        self.successes.add(ids[good], embeddings[good])
        self.slips.add(ids[slip], embeddings[slip])

    def remove(self, ids: np.ndarray) -> None:
        """Take rows out, wherever they are."""
        self.successes.remove(ids)
        self.slips.remove(ids)


def answer(
    store: RowStore,
    encoder: Encoder,
    index: VectorIndex,
    sources: tuple[Source, ...],
    windows: np.ndarray,
    k: int,
    rng: np.random.Generator,
    counters: MemoryCounters,
) -> Retrieved:
    """The k nearest rows of `index` for (Q, W) windows.

    Late queries are answered with random rows of `sources`, those with NaN or infinity with none.
    """
    windows = np.asarray(windows, np.float32)
    if windows.ndim != 2 or windows.shape[1] != encoder.window_width:
        raise ValueError(f"windows {windows.shape} do not match (Q, {encoder.window_width}).")
    sound = np.isfinite(windows).all(axis=1)
    embedded, _ = encoder.encode(windows if sound.all() else np.where(sound[:, None], windows, 0.0))
    ids, distances, late = index.search(embedded, k)
    ids[~sound], late = -1, late & sound
    if late.any():
        pool = np.concatenate([store.group(source) for source in sources])
        slots = pool[rng.integers(len(pool), size=(int(late.sum()), k))]
        ids[late] = store.labels["id"][slots]
        distances[late] = np.linalg.norm(store.embeddings[slots] - embedded[late, None], axis=-1)
    found = gathered(store, sources, ids, distances)
    counters.queries += len(windows)
    counters.rejected_queries += int(np.count_nonzero(~sound))
    counters.fallbacks += int(np.count_nonzero(late))
    counters.empty += int(np.count_nonzero(sound & ~found.valid.any(axis=1)))
    return found


def recalled(
    store: RowStore,
    encoder: Encoder,
    index: VectorIndex,
    sources: tuple[Source, ...],
    slots: np.ndarray,
    windows: np.ndarray,
    k: int,
    remembered: Remembered,
) -> Retrieved:
    """Neighbours among `index` of windows (B, W) that belong to the rows at `slots` (B,), for a learner.

    They are near rows, not always the nearest: what is `remembered` may be a little out of date, and in a
    large index few lists are looked into. There is no deadline, as what is learned should not depend on how
    busy the machine is.
    """
    embedded, _ = encoder.encode(windows)
    ids = remembered.ids(slots, k, lambda due: index.search(embedded[due], k, coarse=True)[0])
    neighbours = store.slots_of(ids)
    distances = np.linalg.norm(store.embeddings[neighbours] - embedded[:, None], axis=-1)
    return gathered(store, sources, np.where(neighbours >= 0, ids, -1), distances)


def gathered(
    store: RowStore, sources: tuple[Source, ...], ids: np.ndarray, distances: np.ndarray
) -> Retrieved:
    """What is known of the neighbours `ids` (Q, K) at `distances` (Q, K); blank where there is none.

    The action of a success is the intended one, the better example; of a slip the executed one, which led
    to it.
    """
    slots = store.slots_of(ids)
    valid = slots >= 0
    # -1 would read the last row: invalid neighbours read row 0 instead, and what was read is blanked.
    rows = np.where(valid, slots, 0)
    actions = store.rows[rows, store.action if Source.SLIP in sources else store.intended_action]
    actions[~valid] = 0.0
    returns = np.where(valid, store.rows[rows, store.return_to_go], np.float32(0.0))
    distances = np.where(valid, distances, np.float32(np.inf))
    return Retrieved(ids, actions, returns, distances, valid, valid.astype(np.float32))


def support(found: Retrieved, slips: Retrieved, width: float) -> np.ndarray:
    """(Q, K): for each action in `found`, the successes' share of the evidence about it.

    Every neighbour speaks about an action the more, the nearer it is to the query and the nearer its own
    action is (Gaussian kernels: `width` in action units; the distance's is the query's mean distance to its
    successes). So what led to a slip in a situation pushes away the actions that resemble it there.
    """
    reach = np.where(found.valid, found.distances, 0.0).sum(axis=1)
    reach = np.maximum(reach / np.maximum(found.valid.sum(axis=1), 1), 1e-6)[:, None]

    def evidence(rows: Retrieved) -> np.ndarray:
        near = np.exp(-0.5 * np.square(np.where(rows.valid, rows.distances, np.inf) / reach))
        offsets = found.actions[:, :, None] - rows.actions[:, None]
        alike = np.exp(-0.5 * np.square(offsets / width).sum(axis=-1))
        return (alike * near[:, None]).sum(axis=-1)

    good, bad = evidence(found), evidence(slips)
    return np.where(found.valid, good / np.maximum(good + bad, 1e-12), 0.0).astype(np.float32)
