"""Record an acting expert into a data set.

The expert's action is executed with Gaussian noise on every dimension, and all three actions are stored:
intended (before noise), requested (with it), executed (clipped to [-1, 1], as sent).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from grasp_demos.episode import DemoError, Episode, Metadata, Step
from grasp_demos.reader import demonstrations, read_usable
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale, GraspState
from grasp_sim.expert import ScriptedExpert
from grasp_sim.tasks import Task

MAX_FAILURES_IN_A_ROW = 20

_log = logging.getLogger(__name__)


class Arm(Protocol):
    """What recording and replaying ask of an environment."""

    action_scale: ActionScale
    control_mode: str
    horizon: int
    task: Task

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]: ...
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]: ...
    def snapshot(self) -> dict[str, np.ndarray]: ...
    def restore(self, snapshot: dict[str, np.ndarray]) -> Any: ...
    def dynamic_state(self) -> np.ndarray: ...
    def versions(self) -> dict[str, str]: ...


class Expert(Protocol):
    """Who acts."""

    def reset(self) -> None: ...
    def act(self, state: GraspState) -> np.ndarray: ...


def record_expert(
    env: Arm,
    out_dir: Path | str,
    *,
    task: str,
    episodes: int,
    rng: np.random.Generator,
    noise: float = 0.15,
    kind: str = "human-like",
    seed: int = 0,
    keep_failures: bool = False,
    note: str = "",
    progress: Callable[[int, int], None] | None = None,
    expert: Expert | None = None,
) -> list[Episode]:
    """Record until the data set holds `episodes` successful demonstrations, and return those.

    Try k resets the environment with seed + k and draws its noise from the k-th child of `rng`, and tries
    that the data set holds already are skipped: a run that was interrupted and repeated gives the episodes of
    one that was not.

    Args:
        env: a simulated environment, which this call resets.
        out_dir: the data set's folder; made if need be.
        task: the environment's name in the registry, for the replay.
        episodes: number of successful demonstrations wanted, those already there counted.
        rng: a fresh generator; only its children are drawn from.
        noise: standard deviation added to each of the action's six dimensions.
        kind: one of `grasp_demos.episode.KINDS`; decides which action a policy learns.
        seed: of the first try.
        keep_failures: also store tries that failed, with `success` false.
        note: stored with each episode.
        progress: called with (demonstrations held, tries failed) after each try.
        expert: who acts; the scripted expert by default.

    Raises DemoError when the folder holds demonstrations of another sort, or when 20 tries fail in a row.
    """
    expert = expert or ScriptedExpert(env.action_scale, env.control_mode, env.task.grip_force)
    metadata = Metadata(
        task=task,
        control_mode=env.control_mode,
        action_scale=env.action_scale,
        kind=kind,
        noise=noise,
        horizon=env.horizon,
        versions=env.versions(),
        note=note,
    )
    with DatasetWriter(Path(out_dir)) as writer:
        held = _held(writer, metadata)
        done = demonstrations(held)
        tried = {e.metadata.seed for e in held if e.metadata.complete}
        failures, in_a_row, attempt = 0, 0, seed
        while len(done) < episodes:
            if in_a_row >= MAX_FAILURES_IN_A_ROW:
                raise DemoError(
                    f"{in_a_row} tries failed in a row (seeds up to {attempt - 1}); {writer.path} holds "
                    f"{len(done)} of {episodes} demonstrations: ask for less noise or another seed."
                )
            noise_rng = rng.spawn(1)[0]
            if attempt not in tried:
                episode = _record_one(env, writer, expert, metadata, attempt, noise_rng, keep_failures)
                if episode is not None and episode.metadata.success:
                    done.append(episode)
                    in_a_row = 0
                else:
                    failures, in_a_row = failures + 1, in_a_row + 1
                if progress is not None:
                    progress(len(done), failures)
            attempt += 1
    return done[:episodes]


def _record_one(
    env: Arm,
    writer: DatasetWriter,
    expert: Expert,
    metadata: Metadata,
    seed: int,
    rng: np.random.Generator,
    keep_failure: bool,
) -> Episode | None:
    """One try; None when it failed and was thrown away."""
    observation, info = env.reset(seed=seed)
    expert.reset()
    note = ""
    recording = writer.begin(
        replace(metadata, seed=seed), info["state"], observation, env.dynamic_state(), env.snapshot()
    )
    while True:
        intended = expert.act(info["state"])
        requested = intended + rng.normal(0.0, metadata.noise, intended.shape)
        observation, reward, terminated, truncated, info = env.step(requested.astype(np.float32))
        if info["sim_fault"]:
            note = "the simulator's state became non-finite"  # It means nothing: the episode stops before it.
            break
        recording.append(
            Step(
                intended_action=intended,
                requested_action=info["requested_action"],
                executed_action=info["executed_action"],
                reward=float(reward),
                terminated=bool(terminated),
                truncated=bool(truncated),
                slip=bool(info["slip"]),
                drop=bool(info["drop"]),
                state=info["state"],
                observation=observation,
                actor="expert",
                simulator_state=env.dynamic_state(),
            )
        )
        if terminated or truncated:
            break
    success = bool(info["success"])
    if not success and not (keep_failure and recording.steps):
        recording.discard()
        return None
    return recording.finish(success=success, note=note)


def _held(writer: DatasetWriter, wanted: Metadata) -> list[Episode]:
    """The data set's usable episodes; raises DemoError when they are of another sort than `wanted`."""
    held: list[Episode] = []
    errors: list[DemoError] = []
    if any(writer.path.glob("episode_*.npz")):
        held, errors = read_usable(writer.path)
    for line in [*writer.warnings, *map(str, errors)]:
        _log.warning(line)
    for episode in held:
        for name in ("task", "control_mode", "action_scale", "kind", "source", "noise"):
            there, asked = getattr(episode.metadata, name), getattr(wanted, name)
            if there != asked:
                raise DemoError(
                    f"{writer.path} holds episodes with {name} {there}, not {asked}: choose another out=."
                )
    return held
