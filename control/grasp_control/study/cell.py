"""One cell of `grasp-study`: one task under one reward structure, one arm of memory, one seed.

Beside what every cell has, its folder holds `memory.csv`, what the memory did between two measurements, and
`retrievals.csv` or the folder `empo2`, episode by episode.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from omegaconf import MISSING

from grasp_control.bench.measure import write_rows
from grasp_control.cells import GridCell
from grasp_control.run import WALL_FILE, held
from grasp_sim.cli import run_command

SAME = ("env", "structure", "memory", "seed")
"""Columns in which all rows of a cell agree."""
COLUMNS = (*SAME, "env_steps", "return", "entropy", "hit_rate")
"""Of the raw results. `return`: share of the measurement's episodes that solved the task, as the arm acts;
the sparse return without noise, whatever was paid. `entropy`: nats, of the policy. `hit_rate`: share
of the retrieved actions since the last measurement whose episode was paid more than 0 in all."""
MEMORY_FILE = "memory.csv"
MEMORY_COLUMNS = (
    *SAME,
    *("env_steps", "retrievals", "distance", "rows", "writes", "refused"),
    *("write_low", "write_median", "write_high"),
    *("participation", "density", "delay", "noise"),
)
"""Since the last measurement: retrieved actions and their mean distance. So far: rows, written episodes and
those that the filter refused; least, middle and largest return of the latest 100 written ones. At the moment:
the memory's participation, and the gate's statistics of the reward."""
TASKS = {"grid": "grasp_control.study.grid_task", "lift": "grasp_control.study.lift_task"}
"""Modules with `run(cell) -> (rows, memory_rows)`, `describe(cell) -> str` and `settings(cell)`, which raises
UserError where the cell cannot be run."""

Rows = list[dict[str, object]]


@dataclass
class Cell(GridCell):
    """One cell of the study."""

    columns = COLUMNS
    env: str = MISSING
    """One of `TASKS`."""
    structure: str = MISSING
    """Reward structure."""
    memory: str = MISSING
    """What the memory does, see `arms.Arm`."""
    delay: int = 0
    """Of the delayed reward; 0 is all with the end."""
    horizon: int = 60
    """Steps of an episode."""
    settings: list[str] = field(default_factory=list)
    """Further settings of grasp-train, for tasks that EMPO2 learns."""

    @property
    def name(self) -> str:
        """What is unique in a grid."""
        return f"{self.env}_{self.structure}_{self.memory}_seed{self.seed}"

    @property
    def kind(self) -> str:
        """Tasks differ in their pace."""
        return self.env

    @property
    def steps(self) -> Path:
        """Where the task's own run keeps it."""
        return self.inner / "steps" if self.env == "lift" else super().steps

    @property
    def wall(self) -> Path:
        """Where the task's own run keeps it."""
        return self.inner / "run" / WALL_FILE if self.env == "lift" else super().wall

    @property
    def inner(self) -> Path:
        """Folder of EMPO2's run, for tasks that it learns."""
        return self.path / "empo2"

    @property
    def same(self) -> dict[str, object]:
        """What all rows of the cell begin with."""
        return {name: getattr(self, name) for name in SAME}


def of_task(cell: Cell, function: str) -> Callable[[Cell], object]:
    """A function of the cell's task, imported when it is asked for."""
    return getattr(importlib.import_module(TASKS[cell.env]), function)


def short(value: float) -> float | str:
    """Four decimals, as it is written; empty where there is no value."""
    return "" if math.isnan(value) else round(float(value), 4)


def main() -> int:
    """Run the cell that the command line describes."""
    return run_command(Cell, run, "Run one cell of grasp-study.", program="cell")


def run(cell: Cell) -> None:
    """Run it and write what was measured, the result last: it is what says that the cell is finished."""
    torch.set_num_threads(1)
    with held(cell.path):
        cell.note_settings()
        print(of_task(cell, "describe")(cell), flush=True)
        answer = of_task(cell, "run")(cell)
        assert isinstance(answer, tuple)
        rows, memory_rows = answer
        write_rows(cell.path / MEMORY_FILE, memory_rows)
        write_rows(cell.result, rows)


if __name__ == "__main__":
    sys.exit(main())
