"""Streams of messages with two times each, and what to do where those times contradict each other.

Shapes: N messages of a stream, W numbers of one, A action dimension, S numbers of the simulator's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from grasp_demos.episode import DemoError, Metadata

NS = 1_000_000_000
"""Nanoseconds of a second."""
MAX_DELAY = 2.0
"""s; a source that is always later than this is stamped by another clock."""
AHEAD = 0.5
"""s; a message stamped this much earlier before its receipt than is usual is stamped in the future."""


OUTCOME = ("reward", "terminated", "truncated", "slip", "drop", "actor")
"""Columns of the stream `outcomes`, before those of the simulator's state."""
_BEGINNING = 20
"""Messages whose median delay is the usual one."""


class Stream(NamedTuple):
    """The messages of one topic."""

    topic: str
    received: np.ndarray
    """(N,) int64 ns, when the recorder got each message; never decreasing."""
    stamps: np.ndarray
    """(N,) int64 ns, the header's stamp: when it was measured, or the time of the state a command answers."""
    values: np.ndarray
    """(N, W) float64."""

    def delay(self) -> int:
        """ns from stamp to receipt at the beginning, which a later jump of a clock cannot change."""
        return int(np.median((self.received - self.stamps)[:_BEGINNING]))

    def take(self, which: np.ndarray) -> Stream:
        """Some of the messages, by a mask or by positions."""
        return self._replace(
            received=self.received[which], stamps=self.stamps[which], values=self.values[which]
        )


class Recorded(NamedTuple):
    """The streams of one episode, each with at least one message; None where there may be and is none."""

    joints: Stream
    """W = 12: positions (rad) and velocities (rad/s) in the order of `ur5e.JOINT_NAMES`; a velocity that was
    not measured is NaN."""
    gripper: Stream
    """W = 2: opening (m), force (N)."""
    object_pose: Stream
    """W = 7: position (m) and xyzw quaternion in the base frame."""
    object_size: Stream
    """W = 3: m. It does not age."""
    requested: Stream | None
    """W = A, as are the next two. At least one of requested and executed is needed."""
    executed: Stream | None
    intended: Stream | None
    stamps: Stream | None = None
    """W = 4: time, joint, gripper and object time (s) of a state, received at its tick. Exact, where header
    stamps are rounded to nanoseconds."""
    outcomes: Stream | None = None
    """W = 6 + S: `OUTCOME` and the simulator's state after a step, received at the tick of that state."""

    @property
    def command(self) -> Stream:
        """The requested actions, or the executed ones; raises DemoError where there are neither."""
        stream = self.executed if self.requested is None else self.requested
        if stream is None:
            raise DemoError("holds no actions, neither requested nor executed ones")
        return stream


class Span(NamedTuple):
    """What is known of an episode besides its streams."""

    metadata: Metadata
    begin: int | None = None
    """ns, receive time; None: when all sources and the first command are there."""
    end: int | None = None
    """ns, receive time; None: one period after the last command."""
    origin: int | None = None
    """ns that the episode's times count from; None: the first tick."""
    object_symmetry: int = 4
    simulator_state: np.ndarray = np.zeros(0)
    """(S,) at `begin`."""
    snapshot: Mapping[str, np.ndarray] = MappingProxyType({})
    """The simulator's, at `begin`."""


def common_clock(recorded: Recorded, span: Span, warnings: list[str]) -> tuple[Recorded, Span]:
    """Bring receive times and header stamps to one clock, that of the joints' stamps.

    A topic without stamps (all zero) gets its receive times. Where the recorder's clock is another than the
    joints' (a simulated clock, an unsynchronised computer), all receive times are moved by the difference.
    Raises DemoError for a source stamped by yet another clock, whose age nobody can tell.
    """
    streams = {name: s for name, s in recorded._asdict().items() if s is not None}
    for name, stream in streams.items():
        if name in _STAMPED and not stream.stamps.any() and stream.received.any():
            warnings.append(f"{stream.topic}: its headers have no stamps: receive times were taken instead.")
            streams[name] = stream._replace(stamps=stream.received)
    shift = streams["joints"].delay()
    if abs(shift) > MAX_DELAY * NS:
        warnings.append(
            f"{streams['joints'].topic}: receive times are {shift / NS:.3f} s later than header stamps: the "
            "recorder had another clock; all receive times were moved by that."
        )
        streams = {name: s._replace(received=s.received - shift) for name, s in streams.items()}
        span = span._replace(
            begin=None if span.begin is None else span.begin - shift,
            end=None if span.end is None else span.end - shift,
        )
    for name in ("gripper", "object_pose"):
        delay = streams[name].delay() / NS
        if abs(delay) > MAX_DELAY:
            raise DemoError(
                f"{streams[name].topic}: its stamps are {delay:.3f} s behind the clock of "
                f"{streams['joints'].topic}: synchronise the clocks and record again"
            )
    return recorded._replace(**streams), span


_STAMPED = ("joints", "gripper", "object_pose", "requested", "executed", "intended")


def in_order(recorded: Recorded, first: int, warnings: list[str]) -> Recorded:
    """`ordered` for every stream with header stamps."""
    streams = {name: getattr(recorded, name) for name in _STAMPED}
    return recorded._replace(**{n: ordered(s, first, warnings) for n, s in streams.items() if s is not None})


def ordered(stream: Stream, first: int, warnings: list[str]) -> Stream:
    """Without messages stamped in the future, or before one that came earlier; a line for each such jump."""
    early = stream.received - stream.stamps - stream.delay() < -AHEAD * NS
    for begin in np.flatnonzero(early & ~np.concatenate([[False], early[:-1]])):
        length = (stream.stamps[begin] + stream.delay() - stream.received[begin]) / NS
        warnings.append(
            f"{stream.topic}: clock jump: stamps {length:.3f} s ahead of the receive time at "
            f"{(stream.received[begin] - first) / NS:.3f} s: not used."
        )
    stream = stream.take(~early)
    back = np.diff(stream.stamps)
    for position in np.flatnonzero(back < 0):
        at = (stream.received[position + 1] - first) / NS
        warnings.append(
            f"{stream.topic}: clock jump: stamps go back by {-back[position] / NS:.3f} s at {at:.3f} s: not "
            "used until they are newer again."
        )
    return stream.take(stream.stamps >= np.maximum.accumulate(stream.stamps))
