"""A grid of cells: each a process of its own with its own folder and result file, begun, watched and resumed.

The same grid again goes on: cells with a whole result are kept, the others are run. A cell that fails never
holds up another; what it said is told at the end.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from omegaconf import MISSING

from grasp_control.bench.measure import write_rows
from grasp_control.stopwatch import read_seconds
from grasp_sim.cli import overrides
from grasp_sim.errors import UserError

POLL_S, STATUS_S = 0.2, 60.0

Row = dict[str, str]


@dataclass
class GridCell(ABC):
    """One cell of a grid. Its module, run as a program with the fields as settings, writes `result`.

    In the folder lie `cell.json` (the settings), `log.txt` (what the process printed), `steps` (environment
    steps so far) and, once the cell is finished, `result.csv`.
    """

    columns: ClassVar[tuple[str, ...]]
    """Of the result, `env_steps` among them."""

    folder: str = MISSING
    """The cell's folder."""
    seed: int = 0
    """Of everything in the cell."""
    env_steps: int = 20_000
    """Environment steps of training."""
    every: int = 5000
    """Environment steps between evaluations."""
    episodes: int = 100
    """Episodes of each evaluation."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What is unique in a grid."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Cells of a kind take equally long for a step."""

    @property
    def path(self) -> Path:
        """The cell's folder."""
        return Path(self.folder)

    @property
    def result(self) -> Path:
        """There once the cell is finished."""
        return self.path / "result.csv"

    @property
    def log(self) -> Path:
        """What the cell's process printed."""
        return self.path / "log.txt"

    @property
    def wall(self) -> Path:
        """Seconds that the cell has taken."""
        return self.path / "wall_s"

    @property
    def points(self) -> list[int]:
        """Environment steps at which the policy is evaluated."""
        return [*range(self.every, self.env_steps, self.every), self.env_steps]

    @property
    def steps(self) -> Path:
        """Environment steps so far."""
        return self.path / "steps"

    def progress(self) -> tuple[int, float]:
        """Environment steps and seconds so far."""
        return int(self.steps.read_text()) if self.steps.exists() else 0, read_seconds(self.wall)

    def note_settings(self) -> None:
        """Write `cell.json`, by which a later call knows what the folder holds."""
        (self.path / "cell.json").write_text(json.dumps(settings_of(self), indent=1) + "\n")

    def note_steps(self, steps: int) -> None:
        """Write the environment steps so far."""
        fresh = self.steps.with_name("steps.new")
        fresh.write_text(f"{steps}\n")
        os.replace(fresh, self.steps)

    def defect(self) -> str:
        """What is wrong with the result file that is there; empty where nothing is."""
        with self.result.open(newline="", errors="replace") as file:
            text = file.read()
        rows = list(csv.DictReader(text.splitlines()))
        if not rows or tuple(rows[0]) != self.columns:
            return "its columns are not those of a result"
        if not text.endswith("\n") or any(None in row or None in row.values() for row in rows):
            return "a line is cut off"
        if rows[-1]["env_steps"] != str(self.env_steps):
            return f"it ends at {rows[-1]['env_steps']} of {self.env_steps} environment steps"
        return ""


def settings_of(cell: GridCell) -> dict[str, object]:
    """What decides the cell's result."""
    return {name: value for name, value in asdict(cell).items() if name != "folder"}


def check_folders(cells: Iterable[GridCell]) -> None:
    """Raise UserError where a folder holds a cell with other settings."""
    for cell in cells:
        stored = cell.path / "cell.json"
        if not stored.exists():
            continue
        try:
            before = json.loads(stored.read_text())
        except ValueError:  # The process was killed while it began: there is nothing to lose.
            continue
        now = settings_of(cell)
        changed = [name for name in now if before.get(name) != now[name]]
        if changed:
            changes = "; ".join(f"{name} {before.get(name)!r} -> {now[name]!r}" for name in changed)
            raise UserError(f"{cell.path} was run with other settings ({changes}): choose another runs=...")


def run_cells(
    cells: Sequence[GridCell],
    processes: int,
    told: Callable[[Row], str],
    collected: Callable[[], object],
) -> list[GridCell]:
    """Run the cells that have no whole result, and tell how far the grid is.

    Args:
        cells: the grid, in the order in which it is run.
        processes: cells at once.
        told: what to say of a finished cell, from the last row of its result.
        collected: called after every finished cell.

    Returns:
        Those that failed; what they said is printed last.
    """
    _drop_defective(cells)
    waiting = [cell for cell in cells if not cell.result.exists()]
    if len(waiting) < len(cells):
        print(f"{len(cells) - len(waiting)} of {len(cells)} cells are finished already.", flush=True)
    running: list[tuple[GridCell, subprocess.Popen[bytes]]] = []
    failed: list[GridCell] = []
    last = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                cell = waiting.pop(0)
                running.append((cell, _start(cell)))
            time.sleep(POLL_S)
            for cell, process in list(running):
                if process.poll() is None:
                    continue
                running.remove((cell, process))
                if process.returncode == 0 and cell.result.exists():
                    said = told(read_rows(cell.result)[-1])
                    print(f"{cell.name}: {said}. {_status(cells, failed, processes)}", flush=True)
                    collected()
                else:
                    failed.append(cell)
                    with cell.log.open("a") as log:
                        if not cell.log.stat().st_size:
                            log.write(f"exit code {process.returncode}, without a word\n")
                    print(f"{cell.name} FAILED: {_last_line(cell.log)}", flush=True)
            if running and time.monotonic() - last > STATUS_S:
                last = time.monotonic()
                now = ", ".join(
                    f"{cell.name} {cell.progress()[0] / cell.env_steps:.0%}" for cell, _ in running
                )
                print(f"{now}. {_status(cells, failed, processes)}", flush=True)
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            process.wait()
    for cell in failed:
        print(
            f"FAILED {cell.name}: {_last_line(cell.log)} (all of it: {cell.log})\n{_traceback(cell.log)}",
            end="",
        )
    if failed:
        print(f"{len(failed)} of {len(cells)} cells failed; the same command tries them again.", flush=True)
    return failed


def collect(
    cells: Iterable[GridCell],
    path: Path,
    columns: Sequence[str],
    same: Sequence[str],
    *,
    file: str = "result.csv",
) -> bool:
    """Put the rows of the finished cells' `file` into the CSV `path`; false where there are no rows.

    They replace those that agree with them in the columns `same`. Raises UserError where `path` holds other
    columns.
    """
    rows = read_rows(path) if path.exists() else []
    if rows and tuple(rows[0]) != tuple(columns):
        raise UserError(
            f"{path} has the columns {list(rows[0])}, not {list(columns)}: choose another out=..."
        )

    def key(row: Row) -> tuple[str, ...]:
        return tuple(row[name] for name in same)

    fresh = [row for cell in cells if cell.result.exists() for row in read_rows(cell.path / file)]
    replaced = {key(row) for row in fresh}
    rows = [row for row in rows if key(row) not in replaced] + fresh
    rows.sort(key=lambda row: [_number_or_text(row[name]) for name in (*same, "env_steps")])
    if rows:
        write_rows(path, rows)
    return bool(rows)


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _number_or_text(value: str) -> tuple[int, str]:
    return (int(value), "") if value.isdecimal() else (-1, value)


def _drop_defective(cells: Iterable[GridCell]) -> None:
    for cell in cells:
        if cell.result.exists() and (defect := cell.defect()):
            print(f"{cell.result} is half-written ({defect}): {cell.name} is run again.", flush=True)
            cell.result.unlink()


def _start(cell: GridCell) -> subprocess.Popen[bytes]:
    """The cell's own process, on one core."""
    cell.path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", type(cell).__module__, *overrides(asdict(cell))]
    with cell.log.open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def _status(cells: Sequence[GridCell], failed: Sequence[GridCell], processes: int) -> str:
    """How far the grid is, and the time left by the pace of each kind so far."""
    spent: dict[str, tuple[int, float]] = {}
    left: dict[str, int] = {}
    lost = {cell.name for cell in failed}
    done = 0
    for cell in cells:
        finished = cell.result.exists()
        done += finished
        steps, seconds = cell.progress()
        before = spent.get(cell.kind, (0, 0.0))
        spent[cell.kind] = before[0] + steps, before[1] + seconds
        if not finished and cell.name not in lost:
            left[cell.kind] = left.get(cell.kind, 0) + cell.env_steps - steps
    text = f"{done} of {len(cells)} cells finished" + (f", {len(lost)} failed" if lost else "")
    total_steps, total_seconds = (sum(values) for values in zip(*spent.values(), strict=True))
    if not total_steps or not left:
        return f"{text}."
    seconds = 0.0
    for kind, steps in left.items():
        known_steps, known_seconds = spent[kind] if spent[kind][0] else (total_steps, total_seconds)
        seconds += steps * known_seconds / known_steps
    return f"{text}, about {seconds / processes / 60:.0f} min left."


def _lines(log: Path) -> list[str]:
    return [line.rstrip() for line in log.read_text(errors="replace").splitlines() if line.strip()]


def _last_line(log: Path) -> str:
    return (_lines(log) or [""])[-1].strip()


def _traceback(log: Path) -> str:
    """The last traceback in a log; empty where there is none, since one line says it all."""
    lines = _lines(log)
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback ")]
    return "".join(f"  {line}\n" for line in lines[starts[-1] :]) if starts else ""
