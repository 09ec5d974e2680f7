"""`grasp-bench train`: how fast the whole training loop is, and what its time goes to."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from grasp_control.bench.measure import load_per_core, show_rows, write_rows
from grasp_control.bench.settings import require_environments
from grasp_control.bench.trajectories import STEPS, trajectories
from grasp_control.build import load_demonstrations, make_trainer
from grasp_control.config import MAX_ENV_STEPS, TrainConfig
from grasp_control.memory.config import MAX_CAPACITY
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_sim import registry
from grasp_sim.cli import (
    overrides,
    parse_config,
    require_at_least,
    require_at_most,
    require_choice,
    require_path,
    run_command,
)

HELP = """Measure the training loop: environment steps a second, and the share of simulator, acting, memory,
learner.

All updates that grasp-train would do are done; nothing is evaluated. Times are CPU times of one thread, so a
busy machine changes them little. `rows` fills the memory first, to see what a long run will cost.

Examples:
  grasp-bench train
  grasp-bench train environments=[pybullet-lift] rows=[0,400000] precisions=[fp32,bf16] env_steps=300
"""

MOST_ROWS = (MAX_CAPACITY - 500_000) // 2
PARTS = ("simulator", "acting", "memory", "learner")


@dataclass
class TrainBenchConfig:
    """Settings of `grasp-bench train`."""

    environments: list[str] = field(default_factory=lambda: ["robosuite-lift", "pybullet-lift"])
    """Names of environments."""
    rows: list[int] = field(default_factory=lambda: [0, 100_000])
    """Made-up rows put into the memory before."""
    precisions: list[str] = field(default_factory=lambda: ["fp32", "bf16"])
    """Of the learner's matrix products."""
    env_steps: int = 400
    """Environment steps measured."""
    seed: int = 0
    """Of the demonstrations, the made-up rows and the training."""
    out: str = "docs/benchmarks/train.csv"
    """Where the table is written."""

    def __post_init__(self) -> None:
        require_environments(self.environments)
        for precision in self.precisions:
            require_choice("precisions", precision, ["fp32", "bf16"])
        if not (self.rows and self.precisions):
            raise ValueError("rows and precisions must each name at least one.")
        if min(self.rows) < 0 or max(self.rows) > MOST_ROWS:
            raise ValueError(f"rows={self.rows} must be from 0 to {MOST_ROWS}.")
        require_at_least(self, {"env_steps": 1, "seed": 0})
        require_at_most(self, {"env_steps": MAX_ENV_STEPS})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(TrainBenchConfig, measure, HELP, argv=arguments, program="grasp-bench train")


def measure(config: TrainBenchConfig) -> None:
    """Print the table and write it."""
    torch.set_num_threads(1)
    path = Path(config.out)
    path.parent.mkdir(parents=True, exist_ok=True)  # fails now rather than after the measurements
    table = []
    for name in config.environments:
        for rows in config.rows:
            for precision in config.precisions:
                table.append(_measure_one(config, name, rows, precision))
                show_rows("Training loop, so far", table[-1:])
    show_rows(f"Training loop, one thread; load per core {load_per_core():.2f}", table)
    write_rows(path, table)
    print(f"Raw figures: {path}")


class Stopwatch:
    """CPU seconds spent in each part; what a part calls of another counts for that one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._stack: list[str] = []
        self._since = time.thread_time()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time counted for `part`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._switch()
            self._stack.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._stack.pop()

        return call

    def _switch(self) -> None:
        now = time.thread_time()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now


class _TimedMemory:
    """A memory whose methods count as `memory`."""

    def __init__(self, memory: Any, watch: Stopwatch) -> None:
        self._memory, self._watch = memory, watch

    def __len__(self) -> int:
        return len(self._memory)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._memory, name)
        return self._watch.timed("memory", found) if callable(found) else found


class _TimedEnv(gymnasium.Wrapper):
    """An environment whose steps and resets count as `simulator`."""

    def __init__(self, env: gymnasium.Env, watch: Stopwatch) -> None:
        super().__init__(env)
        self.step = watch.timed("simulator", env.step)
        self.reset = watch.timed("simulator", env.reset)


def _measure_one(config: TrainBenchConfig, name: str, rows: int, precision: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        asked = {"env.name": name, "seed": config.seed, "out": folder, "algo.precision": precision}
        # Room for the made-up rows without a cut, and steps enough for the warm-up and what is measured.
        asked |= {"memory.capacity": 2 * rows + 500_000, "env_steps": config.env_steps + 10_000}
        settings = parse_config(TrainConfig, overrides(asked))
        env = registry.make(**vars(settings.env), seed=config.seed)
        episodes = load_demonstrations(settings, RunFolder.existing(settings), env)
        trainer = make_trainer(settings, env, episodes, [])
    _fill(trainer, rows, config.seed)
    # From here on the critics choose, as they do in most of a run.
    trainer.agent.updates = settings.algo.choice_after_updates
    while len(trainer.memory) < rows + settings.algo.batch_size:
        trainer.sample_episode()
    for _ in range(3):
        trainer.learn()
    watch = Stopwatch()
    trainer.env = _TimedEnv(env, watch)
    trainer.memory = _TimedMemory(trainer.memory, watch)  # type: ignore[assignment]
    sample, learn = watch.timed("acting", trainer.sample_episode), watch.timed("learner", trainer.learn)
    first, updates, owed = trainer.env_steps, 0, 0.0
    while trainer.env_steps < first + config.env_steps:
        before = trainer.env_steps
        sample()
        owed += (trainer.env_steps - before) * settings.algo.updates_per_step
        while updates < int(owed):
            learn()
            updates += 1
    env.close()
    total = sum(watch.seconds.values())
    steps = trainer.env_steps - first
    return {
        "env": name,
        "memory_rows": len(trainer.memory),
        "precision": precision,
        "env_steps": steps,
        "steps_per_s": round(steps / total, 2),
        "ms_per_update": round(1e3 * (watch.seconds["learner"]) / max(updates, 1), 1),
        **{f"{part}_share": round(watch.seconds[part] / total, 4) for part in PARTS},
    }


def _fill(trainer: LocalTrainer, rows: int, seed: int) -> None:
    """Put made-up episodes into the memory, at least `rows` rows in all."""
    rng = np.random.default_rng(seed)
    left = rows
    while left > 0:
        for episode in trajectories("approach", min(1000, -(-left // STEPS)), rng):
            trainer.memory.add(episode)
            left -= STEPS
    if rows:
        trainer.memory.refresh_encoder()
