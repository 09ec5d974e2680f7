"""What earlier runs learned to do, as the beginning of a new run's memory (E15)."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np

from grasp_control.checkpoint import CheckpointError, CheckpointStore
from grasp_control.config import TrainConfig
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.rebuild import successful_episodes
from grasp_control.memory.window import window_width
from grasp_control.run import RunFolder, load_config
from grasp_control.runtime.local import MEMORY_FILE
from grasp_control.types import Trajectory
from grasp_demos.reader import read_usable
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM
from grasp_sim.errors import UserError


def load_earlier_runs(config: TrainConfig, env: gymnasium.Env) -> list[Trajectory]:
    """The whole successful episodes in the memories of `demos.runs`, as of each run's newest checkpoint.

    Raises UserError for a folder that is no run, has no usable checkpoint or holds no such episode, and where
    the episodes of a run mean something else than those of this one.
    """
    return [episode for folder in config.demos.runs for episode in _load(Path(folder), config, env)]


def _load(folder: Path, config: TrainConfig, env: gymnasium.Env) -> list[Trajectory]:
    earlier = load_config(folder)
    earlier.out = str(folder)
    run = RunFolder.existing(earlier)
    _require_same_meaning(run, earlier, config, env)
    try:
        checkpoint = CheckpointStore(run.checkpoints).load_latest()
    except CheckpointError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder} cannot be begun from: {reason}") from error
    width = window_width(earlier.context, OBSERVATION_DIM, ACTION_DIM)
    # Loading replaces whatever the generator draws.
    memory = LongTermMemory(earlier.memory, width, ACTION_DIM, np.random.default_rng(0))
    memory.load(checkpoint.extra / MEMORY_FILE)
    try:
        episodes, incomplete = successful_episodes(memory, earlier.context)
    except ValueError as error:
        raise UserError(f"{folder} cannot be begun from: {error}; leave it out of demos.runs.") from error
    if not episodes:
        raise UserError(
            f"the memory of {folder} holds no whole successful episode at step {checkpoint.step} "
            f"({incomplete} are no longer whole): leave it out of demos.runs."
        )
    shown = sum(bool(np.any(episode.demonstration)) for episode in episodes)
    print(
        f"{folder} at step {checkpoint.step}: {len(episodes) - shown} successes of its own and {shown} "
        f"demonstrations enter the memory; {incomplete} that are no longer whole do not.",
        flush=True,
    )
    return episodes


def _require_same_meaning(
    run: RunFolder, earlier: TrainConfig, config: TrainConfig, env: gymnasium.Env
) -> None:
    """Raise UserError naming each setting in which the episodes of `run` differ from this run's."""
    pairs: dict[str, tuple[object, object]] = {
        "env.name": (earlier.env.name, config.env.name),
        "env.control_mode": (earlier.env.control_mode, config.env.control_mode),
        "env.reward": (earlier.env.reward, config.env.reward),
        "context": (earlier.context, config.context),
        "memory.gamma": (earlier.memory.gamma, config.memory.gamma),
    }
    # The scale belongs to the version of the simulator: a run's demonstrations are where it is written down.
    if any(run.demos.glob("episode_*.npz")):
        for demonstration in read_usable(run.demos)[0][:1]:
            scale = env.unwrapped.action_scale  # type: ignore[attr-defined]
            pairs["action scale"] = (demonstration.metadata.action_scale, scale)
    different = [f"{name} {theirs!r} -> {ours!r}" for name, (theirs, ours) in pairs.items() if theirs != ours]
    if different:
        raise UserError(
            f"the episodes of {run.path} mean something else than this run's ({'; '.join(different)}): "
            "leave it out of demos.runs, or use its settings."
        )
