"""Finished runs of grasp-train as teachers of one network (E11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium
import numpy as np

from grasp_control.build import make_trainer
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import TrainConfig
from grasp_control.distillation import Teacher
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.rebuild import successful_episodes
from grasp_control.memory.window import episode_windows, newest_observations
from grasp_control.rollout import EpisodeResult, episode_seeds, evaluate
from grasp_control.run import load_config
from grasp_control.runtime.local import LocalTrainer
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UserError


@dataclass(frozen=True)
class TaughtRun:
    """A run whose policy is distilled."""

    folder: Path
    config: TrainConfig
    trainer: LocalTrainer
    """The run as its newest checkpoint has it; its environment is in the run's own control mode."""

    def env_config(self, control_mode: str) -> EnvConfig:
        """The run's task in its simulator, in the control mode of the student."""
        return replace(self.config.env, control_mode=control_mode)

    def teacher(self, control_mode: str, context: int, memory_rows: int, rng: np.random.Generator) -> Teacher:
        """The run's hybrid policy for a student with windows of `context` pairs that acts in `control_mode`.

        A teacher of another control mode labels as it is: 1 moves the tool about as far in either (per step
        12.5 mm and 0.10 rad by `servo`, 11 to 13 mm and 0.13 rad by `osc`).
        """
        env: gymnasium.Env = self.trainer.env
        if control_mode != self.config.env.control_mode:
            env = registry.make(**vars(self.env_config(control_mode)), seed=self.config.seed)
        return teacher_of(self.config, self.trainer, env, context, memory_rows, rng)

    def measure(
        self, seeds: Sequence[int], on_episode: Callable[[EpisodeResult], None]
    ) -> list[EpisodeResult]:
        """The run's own policy, without noise, in its own control mode."""
        return evaluate(self.trainer.env, self.trainer.hybrid, self.trainer.short_term, seeds, on_episode)

    def evaluation_seeds(self, episodes: int) -> list[int]:
        """Seeds of episodes that the run did not train on."""
        return episode_seeds(self.config.seed, "evaluate", episodes)


def load_run(folder: Path) -> TaughtRun:
    """A run of grasp-train as its newest checkpoint has it.

    Raises UserError where there is none, where it is unfinished, or where it cannot be read.
    """
    config = load_config(folder)
    config.out = str(folder)
    checkpoints = CheckpointStore(folder / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{folder} holds no checkpoint: let grasp-train out={folder} run first.")
    env = registry.make(**vars(config.env), seed=config.seed)
    trainer = make_trainer(config, env, [], [])  # memory and normaliser are the checkpoint's
    trainer.resume(checkpoints.load_latest())
    if not trainer.finished:
        raise UserError(
            f"{folder} is unfinished: its newest checkpoint is of environment step {trainer.env_steps}, its "
            f"training ends at {trainer.total_steps}. Go on with it by grasp-train and its own settings."
        )
    return TaughtRun(folder, config, trainer)


def teacher_of(
    config: TrainConfig,
    trainer: LocalTrainer,
    env: gymnasium.Env,
    context: int,
    memory_rows: int,
    rng: np.random.Generator,
) -> Teacher:
    """The hybrid policy of a run: actors, retrieval and critics; UserError where it never succeeded.

    Args:
        config: the run's settings.
        trainer: the run's policy and memory.
        env: where the student practises what this teacher says.
        context: pairs in the student's window, at least the run's.
        memory_rows: windows of successful episodes that are drawn from the run's memory.
        rng: draws them.
    """
    if not trainer.memory.success_rows:
        raise UserError(
            f"training found no success in {trainer.env_steps} environment steps, so nothing is distilled. "
            "Use what is not in use yet: demonstrations (demos.episodes=5), earlier runs (demos.runs), the "
            "dense reward, a curriculum (algo.curriculum.enabled=true algo.quiet_share=0.4), or more steps."
        )
    return Teacher(
        label=trainer.label,
        normaliser=trainer.agent.normaliser,
        windows=_successful_windows(trainer.memory, config.context, context, memory_rows, rng),
        env=env,
        seed=config.seed,
    )


def common_control_mode(runs: Sequence[TaughtRun]) -> str:
    """The control mode of all the runs; UserError where they differ."""
    modes = {run.config.env.control_mode: run.folder for run in runs}
    if len(modes) > 1:
        listed = ", ".join(f"{folder} ({mode})" for mode, folder in modes.items())
        raise UserError(
            f"the teachers act in different control modes: {listed}. A bundle has one: name it, as in "
            "control_mode=servo."
        )
    return next(iter(modes))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The name of each folder, with as many of the folders above it as tell them all apart."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while len({one[-depth:] for one in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(one[-depth:]) for one in parts]


def _successful_windows(
    memory: LongTermMemory, own: int, context: int, rows: int, rng: np.random.Generator
) -> np.ndarray:
    """(rows, W) windows of `context` pairs, drawn with replacement from successful episodes in a memory whose
    windows hold `own` pairs."""
    if context == own:
        return memory.sample_successes(rows, rng).windows
    wider = [
        episode_windows(
            newest_observations(episode.windows, memory.action_dim, own), episode.actions, context
        )[:-1]
        for episode in successful_episodes(memory, own)[0]
    ]
    if not wider:
        raise UserError(
            f"a memory with windows of {own} pairs holds no whole successful episode, of which windows of "
            f"{context} could be made: leave this teacher out, or those with longer windows."
        )
    windows = np.concatenate(wider)
    return windows[rng.integers(len(windows), size=rows)]
