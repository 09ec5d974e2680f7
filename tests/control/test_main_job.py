"""The commands on the real simulator, small: the whole job, its interruption, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grasp_control.config import TrainConfig
from grasp_control.run import RunFolder
from grasp_control.stopwatch import read_seconds

SMALL = [
    "env_steps=560",
    "distill.env_steps=80",
    "distill.updates=60",
    "distill.memory_rows=256",
    "algo.batch_size=64",
    "algo.warmup_steps=64",
    "algo.imitation_batch=64",
    "algo.improvement_batch=32",
    "algo.hidden_width=32",
    "algo.cloning_updates=60",
    "algo.choice_after_updates=20",
    "demos.episodes=2",
    "evaluation_episodes=3",
    "checkpoint_every=100",
    "metrics_every=50",
    "curve_every=200",
    "curve_episodes=2",
    "video=false",
]


def command(name: str, *settings: str) -> list[str]:
    return [sys.executable, "-m", f"grasp_control.{name}", *settings]


def run(name: str, *settings: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(name, *settings), cwd=cwd, capture_output=True, text=True, check=False)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished small run that was killed once with SIGKILL and given the same command again."""
    folder = tmp_path_factory.mktemp("job")
    process = subprocess.Popen(command("train", "out=run", *SMALL), cwd=folder, stdout=subprocess.DEVNULL)
    checkpoints = folder / "run" / "checkpoints"
    deadline = time.monotonic() + 200
    # Two checkpoints: the one after cloning, and one inside training.
    while len(list(checkpoints.glob("0*"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "run" / "bundle").exists()
    killed_after, resumed_at = read_seconds(folder / "run" / "wall_s"), time.monotonic()
    again = run("train", "out=run", *SMALL, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "Resuming run at environment step" in again.stdout
    (folder / "stdout").write_text(again.stdout)
    (folder / "seconds").write_text(f"{killed_after} {time.monotonic() - resumed_at}")
    return folder


@pytest.mark.slow
def test_the_job_ends_with_a_proven_bundle_and_a_report(finished):
    run_folder = finished / "run"
    evaluated = rows(run_folder / "evaluation.csv")
    assert {row["policy"] for row in evaluated} == {"cloned", "hybrid", "exported"}
    assert sum(row["policy"] == "exported" for row in evaluated) == 3
    manifest = json.loads((run_folder / "bundle" / "manifest.json").read_text())
    wins = sum(row["success"] == "1" for row in evaluated if row["policy"] == "exported")
    assert manifest["success"]["success_rate"] == pytest.approx(wins / 3)
    [training] = manifest["training"]
    assert training["env_steps"] == 560
    assert training["success"] == {"success_rate": pytest.approx(wins / 3), "episodes": 3}
    with (run_folder / "bundle" / "proof.csv").open(newline="") as file:
        proof = list(csv.DictReader(file))
    assert [row["length"] for row in proof] == [
        row["length"] for row in evaluated if row["policy"] == "exported"
    ]
    assert {row["teacher_success"] for row in proof} == {""}
    report = (run_folder / "report" / "REPORT.md").read_text()
    assert "exported network" in report
    assert (run_folder / "report" / "data" / "episodes.csv").exists()


@pytest.mark.slow
def test_every_stage_says_its_number_and_what_came_of_it(finished):
    said = (finished / "stdout").read_text()
    assert said.startswith("[1/7] Record demonstrations: 2 demonstrations are there already.\n")
    success = r"success (0|33\.3|66\.7|100) % of 3"
    for line in (
        r"\[4/7\] Train EMPO2 takes 480 of the run's 560 environment steps; 80 are for \[6/7\] .*",
        r"\[4/7\] Train EMPO2: 480/480 in \d+ s, success with exploration noise \d+/\d+ recent episodes",
        rf"\[5/7\] Evaluate the hybrid policy: 3/3 in \d+ s, {success}",
        r"\[6/7\] Distil into one network: 60/60 in \d+ s",
        rf"\[7/7\] Prove the exported network alone: 3/3 in \d+ s, {success}",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), line


@pytest.mark.slow
def test_no_step_is_counted_twice_after_the_kill(finished):
    episodes = rows(finished / "run" / "episodes.csv")
    numbers = [int(row["episode"]) for row in episodes]
    assert numbers == list(range(1, len(numbers) + 1))
    assert int(episodes[-1]["env_step"]) == 480
    assert sum(int(row["length"]) for row in episodes) == 480
    practised = rows(finished / "run" / "distillation.csv")
    assert sum(int(row["length"]) for row in practised) == 80


@pytest.mark.slow
def test_the_wall_time_is_that_of_both_calls(finished):
    killed_after, resumed_for = map(float, (finished / "seconds").read_text().split())
    assert killed_after > 0
    assert killed_after < read_seconds(finished / "run" / "wall_s") < killed_after + resumed_for


@pytest.mark.slow
def test_a_finished_run_is_shown_and_not_touched(finished):
    before = {name: (finished / "run" / name).read_bytes() for name in ("evaluation.csv", "wall_s")}
    again = run("train", "out=run", *SMALL, cwd=finished)
    assert again.returncode == 0
    assert "is finished" in again.stdout
    assert {name: (finished / "run" / name).read_bytes() for name in before} == before


@pytest.mark.slow
def test_the_bundle_runs_alone_and_gives_the_reports_episodes_again(finished):
    evaluated = rows(finished / "run" / "evaluation.csv")
    reported = [row for row in evaluated if row["policy"] == "exported"]
    alone = run("evaluate", "bundle=run/bundle", "episodes=3", "json=true", cwd=finished)
    assert alone.returncode == 0, alone.stderr
    results = [json.loads(line) for line in alone.stdout.splitlines() if line.startswith("{")]
    assert [r["length"] for r in results] == [int(row["length"]) for row in reported]
    assert [int(r["success"]) for r in results] == [int(row["success"]) for row in reported]


@pytest.mark.slow
def test_a_run_can_be_distilled_again(finished):
    done = run(
        "distill",
        "teachers=[run]",
        "out=again",
        "episodes=2",
        "distill.updates=30",
        "distill.env_steps=570",  # more than the run had: the teacher's schedules are the run's
        cwd=finished,
    )
    assert done.returncode == 0, done.stderr
    assert "Distilling run as it was at environment step 480.\n" in done.stdout
    manifest = json.loads((finished / "again" / "manifest.json").read_text())
    assert manifest["success"]["episodes"] == 2
    assert manifest["training"][0]["env_steps"] == 480 + 570
    hybrid = [row for row in rows(finished / "run" / "evaluation.csv") if row["policy"] == "hybrid"]
    proof = rows(finished / "again" / "proof.csv")
    assert [row["teacher_length"] for row in proof] == [row["length"] for row in hybrid[-3:-1]]
    assert "Kept of the teachers' mean success: " in done.stdout


@pytest.mark.slow
def test_another_run_can_begin_with_what_a_run_learned(finished):
    settings = [setting for setting in SMALL if not setting.startswith("demos.")]
    done = run("train", "out=next", "demos.runs=[run]", "demos.episodes=0", *settings, cwd=finished)
    assert done.returncode == 0, done.stderr
    assert re.match(r"run at step 480: \d+ successes of its own and 2 demonstrations enter ", done.stdout)
    manifest = json.loads((finished / "next" / "bundle" / "manifest.json").read_text())
    assert manifest["training"][0]["demonstrations"] == 0


@pytest.mark.slow
def test_other_settings_do_not_resume_a_run(finished):
    other = run("train", "out=run", *SMALL, "algo.learning_rate=0.01", cwd=finished)
    assert other.returncode == 2
    assert "algo.learning_rate" in other.stderr
    assert len(other.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_bundle_of_another_control_mode_is_refused(finished):
    refused = run("evaluate", "bundle=run/bundle", "episodes=1", "env.control_mode=osc", cwd=finished)
    assert refused.returncode == 2
    assert "control_mode" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["algo.batch_sise=1"], "algo.batch_size"),
        (["env.name=robosuite-lfit"], "robosuite-lift"),
        (["env.reward=sprse"], "sparse"),
        (["env.control_mode=torque"], "servo"),
        (["algo.batch_size=4096"], "warmup_steps=1024"),
        (["env_steps=1500"], "warmup_steps"),
        (["demos.paths=[nowhere]"], "nowhere"),
        (["demos.runs=[nowhere]"], "nowhere holds no config.yaml"),
        (["demos.kind=clone"], "human-like"),
        (["seed=x"], "seed"),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing_behind(tmp_path, settings, said):
    refused = run("train", "out=run", *settings, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "run").exists()


def test_distilling_over_something_else_is_refused_before_the_work(tmp_path):
    with RunFolder(TrainConfig(out=str(tmp_path / "run"))).begin():
        pass
    (tmp_path / "thesis").mkdir()
    refused = run("distill", "teachers=[run]", "out=thesis", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == "grasp-distill: thesis exists and is not a policy bundle: choose another path.\n"


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("evaluate", ["bundle=nowhere"], "nowhere"),
        ("evaluate", [], "bundle"),
        ("distill", ["teachers=[nowhere]", "out=b"], "nowhere holds no config.yaml"),
        ("distill", [], "teachers"),
    ],
)
def test_what_does_not_exist_is_named(tmp_path, name, settings, said):
    refused = run(name, *settings, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
