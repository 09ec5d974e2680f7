"""`grasp-bench learning`: EMPO2, PPO, SAC and SAC with demonstrations on the same tasks, cell by cell."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grasp_control.bench.learning_cell import COLUMNS, DEMONSTRATED, VARIANTS, Cell, settings_of
from grasp_control.bench.learning_report import report
from grasp_control.bench.measure import beside, write_rows
from grasp_control.bench.settings import require_beginning, require_environments
from grasp_control.config import MAX_ENV_STEPS, MAX_EPISODES
from grasp_sim.cli import (
    overrides,
    require_at_least,
    require_at_most,
    require_choice,
    require_path,
    run_command,
)
from grasp_sim.errors import UserError
from grasp_sim.rewards import REWARDS

HELP = """Compare how EMPO2, PPO, SAC and SAC with demonstrations learn, over tasks and seeds.

A grid of cells: environment x method x variant x seed x demonstrations. Every cell is a process of its own
with its own folder below RUNS. The same command again goes on: finished cells are kept, EMPO2's continue from
their last checkpoint, others begin anew. A cell that fails is named with its last error line at the end; the
rest of the grid runs on.

  empo2      the hybrid policy (actors, retrieval and critics), before distillation; from demonstrations
  sac-demos  SAC with half of each batch from the same demonstrations, layer-normalised critics (RLPD)
  sac, ppo   Stable-Baselines3 with tuned settings, no demonstrations

All see the same window of observations and actions, and are evaluated without noise on fresh episodes. Rows
go to OUT.csv, where they replace those of the same cell; other rows stay, so several grids fill one file.
OUT.md (interquartile means with 95 % bootstrap intervals, steps to reach a success) and OUT.png are made of
the whole file; `grasp-bench learning report out=...` makes them again.

Variants leave a part of EMPO2 out:
{variants}

Examples:
  grasp-bench learning
  grasp-bench learning environments=[pybullet-lift:dense] methods=[sac,ppo] env_steps=150000 every=10000
  grasp-bench learning methods=[empo2] variants=[full,no-window,uniform-replay] out=docs/benchmarks/ablation
  grasp-bench learning env_steps=2000 every=1000 episodes=20 seeds=[0] runs=/tmp/try out=/tmp/try/learning
""".format(
    variants="\n".join(f"  {name:22} {' '.join(changes) or 'as it is'}" for name, changes in VARIANTS.items())
)

POLL_S, STATUS_S = 0.2, 60.0


@dataclass
class LearningConfig:
    """Settings of `grasp-bench learning`."""

    environments: list[str] = field(default_factory=lambda: ["pybullet-lift"])
    """Environments; `name:reward` for a reward other than sparse, as in pybullet-lift:dense."""
    methods: list[str] = field(default_factory=lambda: ["empo2", "sac-demos", "sac", "ppo"])
    """Methods compared."""
    variants: list[str] = field(default_factory=lambda: ["full"])
    """Variants of EMPO2; the other methods are run as they are."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    """Each fixes demonstrations, networks, training and evaluation episodes."""
    demos: list[int] = field(default_factory=lambda: [5])
    """Numbers of demonstrations, for the methods that use them."""
    env_steps: int = 20_000
    """Environment steps of training in every cell."""
    every: int = 5000
    """Environment steps between evaluations."""
    episodes: int = 100
    """Episodes of each evaluation."""
    settings: list[str] = field(default_factory=list)
    """Further settings of grasp-train for every cell: "settings=['env.control_mode=osc','context=2']"."""
    processes: int = 1
    """Cells that run at once, 1 or 2. Each uses one core."""
    runs: str = "runs/learning"
    """Folder of the cells' folders."""
    out: str = "docs/benchmarks/learning"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        for name in ("environments", "methods", "variants", "seeds", "demos"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty: name at least one.")
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={values} holds the same twice.")
        require_environments([text.partition(":")[0] for text in self.environments])
        for text in self.environments:
            _, colon, reward = text.partition(":")
            if colon:
                require_choice(f"the reward of environments={text}:", reward, REWARDS)
        for method in self.methods:
            require_choice("methods", method, DEMONSTRATED)
        for variant in self.variants:
            require_choice("variants", variant, VARIANTS)
        require_at_least(self, {"env_steps": 1, "every": 1, "episodes": 1})
        if min(self.seeds) < 0:
            raise ValueError(f"seeds={self.seeds} must not be negative.")
        if min(self.demos) < ("sac-demos" in self.methods):
            raise ValueError(
                f"demos={self.demos} must not be negative, and sac-demos needs at least 1; sac and ppo go "
                "without."
            )
        if self.processes not in (1, 2):
            raise ValueError(f"processes={self.processes} must be 1 or 2.")
        require_at_most(self, {"env_steps": MAX_ENV_STEPS, "episodes": MAX_EPISODES})
        require_path("runs", self.runs)
        require_beginning(self.out)

    def cells(self) -> list[Cell]:
        """The grid, seed by seed, so that an unfinished one compares all methods already."""
        cells = []
        for seed, env, method in itertools.product(self.seeds, self.environments, self.methods):
            variants = self.variants if method == "empo2" else ["full"]
            demos = self.demos if DEMONSTRATED[method] else [0]
            for variant, count in itertools.product(variants, demos):
                cell = Cell(
                    env=env,
                    method=method,
                    variant=variant,
                    seed=seed,
                    demos=count,
                    env_steps=self.env_steps,
                    every=self.every,
                    episodes=self.episodes,
                    settings=self.settings,
                )
                cell.folder = str(Path(self.runs) / cell.name)
                cells.append(cell)
        return cells


@dataclass
class ReportConfig:
    """Settings of `grasp-bench learning report`."""

    out: str = "docs/benchmarks/learning"
    """Beginning of the names of the files: OUT.csv is read, OUT.md and OUT.png are written."""

    def __post_init__(self) -> None:
        require_beginning(self.out)


REPORT_HELP = "Write the table and the figure of the raw results OUT.csv again."


def run(arguments: Sequence[str]) -> int:
    """Run the grid, or with `report` as first word only its report; returns the exit code."""
    program = "grasp-bench learning"
    if arguments and arguments[0] == "report":
        return run_command(
            ReportConfig,
            lambda config: report(Path(config.out)),
            REPORT_HELP,
            argv=arguments[1:],
            program=f"{program} report",
        )
    return run_command(LearningConfig, run_grid, HELP, argv=arguments, program=program, resumes=True)


def run_grid(config: LearningConfig) -> int:
    """Run what is not finished, collect, report. Returns 1 where a cell failed."""
    cells = config.cells()
    _check(cells)
    out = Path(config.out)
    failed = _run_cells(cells, config.processes, out)
    for cell, line in failed:
        print(f"FAILED {cell.name}: {line} (all of it: {cell.log})")
    if failed:
        print(f"{len(failed)} of {len(cells)} cells failed; the same command tries them again.", flush=True)
    if collect(cells, out):
        report(out)
    return 1 if failed else 0


def _check(cells: Sequence[Cell]) -> None:
    """Raise UserError before anything runs where a cell's settings are wrong, or not those of its folder."""
    checked = set()
    for cell in cells:
        if (cell.env, cell.method, cell.variant, cell.demos) not in checked:
            cell.train_config()
            checked.add((cell.env, cell.method, cell.variant, cell.demos))
        stored = cell.path / "cell.json"
        if stored.exists():
            before, now = json.loads(stored.read_text()), settings_of(cell)
            names = [name for name in now if before.get(name) != now[name]]
            if names:
                changes = "; ".join(f"{name} {before.get(name)!r} -> {now[name]!r}" for name in names)
                raise UserError(
                    f"{cell.path} was run with other settings ({changes}): choose another runs=..."
                )


def _run_cells(cells: Sequence[Cell], processes: int, out: Path) -> list[tuple[Cell, str]]:
    """Run the cells that have no result; returns those that failed, with their last error line."""
    waiting = [cell for cell in cells if not cell.result.exists()]
    if len(waiting) < len(cells):
        print(f"{len(cells) - len(waiting)} of {len(cells)} cells are finished already.", flush=True)
    running: dict[str, tuple[Cell, subprocess.Popen[bytes]]] = {}
    failed: list[tuple[Cell, str]] = []
    told = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                cell = waiting.pop(0)
                running[cell.name] = cell, _start(cell)
            time.sleep(POLL_S)
            for cell, process in list(running.values()):
                if process.poll() is None:
                    continue
                del running[cell.name]
                if process.returncode == 0 and cell.result.exists():
                    last = _rows(cell.result)[-1]
                    print(
                        f"{cell.name}: success {float(last['success']):.0%} after {last['env_steps']} steps, "
                        f"{float(last['wall_s']) / 60:.1f} min. {_status(cells, failed, processes)}",
                        flush=True,
                    )
                    collect(cells, out)
                else:
                    failed.append((cell, _last_line(cell.log) or f"exit code {process.returncode}"))
                    print(f"{cell.name} FAILED: {failed[-1][1]}", flush=True)
            if running and time.monotonic() - told > STATUS_S:
                told = time.monotonic()
                now = ", ".join(
                    f"{cell.name} {cell.progress()[0] / cell.env_steps:.0%}" for cell, _ in running.values()
                )
                print(f"{now}. {_status(cells, failed, processes)}", flush=True)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.wait()
    return failed


def _start(cell: Cell) -> subprocess.Popen[bytes]:
    """The cell's own process, on one core."""
    cell.path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "grasp_control.bench.learning_cell", *overrides(asdict(cell))]
    with cell.log.open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def _status(cells: Sequence[Cell], failed: Sequence[tuple[Cell, str]], processes: int) -> str:
    """How far the grid is, and the time left by the pace of each method so far."""
    spent: dict[str, tuple[int, float]] = {}
    left: dict[str, int] = {}
    lost = {cell.name for cell, _ in failed}
    done = 0
    for cell in cells:
        finished = cell.result.exists()
        done += finished
        steps, seconds = cell.progress()
        before = spent.get(cell.method, (0, 0.0))
        spent[cell.method] = before[0] + steps, before[1] + seconds
        if not finished and cell.name not in lost:
            left[cell.method] = left.get(cell.method, 0) + cell.env_steps - steps
    text = f"{done} of {len(cells)} cells finished" + (f", {len(lost)} failed" if lost else "")
    total_steps, total_seconds = (sum(values) for values in zip(*spent.values(), strict=True))
    if not total_steps or not left:
        return f"{text}."
    seconds = 0.0
    for method, steps in left.items():
        known_steps, known_seconds = spent[method] if spent[method][0] else (total_steps, total_seconds)
        seconds += steps * known_seconds / known_steps
    return f"{text}, about {seconds / processes / 60:.0f} min left."


def collect(cells: Sequence[Cell], out: Path) -> bool:
    """Put the finished cells' rows into OUT.csv in place of older ones; false where there are no rows."""
    path = beside(out, ".csv")
    rows = _rows(path) if path.exists() else []
    if rows and tuple(rows[0]) != COLUMNS:
        raise UserError(
            f"{path} has the columns {list(rows[0])}, not {list(COLUMNS)}: choose another out=..."
        )

    def key(row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[name] for name in COLUMNS[:5])

    fresh = [row for cell in cells if cell.result.exists() for row in _rows(cell.result)]
    replaced = {key(row) for row in fresh}
    rows = [row for row in rows if key(row) not in replaced] + fresh
    rows.sort(key=lambda row: (*row_order(row), int(row["env_steps"])))
    if rows:
        write_rows(path, rows)
    return bool(rows)


def row_order(row: dict[str, str]) -> tuple[str, str, str, int, int]:
    """Where a row stands in the file."""
    return row["env"], row["method"], row["variant"], int(row["demos"]), int(row["seed"])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
