"""`grasp-record`: record demonstrations into a data set."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grasp_demos.episode import KINDS, Episode, Metadata
from grasp_demos.reader import demonstrations, read_usable
from grasp_demos.recorders import load_receiver
from grasp_demos.recording import record_expert
from grasp_demos.resample import MaximumAge
from grasp_demos.teleop.results import Summary
from grasp_demos.teleop.session import Session
from grasp_demos.teleop.sources import OPERATORS, Devices, PageConfig, load_pilot
from grasp_demos.teleop.topic_session import TopicSession
from grasp_demos.termination import Terminated, orderly_termination
from grasp_demos.topics import Topics
from grasp_demos.watch import Watch
from grasp_demos.writer import DatasetWriter
from grasp_sim import registry
from grasp_sim.cli import require_choice, require_path, run_command, say
from grasp_sim.config import EnvConfig
from grasp_sim.contract import POLICY_RATE_HZ, ActionScale

__all__ = ["RecordConfig", "main", "record", "record_expert"]

SOURCES = ("expert", *OPERATORS, "policy", "ros")

MAX_SIDE = 1.0
"""m of an object that a gripper is to hold."""
MAX_SYMMETRY = 1000

_log = logging.getLogger(__name__)


@dataclass
class RecordConfig:
    """Settings of `grasp-record`."""

    source: str = "expert"
    """Who acts. expert: the scripted grasper. keyboard, gamepad, browser: you, with the keys of this
    terminal, a gamepad, or a page in the browser. policy: that of `bundle`; you take over with `device`.
    ros: whatever moves the robot whose ROS 2 topics are recorded; you begin and judge with `device`."""
    episodes: int = 5
    """Successful demonstrations wanted in the data set; those already there count."""
    seed: int = 0
    """Seed of the first try; try k uses seed + k. The same seed gives the same starts."""
    note: str = ""
    """Remark stored with each episode."""
    out: str = "runs/demos"
    """Folder of the data set; recording into an existing one goes on where it stopped."""
    keep_failures: bool | None = None
    """Store failed tries too, marked as failures; they are never used as demonstrations. null: keep those of
    people, throw the expert's away."""
    kind: str = "human-like"
    """Expert: what a policy will learn from it. human-like: the executed action, noise included, as a
    person's hand would give. clean: the intended action before noise, which is easier to learn from."""
    noise: float = 0.15
    """Expert: standard deviation of the Gaussian noise on each dimension of the action (range -1 to 1)."""
    bundle: str = ""
    """Policy: folder of the policy bundle that acts."""
    device: str = "keyboard"
    """Policy and ros: device with which you take over, or judge: keyboard, gamepad or browser."""
    time_limit: float = 60.0
    """All but the expert: s until an episode times out. The expert's is env.horizon."""
    page: PageConfig = field(default_factory=PageConfig)
    gamepad: str = ""
    """Gamepad: its device file, such as /dev/input/event3; empty takes the first that is found."""
    topics: Topics = field(default_factory=Topics)
    ages: MaximumAge = field(default_factory=MaximumAge)
    object_size: list[float] = field(default_factory=list)
    """Ros: full extents of the object in m, as in [0.04,0.04,0.04]; empty waits for topics.object_size."""
    object_symmetry: int = 4
    """Ros: n-fold rotational symmetry of the object about the vertical axis; 0: any rotation looks alike."""
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        require_path("out", self.out)
        require_choice("source", self.source, SOURCES)
        require_choice("kind", self.kind, KINDS)
        require_choice("device", self.device, OPERATORS)
        if self.source == "policy":
            require_path("bundle", self.bundle)
        if self.source != "expert" and self.kind != "human-like":
            raise ValueError(
                f"kind={self.kind} is for source=expert: of a person only what was done is known."
            )
        if self.episodes < 1:
            raise ValueError(f"episodes={self.episodes} must be at least 1.")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative.")
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(
                f"noise={self.noise} must lie between 0 and 1, the action's own range being -1 to 1."
            )
        if not 1.0 <= self.time_limit <= 3600.0:
            raise ValueError(f"time_limit={self.time_limit} must be from 1 to 3600 s.")
        if self.object_size and not (
            len(self.object_size) == 3 and all(0.0 < side < MAX_SIDE for side in self.object_size)
        ):
            raise ValueError(f"object_size={self.object_size} must be three lengths above 0 and below 1 m.")
        if not 0 <= self.object_symmetry <= MAX_SYMMETRY:
            raise ValueError(f"object_symmetry={self.object_symmetry} must be from 0 to {MAX_SYMMETRY}.")


HELP = """\
Record demonstrations of a grasp into a data set, one checksummed file an episode.

Examples:
  grasp-record                                              five human-like demonstrations into runs/demos
  grasp-record source=browser out=runs/mine                 your own, on a page in the browser
  grasp-record source=keyboard out=runs/mine                your own, with the keys of this terminal
  grasp-record source=policy bundle=runs/lift/bundle out=runs/help   the policy acts, you take over
  grasp-record source=ros env.name=robosuite-lift out=runs/real  a real arm that something else moves
  grasp-record kind=clean noise=0.3 out=runs/clean          the expert; its undisturbed intention is learnt
  grasp-record env.name=pybullet-objects out=runs/objects   another simulator and task

It may be stopped at any time: finished episodes are safe, and the same command goes on where it stopped.
Then: grasp-replay path=runs/demos checks them in the simulator, grasp-train demos.paths=[runs/demos] learns.
"""


def record(config: RecordConfig) -> int:
    """Record as configured, say what was recorded, and return the exit code.

    SIGTERM and SIGHUP stop it in order, as Ctrl-C does: the running episode is stored as incomplete, and the
    terminal is as it was. The exit code is then 128 + the signal's number.
    """
    try:
        with orderly_termination():
            return _record(config)
    except Terminated as stop:
        say(f"grasp-record: stopped by {stop.signal.name}; the same command goes on where it stopped.")
        return 128 + stop.signal


def _record(config: RecordConfig) -> int:
    if config.source == "expert":
        return _record_expert(config)
    return _record_topics(config) if config.source == "ros" else _record_people(config)


def _record_expert(config: RecordConfig) -> int:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    new, failed = 0, 0
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"building {config.env.name}", total=config.episodes)
        env: Any = registry.make(**vars(config.env), seed=config.seed)

        def show(held: int, failures: int) -> None:
            nonlocal new, failed
            new, failed = new + int(failures == failed), failures
            tail = f", {failures} failed" if failures else ""
            bar.update(task, completed=min(held, config.episodes), description=f"recording{tail}")

        done = record_expert(
            env,
            config.out,
            task=config.env.name,
            episodes=config.episodes,
            rng=np.random.default_rng(config.seed),
            noise=config.noise,
            kind=config.kind,
            seed=config.seed,
            keep_failures=bool(config.keep_failures),
            note=config.note,
            progress=show,
        )
        bar.update(task, completed=len(done), description="recorded")
    steps = sum(len(episode) for episode in done)
    kept = "kept" if config.keep_failures else "thrown away"
    tail = f"; {failed} tries failed and were {kept}" if failed else ""
    print(
        f"{config.out} holds {len(done)} {config.kind} demonstrations ({steps} steps), "
        f"{new} of them new{tail}."
    )
    return 0


def _record_people(config: RecordConfig) -> int:
    """A person records, alone or with a policy."""
    settings: dict[str, Any] = vars(config.env) | {"horizon": round(config.time_limit * POLICY_RATE_HZ)}
    env: Any = registry.make(**settings, seed=config.seed)
    pilot, policy = None, ""
    if config.source == "policy":
        pilot, policy = load_pilot("policy", config.bundle, env.control_mode, env.action_scale)
    metadata = Metadata(
        task=config.env.name,
        control_mode=env.control_mode,
        action_scale=env.action_scale,
        kind=config.kind,
        source=config.source,
        horizon=env.horizon,
        versions=env.versions(),
        note=config.note,
        policy=policy,
    )
    scale, force = env.action_scale, env.task.grip_force
    device = config.device if config.source == "policy" else config.source
    with DatasetWriter(Path(config.out)) as writer:
        held = _usable(writer)
        with OPERATORS[device](Devices(config.page, config.gamepad, scale)) as operator:
            summary = Session(
                env,
                writer,
                metadata,
                operator,
                wanted=config.episodes,
                held=len(demonstrations(held)),
                pilot=pilot,
                force=2.0 * (force - scale.force_min) / (scale.force_max - scale.force_min) - 1.0,
                seed=_next_seed(held, config.seed),
                keep_failures=config.keep_failures is not False,
            ).run()
    print(_summary_line(config, summary, len(demonstrations(held))))
    return 0


def _record_topics(config: RecordConfig) -> int:
    """A person says what becomes of what the topics of a robot tell."""
    scale = ActionScale()
    metadata = Metadata(
        task=config.env.name,
        control_mode=config.env.control_mode,
        action_scale=scale,
        kind=config.kind,
        source="ros",
        horizon=round(config.time_limit * POLICY_RATE_HZ),
        note=config.note,
    )
    watch = Watch(
        config.topics, config.ages, object_size=config.object_size, object_symmetry=config.object_symmetry
    )
    receiver = load_receiver("ros", config.topics)
    with DatasetWriter(Path(config.out)) as writer:
        held = _usable(writer)
        operator = OPERATORS[config.device](Devices(config.page, config.gamepad, scale))
        with receiver, operator:
            summary = TopicSession(
                receiver,
                watch,
                writer,
                metadata,
                operator,
                wanted=config.episodes,
                held=len(demonstrations(held)),
                keep_failures=config.keep_failures is not False,
            ).run()
    print(_summary_line(config, summary, len(demonstrations(held))))
    return 0


def _usable(writer: DatasetWriter) -> list[Episode]:
    """The episodes that the data set holds, with a warning for each that is not whole."""
    held, errors = read_usable(writer.path) if any(writer.path.glob("episode_*.npz")) else ([], [])
    for line in [*writer.warnings, *map(str, errors)]:
        _log.warning(line)
    return held


def _next_seed(held: list[Episode], seed: int) -> int:
    """The first seed from `seed` on after all that were recorded: nobody grasps the same start twice."""
    return max([seed, *(e.metadata.seed + 1 for e in held if e.metadata.seed >= seed)])


def _summary_line(config: RecordConfig, summary: Summary, before: int) -> str:
    now = before + summary.successes
    line = f"{config.out} holds {now} of {config.episodes} demonstrations, {summary.successes} of them new"
    if summary.failures:
        line += f"; failures kept, marked as such: {summary.failures}"
    if summary.discarded:
        line += f"; {summary.discarded} thrown away"
    if summary.late:
        line += f"; {summary.late} steps began late, so the machine was too slow for {POLICY_RATE_HZ:g} Hz"
    again = " The same command goes on." if now < config.episodes else ""
    return f"{line}.{again}"


def main() -> int:
    """Entry point of `grasp-record`."""
    return run_command(RecordConfig, record, HELP, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
