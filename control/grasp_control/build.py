"""The parts of a run, made from its configuration alone: the same settings always give the same parts."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
import torch

from grasp_control import progress
from grasp_control.config import TrainConfig
from grasp_control.empo2.agent import Agent
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.seeding import seed_memory
from grasp_control.memory.window import ShortTermMemory, newest_observations, window_width
from grasp_control.networks import fit_normaliser, usual_normaliser
from grasp_control.rollout import episode_seeds
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_control.types import Trajectory
from grasp_demos.episode import Episode
from grasp_demos.reader import demonstrations, read_dataset, read_usable
from grasp_demos.record import record_expert
from grasp_demos.validate import require_valid
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, POLICY_RATE_HZ
from grasp_sim.errors import UserError


def load_demonstrations(
    config: TrainConfig, run: RunFolder, env: gymnasium.Env, title: str = "Record demonstrations"
) -> list[Episode]:
    """The run's demonstrations: recorded now, or read from `demos.path` and checked; `title` is the bar's.

    Raises UserError when there are too few, when one is defective, or when one was recorded with actions of
    another meaning.
    """
    wanted = config.demos.episodes
    if not wanted:
        return []
    if not config.demos.path:
        recorded = any(run.demos.glob("episode_*.npz"))
        held = min(len(demonstrations(read_usable(run.demos)[0])), wanted) if recorded else 0
        if held == wanted:
            print(f"{title}: {wanted} demonstrations are there already.", flush=True)
        with progress.bar(title, wanted, done=held) as advance:
            return record_expert(
                env.unwrapped,  # type: ignore[arg-type]
                run.demos,
                task=config.env.name,
                episodes=wanted,
                noise=config.demos.noise,
                kind=config.demos.kind,
                rng=generator(config.seed, "demonstrations"),
                seed=episode_seeds(config.seed, "demonstrations", 1)[0],
                progress=lambda held, _: advance(total=held),
            )
    episodes = demonstrations(read_dataset(run.demos))[:wanted]
    if len(episodes) < wanted:
        raise UserError(
            f"{run.demos} holds {len(episodes)} successful demonstrations and demos.episodes={wanted} are "
            "asked for: record more with grasp-record, or ask for fewer."
        )
    require_valid(episodes)
    print(f"{title}: {wanted} demonstrations are there already, in {run.demos}.", flush=True)
    mode, scale = env.unwrapped.control_mode, env.unwrapped.action_scale  # type: ignore[attr-defined]
    for episode in episodes:
        recorded = episode.metadata
        if (recorded.task, recorded.rate_hz) != (config.env.name, POLICY_RATE_HZ):
            raise UserError(
                f"{episode} was recorded in {recorded.task} at {recorded.rate_hz} Hz, this run trains "
                f"{config.env.name} at {POLICY_RATE_HZ} Hz: give demonstrations of this task and rate."
            )
        if (recorded.control_mode, recorded.action_scale) != (mode, scale):
            raise UserError(
                f"{episode} was recorded in control mode {recorded.control_mode!r} with "
                f"{recorded.action_scale}, this run uses {mode!r} with {scale}, so its actions mean "
                f"something else: set env.control_mode={recorded.control_mode}, or record again in this mode."
            )
    return episodes


def make_trainer(
    config: TrainConfig, env: gymnasium.Env, episodes: Sequence[Episode], earlier: Sequence[Trajectory]
) -> LocalTrainer:
    """Agent, memory and loop of a new run, the memory seeded with demonstrations and `earlier` successes."""
    memory = LongTermMemory(
        config.memory,
        window_width(config.context, OBSERVATION_DIM, ACTION_DIM),
        ACTION_DIM,
        rng=generator(config.seed, "memory"),
    )
    seed_memory(memory, episodes, earlier)
    observations = [episode.observations for episode in episodes]
    observations += [newest_observations(one.windows, ACTION_DIM, config.context) for one in earlier]
    if observations:
        normaliser = fit_normaliser(np.concatenate(observations), ACTION_DIM, config.context)
    else:
        normaliser = usual_normaliser(ACTION_DIM, config.context)
    steps = config.env_steps - config.distill.env_steps
    agent = Agent(
        config.algo,
        normaliser,
        ACTION_DIM,
        generator=torch_generator(config.seed, "agent"),
        total_updates=int((steps - config.algo.warmup_steps) * config.algo.updates_per_step),
        force_limit=config.algo.force_safe_share * env.unwrapped.task.breaking_force,  # type: ignore[attr-defined]
    )
    short_term = ShortTermMemory(
        OBSERVATION_DIM, ACTION_DIM, context=config.context, length=config.short_term_length
    )
    rng = generator(config.seed, "training")
    return LocalTrainer(env, agent, memory, short_term, seed=config.seed, rng=rng, total_steps=steps)


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A stream of its own for each purpose, so that more draws in one place change nothing elsewhere."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *purpose.encode()])))


def torch_generator(seed: int, purpose: str) -> torch.Generator:
    """As `generator`, for Torch."""
    return torch.Generator().manual_seed(int(generator(seed, purpose).integers(2**62)))
