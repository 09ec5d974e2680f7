"""A grid of cells: what fails hides nothing, what is cut off is run again. The processes are tiny ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from grasp_control import cells
from grasp_control.cells import GridCell, collect, read_rows, run_cells

WHOLE = "seed,env_steps,score\\n{seed},100,1\\n"
DOES = {
    0: f"open('result.csv', 'w').write('{WHOLE.format(seed=0)}')",
    1: "def deep():\n    raise ZeroDivisionError('one by nothing')\ndeep()",
    2: "import os; os.kill(os.getpid(), 9)",
    3: f"open('result.csv', 'w').write('{WHOLE.format(seed=3)}')",
}


@dataclass
class Tiny(GridCell):
    """Its process does what `DOES` says of its seed."""

    columns = ("seed", "env_steps", "score")

    @property
    def name(self) -> str:
        return f"tiny{self.seed}"

    @property
    def kind(self) -> str:
        return "tiny"


@pytest.fixture
def grid(tmp_path, monkeypatch) -> list[Tiny]:
    def start(cell: Tiny) -> subprocess.Popen[bytes]:
        cell.path.mkdir(exist_ok=True)
        cell.note_settings()
        with cell.log.open("wb") as log:
            command = [sys.executable, "-c", DOES[cell.seed]]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=cell.path)

    monkeypatch.setattr(cells, "_start", start)
    return [Tiny(folder=str(tmp_path / str(seed)), seed=seed, env_steps=100) for seed in DOES]


def test_failures_are_told_with_their_traceback_at_the_end_and_the_rest_goes_on(grid, capsys):
    collected = []
    failed = run_cells(grid, 2, lambda last: f"score {last['score']}", lambda: collected.append(1))
    assert [cell.seed for cell in sorted(failed, key=lambda cell: cell.seed)] == [1, 2]
    told = capsys.readouterr().out
    assert len(collected) == 2
    assert "tiny3: score 1. 2 of 4 cells finished" in told
    end = told[told.index("FAILED tiny") :]
    assert told.index("tiny3: score") < told.index("FAILED tiny")
    assert "FAILED tiny1: ZeroDivisionError: one by nothing (all of it: " in end
    assert "  Traceback (most recent call last):" in end
    assert ", in deep" in end
    assert "FAILED tiny2: exit code -9, without a word" in end
    assert end.endswith("2 of 4 cells failed; the same command tries them again.\n")


def test_finished_cells_are_kept_and_half_written_ones_run_again(grid, capsys):
    run_cells(grid[::3], 1, str, lambda: None)
    first, last = grid[0].result, grid[3].result
    first.write_text("seed,env_steps,score\n0,10")
    capsys.readouterr()
    assert run_cells(grid[::3], 1, str, lambda: None) == []
    told = capsys.readouterr().out
    assert f"{first} is half-written (a line is cut off): tiny0 is run again." in told
    assert "1 of 2 cells are finished already." in told
    assert first.read_text() == "seed,env_steps,score\n0,100,1\n"
    assert str(last) not in told


def test_collected_rows_replace_those_of_the_same_cell_and_leave_others(grid, tmp_path):
    run_cells(grid[::3], 2, str, lambda: None)
    out = Path(tmp_path / "all.csv")
    out.write_text("seed,env_steps,score\n10,100,7\n3,50,7\n2,100,7\n")
    assert collect(grid, out, Tiny.columns, ["seed"])
    assert [(row["seed"], row["score"]) for row in read_rows(out)] == [
        ("0", "1"),
        ("2", "7"),
        ("3", "1"),
        ("10", "7"),
    ]
