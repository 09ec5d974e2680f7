"""The parts of a run, made from its configuration alone: the same settings always give the same parts."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import numpy as np
import torch

from grasp_control import progress
from grasp_control.config import TrainConfig
from grasp_control.empo2.agent import Agent
from grasp_control.mapo.expert import ProgramExpert
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.seeding import seed_memory
from grasp_control.memory.window import ShortTermMemory, newest_observations, window_width
from grasp_control.networks import fit_normaliser, usual_normaliser
from grasp_control.rollout import episode_seeds
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_control.types import Trajectory
from grasp_demos.episode import Episode
from grasp_demos.reader import demonstrations, read_usable
from grasp_demos.record import record_expert
from grasp_demos.validate import require_valid, validate
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, POLICY_RATE_HZ
from grasp_sim.errors import UserError


def load_demonstrations(
    config: TrainConfig,
    run: RunFolder,
    env: gymnasium.Env,
    title: str = "Record demonstrations",
    given: Sequence[Episode] = (),
) -> list[Episode]:
    """The run's demonstrations, which lie in its folder: there already, copied from `given`, or recorded now.

    `title` is the bar's. Raises UserError when one of them is defective.
    """
    wanted = config.demos.episodes
    if not wanted:
        return []
    held = kept_demonstrations(run, wanted)
    if len(held) == wanted:
        require_valid(held)
        print(f"{title}: {wanted} demonstrations are there already.", flush=True)
        return held
    if config.demos.paths:
        given = given or given_demonstrations(config, env, run)
        with DatasetWriter(run.demos) as writer:
            copies = [writer.add(episode) for episode in given[len(held) :]]
        print(f"{title}: the first {wanted} of {', '.join(config.demos.paths)} are used.", flush=True)
        return [*held, *copies]
    expert = ProgramExpert(env.unwrapped, Path(config.seeds)) if config.seeds else None  # type: ignore[arg-type]
    with progress.bar(title, wanted, done=len(held)) as advance:
        return record_expert(
            env.unwrapped,  # type: ignore[arg-type]
            run.demos,
            task=config.env.name,
            episodes=wanted,
            noise=config.demos.noise,
            kind=config.demos.kind,
            rng=generator(config.seed, "demonstrations"),
            seed=episode_seeds(config.seed, "demonstrations", 1)[0],
            note=f"programs of {config.seeds}" if config.seeds else "",
            progress=lambda held, _: advance(total=held),
            expert=expert,
        )


def kept_demonstrations(run: RunFolder, wanted: int) -> list[Episode]:
    """Those that the run's folder holds already, `wanted` at most."""
    recorded = any(run.demos.glob("episode_*.npz"))
    return demonstrations(read_usable(run.demos)[0])[:wanted] if recorded else []


def given_demonstrations(config: TrainConfig, env: gymnasium.Env, run: RunFolder) -> list[Episode]:
    """The first `demos.episodes` good ones of `demos.paths`; the bad are named, and left out.

    None where the run holds its copies already. Raises UserError when there are too few, or when one was
    recorded with actions of another meaning.
    """
    wanted = config.demos.episodes
    if len(kept_demonstrations(run, wanted)) == wanted:
        return []
    good: list[Episode] = []
    bad: list[str] = []
    for path in config.demos.paths:
        episodes, errors = read_usable(path)
        bad += map(str, errors)
        for episode in demonstrations(episodes):
            defects = validate(episode)
            if defects:
                more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
                bad.append(f"{defects[0]}{more}")
            else:
                good.append(episode)
    for line in bad:
        print(f"Left out: {line}", file=sys.stderr, flush=True)
    if config.demos.paths and len(good) < wanted:
        left_out = f" {len(bad)} were left out." if bad else ""
        raise UserError(
            f"{', '.join(config.demos.paths)}: {len(good)} successful demonstrations are there and "
            f"demos.episodes={wanted} are asked for: record more with grasp-record, or ask for fewer."
            f"{left_out}"
        )
    used = good[:wanted]
    for episode in used:
        _require_same_actions(config, env, episode)
    _compare_lengths(config, used)
    return used


def _compare_lengths(config: TrainConfig, episodes: Sequence[Episode]) -> None:
    """Say so where the agent is given less time than the demonstrations took."""
    longest = max(map(len, episodes), default=0)
    limits = {"algo.training_horizon": config.algo.training_horizon, "env.horizon": config.env.horizon}
    short = {name: limit for name, limit in limits.items() if longest > limit}
    if short:
        given = ", ".join(f"{name}={limit}" for name, limit in short.items())
        better = " ".join(f"{name}={math.ceil(1.25 * longest / 50) * 50}" for name in short)
        print(
            f"The demonstrations take up to {longest} steps, and {given}: a policy as slow as they are would"
            f" not have the time. Consider {better}, or brisker demonstrations.",
            file=sys.stderr,
            flush=True,
        )


def _require_same_actions(config: TrainConfig, env: gymnasium.Env, episode: Episode) -> None:
    mode, scale = env.unwrapped.control_mode, env.unwrapped.action_scale  # type: ignore[attr-defined]
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
