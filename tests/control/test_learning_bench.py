"""grasp-bench learning: the grid, its files, and what it does about cells that fail or are there already."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from grasp_control.bench import learning
from grasp_control.bench.learning import LearningConfig
from grasp_control.bench.learning_cell import COLUMNS, VARIANTS, Cell
from grasp_control.bench.learning_report import read_curves, report, step_ratios, summary


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def line(method: str, seed: int, steps: int, success: float, env: str = "pybullet-lift") -> dict[str, object]:
    demos = 5 if method in ("empo2", "sac-demos") else 0
    values = (env, method, "full", seed, demos, steps, success, 100, 1.0, 0, 0)
    return dict(zip(COLUMNS, values, strict=True))


def write(path: Path, lines: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)


def test_the_grid_runs_a_baseline_once_whatever_the_variants():
    config = LearningConfig(variants=["full", "no-window"], seeds=[0, 1], demos=[5, 20])
    names = [cell.name for cell in config.cells()]
    assert len(names) == len(set(names)) == 2 * (2 * 2 + 2 + 1 + 1)
    assert "pybullet-lift_sac_full_seed1_demos0" in names
    assert "pybullet-lift_empo2_no-window_seed0_demos20" in names
    assert names[: len(names) // 2] == [name for name in names if "_seed0_" in name]


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_is_a_setting_that_exists_and_changes_something(variant):
    full, changed = (
        Cell(folder="f", env="pybullet-lift:dense", method="empo2", variant=name, demos=3).train_config()
        for name in ("full", variant)
    )
    assert (full != changed) == (variant != "full")
    assert (full.env_steps, full.distill.env_steps, full.curve_every) == (20_000, 0, 5000)
    assert (full.env.reward, full.demos.episodes) == ("dense", 3)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("methods=[sak]", "methods=sak is not known. Did you mean 'sac'?"),
        ("environments=[pybullet-lfit]", "Did you mean 'pybullet-lift'?"),
        ("environments=['pybullet-lift:dens']", "Did you mean 'dense'?"),
        ("variants=[no-windo]", "Did you mean 'no-window'?"),
        ("seeds=[1,1]", "holds the same twice"),
        ("demos=[0]", "at least 1"),
        ("processes=3", "must be 1 or 2"),
        ("settings=['algo.batch=2']", "there is no setting 'algo.batch'"),
        ("env_steps=500", "algo.warmup_steps=1024"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(setting, message, tmp_path, capsys):
    assert learning.run([setting, f"runs={tmp_path}/runs", f"out={tmp_path}/out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_teaches(capsys):
    assert learning.run(["--help"]) == 0
    text = capsys.readouterr().out
    for word in ("grasp-bench learning", "sac-demos", "Examples", "processes", *VARIANTS):
        assert word in text


TINY = ["methods=[ppo,sac,sac-demos]", "seeds=[0]", "demos=[2]", "env_steps=300", "every=150", "episodes=2"]


@pytest.mark.slow
def test_a_tiny_grid_survives_a_failing_cell_and_goes_on_where_it_stopped(tmp_path, capsys):
    settings = [*TINY, f"runs={tmp_path}/runs", f"out={tmp_path}/learning"]
    failing = tmp_path / "runs" / "pybullet-lift_sac-demos_full_seed0_demos2"
    failing.mkdir(parents=True)
    (failing / "run").write_text("in the way")

    assert learning.run(settings) == 1
    told = capsys.readouterr().out
    assert "FAILED pybullet-lift_sac-demos_full_seed0_demos2: cell: " in told
    assert "min left" in told
    found = rows(tmp_path / "learning.csv")
    assert tuple(found[0]) == COLUMNS
    assert [(r["method"], r["env_steps"], r["episodes"]) for r in found] == [
        ("ppo", "150", "2"),
        ("ppo", "300", "2"),
        ("sac", "150", "2"),
        ("sac", "300", "2"),
    ]
    assert (tmp_path / "learning.md").exists()
    assert (tmp_path / "learning.png").exists()

    (failing / "run").unlink()
    finished = tmp_path / "runs" / "pybullet-lift_ppo_full_seed0_demos0" / "result.csv"
    before = finished.stat().st_mtime_ns
    assert learning.run(settings) == 0
    assert "2 of 3 cells are finished already" in capsys.readouterr().out
    assert finished.stat().st_mtime_ns == before
    assert rows(tmp_path / "learning.csv")[:4] == found
    assert [r["method"] for r in rows(tmp_path / "learning.csv")[4:]] == ["sac-demos"] * 2

    # Other settings in the same folder are refused; rows of other grids stay in the file.
    assert learning.run([*settings, "env_steps=600"]) == 2
    assert "env_steps 300 -> 600" in capsys.readouterr().err
    assert learning.run([*settings, f"runs={tmp_path}/others", "seeds=[1]", "methods=[ppo]"]) == 0
    assert len(rows(tmp_path / "learning.csv")) == 8


SMALL_EMPO2 = (
    "settings=['algo.batch_size=64','algo.warmup_steps=64','algo.imitation_batch=64',"
    "'algo.improvement_batch=32','algo.hidden_width=32','algo.cloning_updates=40','env.horizon=40']"
)


@pytest.mark.slow
def test_empo2_is_measured_after_cloning_on_the_way_and_at_the_end(tmp_path):
    settings = [*TINY, "methods=[empo2]", "variants=[full,no-window]", SMALL_EMPO2]
    assert learning.run([*settings, f"runs={tmp_path}/runs", f"out={tmp_path}/learning"]) == 0
    found = rows(tmp_path / "learning.csv")
    assert [(r["variant"], r["env_steps"]) for r in found] == [
        (variant, steps) for variant in ("full", "no-window") for steps in ("0", "150", "300")
    ]
    walls = [float(r["wall_s"]) for r in found[:3]]
    assert walls == sorted(walls)
    folder = tmp_path / "runs" / "pybullet-lift_empo2_full_seed0_demos2"
    assert json.loads((folder / "cell.json").read_text())["env_steps"] == 300
    assert not (folder / "run" / "bundle").exists()


def test_the_report_names_levels_and_ratios(tmp_path):
    lines = []
    for seed in range(4):
        for steps, empo2, sac, ppo in ((1000, 0.5, 0.0, 0.0), (2000, 0.95, 0.1, 0.0), (8000, 1.0, 0.9, 0.2)):
            lines += [line("empo2", seed, steps, empo2), line("sac", seed, steps, sac)]
            lines.append(line("ppo", seed, steps, ppo))
    lines.append(line("empo2", 0, 500, 0.3))  # evaluated in one run only: no point of the curve
    write(tmp_path / "all.csv", lines)
    curves = read_curves(tmp_path / "all.csv")
    assert [list(curve.steps) for curve in curves] == [[1000, 2000, 8000]] * 3
    assert [row["steps to 90%"] for row in summary(curves)] == ["2,000", "8,000", "not reached"]
    assert summary(curves)[0]["success (95 %)"] == "100.0% (100.0% to 100.0%)"
    assert summary(curves)[0]["on the way"] == "50.0% at 1,000, 95.0% at 2,000"
    assert [row["ratio"] for row in step_ratios(curves)] == ["4.0", "more than 4.0"]
    report(tmp_path / "all")
    assert "not reached" in (tmp_path / "all.md").read_text()
    assert (tmp_path / "all.png").stat().st_size > 1000


def test_runs_that_share_only_the_cloned_policy_have_no_ratio(tmp_path):
    """Two seeds of EMPO2 that were evaluated at different steps: only step 0 is on the curve."""
    lines = [line("empo2", seed, steps, 0.95) for seed in (0, 1) for steps in (0, 100 + seed)]
    write(tmp_path / "a.csv", [*lines, line("sac", 0, 1000, 0.9)])
    curves = read_curves(tmp_path / "a.csv")
    assert [list(curve.steps) for curve in curves] == [[0], [1000]]
    assert step_ratios(curves) == []


def test_several_tasks_are_summed_up(tmp_path):
    tasks = ("pybullet-lift", "pybullet-objects")
    both = [line("sac", seed, 100, 0.25 + 0.5 * i, env) for seed in range(4) for i, env in enumerate(tasks)]
    write(tmp_path / "a.csv", both)
    over = summary(read_curves(tmp_path / "a.csv"))[-1]
    assert over["task"] == "all 2"
    assert str(over["success (95 %)"]).startswith("50.0%")


def test_a_report_of_nothing_says_what_to_run(tmp_path, capsys):
    assert learning.run(["report", f"out={tmp_path}/none"]) == 2
    assert "run grasp-bench learning" in capsys.readouterr().err


def test_drops_and_breakages_are_told_per_hundred_episodes_of_the_last_point(tmp_path):
    faults = [
        {"drops": 9, "broken": 9},
        {"drops": 2, "broken": 0},
        {"drops": 9, "broken": 9},
        {"drops": 5, "broken": 1},
    ]
    points = [line("empo2", seed, steps, 0.9) for seed in range(2) for steps in (1000, 2000)]
    write(tmp_path / "all.csv", [point | fault for point, fault in zip(points, faults, strict=True)])
    (row,) = summary(read_curves(tmp_path / "all.csv"))
    assert (row["drops per 100"], row["broken per 100"]) == (3.5, 0.5)


def test_programs_are_looked_for_by_task_and_seed(tmp_path):
    settings = {"env": "pybullet-slippery", "method": "empo2", "variant": "from-programs"}
    cell = Cell(folder=str(tmp_path), seed=3, demos=5, **settings)
    assert cell.train_config().seeds == "runs/slippery-programs-seed3"
