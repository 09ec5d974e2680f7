"""Runs of different control modes and windows as teachers, and grasp-distill and grasp-bundle on them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from grasp_control.build import load_demonstrations, make_trainer
from grasp_control.bundle import load_bundle
from grasp_control.bundle_command import main as bundle_main
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import DemosConfig, DistillConfig, TrainConfig
from grasp_control.distill import DistillCommand
from grasp_control.distill import run as distill_run
from grasp_control.empo2.config import EMPO2Config
from grasp_control.manifest import Expectation
from grasp_control.memory.config import MemoryConfig
from grasp_control.networks import DistilledPolicy, Normaliser, mlp
from grasp_control.original import load_original, save_original
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_control.teachers import common_control_mode, distinct_names, load_run
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM
from grasp_sim.errors import UserError

PAIR = OBSERVATION_DIM + ACTION_DIM
SHORT, LONG = 2, 5


def small_run(folder: Path, *, context: int, mode: str, seed: int, steps: int | None = None) -> LocalTrainer:
    """A run that cloned two demonstrations a little and says that it trained for `steps`, by default all."""
    config = TrainConfig(
        seed=seed,
        out=str(folder),
        env_steps=100,
        context=context,
        env=EnvConfig(name="pybullet-lift", control_mode=mode),
        demos=DemosConfig(episodes=2),
        algo=EMPO2Config(
            batch_size=64, improvement_batch=32, imitation_batch=64, warmup_steps=64, hidden_width=32
        ),
        memory=MemoryConfig(capacity=2000),
        distill=DistillConfig(env_steps=0),
    )
    env = registry.make(**vars(config.env), seed=seed)
    run = RunFolder(config)
    with run.begin():
        trainer = make_trainer(config, env, load_demonstrations(config, run, env), [])
        for _ in range(30):
            trainer.clone()
        trainer.env_steps = trainer.total_steps if steps is None else steps
        trainer.save(CheckpointStore(run.checkpoints))
    return trainer


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with a/run (servo, 2 pairs) and b/run (osc, 5 pairs)."""
    folder = tmp_path_factory.mktemp("runs")
    small_run(folder / "a" / "run", context=SHORT, mode="servo", seed=3)
    small_run(folder / "b" / "run", context=LONG, mode="osc", seed=4)
    return folder


@pytest.fixture(scope="module")
def bundle(runs) -> Path:
    """What grasp-distill makes of both."""
    command = DistillCommand(
        teachers=[str(runs / "a" / "run"), str(runs / "b" / "run")],
        out=str(runs / "bundle"),
        control_mode="servo",
        episodes=2,
        distill=DistillConfig(env_steps=30, updates=20, batch_size=32, memory_rows=50),
    )
    distill_run(command)
    return runs / "bundle"


def test_a_teacher_is_the_run_as_it_was_saved_and_needs_no_demonstrations(tmp_path):
    trainer = small_run(tmp_path / "run", context=SHORT, mode="servo", seed=0)
    shutil.rmtree(tmp_path / "run" / "demos")
    windows = trainer.memory.sample_successes(16, np.random.default_rng(0)).windows
    again = load_run(tmp_path / "run").trainer
    assert np.array_equal(again.label(windows), trainer.label(windows))
    assert torch.equal(again.agent.normaliser.std, trainer.agent.normaliser.std)
    assert not (tmp_path / "run" / "demos").exists()


def test_a_shorter_window_is_widened_by_what_came_before(runs):
    run = load_run(runs / "a" / "run")
    rng = np.random.default_rng(0)
    wide = run.teacher("servo", LONG, 40, rng).windows
    assert wide.shape == (40, LONG * PAIR)
    known = run.trainer.memory.sample_successes(1000, rng).windows
    pairs = wide.reshape(40, LONG, PAIR)
    for end in range(SHORT, LONG + 1):
        for window in pairs[:, end - SHORT : end].reshape(40, -1):
            # Before the first step, the first observation with a zero action fills the window.
            filled = (
                np.array_equal(window[:PAIR], window[PAIR:]) and not window[PAIR - ACTION_DIM : PAIR].any()
            )
            assert filled or (known == window).all(axis=1).any()


def test_a_teacher_of_another_mode_labels_in_the_students_environment(runs):
    run = load_run(runs / "b" / "run")
    rng = np.random.default_rng(0)
    assert run.trainer.env.unwrapped.control_mode == "osc"  # type: ignore[attr-defined]
    assert run.teacher("servo", LONG, 5, rng).env.unwrapped.control_mode == "servo"  # type: ignore[attr-defined]
    assert run.teacher("osc", LONG, 5, rng).env is run.trainer.env


def test_different_modes_ask_for_a_choice(runs):
    both = [load_run(runs / name / "run") for name in "ab"]
    assert common_control_mode(both[:1]) == "servo"
    with pytest.raises(UserError, match=r"a/run \(servo\), .*b/run \(osc\)\. .*control_mode=servo"):
        common_control_mode(both)


def test_names_say_as_much_as_tells_them_apart():
    assert distinct_names([Path("x/lift"), Path("y/objects")]) == ["lift", "objects"]
    assert distinct_names([Path("x/run"), Path("y/run")]) == ["x/run", "y/run"]


def test_what_cannot_teach_is_one_line(tmp_path):
    small_run(tmp_path / "half", context=SHORT, mode="servo", seed=0, steps=70)
    with pytest.raises(UserError, match=r"half is unfinished: .* step 70, its training ends at 100\."):
        load_run(tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "checkpoints")
    with pytest.raises(UserError, match="half holds no checkpoint: let grasp-train"):
        load_run(tmp_path / "half")
    with pytest.raises(UserError, match=r"nowhere holds no config\.yaml"):
        load_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"teachers": []}, "teachers is empty"),
        ({"teachers": ["runs/a", "runs/../runs/a"]}, "names the same run twice"),
        ({"teachers": ["a"], "control_mode": "torque"}, "control_mode=torque is not known"),
        ({"teachers": ["a"], "out": " "}, "out is empty"),
    ],
)
def test_bad_requests_quote_what_was_asked(settings, said):
    with pytest.raises(ValueError, match=said):
        DistillCommand(**{"out": "b"} | settings)


@pytest.mark.slow
def test_two_runs_become_one_bundle_that_says_where_it_comes_from(bundle):
    manifest = load_bundle(bundle, expect=Expectation()).manifest
    assert (manifest.context, manifest.control_mode, manifest.task) == (LONG, "servo", "pybullet-lift")
    assert [(run.run_id, run.control_mode, run.context, run.seed) for run in manifest.training] == [
        ("a/run", "servo", SHORT, 3),
        ("b/run", "osc", LONG, 4),
    ]
    assert [run.env_steps for run in manifest.training] == [130, 130]
    with (bundle / "proof.csv").open(newline="") as file:
        proof = list(csv.DictReader(file))
    assert [row["run"] for row in proof] == ["a/run", "a/run", "b/run", "b/run"]
    for run in manifest.training:
        mine = [row for row in proof if row["run"] == run.run_id]
        assert run.success["success_rate"] == sum(int(row["success"]) for row in mine) / 2
        assert run.success["teacher_success_rate"] == sum(int(row["teacher_success"]) for row in mine) / 2
    assert manifest.success["episodes"] == 4


@pytest.mark.slow
def test_the_bundle_is_checked_against_the_network_that_was_trained(bundle, tmp_path, capsys):
    assert bundle_main(["check", str(bundle)]) == 0
    shown = capsys.readouterr()
    assert "at most on 1,000 inputs" in shown.out
    assert "a/run: pybullet-lift (servo)" in shown.out
    assert shown.err == ""

    deployed = tmp_path / "deployed"
    deployed.mkdir()
    for name in ("policy.onnx", "manifest.json"):
        shutil.copy(bundle / name, deployed / name)
    assert bundle_main(["check", str(deployed)]) == 0
    assert "not compared: name the run with run=" in capsys.readouterr().out
    assert bundle_main(["check", str(deployed), f"run={bundle}"]) == 0
    assert "differs by" in capsys.readouterr().out
    assert bundle_main(["check", str(deployed), f"run={tmp_path}"]) == 2
    assert "holds no bundle/original.safetensors" in capsys.readouterr().err


def _changed(bundle: Path, folder: Path, **changes: object) -> Path:
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    return folder


@pytest.mark.slow
def test_each_fault_is_a_line_and_the_exit_code(bundle, tmp_path, capsys):
    limits = json.loads((bundle / "manifest.json").read_text())["limits"]
    for number, (changes, settings, lines) in enumerate(
        [
            ({}, ["robot=ur10e", "rate_hz=10"], ["robot 'ur10e' is asked for", "rate_hz 10.0 is asked for"]),
            ({"gripper": "hand-e"}, [], ["gripper 'robotiq-2f85' is asked for, the bundle has 'hand-e'"]),
            ({"schema_version": 1}, [], ["schema_version is 1; this version reads 2"]),
            ({"contract_version": 2}, [], ["contract version 1 is installed, the bundle has 2"]),
            ({"context": 4}, [], ["inputs and outputs"]),
            ({"command_units": ["mm", "m", "m", "rad", "m", "N"]}, [], ["command_units must be"]),
            ({"limits": limits | {"joint_lead": 0.5}}, [], ["limits.joint_lead 0.35 is asked for"]),
            ({"limits": limits | {"joint_velocity": [1.0] * 5}}, [], ["a list of 6 finite numbers"]),
            ({"limits": limits | {"yaw_lead": -1.0}}, [], ["limits.yaw_lead is -1.0; it must be above 0"]),
            ({"network_sha256": "0" * 64}, [], ["was changed after its export"]),
        ]
    ):
        path = _changed(bundle, tmp_path / str(number), **changes)
        assert bundle_main(["check", str(path), *settings]) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == len(lines), said
        for line, wanted in zip(said, lines, strict=True):
            assert line.startswith(f"grasp-bundle: {path}: ")
            assert wanted in line


def short_original(path: Path) -> Path:
    """The file of a network with a window of one pair."""
    save_original(
        path,
        DistilledPolicy(
            Normaliser(np.zeros(PAIR), np.ones(PAIR)),
            mlp(PAIR, ACTION_DIM, torch.Generator().manual_seed(0), hidden=(8, 12, 10)),
        ),
    )
    return path


def test_an_original_is_read_back_as_it_was_written(tmp_path):
    network = load_original(short_original(tmp_path / "original.safetensors"))
    assert [m.out_features for m in network.network if isinstance(m, torch.nn.Linear)] == [
        8,
        12,
        10,
        ACTION_DIM,
    ]
    again = tmp_path / "again.safetensors"
    save_original(again, network)
    assert again.read_bytes() == (tmp_path / "original.safetensors").read_bytes()


@pytest.mark.slow
def test_another_network_than_the_trained_one_is_found(bundle, runs, tmp_path, capsys):
    distill_run(
        DistillCommand(
            teachers=[str(runs / "b" / "run")],
            out=str(tmp_path / "other"),
            episodes=1,
            seed=9,
            distill=DistillConfig(env_steps=0, updates=5, batch_size=32, memory_rows=50),
        )
    )
    assert load_bundle(tmp_path / "other", expect=None).manifest.control_mode == "osc"
    capsys.readouterr()
    assert bundle_main(["check", str(bundle), f"run={tmp_path / 'other'}"]) == 1
    assert "actions differ from the original network's by" in capsys.readouterr().err
    assert bundle_main(["check", str(tmp_path / "other"), f"run={bundle}", "control_mode=osc"]) == 1
    capsys.readouterr()
    shutil.copy(short_original(tmp_path / "short.safetensors"), tmp_path / "other" / "original.safetensors")
    assert bundle_main(["check", str(bundle), f"run={tmp_path / 'other'}"]) == 1
    assert "windows of 95 values, the original network of 19" in capsys.readouterr().err
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    content = (damaged / "original.safetensors").read_bytes()
    for bad in (b"", content[:-7], b"\xff" * 64):
        (damaged / "original.safetensors").write_bytes(bad)
        assert bundle_main(["check", str(damaged)]) == 1
        assert "original.safetensors cannot be read" in capsys.readouterr().err


def test_a_bundle_that_is_not_there_is_named(tmp_path, capsys):
    assert bundle_main(["check", str(tmp_path / "absent")]) == 1
    assert "no such directory" in capsys.readouterr().err
    assert bundle_main(["check"]) == 2
    assert "name at least one bundle's folder" in capsys.readouterr().err
    assert bundle_main(["check", "b", "control_mode=torque"]) == 2
