"""grasp-programs learns, resumes and writes; what it found performs the demonstrations of grasp-train."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from grasp_control.build import load_demonstrations
from grasp_control.config import DemosConfig, TrainConfig
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.expert import ProgramExpert
from grasp_control.mapo.train import ProgramsConfig, load_policy, train
from grasp_control.run import RunFolder
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UserError

SMALL = {"objects": "lift", "problems": 8, "held_out": 5, "every": 60}
LEARNER = MAPOConfig(problems=8, hidden=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("programs") / "lift"
    train(ProgramsConfig(executions=60, out=str(out), mapo=LEARNER, **SMALL))
    train(ProgramsConfig(executions=120, out=str(out), mapo=LEARNER, **SMALL))
    return out


def test_a_run_goes_on_and_writes_what_it_found(folder, capsys):
    train(ProgramsConfig(executions=120, out=str(folder), mapo=LEARNER, **SMALL))  # nothing is left to do
    said = capsys.readouterr().out
    assert "training objects lifted" in said
    assert said.count("cube of") == 5
    with (folder / "programs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    policy, task = load_policy(folder)
    assert policy.encoder[-1].out_features == 32
    assert len(rows) > 0
    for row in rows:
        assert task.execute(row["object"], tuple(map(int, row["tokens"].split()))) == 1.0
    assert (folder / "programs.md").read_text().count("cube of") == 5


def test_another_seed_in_the_same_folder_is_refused(folder):
    with pytest.raises(UserError, match="seed 0 -> 1"):
        train(ProgramsConfig(executions=120, seed=1, out=str(folder), mapo=LEARNER, **SMALL))


def test_demonstrations_are_performed_by_the_programs(folder, tmp_path):
    config = TrainConfig(
        seeds=str(folder),
        out=str(tmp_path / "run"),
        env=EnvConfig(name="pybullet-lift"),
        demos=DemosConfig(episodes=2),
    )
    env = registry.make("pybullet-lift", seed=0)
    episodes = load_demonstrations(config, RunFolder(config), env)
    assert len(episodes) == 2
    for episode in episodes:
        assert episode.metadata.success
        assert episode.metadata.note == f"programs of {folder}"


def test_a_folder_without_programs_and_contradictions_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="holds no run of grasp-programs"):
        load_policy(tmp_path)
    osc = registry.make("pybullet-lift", control_mode="osc", seed=0)
    with pytest.raises(UserError, match="programs were found with the servo"):
        ProgramExpert(osc, folder)
    with pytest.raises(ValueError, match=r"leave out seeds, or demos\.paths"):
        TrainConfig(seeds=str(folder), demos=DemosConfig(paths=["elsewhere"]))
    with pytest.raises(ValueError, match=r"demos\.episodes=0 ask for none"):
        TrainConfig(seeds=str(folder), demos=DemosConfig(episodes=0))
