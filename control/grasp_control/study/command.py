"""`grasp-study`: does memory help? Reward structures against memory, cell by cell, and the report."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grasp_control.bench.measure import beside
from grasp_control.bench.settings import require_beginning
from grasp_control.cells import Row, check_folders, collect, run_cells
from grasp_control.config import MAX_ENV_STEPS, MAX_EPISODES
from grasp_control.study.arms import GATES, Arm
from grasp_control.study.cell import COLUMNS, MEMORY_COLUMNS, MEMORY_FILE, SAME, TASKS, Cell, of_task
from grasp_control.study.report import report
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
from grasp_sim.grid import GRID_REWARDS
from grasp_sim.rewards import REWARDS
from grasp_sim.structures import check_delay

HELP = """Study when memory helps: reward structures against memory, over seeds.

A grid of cells: task x reward structure x memory x seed. Every cell is a process of its own with its own
folder below RUNS. The same command again goes on: finished cells are kept, a half-written result is named and
its cell run again. A cell that fails is named with its traceback at the end; the rest of the grid runs on.

  grid   a treasure hunt in 10 by 10 cells; actor-critic with an episodic memory; about 20 s a cell
  lift   grasping in PyBullet; EMPO2 with five demonstrations in every arm; half an hour a cell and more

Reward structures, each described when a cell begins:
  {structures}

What the memory does; `+filter` lets only repeated success into it, under the noisy reward of the grid world:
{gates}

Networks, loop and draws are the same in all arms. Rows go to OUT.csv and OUT_memory.csv, where they replace
those of the same cell. OUT.md and OUT_*.png are made of them; `grasp-study report out=...` makes them again.

Examples:
  grasp-study
  grasp-study "seeds=[0,1,2,3,4,5,6,7,8,9]" out=docs/benchmarks/study
  grasp-study "structures=[delayed]" delay=10 "memories=[off,on]" runs=runs/late out=runs/late
  grasp-study "tasks=[lift]" "structures=[sparse,dense]" "seeds=[0]" runs=runs/lift-study out=runs/lift-study
  grasp-study report out=docs/benchmarks/study
""".format(
    structures=", ".join(GRID_REWARDS), gates="\n".join(f"  {name:9} {text}" for name, text in GATES.items())
)


@dataclass
class TaskConfig:
    """How long a task is learned, and how it is measured."""

    env_steps: int = 20_000
    """Environment steps of training in every cell."""
    every: int = 1000
    """Environment steps between measurements."""
    episodes: int = 20
    """Episodes of each measurement."""
    horizon: int = 60
    """Steps of an episode."""

    def __post_init__(self) -> None:
        require_at_least(self, {"env_steps": 1, "every": 1, "episodes": 1, "horizon": 1})
        require_at_most(
            self, {"env_steps": MAX_ENV_STEPS, "episodes": MAX_EPISODES, "horizon": MAX_ENV_STEPS}
        )


@dataclass
class StudyConfig:
    """Settings of `grasp-study`."""

    tasks: list[str] = field(default_factory=lambda: ["grid"])
    """grid, lift."""
    structures: list[str] = field(default_factory=lambda: list(GRID_REWARDS))
    """Reward structures."""
    memories: list[str] = field(default_factory=lambda: ["off", "on", "adaptive", "on+filter"])
    """What the memory does."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    """Each fixes networks, episodes and draws."""
    delay: int = 0
    """Steps after which a delayed reward is paid; 0 pays all of it with the episode's end."""
    grid: TaskConfig = field(default_factory=TaskConfig)
    lift: TaskConfig = field(default_factory=lambda: TaskConfig(horizon=70, env_steps=10_000))
    settings: list[str] = field(default_factory=list)
    """Further settings of grasp-train for every cell of lift: "settings=['algo.precision=bf16']"."""
    processes: int = 2
    """Cells that run at once, 1 or 2. Each uses one core."""
    runs: str = "runs/study"
    """Folder of the cells' folders."""
    out: str = "runs/study/report"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        for name in ("tasks", "structures", "memories", "seeds"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty: name at least one.")
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={values} holds the same twice.")
        for task in self.tasks:
            require_choice("tasks", task, TASKS)
        for structure in self.structures:
            require_choice("structures", structure, GRID_REWARDS)
        for memory in self.memories:
            Arm.parse(memory)
        if min(self.seeds) < 0:
            raise ValueError(f"seeds={self.seeds} must not be negative.")
        if self.delay and "delayed" not in self.structures:
            raise ValueError(f"delay={self.delay} is for structures=[delayed], and that is not among them.")
        for task in self.tasks:
            check_delay(REWARDS["delayed"].structure, self.delay, getattr(self, task).horizon, f"{task}: ")
        if self.processes not in (1, 2):
            raise ValueError(f"processes={self.processes} must be 1 or 2.")
        require_path("runs", self.runs)
        require_beginning(self.out)
        if not self.cells():
            raise ValueError(
                f"memories={self.memories} leaves nothing to run: a filter is for structures=[noisy] of "
                "tasks=[grid]."
            )

    def cells(self) -> list[Cell]:
        """The grid, seed by seed, so that an unfinished one compares everything already."""
        cells = []
        for seed, task, structure, memory in itertools.product(
            self.seeds, self.tasks, self.structures, self.memories
        ):
            if Arm.parse(memory).filtered and (task, structure) != ("grid", "noisy"):
                continue
            size: TaskConfig = getattr(self, task)
            cell = Cell(
                env=task,
                structure=structure,
                memory=memory,
                seed=seed,
                delay=self.delay if structure == "delayed" else 0,
                settings=self.settings if task == "lift" else [],
                **vars(size),
            )
            cell.folder = str(Path(self.runs) / cell.name)
            cells.append(cell)
        return cells


@dataclass
class ReportConfig:
    """Settings of `grasp-study report`."""

    out: str = "runs/study/report"
    """Beginning of the files' names: OUT.csv and OUT_memory.csv are read, OUT.md and OUT_*.png written."""

    def __post_init__(self) -> None:
        require_beginning(self.out)


REPORT_HELP = "Write the tables, the figures and the verdicts of the raw results OUT.csv again."


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `grasp-study`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "report":
        return run_command(
            ReportConfig,
            lambda config: report(Path(config.out)),
            REPORT_HELP,
            argv=words[1:],
            program="grasp-study report",
        )
    return run_command(StudyConfig, run_grid, HELP, argv=words, program="grasp-study", resumes=True)


def run_grid(config: StudyConfig) -> int:
    """Run what is not finished, collect, report. Returns 1 where a cell failed."""
    cells = config.cells()
    for cell in {(cell.env, cell.structure, cell.memory): cell for cell in cells}.values():
        of_task(cell, "settings")(cell)
    check_folders(cells)
    for text in dict.fromkeys(str(of_task(cell, "describe")(cell)) for cell in cells):
        print(text)
    out = Path(config.out)

    def collected() -> bool:
        collect(cells, beside(out, "_memory.csv"), MEMORY_COLUMNS, SAME, file=MEMORY_FILE)
        return collect(cells, beside(out, ".csv"), COLUMNS, SAME)

    failed = run_cells(cells, config.processes, _told, collected)
    if collected():
        report(out)
    return 1 if failed else 0


def _told(last: Row) -> str:
    return f"solved {float(last['return']):.0%} after {last['env_steps']} steps"


if __name__ == "__main__":
    sys.exit(main())
