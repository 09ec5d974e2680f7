"""Demonstrations given to a run: taken when they mean what the run means, otherwise refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_control.build import load_demonstrations
from grasp_control.config import DemosConfig, TrainConfig
from grasp_control.run import RunFolder
from grasp_demos.record import record_expert
from grasp_demos.writer import write_episode
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UserError


@pytest.fixture(scope="module")
def env():
    built = registry.make(**vars(EnvConfig()))
    yield built
    built.close()


@pytest.fixture(scope="module")
def recorded(env, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    rng = np.random.default_rng(0)
    return record_expert(env, folder, task="robosuite-lift", episodes=1, rng=rng)[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "pour"}, "recorded in pour at 20.0 Hz, this run trains robosuite-lift at 20.0 Hz"),
        ({"rate_hz": 10.0}, "recorded in robosuite-lift at 10.0 Hz, this run trains robosuite-lift at 20.0"),
        ({"control_mode": "osc"}, "recorded in control mode 'osc'"),
    ],
)
def test_demonstrations_of_another_meaning_are_refused(env, recorded, tmp_path, changes, said):
    given = DemosConfig(paths=[str(tmp_path)], episodes=1)
    config = TrainConfig(out=str(tmp_path / "run"), demos=given)
    write_episode(tmp_path / "episode_000000.npz", recorded)
    assert len(load_demonstrations(config, RunFolder(config), env)) == 1
    other = replace(recorded, metadata=replace(recorded.metadata, **changes))
    write_episode(tmp_path / "episode_000000.npz", other)
    config = TrainConfig(out=str(tmp_path / "another"), demos=given)
    with pytest.raises(UserError, match=said):
        load_demonstrations(config, RunFolder(config), env)


def test_demonstrations_that_are_there_already_are_said_to_be(env, recorded, tmp_path, capsys):
    recording = TrainConfig(out=str(tmp_path / "run"), demos=DemosConfig(episodes=1))
    load_demonstrations(recording, RunFolder(recording), env)
    assert capsys.readouterr().out.startswith("Record demonstrations: 1/1 in ")
    load_demonstrations(recording, RunFolder.existing(recording), env)
    assert capsys.readouterr().out == "Record demonstrations: 1 demonstrations are there already.\n"
    write_episode(tmp_path / "episode_000000.npz", recorded)
    given = TrainConfig(out=str(tmp_path / "other"), demos=DemosConfig(paths=[str(tmp_path)], episodes=1))
    load_demonstrations(given, RunFolder(given), env)
    assert capsys.readouterr().out == f"Record demonstrations: the first 1 of {tmp_path} are used.\n"
