"""`grasp-bench memory`: how fast and how exact the long-term memory is on this machine.

Vectors are made up (see `bench.trajectories`); rows are as wide as those of the lift task.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np

from grasp_control.bench.measure import Figure, latency, load_per_core, once, show, timings, write_csv
from grasp_control.bench.trajectories import KINDS, STEPS, WIDTH, trajectories, windows
from grasp_control.empo2.config import MAX_BATCH
from grasp_control.memory.config import MAX_CAPACITY, MemoryConfig
from grasp_control.memory.encoder import WindowEncoder
from grasp_control.memory.index import VectorIndex
from grasp_control.memory.long_term import LongTermMemory
from grasp_sim.cli import require_at_least, require_at_most, require_path, run_command
from grasp_sim.contract import ACTION_DIM

HELP = """Measure the long-term memory: prioritised cycle, retrieval, eviction, saving and loading.

Vectors are made up: `approach` episodes follow one course with deviations, `walk` episodes are random walks.
Close other programs first: the table says how busy the machine was.

Example: grasp-bench memory rows=200000 retrieval_rows=[19999,200000] out=/tmp/memory.csv"""

NEIGHBOURS = 8


@dataclass
class MemoryBenchConfig:
    """Settings of `grasp-bench memory`."""

    rows: int = 1_000_000
    """Capacity of the memory whose prioritised cycle, eviction, saving and loading are measured."""
    batch: int = 1024
    """Rows drawn per cycle."""
    retrieval_rows: list[int] = field(default_factory=lambda: [19_999, 200_000, 500_000, 2_000_000])
    """Sizes of the retrieval indexes measured."""
    queries: int = 1000
    """Single queries timed per index; recall is taken over the first 300."""
    repeats: int = 500
    """Prioritised cycles timed."""
    seed: int = 0
    """Seed of the made-up episodes."""
    out: str = "docs/benchmarks/memory.csv"
    """Where the raw figures are written."""

    def __post_init__(self) -> None:
        least = 100 * STEPS
        if self.rows < least or any(rows < least for rows in self.retrieval_rows):
            raise ValueError(
                f"rows={self.rows} and retrieval_rows={self.retrieval_rows} must be at least {least}."
            )
        require_at_least(self, {"batch": 1, "queries": 1, "repeats": 1, "seed": 0})
        if max([self.rows, *self.retrieval_rows]) > MAX_CAPACITY:
            raise ValueError(
                f"rows={self.rows} and retrieval_rows={self.retrieval_rows} must be at most {MAX_CAPACITY}."
            )
        require_at_most(self, dict.fromkeys(("batch", "queries", "repeats"), MAX_BATCH))
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(MemoryBenchConfig, measure, HELP, argv=arguments, program="grasp-bench memory")


def measure(config: MemoryBenchConfig) -> None:
    """Print all tables and write the CSV."""
    path = Path(config.out)
    path.parent.mkdir(parents=True, exist_ok=True)  # fails now rather than after the measurements
    load = load_per_core()
    if load > 0.6:
        print(f"This machine is busy (load {load:.2f} per core): these figures are not worth keeping.")
    replay = measure_replay(config)
    show("Long-term memory, rows of the lift task", replay)
    retrieval = [
        figure
        for kind in KINDS
        for rows in config.retrieval_rows
        for figure in measure_retrieval(config, kind, rows)
    ]
    show(f"Retrieval of {NEIGHBOURS} neighbours, one thread, made-up vectors", retrieval)
    write_csv(path, replay + retrieval, load)
    print(f"Raw figures: {path}")


def measure_replay(config: MemoryBenchConfig) -> list[Figure]:
    """Filling, prioritised cycle, saving, loading, eviction."""
    rng = np.random.default_rng(config.seed)
    memory = LongTermMemory(MemoryConfig(capacity=config.rows), WIDTH, ACTION_DIM, np.random.default_rng(1))
    for episode in trajectories("approach", 20, rng):
        memory.add(episode)
    memory.refresh_encoder()
    durations = []
    while memory.store.free_count >= STEPS:
        for episode in trajectories("approach", min(1000, memory.store.free_count // STEPS), rng):
            began = time.perf_counter()
            memory.add(episode)
            durations.append((time.perf_counter() - began) * 1e3)
    rows, name = len(memory), f"add an episode of {STEPS} steps"
    figures = [
        Figure("replay", name, rows, "wall p50", float(np.median(durations)), "ms"),
        Figure("replay", name, rows, "wall p99", float(np.quantile(durations, 0.99)), "ms"),
    ]

    errors = rng.standard_normal(config.batch).astype(np.float32)
    batches = [memory.sample(config.batch, rng)]

    def sample() -> None:
        batches[0] = memory.sample(config.batch, rng)

    def update() -> None:
        memory.update_scores(batches[0].ids, errors)

    def cycle() -> None:
        sample()
        update()

    for label, action in (
        (f"whole prioritised cycle, batch {config.batch}", cycle),
        ("  draw slots (sum tree)", lambda: memory.store.tree.sample(config.batch, rng)),
        ("  draw and gather rows", sample),
        ("  score and update priorities", update),
        ("draw successes for imitation", lambda: memory.sample_successes(config.batch, rng)),
    ):
        figures += latency("replay", label, rows, action, config.repeats)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.safetensors"
        figures += once("replay", "save, flushed to disk", rows, lambda: memory.save(path))
        twin = LongTermMemory(memory.config, WIDTH, ACTION_DIM, np.random.default_rng(2))
        figures += once("replay", "load", rows, lambda: twin.load(path))
        figures.append(Figure("replay", "file", rows, "size", path.stat().st_size / rows, "B/row"))
    figures.append(Figure("replay", "row in memory", rows, "size", memory.store.row_bytes, "B/row"))
    last = trajectories("approach", 2, rng)
    figures += once("replay", "add that evicts", rows, lambda: [memory.add(episode) for episode in last])
    figures += once("replay", "embed all anew, swap in", len(memory), memory.refresh_encoder)
    return figures


def measure_retrieval(config: MemoryBenchConfig, kind: str, rows: int) -> list[Figure]:
    """Latency and recall of single queries made of unseen episodes."""
    rng = np.random.default_rng(config.seed)
    encoder = WindowEncoder.create(WIDTH, 64, np.random.default_rng(1)).refit(windows(kind, 20_000, rng))
    vectors = np.empty((rows, encoder.dim), np.float32)
    for start in range(0, rows, 100_000):
        part = windows(kind, min(100_000, rows - start), rng)
        vectors[start : start + len(part)] = encoder.encode(part)[0]
    unseen = windows(kind, max(config.queries, 1024) * 7, rng)
    queries = encoder.encode(unseen[rng.permutation(len(unseen))[: max(config.queries, 1024)]])[0]

    index = VectorIndex(encoder.dim, lambda ids: vectors[ids])
    part, name = f"retrieval {kind}", f"{kind}, "
    build = once(part, name, rows, lambda: index.add(np.arange(rows), vectors))
    name += "exact" if index.exact else "IVF + SQ8"
    figures = [Figure(part, name, rows, "build", build[0].value, "ms")]
    following = iter(np.resize(queries, (config.queries + 3, encoder.dim)))
    figures += latency(
        part, name, rows, lambda: index.search(next(following)[None], NEIGHBOURS), config.queries
    )
    _, cpu = timings(lambda: index.search(queries[:1024], NEIGHBOURS), 1)
    figures.append(Figure(part, name, rows, "1024 queries cpu", float(cpu[0]), "ms"))
    asked = queries[: min(300, config.queries)]
    truth = faiss.knn(asked, vectors, NEIGHBOURS)[1]
    found = index.search(asked, NEIGHBOURS)[0]
    hits = sum(len(np.intersect1d(one, two)) for one, two in zip(truth, found, strict=True))
    figures.append(Figure(part, name, rows, f"recall@{NEIGHBOURS}", hits / truth.size, ""))
    figures.append(Figure(part, name, rows, "index size", index.nbytes / rows, "B/row"))
    return figures
