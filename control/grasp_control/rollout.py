"""Run one episode and keep what happened.

Shapes: T steps, W policy input, A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import gymnasium
import numpy as np

from grasp_control.memory.window import ShortTermMemory, episode_windows
from grasp_control.types import Trajectory


class Act(Protocol):
    """The policy as a rollout sees it."""

    def __call__(self, window: np.ndarray) -> tuple[np.ndarray, bool]:
        """Raw policy input (W,) -> intended action (A,), and whether memory drove it."""
        ...


class EpisodeResult(NamedTuple):
    """The figures of one episode."""

    seed: int
    success: bool
    total_reward: float
    length: int
    slips: int
    """Steps in which the object slid in the fingers."""
    drops: int
    """Steps in which the object was dropped."""
    gated_steps: int = 0
    """Steps whose action memory drove."""
    broken: bool = False
    """The object broke from too much force, which ended the episode."""


class Rollout(NamedTuple):
    """One episode: its figures, and what the memory takes in."""

    result: EpisodeResult
    trajectory: Trajectory
    faulty: bool
    """The simulator reported non-finite state; the episode must not be learned from."""


def rollout(
    env: gymnasium.Env,
    act: Act,
    short_term: ShortTermMemory,
    *,
    seed: int,
    max_steps: int | None = None,
    noise: np.ndarray | None = None,
    on_step: Callable[[], None] | None = None,
) -> Rollout:
    """Run one episode.

    Args:
        env: an environment of `grasp_sim.registry`.
        act: the policy.
        short_term: the window the policy's input is made from; reset here.
        seed: fixes the episode's initial state.
        max_steps: cut the episode there as if at a time-out; None runs to the environment's own end.
        noise: (at least T, A), added to the intended actions step by step.
        on_step: called after every step.
    """
    observation, _ = env.reset(seed=seed)
    short_term.reset(observation)
    observations, actions, intentions = [observation], [], []
    rewards, slips, drops, forces, gates = [], [], [], [], []
    terminated = truncated = success = faulty = broken = False
    while not (terminated or truncated):
        intended, gated = act(short_term.policy_input())
        requested = intended if noise is None else intended + noise[len(actions)]
        observation, reward, terminated, truncated, info = env.step(requested)
        executed = info["executed_action"]
        short_term.append(executed, observation)
        observations.append(observation)
        actions.append(executed)
        intentions.append(intended)
        rewards.append(float(reward))
        slips.append(info["slip"])
        drops.append(info["drop"])
        forces.append(info["contact_force"])
        gates.append(gated)
        success = success or info["success"]
        faulty = faulty or info["sim_fault"]
        broken = broken or info["broken"]
        if on_step is not None:
            on_step()
        if max_steps is not None and len(actions) >= max_steps and not terminated:
            truncated = True
    result = EpisodeResult(
        seed=seed,
        success=success,
        total_reward=float(np.sum(rewards)),
        length=len(actions),
        slips=int(np.sum(slips)),
        drops=int(np.sum(drops)),
        broken=broken,
        gated_steps=int(np.sum(gates)),
    )
    trajectory = Trajectory(
        windows=episode_windows(np.stack(observations), np.stack(actions), short_term.context),
        actions=np.stack(actions),
        intended_actions=np.stack(intentions),
        rewards=np.asarray(rewards, np.float32),
        slips=np.asarray(slips) | np.asarray(drops),
        forces=np.asarray(forces, np.float32),
        terminated=terminated,
        success=success,
        demonstration=False,
        gated=np.asarray(gates),
    )
    return Rollout(result, trajectory, faulty)


def evaluate(
    env: gymnasium.Env,
    act: Act,
    short_term: ShortTermMemory,
    seeds: Sequence[int],
    on_episode: Callable[[EpisodeResult], None] | None = None,
) -> list[EpisodeResult]:
    """Run one episode for each seed, without noise. Success is the simulator's word, not the policy's."""
    results = []
    for seed in seeds:
        results.append(rollout(env, act, short_term, seed=seed).result)
        if on_episode is not None:
            on_episode(results[-1])
    return results


def episode_seeds(seed: int, stream: str, count: int) -> list[int]:
    """Seeds of a run's episodes, drawn independently for each stream ('train', 'evaluate', ...).

    The same run seed and stream always give the same list, and a longer list begins with the shorter one.
    """
    key = [seed, *stream.encode()]
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    return [int(s) for s in rng.integers(0, 2**31 - 1, size=count)]
