"""`grasp-replay`: run an episode's executed actions again from its initial snapshot and compare.

A recording that replays is one whose actions are those that were really sent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import numpy as np

from grasp_demos.episode import DemoError, Episode
from grasp_demos.reader import read_dataset
from grasp_demos.recording import Arm
from grasp_demos.validate import require_valid
from grasp_sim import registry
from grasp_sim.cli import require_path, run_command
from grasp_sim.contract import unpack_state


class ReplayReport(NamedTuple):
    """How far a replay was from its recording; the largest over all its steps."""

    joint_deviation: float
    """rad, of any joint."""
    tcp_deviation: float
    """m, Euclidean."""
    object_deviation: float
    """m, Euclidean, of the object's centre."""
    success: bool
    """Of the replay."""
    recorded_success: bool
    steps: int
    """Replayed; fewer than recorded where the environment ended the episode earlier."""
    recorded_steps: int

    def reproduced(self, *, tolerance_rad: float, tolerance_m: float) -> bool:
        """Whether the replay is the recording within the tolerances."""
        return (
            self.joint_deviation <= tolerance_rad
            and max(self.tcp_deviation, self.object_deviation) <= tolerance_m
            and self.success == self.recorded_success
            and self.steps == self.recorded_steps
        )


def replay(episode: Episode, env: Arm, on_step: Callable[[], None] | None = None) -> ReplayReport:
    """Replay an episode in an environment of its task.

    Args:
        episode: with a snapshot, so recorded in a simulator.
        env: which this call resets; of the episode's control mode and action scale.
        on_step: called at the start and after each step, to draw a frame.

    Raises DemoError when the episode has no snapshot or was recorded with other actions than `env` takes.
    """
    metadata = episode.metadata
    if not episode.snapshot:
        raise DemoError(
            f"{episode} has no simulator snapshot (source {metadata.source}): it cannot be replayed."
        )
    for name in ("control_mode", "action_scale"):
        recorded, given = getattr(metadata, name), getattr(env, name)
        if recorded != given:
            raise DemoError(f"{episode} was recorded with {name} {recorded}; the environment has {given}.")
    env.reset(seed=metadata.seed)
    try:
        env.restore(dict(episode.snapshot))
    except (KeyError, TypeError, ValueError) as error:
        raise DemoError(
            f"{episode} has a snapshot that does not fit the simulator here ({error}): replay it with the "
            f"versions that recorded it, {metadata.versions}."
        ) from error
    if on_step is not None:
        on_step()
    joint = tcp = thing = 0.0
    success, steps = False, 0
    for action, row in zip(episode.executed_actions, episode.states[1:], strict=True):
        _, _, terminated, truncated, info = env.step(action)
        recorded, state = unpack_state(row), info["state"]
        joint = max(joint, float(np.abs(state.joint_positions - recorded.joint_positions).max()))
        tcp = max(tcp, float(np.linalg.norm(state.tcp_position - recorded.tcp_position)))
        thing = max(thing, float(np.linalg.norm(state.object_position - recorded.object_position)))
        success, steps = bool(info["success"]), steps + 1
        if on_step is not None:
            on_step()
        if terminated or truncated:
            break
    return ReplayReport(joint, tcp, thing, success, metadata.success, steps, len(episode))


@dataclass
class ReplayConfig:
    """Settings of `grasp-replay`."""

    path: str = "???"
    """A data set's folder, or one episode's file."""
    episode: int | None = None
    """Index of the one episode to replay; null replays all."""
    video: str | None = None
    """Film of the replay, such as out.mp4; needs episode=N where the data set holds several."""
    tolerance_rad: float = 0.001
    """Largest joint deviation that still counts as reproduced, rad."""
    tolerance_m: float = 0.001
    """Largest deviation of TCP and object that still counts as reproduced, m."""

    def __post_init__(self) -> None:
        require_path("path", self.path)
        for name in ("tolerance_rad", "tolerance_m"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative.")
        if self.video is not None and Path(self.video).suffix.lower() not in _VIDEO_SUFFIXES:
            raise ValueError(f"video={self.video} must end in one of {', '.join(_VIDEO_SUFFIXES)}.")


_VIDEO_SUFFIXES = (".mp4", ".gif", ".mkv")
_FRAME_SIZE = (640, 480)

HELP = """\
Replay demonstrations in the simulator and report how far each is from its recording.

Examples:
  grasp-replay path=runs/demos                             all of a data set
  grasp-replay path=runs/demos episode=2 video=two.mp4     one of them, filmed

The exit code is 0 when all are reproduced, 1 when one is not, 2 when something is wrong with the request.
Contacts are chaotic: on another processor or simulator version a replay may differ although nothing is wrong.
"""


def replay_command(config: ReplayConfig) -> int:
    """Replay as configured, print a line an episode."""
    episodes = _select(read_dataset(config.path), config)
    require_valid(episodes)
    environments: dict[tuple[str, str, int], Any] = {}
    failures = 0
    for episode in episodes:
        held = episode.metadata
        key = (held.task, held.control_mode, max(held.horizon, len(episode)))
        if key not in environments:
            if held.task not in registry.names():
                known = ", ".join(registry.names())
                raise DemoError(
                    f"{episode} is of the task {held.task}, which does not exist here; there are: {known}."
                )
            environments[key] = registry.make(key[0], control_mode=key[1], horizon=key[2])
        env = environments[key]
        film = None if config.video is None else Path(config.video)
        report = replay(episode, env) if film is None else _film(episode, env, film)
        good = report.reproduced(tolerance_rad=config.tolerance_rad, tolerance_m=config.tolerance_m)
        failures += not good
        print(_line(episode, report, good, env.versions()))
    if failures:
        print(
            f"grasp-replay: {failures} of {len(episodes)} episodes were not reproduced within "
            f"{config.tolerance_rad} rad and {config.tolerance_m} m.",
            file=sys.stderr,
        )
    return 1 if failures else 0


def _select(episodes: list[Episode], config: ReplayConfig) -> list[Episode]:
    if config.episode is not None:
        chosen = [e for e in episodes if e.metadata.index == config.episode]
        if not chosen:
            held = ", ".join(str(e.metadata.index) for e in episodes)
            raise DemoError(f"{config.path} has no episode {config.episode}; it holds {held}.")
        return chosen
    if config.video is not None and len(episodes) > 1:
        raise DemoError(
            f"one video shows one episode, and {config.path} holds {len(episodes)}: add episode=N."
        )
    return episodes


def _film(episode: Episode, env: Any, path: Path) -> ReplayReport:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        film: Any = imageio.get_writer(unfinished, fps=episode.metadata.rate_hz)
        with film:
            report = replay(episode, env, lambda: film.append_data(env.render_frame(*_FRAME_SIZE)))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return report


def _line(episode: Episode, report: ReplayReport, good: bool, versions: dict[str, str]) -> str:
    said = {True: "success", False: "failure"}
    verdict = "reproduced" if good else "NOT reproduced"
    line = (
        f"{episode}: {verdict}; largest deviation: joints {report.joint_deviation:.2g} rad, "
        f"TCP {report.tcp_deviation:.2g} m, object {report.object_deviation:.2g} m; "
        f"{said[report.recorded_success]} recorded, {said[report.success]} replayed; "
        f"{report.steps} of {report.recorded_steps} steps"
    )
    other = [
        f"{name} {old} -> {versions.get(name, 'none')}"
        for name, old in episode.metadata.versions.items()
        if versions.get(name) != old
    ]
    return f"{line}; versions differ: {', '.join(other)}" if other else line


def main() -> int:
    """Entry point of `grasp-replay`."""
    return run_command(ReplayConfig, replay_command, HELP)


if __name__ == "__main__":
    sys.exit(main())
