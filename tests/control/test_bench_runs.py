"""Runs side by side: what is averaged, and that a narrow terminal hides nothing."""

from __future__ import annotations

import csv
import re

import pytest

from grasp_control.bench import main
from grasp_control.bench.measure import Figure, show, show_rows
from grasp_control.bench.runs import learning_curves, table
from grasp_control.config import TrainConfig
from grasp_control.metrics import MetricsWriter
from grasp_control.run import RunFolder
from grasp_sim.config import EnvConfig


def write_stream(run_dir, stream: str, rows: list[dict]) -> None:
    """The stream as a run that wrote only these rows leaves it."""
    (run_dir / f"{stream}.csv").unlink(missing_ok=True)
    with MetricsWriter(run_dir) as metrics:
        metrics.write_table(stream, rows)


def make_run(folder, env: EnvConfig, successes: int, policies=("cloned", "hybrid", "exported")):
    """A run's folder with ten episodes of each policy, those of the cloned and the hybrid one all failed."""
    with RunFolder(TrainConfig(out=str(folder), env=env)).begin():
        pass
    write_stream(
        folder,
        "evaluation",
        [
            {"policy": policy, "env_step": step, "success": n < wins, "return": 1.0, "length": 50, "slip": 0}
            for policy, step, wins in (("cloned", 0, 0), ("hybrid", 90, 0), ("exported", 100, successes))
            if policy in policies
            for n in range(10)
        ],
    )
    episode = {"env_step": 50, "success": 1, "repeated_start": 0}
    write_stream(folder, "episodes", [episode])
    return folder


@pytest.fixture
def runs(tmp_path):
    servo, osc = EnvConfig(), EnvConfig(control_mode="osc")
    return [
        make_run(tmp_path / "servo-0", servo, 8),
        make_run(tmp_path / "osc-0", osc, 2),
        make_run(tmp_path / "servo-1", servo, 9),
    ]


def test_only_runs_of_one_environment_and_mode_are_averaged(runs):
    rows = table(runs)
    assert [row["run"] for row in rows] == ["servo-0", "servo-1", "mean of 2, robosuite-lift servo", "osc-0"]
    assert [row["exported network"] for row in rows] == [
        "80% (49%-94%, n=10)",
        "90% (60%-98%, n=10)",
        "85.0%",
        "20% (6%-51%, n=10)",
    ]


def test_the_command_writes_the_table_it_prints(runs, tmp_path, capsys):
    out = tmp_path / "compared"
    assert main(["runs", f"runs=[{','.join(map(str, runs))}]", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    for text in (printed, out.with_suffix(".md").read_text()):
        assert "servo-1" in text
        assert "85.0%" in text
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_every_policy_stands_at_the_step_that_its_run_recorded(runs, tmp_path):
    write_stream(runs[0], "train", [{"env_step": s, "retrieval_fallbacks": n} for s, n in ((50, 1), (90, 4))])
    (runs[0] / "wall_s").write_text("90.0\n")
    assert main(["runs", f"runs=[{runs[0]},{runs[1]}]", f"out={tmp_path}/v1.2"]) == 0
    with (tmp_path / "v1.2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["env_steps"]) for row in rows[:3]] == [
        ("exported", "100"),
        ("hybrid", "90"),
        ("cloned", "0"),
    ]
    assert [(row["retrieval_fallbacks"], row["wall_min"]) for row in rows[::3]] == [("4", "1.5"), ("", "")]


def test_a_policy_that_one_run_lacks_has_an_empty_cell_and_no_mean(runs, tmp_path):
    lacking = make_run(tmp_path / "servo-2", EnvConfig(), 5, policies=("exported",))
    rows = table([runs[0], lacking])
    assert [row["cloned policy"] for row in rows] == ["0% (0%-28%, n=10)", "", ""]
    assert rows[-1]["exported network"] == "65.0%"
    learning_curves([runs[0], lacking])


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 40 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "40")


def test_a_narrow_terminal_shows_names_and_units_whole(narrow, capsys):
    show_rows("Runs", [{"run": f"robosuite-lift-servo-seed{n}", "each [ms]": "1.0 to 2.0"} for n in (0, 1)])
    show("Times", [Figure("part", "a_name_that_is_longer_than_its_column", 7, "wall p50", 1.5, "ms")])
    printed = capsys.readouterr().out
    letters = re.sub(r"\x1b\[[0-9;]*m|[^A-Za-z0-9\[\]_-]", "", printed)
    for whole in ("seed0", "seed1", "[ms]", "column"):
        assert whole in letters
    assert "…" not in printed
