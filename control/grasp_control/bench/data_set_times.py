"""How long reading, checking and going on with a large data set takes."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from grasp_control import progress
from grasp_demos.check import CheckConfig, check
from grasp_demos.episode import Episode
from grasp_demos.files import find_episodes
from grasp_demos.reader import read_episode
from grasp_demos.show import ShowConfig, show_command
from grasp_demos.storage import episode_bytes
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import unpack_state

HAND = 0.02
"""Standard deviation of what is added to the actions of a recording to make another of it."""


def multiply(recordings: Sequence[Episode], folder: Path, episodes: int, rng: np.random.Generator) -> int:
    """Write `episodes` episodes, recordings in turn with other actions in each; returns their steps."""
    folder.mkdir()
    steps = 0
    with progress.bar("Write episodes", episodes) as advance:
        for index in range(episodes):
            episode = recordings[index % len(recordings)]
            shape = episode.requested_actions.shape
            requested = (episode.requested_actions + rng.normal(0.0, HAND, shape)).astype(np.float32)
            executed = np.clip(requested, -1.0, 1.0)
            altered = replace(
                episode,
                metadata=replace(episode.metadata, index=index, seed=index),
                requested_actions=requested,
                executed_actions=executed,
            )
            (folder / f"episode_{index:06d}.npz").write_bytes(episode_bytes(altered))
            steps += len(episode)
            advance()
    return steps


def measure_times(folder: Path, steps: int) -> tuple[list[dict[str, object]], list[str]]:
    """Wall and CPU seconds of what is done with the data set, and what the check found wrong with it."""
    found = find_episodes([folder])
    rows: list[dict[str, object]] = []

    def timed(what: str, action: Callable[[], object], reads: bool = False) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        speed = round(steps / cpu) if reads else ""
        figures = {"wall_s": round(wall, 4), "cpu_s": round(cpu, 4), "steps_per_cpu_s": speed}
        rows.append({"what": what, "episodes": len(found.episodes), "steps": steps, **figures})

    wrong: list[str] = []

    def check_all() -> None:
        wrong.extend(str(f) for f in check(found, CheckConfig()).findings if f.severity == "error")

    def show_all() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            if show_command([str(folder)], ShowConfig()):
                wrong.append("grasp-demos show could not read all")

    timed("grasp-demos check", check_all, reads=True)
    timed("grasp-demos show", show_all, reads=True)
    _measure_recording(folder, timed)
    return rows, wrong


def _measure_recording(folder: Path, timed: Callable[[str, Callable[[], object]], None]) -> None:
    """Opening for recording, and beginning an episode there."""
    with contextlib.ExitStack() as stack:
        timed("open for recording", lambda: stack.enter_context(DatasetWriter(folder)))
    first = read_episode(folder / "episode_000000.npz")
    state, observation = unpack_state(first.states[0]), first.observations[0]
    with DatasetWriter(folder) as writer:

        def begin() -> None:
            writer.begin(
                first.metadata, state, observation, first.simulator_states[0], first.snapshot
            ).discard()

        timed("begin the first episode", begin)
        timed("begin the next", begin)
