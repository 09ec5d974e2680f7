"""`grasp-bench encoder`: which encoder of the long-term memory retrieves better, and what a refresh costs.

Human-like demonstrations are recorded, the memory is seeded with some of them, and the windows of the others
are asked about. What is judged is the mean stored action of the neighbours against the action that the expert
intended there, before the noise of its hand.

Shapes: T steps, K neighbours, A action dimension.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from grasp_control import progress
from grasp_control.bench.measure import beside, once, show_rows, write_rows
from grasp_control.bench.settings import require_environments
from grasp_control.bench.trajectories import CONTEXT, STEPS, WIDTH, trajectories
from grasp_control.build import generator
from grasp_control.markdown import markdown
from grasp_control.memory.config import MAX_CAPACITY, MAX_UPDATES, MemoryConfig
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.seeding import seed_memory, trajectory_from_episode
from grasp_demos.episode import Episode
from grasp_demos.record import record_expert
from grasp_sim import registry
from grasp_sim.cli import require_at_most, run_command
from grasp_sim.contract import ACTION_DIM, ACTION_NAMES

HELP = """Compare the encoders of the long-term memory by what they retrieve for unseen demonstrations.

Writes OUT.csv (a row per environment, encoder and split) and OUT.md (the tables): the mean squared error of
the neighbours' mean action, over all steps and around the closing of the fingers, and the time of a refresh.

Example: grasp-bench encoder environments=[pybullet-lift] betas=[1] splits=2 out=/tmp/encoder"""

_OPENING = ACTION_NAMES.index("opening")
_AROUND = 5
"""Steps before and after the fingers are told to close that count as around closing."""


@dataclass
class EncoderBenchConfig:
    """Settings of `grasp-bench encoder`."""

    environments: list[str] = field(default_factory=lambda: ["pybullet-lift", "pybullet-objects"])
    """Environments."""
    demos: int = 30
    """Demonstrations recorded in each."""
    fitted: int = 10
    """Of those, the ones that are stored and that the encoder is fitted to; the others are asked about."""
    splits: int = 5
    """Ways to divide the demonstrations, each with other first weights of the encoder."""
    betas: list[float] = field(default_factory=lambda: [3.0, 1.0, 0.1, 0.01, 0.001])
    """Values of memory.vae_beta."""
    updates: int = 500
    """memory.vae_updates."""
    neighbours: int = 4
    """Neighbours whose actions are averaged."""
    refresh_rows: int = 500_000
    """Rows of the memory whose refresh is timed."""
    seed: int = 0
    """Fixes demonstrations, splits and first weights."""
    out: str = "docs/benchmarks/encoder"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        require_environments(self.environments)
        if not 1 <= self.fitted < self.demos:
            raise ValueError(f"fitted={self.fitted} must lie between 1 and demos={self.demos}, exclusive.")
        for name, least in (("splits", 2), ("updates", 1), ("neighbours", 1), ("refresh_rows", 100 * STEPS)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}.")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative.")
        require_at_most(self, {"demos": 1000, "splits": 1000, "neighbours": 64, "updates": MAX_UPDATES})
        require_at_most(self, {"refresh_rows": MAX_CAPACITY})


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(EncoderBenchConfig, measure, HELP, argv=arguments, program="grasp-bench encoder")


def measure(config: EncoderBenchConfig) -> None:
    """Record, measure, print the tables, write the files."""
    torch.set_num_threads(1)
    encoders = {"projection": MemoryConfig(deadline_ms=60_000.0, encoder="projection")}
    for beta in config.betas:
        encoders[f"VAE, beta {beta:g}"] = MemoryConfig(
            deadline_ms=60_000.0, encoder="vae", vae_beta=beta, vae_updates=config.updates
        )
    rows: list[dict[str, object]] = []
    table: list[dict[str, object]] = []
    with progress.bar("Fit and ask", len(config.environments) * len(encoders) * config.splits) as advance:
        for env in config.environments:
            episodes = record(config, env)
            for name, settings in encoders.items():
                found = []
                for split in range(config.splits):
                    found.append(measure_retrieval(config, settings, episodes, split))
                    rows.append({"env": env, "encoder": name, "split": split, **found[-1]})
                    advance()
                table.append({"environment": env, "encoder": name} | _summary(found))
    refreshed = [
        {"encoder": name, "rows": config.refresh_rows, "refresh [s]": refresh_seconds(settings, config)}
        for name, settings in list(encoders.items())[:2]
    ]
    show_rows(f"Squared error of the mean action of {config.neighbours} neighbours, +- standard error", table)
    show_rows("Fit, embed all rows anew, swap in", refreshed)
    out = Path(config.out)
    write_rows(beside(out, ".csv"), rows)
    beside(out, ".md").write_text(markdown(table) + "\n" + markdown(refreshed))
    print(f"Written: {out}.csv, {out}.md")


def record(config: EncoderBenchConfig, name: str) -> list[Episode]:
    """Fresh human-like demonstrations."""
    env = registry.make(name)
    with tempfile.TemporaryDirectory() as folder:
        rng = generator(config.seed, "demonstrations")
        done = record_expert(
            env, folder, task=name, episodes=config.demos, kind="human-like", rng=rng, seed=config.seed
        )
    env.close()
    return done


def measure_retrieval(
    config: EncoderBenchConfig, settings: MemoryConfig, episodes: Sequence[Episode], split: int
) -> dict[str, float]:
    """Errors over the episodes that were not stored, and the seconds that the fit took."""
    rng = np.random.default_rng([config.seed, split])
    order = rng.permutation(len(episodes))
    # Of the memory's capacity only the rows that are written are committed.
    memory = LongTermMemory(settings, WIDTH, ACTION_DIM, rng)
    began = time.perf_counter()
    seed_memory(memory, [episodes[number] for number in order[: config.fitted]])
    seconds = time.perf_counter() - began
    errors, around = [], []
    for number in order[config.fitted :]:
        episode = episodes[number]
        windows = trajectory_from_episode(episode, CONTEXT).windows[:-1]
        found = memory.retrieve(windows, config.neighbours)
        missed = np.square(found.actions.mean(axis=1) - episode.intended_actions).mean(axis=1)
        closing = int(np.argmax(episode.intended_actions[:, _OPENING] < 0.0))
        errors.append(missed)
        around.append(missed[max(closing - _AROUND, 0) : closing + _AROUND])
    return {
        "error": round(float(np.concatenate(errors).mean()), 5),
        "error_around_closing": round(float(np.concatenate(around).mean()), 5),
        "fit_s": round(seconds, 2),
    }


def refresh_seconds(settings: MemoryConfig, config: EncoderBenchConfig) -> str:
    """Seconds that `LongTermMemory.refresh_encoder` takes on made-up episodes."""
    rng = np.random.default_rng(config.seed)
    memory = LongTermMemory(settings, WIDTH, ACTION_DIM, rng)
    while len(memory) + STEPS <= config.refresh_rows:
        for episode in trajectories("approach", min(1000, (config.refresh_rows - len(memory)) // STEPS), rng):
            memory.add(episode)
    (figure,) = once("refresh", "refresh", len(memory), memory.refresh_encoder)
    return f"{figure.value / 1e3:.1f}"


def _summary(found: Sequence[dict[str, float]]) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name, title in (("error", "all steps"), ("error_around_closing", "around closing")):
        values = np.array([split[name] for split in found])
        cells[title] = f"{values.mean():.4f} +- {values.std(ddof=1) / np.sqrt(len(values)):.4f}"
    return cells | {"fit [s]": f"{np.mean([split['fit_s'] for split in found]):.1f}"}
