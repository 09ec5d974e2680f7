"""Training on recordings that somebody made: the good are used, the bad are named, and what a person did in
place of a policy counts as demonstrated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_control.build import given_demonstrations, load_demonstrations
from grasp_control.config import TrainConfig
from grasp_control.memory.seeding import trajectory_from_episode
from grasp_control.memory.store import Source
from grasp_control.memory.targets import label_sources
from grasp_control.run import RunFolder
from grasp_demos.episode import ACTORS
from grasp_demos.reader import read_dataset
from grasp_demos.recording import record_expert
from grasp_demos.writer import write_episode
from grasp_sim import registry
from grasp_sim.cli import parse_config
from grasp_sim.errors import UserError

NAME = "pybullet-lift"


@pytest.fixture(scope="module")
def env():
    made = registry.make(NAME, seed=0)
    yield made
    made.close()


@pytest.fixture
def recorded(env, tmp_path):
    def record(folder: str, episodes: int, seed: int):
        path, rng = tmp_path / folder, np.random.default_rng(seed)
        return record_expert(env.unwrapped, path, task=NAME, episodes=episodes, rng=rng, seed=seed)

    return record


@pytest.fixture
def made(tmp_path):
    def make(*paths, episodes: int) -> tuple[TrainConfig, RunFolder]:
        named = ",".join(f"'{path}'" for path in paths)
        settings = [f"out='{tmp_path / 'run'}'", f"env.name={NAME}", f"demos.paths=[{named}]"]
        config = parse_config(TrainConfig, [*settings, f"demos.episodes={episodes}"])
        return config, RunFolder(config)

    return make


def test_the_good_of_several_places_are_used_and_the_bad_are_named(env, recorded, made, tmp_path, capsys):
    mine, other = recorded("mine", 3, 0), recorded("other", 2, 50)
    damaged = mine[0].path
    damaged.write_bytes(damaged.read_bytes()[:-50])
    actions = mine[1].executed_actions.copy()
    actions[4, 2] = np.nan
    write_episode(mine[1].path, replace(mine[1], executed_actions=actions))
    config, run = made(tmp_path / "mine", other[1].path, episodes=2)
    episodes = load_demonstrations(config, run, env)
    said = capsys.readouterr().err
    assert said.count("Left out:") == 2
    assert f"{damaged} is cut off" in said
    assert "step 4, delta_z" in said
    for used, source in zip(episodes, (mine[2], other[1]), strict=True):
        np.testing.assert_array_equal(used.executed_actions, source.executed_actions)
    # The run keeps copies: it goes on when the originals are gone.
    assert [e.metadata.index for e in read_dataset(run.demos)] == [0, 1]
    for file in (tmp_path / "mine").iterdir():
        file.unlink()
    assert given_demonstrations(config, env, run) == []
    assert len(load_demonstrations(config, run, env)) == 2


def test_too_few_good_ones_are_refused_before_there_is_a_folder(env, recorded, made, tmp_path):
    recorded("mine", 2, 0)
    config, run = made(tmp_path / "mine", episodes=3)
    with pytest.raises(UserError, match=r"mine: 2 successful demonstrations .*demos\.episodes=3"):
        given_demonstrations(config, env, run)
    assert not run.path.exists()


def test_recordings_of_another_task_are_refused(env, recorded, made, tmp_path):
    for episode in recorded("mine", 1, 0):
        other = replace(episode.metadata, task="robosuite-lift")
        write_episode(episode.path, replace(episode, metadata=other))
    config, run = made(tmp_path / "mine", episodes=1)
    with pytest.raises(UserError, match="was recorded in robosuite-lift"):
        given_demonstrations(config, env, run)


def test_what_a_person_did_in_place_of_a_policy_is_demonstrated(recorded):
    (episode,) = recorded("mine", 1, 0)
    actors = np.full(len(episode), ACTORS.index("policy"), np.uint8)
    actors[10:25] = ACTORS.index("person")
    sources = label_sources(trajectory_from_episode(replace(episode, actors=actors), 4), 0)
    assert (sources[10:25] == Source.DEMO).all()
    assert (np.delete(sources, np.s_[10:25]) == Source.SUCCESS).all()
    assert (label_sources(trajectory_from_episode(episode, 4), 0) == Source.DEMO).all()
