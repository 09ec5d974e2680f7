"""grasp-bench expert, transfer, pictures and sim, tiny: they run through and write what they say."""

from __future__ import annotations

import csv
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from grasp_control.bench import main
from grasp_control.bench.sim import random_actions
from grasp_control.bench.train import PARTS
from grasp_control.build import torch_generator
from grasp_control.bundle import export_bundle
from grasp_control.config import TrainConfig
from grasp_control.memory.window import window_width
from grasp_control.networks import DistilledPolicy, Normaliser, mlp
from grasp_control.provenance import manifest_of, training_of
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_expert_is_counted_in_both_control_modes(tmp_path, capsys):
    out = f"out={tmp_path}/v1.2"
    assert main(["expert", "environments=[pybullet-lift]", "episodes=2", "seed=3", out]) == 0
    assert "Scripted expert" in capsys.readouterr().out
    found = rows(tmp_path / "v1.2.csv")
    assert [(row["control_mode"], row["seed"]) for row in found] == [
        (mode, seed) for mode in registry.CONTROL_MODES for seed in ("3", "4")
    ]
    assert "95 % interval" in (tmp_path / "v1.2.md").read_text()


def test_a_bundle_is_run_in_every_environment(tmp_path):
    """An untrained network: what counts is that it is run as often as asked and named as what it is."""
    config = TrainConfig(out=str(tmp_path / "run"), env=EnvConfig(name="pybullet-lift"))
    width = window_width(config.context, OBSERVATION_DIM, ACTION_DIM)
    network = DistilledPolicy(
        Normaliser(np.zeros(width), np.ones(width)),
        mlp(width, ACTION_DIM, torch_generator(0, "student"), hidden=(8,)),
    )
    env = registry.make("pybullet-lift")
    manifest = manifest_of(
        [training_of(config, "run", env_steps=0)],
        control_mode="servo",
        scale=env.action_scale,
        context=config.context,
    )
    env.close()
    export_bundle(tmp_path / "bundle", network, manifest=manifest)
    settings = [f"bundles=[{tmp_path}/bundle]", "episodes=2", "horizon=3", f"out={tmp_path}/transfer"]
    assert main(["transfer", *settings]) == 0
    found = rows(tmp_path / "transfer.csv")
    assert [(row["train_env"], row["test_env"]) for row in found] == [
        ("pybullet-lift", "robosuite-lift"),
        ("pybullet-lift", "pybullet-lift"),
    ]
    assert [(row["episodes"], row["mean_steps"]) for row in found] == [("2", "3.0")] * 2
    assert "in robosuite-lift" in (tmp_path / "transfer.md").read_text()


def test_a_picture_has_the_size_asked_for(tmp_path):
    settings = ["environments=[pybullet-lift]", "width=64", "height=48", f"out={tmp_path}"]
    assert main(["pictures", *settings]) == 0
    assert imageio.imread(tmp_path / "pybullet-lift.png").shape == (48, 64, 3)


def test_only_the_same_actions_are_compared_with_plain_robosuite(tmp_path, capsys):
    tiny = ["environments=[robosuite-lift]", "rounds=1", "steps=5", "resets=3", "processes=1", "each=2"]
    assert main(["sim", *tiny, f"out={tmp_path}/sim.csv"]) == 0
    assert "the same random actions" in capsys.readouterr().out
    found = rows(tmp_path / "sim.csv")
    compared = [row for row in found if row["figure"] == "times plain robosuite"]
    assert {row["part"] for row in compared} == {"steps, same random actions"}
    assert [row["environment"] for row in compared] == [
        "plain robosuite",
        *(f"robosuite-lift {mode}" for mode in registry.CONTROL_MODES),
    ]
    assert float(compared[0]["value"]) == 1.0
    assert {row["environment"] for row in found if row["part"] == "steps, expert"} == {
        f"robosuite-lift {mode}" for mode in registry.CONTROL_MODES
    }
    bodies = {row["figure"]: row["value"] for row in found if row["figure"].startswith("bodies")}
    assert bodies["bodies before"] == bodies["bodies after"] != "0"


def test_what_is_compared_gets_the_same_actions():
    first, second = random_actions(7), random_actions(7)
    for _ in range(2):
        assert np.array_equal(next(first), next(second))


def test_the_training_loop_is_measured_by_part(tmp_path, capsys):
    few = ["environments=[pybullet-lift]", "rows=[0]", "precisions=[bf16]", "env_steps=20"]
    assert main(["train", *few, f"out={tmp_path}/train.csv"]) == 0
    assert "Training loop" in capsys.readouterr().out
    (row,) = rows(tmp_path / "train.csv")
    shares = [float(row[f"{part}_share"]) for part in PARTS]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    assert min(shares) > 0.0
    assert int(row["env_steps"]) >= 20
