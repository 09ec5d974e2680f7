"""grasp-study: the grid, its files, what it does about cells that fail or were cut off, and its report."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from grasp_control.cells import read_rows
from grasp_control.study import cell as cells
from grasp_control.study.cell import COLUMNS, MEMORY_COLUMNS, Cell
from grasp_control.study.command import StudyConfig, main
from grasp_control.study.lift_task import settings
from grasp_control.study.series import read_series
from grasp_control.study.verdicts import diagnostics, in_words, verdicts
from grasp_sim.cli import overrides


def test_the_default_grid_is_that_of_the_study():
    grid = StudyConfig().cells()
    assert len(grid) == len({cell.name for cell in grid}) == 5 * (4 * 3 + 1)
    assert {cell.structure for cell in grid if cell.memory == "on+filter"} == {"noisy"}
    assert StudyConfig().processes <= 2
    first = [cell.seed for cell in grid[: len(grid) // 5]]
    assert set(first) == {0}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("structures=[dens]", "structures=dens is not known. Did you mean 'dense'?"),
        ("memories=[onn]", "Did you mean 'on'?"),
        ("memories=[off+filter]", "a filter of what is written needs a memory"),
        ("delay=61", "grid: delay=61 is longer than an episode of grid: horizon=60 steps"),
        ("tasks=[gird]", "Did you mean 'grid'?"),
        ("seeds=[-1]", "must not be negative"),
        ("seeds=[]", "seeds is empty"),
        ("processes=3", "must be 1 or 2"),
        ("grid.every=0", "must be at least 1"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(setting, message, tmp_path, capsys):
    assert main([setting, f"runs={tmp_path}/runs", f"out={tmp_path}/out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["structures=[sparse]", "delay=3"], "delay=3 is for structures=[delayed]"),
        (["structures=[dense]", "memories=[on+filter]"], "leaves nothing to run"),
        (["tasks=[lift]", "settings=['algo.batch=2']"], "there is no setting 'algo.batch'"),
        (["report", "out=nowhere/study"], "run grasp-study out=nowhere/study first"),
    ],
)
def test_what_contradicts_itself_is_one_clear_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_help_teaches(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for word in (
        "grasp-study",
        "sparse, dense, delayed, noisy",
        "adaptive",
        "+filter",
        "Examples",
        "grid.every",
    ):
        assert word in text


def test_the_arms_of_lift_differ_in_the_memory_alone():
    """The settings of grasp-train that differ from those with the memory in full."""
    found = {}
    for memory in ("on", "off", "told", "adaptive"):
        cell = Cell(folder="f", env="lift", structure="dense", memory=memory, horizon=70, env_steps=5000)
        found[memory] = settings(cell).train_config()
    differing = {
        memory: {
            f"{group}.{name}"
            for group in ("env", "algo", "memory", "demos", "distill")
            for name, value in vars(getattr(config, group)).items()
            if value != getattr(getattr(found["on"], group), name)
        }
        for memory, config in found.items()
    }
    assert differing["on"] == set()
    assert differing["told"] == differing["adaptive"] == {"algo.gate"}
    assert {name.split(".")[0] for name in differing["off"]} == {"algo", "memory"}
    assert found["off"].memory.retrieval is False
    assert found["off"].algo.memory_share_start == 0.0
    assert found["told"].algo.gate.structure == "dense"


TINY = ["seeds=[0]", "structures=[sparse]", "memories=[off,on]", "grid.env_steps=300", "grid.every=100"]


def test_a_failed_and_a_cut_off_cell_hide_no_other_and_are_run_again(tmp_path, capsys):
    runs = tmp_path / "runs"
    arguments = [*TINY, "grid.episodes=2", f"runs={runs}", f"out={tmp_path}/study"]
    off, on = (runs / f"grid_sparse_{memory}_seed0" for memory in ("off", "on"))
    blocked = off / "retrievals.csv.new"  # in the way of a file that the cell writes
    blocked.mkdir(parents=True)

    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert told.count("Grid world of 10 by 10 cells, 60 steps. sparse: ") == 1
    assert told.index("grid_sparse_on_seed0: solved") < told.index("FAILED grid_sparse_off_seed0: ")
    assert "1 of 2 cells failed" in told
    found = read_rows(tmp_path / "study.csv")
    assert tuple(found[0]) == COLUMNS
    assert tuple(read_rows(tmp_path / "study_memory.csv")[0]) == MEMORY_COLUMNS
    assert [(row["memory"], row["env_steps"]) for row in found] == [("on", s) for s in ("100", "200", "300")]

    blocked.rmdir()
    text = (on / "result.csv").read_text()
    (on / "result.csv").write_text(text[:-8])
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert f"{on}/result.csv is half-written (a line is cut off): grid_sparse_on_seed0 is run again" in told
    assert (on / "result.csv").read_text() == text
    assert len(read_rows(tmp_path / "study.csv")) == 6

    report = (tmp_path / "study.md").read_text()
    for title in ("## Results", "## Verdicts", "## Figures: grid", "study_grid_heat.png"):
        assert title in report
    assert {path.name for path in tmp_path.glob("*.png")} == {
        f"study_grid_{name}.png" for name in ("return", "speed", "entropy", "hits", "heat", "curves")
    }
    kept = (on / "result.csv").stat().st_mtime_ns
    assert main(arguments) == 0
    assert "2 of 2 cells are finished already" in capsys.readouterr().out
    assert ((on / "result.csv").stat().st_mtime_ns, (tmp_path / "study.md").read_text()) == (kept, report)

    assert main([*arguments, "grid.episodes=3"]) == 2
    assert "episodes 2 -> 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: "", "its columns are not those of a result"),
        (lambda text: text[: text.rindex("grid")], "it ends at 200 of 300 environment steps"),
        (lambda text: text[:-1], "a line is cut off"),
        (lambda text: text.replace("return", "reward"), "its columns are not those of a result"),
        (lambda text: text, ""),
    ],
)
def test_half_written_results_are_told_from_whole_ones(damage, reason, tmp_path):
    cell = Cell(folder=str(tmp_path), env="grid", structure="sparse", memory="off", env_steps=300, every=100)
    rows = [{**cell.same, "env_steps": s, "return": 0, "entropy": 1, "hit_rate": ""} for s in (100, 200, 300)]
    cells.write_rows(cell.result, rows)
    cell.result.write_text(damage(cell.result.read_text()))
    assert cell.defect() == reason


def test_a_killed_cell_that_is_run_again_gives_the_same_result(tmp_path):
    def cell(name: str) -> Cell:
        return Cell(
            folder=str(tmp_path / name),
            env="grid",
            structure="noisy",
            memory="on+filter",
            env_steps=1500,
            every=250,
            episodes=2,
        )

    def start(one: Cell) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "grasp_control.study.cell", *overrides(asdict(one))]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    killed, whole = cell("killed"), cell("whole")
    first = start(killed)
    end = time.monotonic() + 60.0
    while not killed.progress()[0] and time.monotonic() < end and first.poll() is None:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not killed.result.exists()
    for one in (killed, whole):
        assert start(one).wait() == 0
    for name in ("result.csv", "memory.csv", "retrievals.csv"):
        assert (killed.path / name).read_bytes() == (whole.path / name).read_bytes()


def measured(structure: str, memory: str, returns: list[float], **more: object) -> list[dict[str, str]]:
    """A row for each of 4 points and of as many seeds as `returns` are given."""
    return [
        {
            name: str(value)
            for name, value in {
                **{"env": "grid", "structure": structure, "memory": memory, "seed": seed},
                **{"env_steps": steps, "return": level, "entropy": 0.5, "hit_rate": "", **more},
            }.items()
        }
        for seed, level in enumerate(returns)
        for steps in (1, 2, 3, 4)
    ]


def verdict_of(rows: list[dict[str, str]]) -> dict[str, str]:
    return {str(line["claim"])[:20]: str(line["verdict"]) for line in verdicts(read_series(rows))}


LOW, HIGH = [0.1, 0.12, 0.14, 0.16, 0.18], [0.8, 0.82, 0.84, 0.86, 0.88]


def test_verdicts_follow_the_intervals():
    for structure, on_better, off_better, claim in (
        ("sparse", "confirmed", "refuted", "memory learns faster"),
        ("delayed", "confirmed", "refuted", "memory learns faster"),
        ("dense", "refuted", "confirmed", "memory gains nothing"),
        ("noisy", "refuted", "confirmed", "unfiltered memory is"),
    ):
        better = verdict_of(measured(structure, "off", LOW) + measured(structure, "on", HIGH))
        worse = verdict_of(measured(structure, "off", HIGH) + measured(structure, "on", LOW))
        assert (better[claim], worse[claim]) == (on_better, off_better)
    wide = [0.0, 1.0, 0.0, 1.0, 0.5]
    open_ = verdict_of(measured("sparse", "off", wide) + measured("sparse", "on", wide[::-1]))
    assert open_["memory learns faster"] == "undecided"


def test_few_seeds_settle_nothing():
    rows = measured("sparse", "off", LOW[:3]) + measured("sparse", "on", HIGH[:3])
    assert verdict_of(rows)["memory learns faster"] == "open with 3 seeds: confirmed so far"


def test_the_adaptive_arm_is_held_against_the_better_of_the_others():
    both = measured("sparse", "off", LOW) + measured("sparse", "on", HIGH)
    claim = "the adaptive gate is"
    assert verdict_of(both + measured("sparse", "adaptive", LOW))[claim] == "refuted"
    assert verdict_of(both + measured("sparse", "adaptive", HIGH))[claim] == "confirmed"


def test_the_filter_is_held_against_the_memory_without_it():
    rows = measured("noisy", "on", LOW) + measured("noisy", "on+filter", HIGH)
    assert verdict_of(rows)["a filter mends it"] == "confirmed"


def test_the_verdict_is_said_in_words():
    rows = measured("noisy", "off", HIGH) + measured("noisy", "on", LOW)
    rows += measured("noisy", "on+filter", HIGH) + measured("noisy", "adaptive", HIGH)
    (said,) = in_words(read_series(rows))
    assert said == (
        "grid, noisy: over the whole run memory harms (-0.70), at the end it harms (-0.70). With the filter "
        "it makes no difference (+0.00) at the end. Against the better of the two, off, the adaptive gate "
        "makes no difference (+0.00)."
    )


def test_a_series_by_hand():
    rows = measured("sparse", "on", [0.0, 0.0])
    for row, value in zip(rows, (0.0, 0.8, 0.4, 1.0, 0.0, 0.2, 0.4, 0.6), strict=True):
        row["return"] = str(value)
    rows[1]["hit_rate"], rows[3]["hit_rate"] = "0.5", "1.0"
    (one,) = read_series(rows)
    assert one.final.tolist() == [1.0, 0.6]
    assert one.whole == pytest.approx([0.55, 0.3])
    assert one.to_target.tolist() == [2, 4]
    assert one.reached == 1
    assert one.hit_rate[0] == 0.75
    assert np.isnan(one.hit_rate[1])


def memory_rows(structure: str, seeds: int, **values: object) -> list[dict[str, str]]:
    blank = dict.fromkeys(MEMORY_COLUMNS, "") | {"env": "grid", "structure": structure, "memory": "on"}
    return [
        {k: str(v) for k, v in {**blank, "env_steps": 4, "seed": s, **values}.items()} for s in range(seeds)
    ]


def signs(rows: list[dict[str, str]], memory: list[dict[str, str]]) -> dict[str, str]:
    found = diagnostics(read_series(rows), memory)
    return {str(line["sign"]): str(line["what was measured"]) for line in found if line["memory"] == "on"}


def test_signs_of_trouble_are_named_with_what_was_measured():
    worse = measured("dense", "off", HIGH) + measured("dense", "on", LOW, entropy=0.9, hit_rate=0.3)
    found = signs(worse, memory_rows("dense", 5, rows=7, distance=0.5))
    assert (
        "late entropy 0.90 against 0.50 nats (it does not settle), hit rate 0.30"
        in found["on but worse than off"]
    )
    assert "0.50 cells away" in found["low hit rate"]
    found = signs(measured("sparse", "on", LOW), memory_rows("sparse", 5, rows=0))
    assert found["no success in memory"].startswith("seeds 0, 1, 2, 3, 4: ")
    found = signs(measured("sparse", "on", [0.0, 0.9]), memory_rows("sparse", 2, rows=3))
    assert "below half of the best: 0" in found["seeds disagree"]
    swinging = [
        {
            **row,
            "env_steps": str(8 * k + int(row["env_steps"])),
            "return": str(k % 2 or int(row["env_steps"]) % 2),
        }
        for k in range(2)
        for row in measured("noisy", "on", LOW)
    ]
    for row in swinging:
        row["return"] = str(int(row["env_steps"]) % 2)
    written = memory_rows("noisy", 5, rows=3, write_low=0.1, write_median=1.5, write_high=2.0)
    assert "returns of the last 100 writes: 0.10, 1.50, 2.00" in signs(swinging, written)["late oscillation"]
    assert signs(measured("sparse", "on", HIGH), memory_rows("sparse", 5, rows=3)) == {}


def test_results_of_other_columns_are_not_overwritten(tmp_path, capsys):
    with (tmp_path / "study.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [1, 2]])
    (tmp_path / "study_memory.csv").write_text("a,b\n1,2\n")
    assert main(["report", f"out={tmp_path}/study"]) == 2
    assert "does not hold the columns" in capsys.readouterr().err
    assert Path(tmp_path / "study.csv").read_text().startswith("a,b")
