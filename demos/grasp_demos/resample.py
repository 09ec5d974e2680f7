"""From messages as plain arrays, each with its times, to an episode at the policy's rate.

Shapes: K ticks, T steps, A action dimension, S numbers of the simulator's state. Times are
whole nanoseconds (int64) until they are put into a `GraspState`.

The rule: at each tick a state takes, of every source, the latest message received at or before the tick, and
an action is the latest command whose header stamp (the time of the state it answers) is at or before it; it
is held until the next. Nothing is interpolated. Ticks are the recorded ones where the stream `stamps` has
them, else every 1 / rate s from the moment when all is there. A state keeps each source's own header stamp
as its time; the TCP's pose is forward kinematics of the joints.

A source is in a gap where its latest message is older than its usual delay (receive time minus header stamp
at the beginning) plus its maximum age. Steps in a gap are left out: the episode is split there, and its parts
are marked incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, DemoError, Episode
from grasp_demos.gaps import gap_lines, late_lines, latest, runs, stale, without_command
from grasp_demos.storage import ARRAYS, STATES
from grasp_demos.streams import NS, OUTCOME, Jump, Recorded, Span, Stream, common_clock, in_order
from grasp_sim import ur5e
from grasp_sim.contract import GraspState, encode, pack_state

MAX_TICKS = 2_000_000
"""More are refused before anything is allocated: 28 hours at 20 Hz."""
MIN_RATE, MAX_RATE = 0.1, 1000.0
"""Hz of an episode."""
MAX_AGE = 60.0
"""s; a maximum age above it would be none."""


@dataclass
class MaximumAge:
    """s that a source's latest message may be older than its usual delay."""

    joints: float = 0.2
    """s that the arm's joint states may be older than usual."""
    gripper: float = 0.5
    """s that the gripper's state may be older than usual."""
    object_pose: float = 1.0
    """s that the object's pose may be older than usual."""
    command: float = 0.5
    """s that a command is held for."""

    def __post_init__(self) -> None:
        """Check the range."""
        for name, value in vars(self).items():
            if not 0.0 < value <= MAX_AGE:
                raise ValueError(f"the maximum age {name}={value} must be above 0 and at most {MAX_AGE:g} s.")


class Resampled(NamedTuple):
    """The parts of an episode, one where it had no gap, and a line for everything that was left out."""

    episodes: list[Episode]
    warnings: list[str]


def resample(recorded: Recorded, span: Span, first: int, limits: MaximumAge | None = None) -> Resampled:
    """Make an episode of the messages between `span.begin` and `span.end`.

    Args:
        recorded: streams in the order of their receive times.
        span: what else is known.
        first: ns that warnings count their times from, such as the recording's first message.
        limits: maximum ages; the defaults if None.

    Raises DemoError where there are no actions, or not one whole step.
    """
    limits = limits or MaximumAge()
    warnings: list[str] = []
    recorded, span, jumps = prepare(recorded, span, first, warnings)
    warnings += [f"{jump.line}: messages are not used until their stamps are right again." for jump in jumps]
    ticks = _ticks(recorded, span)
    faults = find_faults(recorded, ticks, span, limits)
    for topic, limit, bad in faults.silent:
        warnings += gap_lines(topic, ticks, bad, first, limit)
    if recorded.stamps is not None:
        warnings += late_lines(recorded.stamps.topic, ticks, faults.late, first)
    good = faults.usable
    parts = runs(good)
    if not parts:
        raise DemoError(f"holds no whole step: {'; '.join(warnings) or 'it ends with its first state'}.")
    whole = len(parts) == 1 and parts[0] == (0, len(good))
    with np.errstate(over="ignore"):  # What is too large becomes infinite, which `validate` refuses.
        episode = assemble(recorded, span, ticks)
    if whole:
        return Resampled([episode], warnings)
    note = "{}part {} of {} between gaps"
    remark = f"{span.metadata.note}; " if span.metadata.note else ""
    return Resampled(
        [
            _part(episode, begin, end, note.format(remark, number + 1, len(parts)))
            for number, (begin, end) in enumerate(parts)
        ],
        warnings,
    )


def prepare(
    recorded: Recorded, span: Span, first: int, warnings: list[str]
) -> tuple[Recorded, Span, list[Jump]]:
    """Streams with one clock, in order and with all velocities, and the jumps of clocks that were found.

    Raises DemoError for a rate that is none, for clocks that differ, and without actions.
    """
    if not MIN_RATE <= span.metadata.rate_hz <= MAX_RATE:
        raise DemoError(f"has {span.metadata.rate_hz} steps a second; it must be {MIN_RATE} to {MAX_RATE}")
    recorded, span = common_clock(recorded, span, warnings)
    recorded, jumps = in_order(recorded, first)
    joints = _with_velocities(recorded.joints, warnings)
    return recorded._replace(joints=joints), span, jumps


class Silent(NamedTuple):
    """Where a source was silent for too long."""

    topic: str
    limit: float
    """s."""
    bad: np.ndarray
    """(K,) bool."""


class Faults(NamedTuple):
    """Why steps cannot be used."""

    silent: list[Silent]
    """One entry a source."""
    late: np.ndarray
    """(T,) bool: the next tick did not come in time."""
    usable: np.ndarray
    """(T,) bool."""


def find_faults(recorded: Recorded, ticks: np.ndarray, span: Span, limits: MaximumAge) -> Faults:
    """The faults at `ticks` (K,) of prepared streams."""
    states = [
        Silent(stream.topic, limit, stale(stream, ticks, limit))
        for stream, limit in (
            (recorded.joints, limits.joints),
            (recorded.gripper, limits.gripper),
            (recorded.object_pose, limits.object_pose),
        )
    ]
    commands = [
        Silent(stream.topic, limits.command, without_command(stream, ticks, limits.command))
        for stream in recorded.commands
    ]
    unseen = np.any([fault.bad for fault in states], axis=0)
    unanswered = np.any([fault.bad for fault in commands], axis=0)
    late = np.diff(ticks) > round(NS / span.metadata.rate_hz) * 3 // 2
    return Faults(states + commands, late, ~(unseen[:-1] | unseen[1:] | unanswered[:-1] | late))


def _with_velocities(joints: Stream, warnings: list[str]) -> Stream:
    """Where a velocity was not measured: change of the position since the message before."""
    values = joints.values
    unknown = ~np.isfinite(values[:, ur5e.DOF :])
    if not unknown.any():
        return joints
    change = np.diff(values[:, : ur5e.DOF], axis=0, prepend=values[:1, : ur5e.DOF])
    seconds = np.maximum(np.diff(joints.stamps, prepend=joints.stamps[:1]), 1)[:, None] / NS
    values = values.copy()
    values[:, ur5e.DOF :] = np.where(unknown, change / seconds, values[:, ur5e.DOF :])
    count = int(unknown.any(axis=1).sum())
    warnings.append(
        f"{joints.topic}: {count} of {len(values)} messages lack velocities: positions' change taken."
    )
    return joints._replace(values=values)


def _ticks(recorded: Recorded, span: Span) -> np.ndarray:
    """(K,) ns, increasing, at least two."""
    command = recorded.command
    states = [recorded.joints, recorded.gripper, recorded.object_pose, recorded.object_size]
    begin = max(int(stream.received[0]) for stream in states)
    period = round(NS / span.metadata.rate_hz)
    if span.begin is not None:
        begin = max(begin, span.begin)
    end = int(command.stamps[-1]) + period if span.end is None else span.end
    if recorded.stamps is not None:
        ticks = np.unique(recorded.stamps.received)
        ticks = ticks[(ticks >= begin) & (ticks <= end)]
    else:
        begin = max(begin, int(command.stamps[0]))
        if (end - begin) // period >= MAX_TICKS:
            raise DemoError(
                f"would have {(end - begin) // period} steps, more than {MAX_TICKS}: split the recording"
            )
        ticks = np.arange(begin, end + 1, period, dtype=np.int64)
    if len(ticks) < 2:
        raise DemoError("is over before one step with all its sources and a command")
    return ticks


def assemble(recorded: Recorded, span: Span, ticks: np.ndarray) -> Episode:
    """Everything of prepared streams at every tick (K,), gaps included; parts are cut from it."""
    states = assemble_states(recorded, span, ticks)
    requested, executed, intended = _actions(recorded, ticks[:-1])
    outcomes = _outcomes(recorded.outcomes, span, ticks[1:])
    moving = np.concatenate([span.simulator_state[None], outcomes[:, len(OUTCOME) :]])
    columns = {name: outcomes[:, column] for column, name in enumerate(OUTCOME)}
    return Episode(
        span.metadata,
        states=np.stack([pack_state(state) for state in states]),
        observations=np.stack([encode(state) for state in states]),
        intended_actions=intended,
        requested_actions=requested,
        executed_actions=executed,
        rewards=columns["reward"].astype(np.float32),
        terminations=columns["terminated"].astype(bool),
        truncations=columns["truncated"].astype(bool),
        slips=columns["slip"].astype(bool),
        drops=columns["drop"].astype(bool),
        actors=columns["actor"].astype(np.uint8),
        simulator_states=moving,
        snapshot=dict(span.snapshot) if ticks[0] == span.begin else {},
    )


def assemble_states(recorded: Recorded, span: Span, ticks: np.ndarray) -> list[GraspState]:
    """The state at each of `ticks` (K,), of the latest message of every source."""
    origin = int(ticks[0]) if span.origin is None else span.origin
    sources = [recorded.joints, recorded.gripper, recorded.object_pose, recorded.object_size]
    used = [np.maximum(latest(stream.received, ticks), 0) for stream in sources]
    joints, gripper, pose, size = (s.values[u] for s, u in zip(sources, used, strict=True))
    times = np.stack([ticks, *(s.stamps[u] for s, u in zip(sources[:3], used[:3], strict=True))], axis=1)
    times = _exact((times - origin) / NS, recorded.stamps, ticks)
    states = []
    for k in range(len(ticks)):
        position, quaternion = _kinematics().forward(joints[k, : ur5e.DOF])
        states.append(
            GraspState(
                joint_positions=joints[k, : ur5e.DOF],
                joint_velocities=joints[k, ur5e.DOF :],
                tcp_position=position,
                tcp_quaternion=quaternion,
                gripper_opening=float(gripper[k, 0]),
                gripper_force=float(gripper[k, 1]),
                object_position=pose[k, :3],
                object_quaternion=pose[k, 3:],
                object_size=size[k],
                object_symmetry=span.object_symmetry,
                joint_time=float(times[k, 1]),
                gripper_time=float(times[k, 2]),
                object_time=float(times[k, 3]),
                time=float(times[k, 0]),
            )
        )
    return states


@cache
def _kinematics() -> ur5e.Kinematics:
    """One for all: making it takes longer than an episode's poses. Not for several threads."""
    return ur5e.Kinematics()


def _exact(times: np.ndarray, stamps: Stream | None, ticks: np.ndarray) -> np.ndarray:
    """(K, 4) s, with the recorder's own numbers where they round to the nanoseconds of the messages."""
    if stamps is None:
        return times
    exact = stamps.values[latest(stamps.received, ticks)]
    return np.where(np.abs(exact - times) <= 1e-9, exact, times)


def _actions(recorded: Recorded, ticks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T, A) float32 each: requested, executed, intended."""

    def held(stream: Stream, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        used = np.maximum(latest(stream.stamps[among], ticks), 0)
        return stream.values[among][used].astype(np.float32)

    command, pairs = recorded.command, slice(None)
    if recorded.executed is not None:
        # Where one of a pair was lost on the way, the last whole pair: another's execution is no answer.
        whole = np.isin(command.stamps, recorded.executed.stamps)
        pairs = whole if whole.any() else pairs
    requested = held(command, pairs)
    possible = np.clip(requested, -1.0, 1.0)
    executed = possible
    if recorded.executed is not None:
        answers = np.isin(recorded.executed.stamps, command.stamps)
        executed = held(recorded.executed, answers if answers.any() else slice(None))
    return requested, executed, possible if recorded.intended is None else held(recorded.intended)


def _outcomes(stream: Stream | None, span: Span, ticks: np.ndarray) -> np.ndarray:
    """(T, 6 + S), those of the states at `ticks`; made from the end's judgement where none were recorded."""
    if stream is not None:
        used = latest(stream.received, ticks)
        if (used < 0).any() or not np.array_equal(stream.received[used], ticks):
            raise DemoError(
                f"{stream.topic} has no message for some of the steps: the recording is not whole"
            )
        width = len(OUTCOME) + len(span.simulator_state)
        if stream.values.shape[1] != width:
            raise DemoError(f"{stream.topic} has {stream.values.shape[1]} numbers; the start implies {width}")
        return stream.values[used]
    outcomes = np.zeros((len(ticks), len(OUTCOME) + len(span.simulator_state)))
    outcomes[:, OUTCOME.index("actor")] = ACTORS.index("person")
    success = span.metadata.success
    if span.metadata.complete:
        outcomes[-1, OUTCOME.index("reward")] = float(success)
        outcomes[-1, OUTCOME.index("terminated" if success else "truncated")] = 1.0
    return outcomes


def _part(episode: Episode, begin: int, end: int, note: str) -> Episode:
    """Steps begin to end - 1, marked incomplete."""
    first, last = slice(begin, end), slice(begin, end + 1)
    unfinished = np.arange(begin, end) < len(episode) - 1
    return replace(
        episode,
        metadata=replace(episode.metadata, success=False, complete=False, note=note),
        states=episode.states[last],
        observations=episode.observations[last],
        simulator_states=episode.simulator_states[last],
        snapshot={} if begin else episode.snapshot,
        terminations=episode.terminations[first] & ~unfinished,
        **{name: getattr(episode, name)[first] for name in _PER_STEP},
    )


_PER_STEP = [name for name in ARRAYS if name not in (*STATES, "terminations")]
