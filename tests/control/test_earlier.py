"""Beginning with the successful episodes of earlier runs (E15), on the real simulator."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grasp_control.build import load_demonstrations, make_trainer
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import DemosConfig, TrainConfig
from grasp_control.earlier import load_earlier_runs
from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.rebuild import successful_episodes
from grasp_control.memory.seeding import trajectory_from_episode
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_control.types import Source, Trajectory
from grasp_demos.reader import read_dataset
from grasp_demos.writer import write_episode
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.contract import OBSERVATION_DIM
from grasp_sim.errors import UserError


def settings(out: Path, **changes) -> TrainConfig:
    usual = {
        "env_steps": 3000,
        "env": EnvConfig(name="pybullet-lift"),
        "demos": DemosConfig(episodes=2),
        "memory": MemoryConfig(capacity=5000),
    }
    return TrainConfig(**({"out": str(out)} | usual | changes))


def begin(config: TrainConfig, env) -> LocalTrainer:
    run = RunFolder(config)
    with run.begin():
        episodes = load_demonstrations(config, run, env)
        return make_trainer(config, env, episodes, load_earlier_runs(config, env))


@pytest.fixture(scope="module")
def env():
    built = registry.make("pybullet-lift")
    yield built
    built.close()


@pytest.fixture(scope="module")
def trained(env, tmp_path_factory) -> tuple[Path, list[Trajectory]]:
    """A run's folder and its successes: two demonstrations, and two that are made its own, one of them with a
    slip; beside them its memory holds the failures of two episodes of its own."""
    folder = tmp_path_factory.mktemp("earlier") / "run"
    trainer = begin(settings(folder), env)
    shown = [trajectory_from_episode(episode, 4) for episode in read_dataset(folder / "demos")]
    slips = np.zeros(len(shown[0].rewards), np.bool_)
    slips[20] = True
    own = [
        shown[0]._replace(demonstration=False, slips=slips, terminated=False),
        shown[1]._replace(demonstration=False, rewards=np.linspace(-1, 2, len(shown[1].rewards), dtype="f4")),
    ]
    for trajectory in own:
        trainer.memory.add(trajectory)
    for _ in range(2):
        assert not trainer.sample_episode().success
    trainer.save(CheckpointStore(folder / "checkpoints"))
    return folder, shown + own


def copied(trained, tmp_path) -> Path:
    shutil.copytree(trained[0], tmp_path / "run")
    return tmp_path / "run"


def test_whole_successful_episodes_come_back_as_they_were_stored(trained, env, tmp_path, capsys):
    folder, stored = trained
    config = settings(tmp_path / "next", demos=DemosConfig(episodes=0, runs=[str(folder)]))
    found = load_earlier_runs(config, env)
    assert len(found) == len(stored) == 4
    for one, other in zip(found, stored, strict=True):
        for name in Trajectory._fields:
            compare = np.testing.assert_allclose if name == "rewards" else np.testing.assert_array_equal
            compare(getattr(one, name), getattr(other, name), **({"atol": 1e-5} if name == "rewards" else {}))
    said = "2 successes of its own and 2 demonstrations enter the memory; 0 that are no longer whole do not."
    assert said in capsys.readouterr().out


def test_a_run_can_begin_without_demonstrations_of_its_own(trained, env, tmp_path):
    folder, stored = trained
    config = settings(tmp_path / "next", demos=DemosConfig(episodes=0, runs=[str(folder)]))
    trainer = begin(config, env)
    assert not (tmp_path / "next" / "demos").exists()
    memory = trainer.memory
    steps = [len(trajectory.rewards) for trajectory in stored]
    slips = 1 + config.memory.slip_lookback
    assert [len(memory.store.group(source)) for source in Source] == [
        0,
        steps[2] + steps[3] - slips,
        steps[0] + steps[1],
        slips,
    ]
    assert memory.encoder.version == 1
    assert np.isnan(memory.hit_rate())  # no step of this run was driven by retrieval yet
    seen = np.concatenate([episode.observations for episode in read_dataset(folder / "demos")])
    mean = trainer.agent.normaliser.mean.numpy()
    np.testing.assert_allclose(mean[:OBSERVATION_DIM], seen.mean(axis=0), atol=1e-5)
    assert np.isfinite(trainer.clone())


def test_earlier_successes_stand_beside_new_demonstrations(trained, env, tmp_path):
    config = settings(tmp_path / "next", demos=DemosConfig(episodes=1, runs=[str(trained[0])]))
    trainer = begin(config, env)
    assert trainer.memory.counters.episodes == 1 + 4


def test_a_run_that_began_so_resumes_exactly_even_if_the_earlier_one_went_on(trained, env, tmp_path):
    folder = copied(trained, tmp_path)
    config = settings(tmp_path / "next", demos=DemosConfig(episodes=0, runs=[str(folder)]))
    straight = begin(config, env)
    store = CheckpointStore(tmp_path / "next" / "checkpoints")
    straight.save(store)
    earlier = begin(settings(folder), env)
    earlier.resume(CheckpointStore(folder / "checkpoints").load_latest())
    earlier.memory.add(trained[1][0]._replace(demonstration=False))
    earlier.env_steps += 1
    earlier.save(CheckpointStore(folder / "checkpoints"))
    resumed = begin(config, env)
    resumed.resume(store.load_latest())
    assert resumed.memory.composition() == straight.memory.composition()
    assert resumed.agent.normaliser.mean.equal(straight.agent.normaliser.mean)


@pytest.mark.parametrize("missing", ["first", "middle", "last", "one before the last"])
def test_episodes_with_missing_rows_are_left_out_and_counted(trained, env, tmp_path, missing):
    trainer = begin(settings(tmp_path / "run"), env)
    memory, steps = trainer.memory, len(trained[1][0].rewards)
    ids = memory.store.labels["id"][:steps].copy()
    gone = {"first": 0, "middle": 9, "last": steps - 1, "one before the last": steps - 2}[missing]
    memory.purge(ids[[gone]])
    whole, incomplete = successful_episodes(memory, 4)
    assert (len(whole), incomplete) == (1, 1)
    np.testing.assert_array_equal(whole[0].windows, trained[1][1].windows)


def test_rewards_that_do_not_follow_from_the_returns_are_refused(trained, env, tmp_path):
    memory = begin(settings(tmp_path / "run"), env).memory
    memory.store.rows[3, memory.store.n_step_reward] += 0.01
    with pytest.raises(ValueError, match=r"episode 0: the rewards .* do not give its 5-step rewards"):
        successful_episodes(memory, 4)


def test_a_memory_without_successes_gives_none(trained, env, tmp_path):
    memory = begin(settings(tmp_path / "run"), env).memory
    memory.purge(memory.store.labels["id"][memory.store.live_slots()].copy())
    assert successful_episodes(memory, 4) == ([], 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": EnvConfig(name="pybullet-objects")}, "env.name 'pybullet-lift' -> 'pybullet-objects'"),
        ({"env": EnvConfig(name="pybullet-lift", control_mode="osc")}, "env.control_mode 'servo' -> 'osc'"),
        ({"env": EnvConfig(name="pybullet-lift", reward="dense")}, "env.reward 'sparse' -> 'dense'"),
        ({"context": 3}, "context 4 -> 3"),
        ({"memory": MemoryConfig(gamma=0.9)}, "memory.gamma 0.99 -> 0.9"),
    ],
)
def test_runs_whose_episodes_mean_something_else_are_refused(trained, env, tmp_path, changes, said):
    demos = DemosConfig(episodes=0, runs=[str(trained[0])])
    refused(settings(tmp_path / "next", demos=demos, **changes), env, said)


def refused(config: TrainConfig, env, said: str) -> None:
    with pytest.raises(UserError) as raised:
        load_earlier_runs(config, env)
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_folders_that_cannot_be_begun_from_are_one_line(trained, env, tmp_path):
    config = settings(tmp_path / "next", demos=DemosConfig(episodes=0, runs=[str(tmp_path / "nowhere")]))
    refused(config, env, "nowhere holds no config.yaml")
    folder = copied(trained, tmp_path)
    config.demos.runs = [str(folder)]
    demonstration = read_dataset(folder / "demos")[0]
    scale = demonstration.metadata.action_scale
    (checkpoint,) = (folder / "checkpoints").iterdir()
    (checkpoint / "extra" / "memory.safetensors").write_bytes(b"damaged")
    refused(config, env, f"{folder} cannot be begun from: none of the 1 checkpoints")
    shutil.rmtree(checkpoint)
    refused(config, env, f"{folder} cannot be begun from: ")
    other = replace(demonstration.metadata, action_scale=replace(scale, position=0.05))
    write_episode(folder / "demos" / "episode_000000.npz", replace(demonstration, metadata=other))
    refused(config, env, "action scale ActionScale(position=0.05")
    (folder / "config.yaml").unlink()
    refused(config, env, f"{folder} holds no config.yaml")


def test_a_run_without_whole_successes_is_refused(trained, env, tmp_path):
    config = settings(tmp_path / "run")
    trainer = begin(config, env)
    memory = trainer.memory
    memory.purge(memory.store.labels["id"][memory.store.labels["step"] == 5].copy())
    trainer.save(CheckpointStore(tmp_path / "run" / "checkpoints"))
    config.demos = DemosConfig(episodes=0, runs=[str(tmp_path / "run")])
    refused(config, env, "holds no whole successful episode at step 0 (2 are no longer whole)")
