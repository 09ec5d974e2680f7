"""`grasp-replay`: bring recorded episodes back into the simulator, by their actions or by their states."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grasp_demos.episode import DemoError, Episode
from grasp_demos.filming import VIDEO_SUFFIXES, film
from grasp_demos.outputs import replacing, require_output, require_suffix
from grasp_demos.playback import (
    DEVIATIONS,
    MODES,
    ReplayReport,
    is_exact,
    replay,
    show_states,
    why_no_states,
)
from grasp_demos.reader import EPISODE_NAME, read_usable
from grasp_demos.validate import require_valid
from grasp_demos.words import printable
from grasp_sim import registry
from grasp_sim.cli import require_choice, require_path, run_command

__all__ = ["ReplayConfig", "ReplayReport", "main", "replay", "replay_command"]


@dataclass
class ReplayConfig:
    """Settings of `grasp-replay`."""

    path: str = "???"
    """A data set's folder, or one episode's file."""
    episode: int | None = None
    """Index of the one episode to replay; null replays all."""
    mode: str = "actions"
    """actions: simulate the executed actions again. states: show the recorded states without simulating.
    both: one after the other, side by side in the film."""
    video: str | None = None
    """Film of the replay, such as out.mp4; needs episode=N where the data set holds several."""
    csv: str | None = None
    """Table of the deviations at every step, such as out.csv."""
    tolerance_rad: float = 0.001
    """Largest joint deviation that still counts as reproduced, rad."""
    tolerance_m: float = 0.001
    """Largest deviation of TCP, object and opening that still counts as reproduced, m."""

    def __post_init__(self) -> None:
        require_path("path", self.path)
        require_choice("mode", self.mode, (*MODES, "both"))
        for name in ("tolerance_rad", "tolerance_m"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative.")
        if self.video is not None:
            require_suffix("video", self.video, VIDEO_SUFFIXES)
        if self.csv is not None:
            require_suffix("csv", self.csv, (".csv",))


HELP = """\
Bring demonstrations back into the simulator and report how far each is from its recording.

Examples:
  grasp-replay path=runs/demos                             simulate the actions of all of a data set again
  grasp-replay path=runs/demos episode=2 video=two.mp4     one of them, filmed
  grasp-replay path=runs/demos mode=states                 show the recorded states, without simulating
  grasp-replay path=runs/demos episode=2 mode=both video=two.mp4 csv=two.csv
                                                           both side by side; the deviations step by step

By its actions an episode is simulated again from its first moment: it comes back if its actions are those
that were really sent. Contacts are chaotic: on another processor or simulator version it may turn out
differently although nothing is wrong. By its states it is shown as it was, whatever the actions would do
here; episodes of a real arm or an earlier version of this program hold no such states.

The exit code is 0 when all are reproduced, 1 when one is not or cannot be used, 2 when something is wrong
with the request.
"""


class _Stages:
    """The environments that episodes need, each built once."""

    def __init__(self) -> None:
        self._built: dict[tuple[object, ...], Any] = {}

    def get(self, episode: Episode, place: str = "") -> Any:
        """One for an episode; different places never share one. Raises DemoError for an unknown task."""
        held = episode.metadata
        if held.task not in registry.names():
            known = ", ".join(registry.names())
            raise DemoError(
                f"{episode} is of the task {held.task}, which does not exist here; there are: {known}."
            )
        horizon = max(held.horizon, len(episode))
        key = (held.task, held.control_mode, horizon, place)
        if key not in self._built:
            self._built[key] = registry.make(held.task, control_mode=held.control_mode, horizon=horizon)
        return self._built[key]


def replay_command(config: ReplayConfig) -> int:
    """Replay as configured, print a line an episode and mode."""
    episodes, unusable = _select(*read_usable(config.path), config)
    for name in ("video", "csv"):
        if getattr(config, name) is not None:
            paths = [episode.path for episode in episodes if episode.path is not None]
            require_output(name, Path(getattr(config, name)), [config.path, *paths])
    asked = MODES if config.mode == "both" else (config.mode,)
    stages, lines, failures = _Stages(), [], 0
    done: list[tuple[Episode, ReplayReport]] = []
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            for episode in bar.track(episodes):
                modes = [mode for mode in asked if mode != "states" or not why_no_states(episode)]
                if "states" in asked and "states" not in modes:
                    lines.append(f"{episode} {why_no_states(episode)}")
                    failures += not modes  # Nothing at all can be said of it.
                if not modes:
                    continue
                try:
                    reports = _play(episode, modes, stages, config)
                except DemoError as error:
                    unusable.append(error)
                    continue
                good = [_is_good(episode, report, config) for report in reports]
                failures += not all(good)
                versions = stages.get(episode).versions()
                for report, verdict in zip(reports, good, strict=True):
                    lines.append(_line(episode, report, verdict, versions))
                    done.append((episode, report))
    finally:  # What is known of the episodes before one that cannot be replayed is not lost.
        for line in lines:
            print(printable(line))
    if unusable and not lines:
        raise _together(unusable)
    for error in unusable:
        print(f"grasp-replay: {printable(str(error))}", file=sys.stderr)
    if config.csv is not None:
        write_deviations(Path(config.csv), done)
    if failures:
        print(
            f"grasp-replay: {failures} of {len(episodes)} episodes were not reproduced within "
            f"{config.tolerance_rad} rad and {config.tolerance_m} m.",
            file=sys.stderr,
        )
    return 1 if failures or unusable else 0


def _select(
    episodes: list[Episode], unusable: list[DemoError], config: ReplayConfig
) -> tuple[list[Episode], list[DemoError]]:
    """The episodes to play, and an error for each that was asked for and cannot be used.

    Raises DemoError where none is left, or several are to be filmed.
    """
    if config.episode is not None:
        chosen = [e for e in episodes if e.metadata.index == config.episode]
        name = EPISODE_NAME.format(config.episode)
        unusable = [error for error in unusable if name in str(error)]  # Its index cannot be read.
        if not chosen and not unusable:
            held = ", ".join(str(e.metadata.index) for e in episodes)
            raise DemoError(f"{config.path} has no episode {config.episode}; it holds {held}.")
        episodes = chosen
    if config.video is not None and len(episodes) > 1:
        hint = "name its file" if config.episode is not None else "add episode=N"
        raise DemoError(
            f"one video shows one episode, and {config.path} holds {len(episodes)} of them: {hint}."
        )
    good = []
    for episode in episodes:
        try:
            require_valid([episode])
            good.append(episode)
        except DemoError as error:
            unusable.append(error)
    if not good:
        raise _together(unusable)
    return good, unusable


def _together(errors: list[DemoError]) -> DemoError:
    """One error out of several, the first five in full."""
    more = f" And {len(errors) - 5} more." if len(errors) > 5 else ""
    return DemoError(" ".join(map(str, errors[:5])) + more)


def _play(episode: Episode, modes: list[str], stages: _Stages, config: ReplayConfig) -> list[ReplayReport]:
    if config.video is not None:  # In step with each other, so each in a simulator of its own.
        places = {mode: stages.get(episode, mode if k else "") for k, mode in enumerate(modes)}
        return film(episode, places, Path(config.video))
    players = {"actions": replay, "states": show_states}
    return [players[mode](episode, stages.get(episode)) for mode in modes]


def _is_good(episode: Episode, report: ReplayReport, config: ReplayConfig) -> bool:
    if report.mode == "states" and not is_exact(episode):
        return True  # The simulator shows the true states, and the recording holds measured ones.
    return report.reproduced(tolerance_rad=config.tolerance_rad, tolerance_m=config.tolerance_m)


def _line(episode: Episode, report: ReplayReport, good: bool, versions: dict[str, str]) -> str:
    deviation = (
        f"largest deviation: joints {report.joint_deviation:.2g} rad, TCP {report.tcp_deviation:.2g} m, "
        f"object {report.object_deviation:.2g} m, opening {report.opening_deviation:.2g} m"
    )
    if report.mode == "states":
        exact = is_exact(episode)
        verdict = ("shown as recorded" if good else "shown, but NOT as recorded") if exact else "shown"
        line = f"{episode}: {verdict}; {deviation}; {report.steps} steps"
        if not exact:
            line += "; what was recorded was measured with noise, latency or error, what is shown is true"
    else:
        said = {True: "success", False: "failure"}
        verdict = "reproduced" if good else "NOT reproduced"
        line = (
            f"{episode}: {verdict}; {deviation}; "
            f"{said[report.recorded_success]} recorded, {said[report.success]} replayed; "
            f"{report.steps} of {report.recorded_steps} steps"
        )
    other = [
        f"{name} {old} -> {versions.get(name, 'none')}"
        for name, old in episode.metadata.versions.items()
        if versions.get(name) != old
    ]
    return f"{line}; versions differ: {', '.join(other)}" if other else line


def write_deviations(path: Path, done: list[tuple[Episode, ReplayReport]]) -> None:
    """A CSV with a row for each moment of each playback; the file is the old one or whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("file", "episode", "mode", "step", "time_s", *DEVIATIONS))
    for episode, report in done:
        for step, *deviations in report.table.tolist():
            time = float(episode.states[int(step), -1])
            where = (str(episode), episode.metadata.index, report.mode, int(step), repr(time))
            writer.writerow((*where, *map(repr, deviations)))
    with replacing(path) as unfinished:
        unfinished.write_text(text.getvalue(), encoding="utf-8", errors="replace")


def main() -> int:
    """Entry point of `grasp-replay`."""
    return run_command(ReplayConfig, replay_command, HELP)


if __name__ == "__main__":
    sys.exit(main())
