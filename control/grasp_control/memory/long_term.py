"""The long-term memory (E2-E6, E15): what is stored, drawn, retrieved and thrown away.

One thread writes; see `index` for what FAISS allows beside it.

Shapes: T steps of an episode, B batch, Q queries, K neighbours, W window width, A action dimension,
D embedding dimension.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from grasp_control.memory import persistence
from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.encoder import Encoder, WindowEncoder
from grasp_control.memory.eviction import surviving_rows
from grasp_control.memory.fetch import aligned
from grasp_control.memory.index import VectorIndex
from grasp_control.memory.remembered import Remembered
from grasp_control.memory.retrieval import GOOD, EmbeddingSpace, answer, recalled, support
from grasp_control.memory.rows import check_shapes, is_finite, packed_rows
from grasp_control.memory.score import Scorer
from grasp_control.memory.statistics import MemoryCounters, composition
from grasp_control.memory.store import RowStore
from grasp_control.memory.targets import label_sources
from grasp_control.memory.vae import VaeEncoder
from grasp_control.types import MemoryBatch, Retrieved, Source, Trajectory

_FIT_ROWS = 100_000
_ENCODE_ROWS = 20_000
_LEAST_PRIORITY = 1e-3  # Every row keeps a chance to be drawn.


class LongTermMemory:
    """Prioritised replay with retrieval over up to two million transitions."""

    def __init__(
        self,
        config: MemoryConfig,
        window_width: int,
        action_dim: int,
        rng: np.random.Generator,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make an empty memory.

        Args:
            config: settings.
            window_width: W.
            action_dim: A.
            rng: draws the encoder's first weights and the rows that answer late queries.
            clock: seconds, for the deadline of queries.
        """
        self.config = config
        self.window_width = window_width
        self.action_dim = action_dim
        self.counters = MemoryCounters()
        self.eviction_threshold = float("nan")
        """Least score with which an unprotected row survived the last cut; NaN before the first."""
        self.scorer = Scorer(config.embedding_dim, config.novelty_weight)
        self.store = RowStore(config.capacity, window_width, action_dim, config.embedding_dim)
        self.rng = rng
        self.clock = clock
        self._fresh: np.ndarray | None = None
        self.remembered = {name: Remembered(config.capacity) for name in ("successes", "later", "slips")}
        """What `recall` found for each row: for its window, for its bootstrap window, and among slips."""
        encoder = _new_encoder(config, window_width, rng)
        self.space = EmbeddingSpace.empty(encoder, self.store, self.store.embeddings, config, clock)

    def __len__(self) -> int:
        return len(self.store)

    @property
    def encoder(self) -> Encoder:
        """The encoder whose version every stored row and every query shares."""
        return self.space.encoder

    @property
    def success_rows(self) -> int:
        """Rows that `sample_successes` and `retrieve` draw on."""
        return len(self.store.group(Source.DEMO)) + len(self.store.group(Source.SUCCESS))

    def add(self, trajectory: Trajectory) -> int:
        """Store an episode and return its id; -1 if it holds NaN or infinity: it is counted, not stored.

        Until a critic has seen a row its TD term is the largest so far, so that new rows are drawn soon.
        """
        check_shapes(trajectory, self.window_width, self.action_dim)
        if not is_finite(trajectory):
            self.counters.rejected_episodes += 1
            return -1
        steps = len(trajectory.rewards)
        self._make_room(steps)
        sources = label_sources(trajectory, self.config.slip_lookback)
        store = self.store
        slots = store.take(steps, sources)
        for remembered in self.remembered.values():
            remembered.forget(slots)
        store.rows[slots, : store.width] = packed_rows(store, trajectory, self.config)

        embeddings, version = self.space.encoder.encode(store.rows[slots, store.window])
        store.embeddings[slots] = embeddings
        self.scorer.observe(embeddings)
        td_terms = np.full(steps, self.scorer.largest_td_term, np.float32)
        scores = td_terms + self.scorer.novelty_terms(embeddings)
        labels = {
            "episode": self.counters.episodes,
            "step": np.arange(steps),
            "source": sources,
            "success": trajectory.success,
            "slip": trajectory.slips,
            "gated": trajectory.gated,
            "td_term": td_terms,
            "score": scores,
            "version": version,
        }
        for name, values in labels.items():
            store.labels[name][slots] = values
        store.tree.update(slots, self._priorities(scores, sources))
        self.space.add(store.labels["id"][slots], sources, embeddings)

        driven = int(np.count_nonzero(trajectory.gated))
        self.counters.retrieval_driven += driven
        self.counters.retrieval_hits += driven * trajectory.success
        self.counters.episodes += 1
        self._fresh = None
        return self.counters.episodes - 1

    def sample(self, batch_size: int, rng: np.random.Generator) -> MemoryBatch:
        """Draw rows with replacement: `demo_fraction` of them demonstrations, `slip_fraction` slip rows (each
        only if there are any), the rest from all rows by priority. In random order: any part is a sample too.

        The importance weights undo the bias of priorities, not that of the two shares: those say what the
        objective shall weigh.
        """
        if not len(self):
            raise ValueError(f"a batch of {batch_size} was asked of an empty memory: add an episode first.")
        demos, slips = self.store.group(Source.DEMO), self.store.group(Source.SLIP)
        demo_count = round(batch_size * self.config.demo_fraction) if len(demos) else 0
        slip_count = round(batch_size * self.config.slip_fraction) if len(slips) else 0
        rest = batch_size - demo_count - slip_count
        slots = np.empty(batch_size, np.int64)
        weights = np.ones(batch_size, np.float32)
        if rest:
            drawn = slots[:rest] = self.store.tree.sample(rest, rng)
            mean_priority = self.store.tree.total / len(self)
            weights[:rest] = (mean_priority / self.store.tree[drawn]) ** self.config.beta
        slots[rest : rest + demo_count] = _uniform(demos, demo_count, rng)
        slots[rest + demo_count :] = _uniform(slips, slip_count, rng)
        weights /= weights.max()
        order = rng.permutation(batch_size)
        return self._batch(slots[order], weights[order])

    def sample_successes(self, batch_size: int, rng: np.random.Generator) -> MemoryBatch:
        """Draw uniformly, with replacement, from the rows of successful episodes that are no slip rows:
        demonstrations and the agent's own. Weights are 1."""
        demos, own = self.store.group(Source.DEMO), self.store.group(Source.SUCCESS)
        total = len(demos) + len(own)
        if not total:
            raise ValueError(
                f"a batch of {batch_size} successes was asked of a memory without any: check success_rows."
            )
        drawn = rng.integers(total, size=batch_size)
        slots = np.concatenate([own, demos])[drawn]
        return self._batch(slots, np.ones(batch_size, np.float32))

    def sample_fresh(self, batch_size: int, rng: np.random.Generator) -> MemoryBatch:
        """Draw uniformly, with replacement, from the latest `fresh_episodes` episodes: where the present
        policy leads. Weights are 1."""
        if self._fresh is None:
            labels, live = self.store.labels, self.store.live_slots()
            oldest = self.counters.episodes - self.config.fresh_episodes
            latest = live[labels["episode"][live] >= oldest]
            self._fresh = latest if len(latest) else live  # the latest may have been purged
        if batch_size and not len(self._fresh):
            raise ValueError(f"a batch of {batch_size} fresh rows was asked of an empty memory.")
        return self._batch(_uniform(self._fresh, batch_size, rng), np.ones(batch_size, np.float32))

    def update_scores(self, ids: np.ndarray, td_errors: np.ndarray, bonus: np.ndarray | None = None) -> int:
        """Score rows (B,) anew by their TD errors (B,), to which a `bonus` (B,) >= 0 may be added in units of
        the score (E14). Returns how many: rows evicted since they were drawn and TD errors that are not
        finite are left out."""
        ids, td_errors = np.asarray(ids), np.asarray(td_errors, np.float32)
        if ids.shape != td_errors.shape:
            raise ValueError(f"ids {ids.shape} and td_errors {td_errors.shape} do not match.")
        finite = np.isfinite(td_errors)
        self.counters.rejected_td_errors += len(ids) - int(np.count_nonzero(finite))
        slots = self.store.slots_of(ids)
        usable = finite & (slots >= 0)
        if not usable.all():
            slots, td_errors = slots[usable], td_errors[usable]
            bonus = None if bonus is None else bonus[usable]
        if not len(slots):
            return 0
        td_terms = self.scorer.td_terms(td_errors)
        if bonus is not None:
            td_terms += bonus
        scores = td_terms + self.scorer.novelty_terms(self.store.embeddings, slots)
        labels = self.store.labels
        labels["td_term"][slots] = td_terms
        labels["score"][slots] = scores
        self.store.tree.update(slots, self._priorities(scores, labels["source"][slots]))
        return len(slots)

    def retrieve(self, windows: np.ndarray, k: int) -> Retrieved:
        """The intended actions of the k nearest rows of successful episodes for (Q, W) windows.

        A query over the deadline is answered with random such rows; one with NaN or infinity with none.
        Without `config.retrieval` every answer is empty.
        """
        if not self.config.retrieval:
            return Retrieved.nothing(len(windows), k, self.action_dim)
        return self._answer(self.space.successes, GOOD, windows, k)

    def retrieve_slips(self, windows: np.ndarray, k: int) -> Retrieved:
        """As `retrieve`, among slip rows: what to keep away from, and the actions that led there (E15)."""
        return self._answer(self.space.slips, (Source.SLIP,), windows, k)

    def retrieve_repelled(self, windows: np.ndarray, k: int) -> Retrieved:
        """As `retrieve`; the slips nearby lower the `support` of actions like theirs (E15)."""
        found = self.retrieve(windows, k)
        return self._repelled(found, lambda: self.retrieve_slips(windows, k))

    def recall(self, ids: np.ndarray, windows: np.ndarray, k: int, *, later: bool = False) -> Retrieved:
        """As `retrieve`, for learning: near rows for the windows (B, W) of the held rows `ids` (B,), or with
        `later` for their bootstrap windows. An answer serves several draws of its row."""
        if not self.config.retrieval:
            return Retrieved.nothing(len(windows), k, self.action_dim)
        return self._recall("later" if later else "successes", GOOD, ids, windows, k)

    def recall_repelled(self, ids: np.ndarray, windows: np.ndarray, k: int) -> Retrieved:
        """As `retrieve_repelled`, for learning: see `recall`."""
        found = self.recall(ids, windows, k)
        return self._repelled(found, lambda: self._recall("slips", (Source.SLIP,), ids, windows, k))

    def _repelled(self, found: Retrieved, slips: Callable[[], Retrieved]) -> Retrieved:
        if not (self.config.slip_repulsion and found.valid.any() and len(self.space.slips)):
            return found
        return found._replace(support=support(found, slips(), self.config.slip_repulsion))

    def _answer(
        self, index: VectorIndex, sources: tuple[Source, ...], windows: np.ndarray, k: int
    ) -> Retrieved:
        encoder = self.space.encoder
        return answer(self.store, encoder, index, sources, windows, k, self.rng, self.counters)

    def _recall(
        self, name: str, sources: tuple[Source, ...], ids: np.ndarray, windows: np.ndarray, k: int
    ) -> Retrieved:
        slots = self.store.slots_of(ids)
        if (slots < 0).any():
            raise ValueError(f"{int((slots < 0).sum())} of {len(ids)} rows asked for are not held any more.")
        index = self.space.slips if name == "slips" else self.space.successes
        remembered = self.remembered[name]
        return recalled(self.store, self.encoder, index, sources, slots, windows, k, remembered)

    def refresh_encoder(self) -> None:
        """Fit the encoder to the stored windows, embed every row anew and swap all in at once (E4)."""
        store, live = self.store, self.store.live_slots()
        stride = -(-len(live) // _FIT_ROWS) or 1
        encoder = self.space.encoder.refit(store.rows[live[::stride], store.window])
        embeddings = aligned(*store.embeddings.shape)
        for start in range(0, len(live), _ENCODE_ROWS):
            slots = live[start : start + _ENCODE_ROWS]
            embeddings[slots] = encoder.encode(store.rows[slots, store.window])[0]
        shadow = EmbeddingSpace.empty(encoder, store, embeddings, self.config, self.clock)
        ordered = live[np.argsort(store.labels["id"][live])]
        shadow.add(store.labels["id"][ordered], store.labels["source"][ordered], embeddings[ordered])

        self.space, store.embeddings = shadow, embeddings
        for remembered in self.remembered.values():
            remembered.forget()
        self.scorer.recentre(embeddings[live])
        scores = store.labels["td_term"][live] + self.scorer.novelty_terms(embeddings, live)
        store.labels["score"][live] = scores
        store.labels["version"][live] = encoder.version
        store.tree.assign(live, self._priorities(scores, store.labels["source"][live]))

    def purge(self, ids: np.ndarray) -> int:
        """Throw rows away, for instance outliers (E13). Returns how many of `ids` were still held."""
        slots = self.store.slots_of(np.unique(ids))
        slots = slots[slots >= 0]
        self._discard(slots)
        return len(slots)

    def composition(self) -> dict[str, float]:
        """Rows and shares by source, slip and success: see `statistics.composition`."""
        return composition(self.store)

    def score_histogram(self, bins: int = 20) -> tuple[np.ndarray, np.ndarray]:
        """Counts (bins,) and edges (bins + 1,) of the scores held."""
        return np.histogram(self.store.labels["score"][self.store.live_slots()], bins)

    def hit_rate(self) -> float:
        """Share of retrieval-driven actions whose episode succeeded; NaN before the first."""
        return self.counters.hit_rate()

    def save(self, path: Path) -> None:
        """Write everything to one file, whole or not at all."""
        persistence.save(self, path)

    def load(self, path: Path) -> None:
        """Take over a saved memory: afterwards the same calls give the same answers.

        Raises MemoryFileError, leaving this memory as it was, if the file is damaged or does not fit.
        """
        persistence.load(self, path)
        self._fresh = None

    def _priorities(self, scores: np.ndarray, sources: np.ndarray) -> np.ndarray:
        raised = scores + self.config.demo_bonus * (sources == Source.DEMO)
        return (raised.astype(np.float64) + _LEAST_PRIORITY) ** self.config.alpha

    def _batch(self, slots: np.ndarray, weights: np.ndarray) -> MemoryBatch:
        store = self.store
        packed, labels = store.gather(slots)
        return MemoryBatch(
            ids=labels["id"],
            windows=packed[:, store.window],
            actions=packed[:, store.action],
            intended_actions=packed[:, store.intended_action],
            n_step_rewards=packed[:, store.n_step_reward],
            discounts=packed[:, store.discount],
            bootstrap_windows=packed[:, store.bootstrap_window],
            returns_to_go=packed[:, store.return_to_go],
            peak_forces=packed[:, store.peak_force],
            successes=labels["success"],
            sources=labels["source"],
            weights=weights,
        )

    def _make_room(self, steps: int) -> None:
        if steps <= self.store.free_count:
            return
        config, store = self.config, self.store
        live = store.live_slots()
        survive, self.eviction_threshold = surviving_rows(
            store.labels["score"][live],
            store.labels["source"][live],
            store.labels["id"][live],
            int(config.keep_share * config.capacity),
            int(config.demo_quota * config.capacity),
            int(config.slip_quota * config.capacity),
        )
        self._discard(live[~survive])
        self.counters.evictions += 1
        self.counters.evicted_rows += len(live) - int(survive.sum())
        if steps > store.free_count:
            raise ValueError(
                f"an episode of {steps} steps does not fit into a memory of capacity {config.capacity} "
                f"that keeps {len(store)} rows: raise memory.capacity."
            )

    def _discard(self, slots: np.ndarray) -> None:
        if not len(slots):
            return
        self.space.remove(self.store.labels["id"][slots])
        self.store.release(slots)
        self._fresh = None


def _new_encoder(config: MemoryConfig, window_width: int, rng: np.random.Generator) -> Encoder:
    if config.encoder == "vae":
        return VaeEncoder.create(
            window_width, config.embedding_dim, rng, beta=config.vae_beta, updates=config.vae_updates
        )
    return WindowEncoder.create(window_width, config.embedding_dim, rng)


def _uniform(slots: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    return slots[rng.integers(len(slots), size=count)] if count else slots[:0]
