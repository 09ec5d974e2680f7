"""Nearest neighbours of the policy's situation (E5), with FAISS.

Few rows are searched exactly. More are searched by an inverted file with 8-bit scalar quantisation (IVF +
SQ8), retrained when the index has outgrown its lists; its candidates are ranked anew by their exact vectors,
so distances mean the same in both cases. The inverted file's own `add_with_ids` is used: wrapping it in an
`IndexIDMap2` corrupts ids on removal.

One writer, and no reader while it writes: FAISS guarantees nothing else.

Shapes: N indexed rows, B rows added, Q queries, K neighbours, D embedding dimension.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import faiss
import numpy as np

_NPROBE = 120
_COARSE_NPROBE = 8
_MOST_SCANNED = 55_000
"""Codes read per query at most. Where rows lie dense the lists are long: this bounds the slowest queries, and
the lists probed beyond the usual number find what lies between lists elsewhere."""
_GROWTH = 4
"""The lists are trained again when the index holds this many times the rows they were trained for."""
_ROWS_PER_LIST = 39
"""What FAISS asks for at least when it trains the coarse quantiser."""
_LEAST_LISTS = 4
_CANDIDATES = 4
"""Candidates per neighbour asked for, ranked anew by their exact vectors."""
_QUERIES_PER_DEADLINE = 64


class VectorIndex:
    """Ids and vectors with exact or approximate Euclidean search."""

    def __init__(
        self,
        dim: int,
        vectors_of: Callable[[np.ndarray], np.ndarray],
        *,
        exact_below: int = 20_000,
        deadline_ms: float = 50.0,
        threads: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make an empty index.

        Args:
            dim: D.
            vectors_of: gives the exact (B, D) vectors of (B,) indexed ids, for ranking and training anew.
            exact_below: rows under which search is exact.
            deadline_ms: queries taking longer are reported late.
            threads: OpenMP threads of FAISS, process-wide.
            clock: seconds; only differences count.
        """
        self.dim = dim
        self._vectors_of = vectors_of
        self._exact_below = exact_below
        self._deadline = deadline_ms / 1e3
        self._clock = clock
        self._count = 0
        self._ids = np.empty(256, np.int64)
        self._vectors: np.ndarray | None = np.empty((256, dim), np.float32)
        self._ivf: faiss.IndexIVF | None = None
        self._searcher: faiss.Index | None = None
        self._gpu: Any = None
        self._trained_for = 0
        faiss.omp_set_num_threads(threads)

    def __len__(self) -> int:
        return self._count

    @property
    def exact(self) -> bool:
        """Whether search is exact at the moment."""
        return self._ivf is None

    @property
    def ids(self) -> np.ndarray:
        """(N,) indexed ids, ascending."""
        return self._ids[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes held: ids and vectors, or ids and inverted lists (code and id) with their centroids."""
        if self._ivf is None or self._vectors is not None:
            return self._count * (8 + 4 * self.dim)
        return self._count * (8 + 8 + self._ivf.code_size) + self._ivf.nlist * self.dim * 4

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Add (B, D) finite float32 vectors under (B,) int64 ids, larger than all ids added before.

        Rising ids make duplicates impossible, which FAISS would take without a word.
        """
        if not len(ids):
            return
        if vectors.shape != (len(ids), self.dim):
            raise ValueError(f"vectors {vectors.shape} do not match {len(ids)} ids of dimension {self.dim}.")
        if not np.isfinite(vectors).all():
            raise ValueError("a vector to be indexed holds NaN or infinity.")
        last = self._ids[self._count - 1] if self._count else -1
        if ids[0] <= last or (np.diff(ids) <= 0).any():
            raise ValueError(f"ids must rise from row to row and lie above {last}; duplicates are refused.")
        self._reserve(self._count + len(ids))
        self._ids[self._count : self._count + len(ids)] = ids
        if self._vectors is not None:
            self._vectors[self._count : self._count + len(ids)] = vectors
        self._count += len(ids)
        if self._count >= self._exact_below and self._count > _GROWTH * self._trained_for:
            self._train()
        elif self._ivf is not None:
            self._add_to_lists(ids, vectors)

    def remove(self, ids: np.ndarray) -> None:
        """Remove those of `ids` that are indexed."""
        keep = ~np.isin(self.ids, ids)
        removed = self.ids[~keep]
        if not len(removed):
            return
        kept = self.ids[keep]
        if self._vectors is not None:
            self._vectors[: len(kept)] = self._vectors[: self._count][keep]
        self._ids[: len(kept)] = kept
        self._count = len(kept)
        if self._ivf is None:
            return
        if self._count < self._exact_below:
            self._make_exact()
        else:
            self._ivf.remove_ids(faiss.IDSelectorBatch(removed))
            self._publish(self._ivf)

    def search(
        self, queries: np.ndarray, k: int, *, coarse: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The k nearest rows of (Q, D) finite queries; `coarse` looks into few lists, for many queries that
        need a near row rather than the nearest.

        Returns:
            ids (Q, K) int64, -1 where there is no neighbour; Euclidean distances (Q, K), inf there; and late
            (Q,) bool: the answer took longer than the deadline and must not be waited for again. Up to 64
            queries share one deadline.
        """
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"queries {queries.shape} do not have the dimension {self.dim}.")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}.")
        if not np.isfinite(queries).all():
            raise ValueError("a query holds NaN or infinity.")
        queries = np.ascontiguousarray(queries, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        distances = np.full((len(queries), k), np.inf, np.float32)
        late = np.zeros(len(queries), np.bool_)
        found = min(k, self._count)
        if not found:
            return ids, distances, late
        for start in range(0, len(queries), _QUERIES_PER_DEADLINE):
            part = slice(start, start + _QUERIES_PER_DEADLINE)
            began = self._clock()
            squared, rows = self._search(queries[part], found, coarse)
            late[part] = self._clock() - began > self._deadline
            missing = rows < 0
            ids[part, :found] = rows
            distances[part, :found] = np.where(missing, np.inf, np.sqrt(np.maximum(squared, 0.0)))
        return ids, distances, late

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` makes an index that gives the same answers."""
        state = {"ids": self.ids, "trained_for": np.array([self._trained_for])}
        if self._ivf is not None:
            state["faiss"] = faiss.serialize_index(self._ivf)
        return state

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over a saved `state`; `vectors_of` must know its ids already."""
        self._count = len(state["ids"])
        self._ids = np.array(state["ids"])
        self._trained_for = int(state["trained_for"][0])
        if "faiss" in state:
            self._vectors = None
            self._publish(cast(faiss.IndexIVF, faiss.deserialize_index(state["faiss"])))
        else:
            self._make_exact()

    def _search(self, queries: np.ndarray, k: int, coarse: bool) -> tuple[np.ndarray, np.ndarray]:
        if self._vectors is not None:
            squared, positions = faiss.knn(queries, self._vectors[: self._count], k)
            return squared, np.where(positions >= 0, self._ids[positions], -1)
        assert self._searcher is not None
        few = faiss.SearchParametersIVF(nprobe=_COARSE_NPROBE) if coarse else None  # type: ignore[call-arg]
        ids = self._searcher.search(queries, min(_CANDIDATES * k, self._count), params=few)[1]
        missing = ids < 0
        candidates = self._vectors_of(np.where(missing, self._ids[0], ids).reshape(-1))
        offsets = candidates.reshape(*ids.shape, self.dim) - queries[:, None]
        squared = np.einsum("qcd,qcd->qc", offsets, offsets)
        squared[missing] = np.inf
        nearest = np.argsort(squared, axis=1)[:, :k]
        return np.take_along_axis(squared, nearest, axis=1), np.take_along_axis(ids, nearest, axis=1)

    def _reserve(self, count: int) -> None:
        if count <= len(self._ids):
            return
        size = max(count, 2 * len(self._ids))
        ids = np.empty(size, np.int64)
        ids[: self._count] = self.ids
        self._ids = ids
        if self._vectors is not None:
            vectors = np.empty((size, self.dim), np.float32)
            vectors[: self._count] = self._vectors[: self._count]
            self._vectors = vectors

    def _train(self) -> None:
        lists = min(list_count(self._count), self._count // _ROWS_PER_LIST)
        if lists < _LEAST_LISTS:
            return
        vectors = self._vectors[: self._count] if self._vectors is not None else self._vectors_of(self.ids)
        ivf = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatL2(self.dim), self.dim, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2
        )
        ivf.cp.niter = 10
        # Room around the range seen in training: later episodes may lie outside and would be clipped.
        ivf.sq.rangestat_arg = 0.5
        # Evenly spaced rows stand for all: k-means over every row would take minutes at two million.
        stride = max(1, self._count // (_ROWS_PER_LIST * lists))
        ivf.train(np.ascontiguousarray(vectors[::stride]))
        ivf.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(self.ids))
        self._vectors = None
        self._trained_for = self._count
        self._publish(ivf)

    def _add_to_lists(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        assert self._ivf is not None
        vectors, ids = np.ascontiguousarray(vectors, np.float32), np.ascontiguousarray(ids)
        self._ivf.add_with_ids(vectors, ids)
        if self._searcher is not self._ivf and self._searcher is not None:
            self._searcher.add_with_ids(vectors, ids)

    def _make_exact(self) -> None:
        self._ivf = self._searcher = None
        self._trained_for = 0
        self._vectors = np.empty((len(self._ids), self.dim), np.float32)
        self._vectors[: self._count] = self._vectors_of(self.ids)

    def _publish(self, ivf: faiss.IndexIVF) -> None:
        # Set here, as neither need be in a saved index.
        ivf.nprobe, ivf.max_codes = min(_NPROBE, ivf.nlist), _MOST_SCANNED
        # A GPU index cannot remove rows: the one on the CPU is the master, and a copy searches.
        self._ivf = self._searcher = ivf
        if faiss.get_num_gpus() > 0:
            self._gpu = self._gpu or faiss.StandardGpuResources()
            self._searcher = faiss.index_cpu_to_gpu(self._gpu, 0, ivf)


def list_count(rows: int) -> int:
    """Inverted lists for this many rows: the power of two at or above twice the root."""
    return 1 << int(np.ceil(np.log2(2.0 * np.sqrt(max(rows, 1)))))
