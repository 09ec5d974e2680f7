"""`grasp-bench learning`: EMPO2, PPO, SAC and SAC with demonstrations on the same tasks, cell by cell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grasp_control.bench.learning_cell import COLUMNS, DEMONSTRATED, VARIANTS, Cell
from grasp_control.bench.learning_report import report
from grasp_control.bench.measure import beside
from grasp_control.bench.settings import require_beginning, require_environments
from grasp_control.cells import Row, check_folders, collect, run_cells
from grasp_control.config import MAX_ENV_STEPS, MAX_EPISODES
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
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

Variants leave a part of EMPO2 out; the last begins from what a run of grasp-programs does:
{variants}

Examples:
  grasp-bench learning
  grasp-bench learning environments=[pybullet-lift:dense] methods=[sac,ppo] env_steps=150000 every=10000
  grasp-bench learning methods=[empo2] variants=[full,no-window,uniform-replay] out=docs/benchmarks/ablation
  grasp-bench learning env_steps=2000 every=1000 episodes=20 seeds=[0] runs=/tmp/try out=/tmp/try/learning
""".format(
    variants="\n".join(f"  {name:22} {' '.join(changes) or 'as it is'}" for name, changes in VARIANTS.items())
)

SAME = ("env", "method", "variant", "demos", "seed")
"""Of a cell, the columns in which all its rows agree."""


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
    for cell in {(cell.env, cell.method, cell.variant, cell.demos): cell for cell in cells}.values():
        cell.train_config()  # raises UserError before anything runs where its settings are wrong
    check_folders(cells)
    out = Path(config.out)

    def collected() -> bool:
        return collect(cells, beside(out, ".csv"), COLUMNS, SAME)

    failed = run_cells(cells, config.processes, _told, collected)
    if collected():
        report(out)
    return 1 if failed else 0


def _told(last: Row) -> str:
    minutes = float(last["wall_s"]) / 60
    return f"success {float(last['success']):.0%} after {last['env_steps']} steps, {minutes:.1f} min"
