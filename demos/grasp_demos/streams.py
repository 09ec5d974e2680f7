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
BEGINNING = 20
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
    usual: int | None = None
    """ns from stamp to receipt where it is known from before; None: that of the first messages here."""

    def delay(self) -> int:
        """ns from stamp to receipt at the beginning, which a later jump of a clock cannot change."""
        if self.usual is not None:
            return self.usual
        return int(np.median((self.received - self.stamps)[:BEGINNING]))

    def moved(self, shift: int) -> Stream:
        """With receive times that much (ns) later."""
        usual = None if self.usual is None else self.usual + shift
        return self._replace(received=self.received + shift, usual=usual)

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

    @property
    def commands(self) -> list[Stream]:
        """The streams of actions that there are, that of `command` first."""
        others = (self.executed, self.intended)
        return [self.command, *(s for s in others if s is not None and s is not self.command)]


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
    unstamped = [name for name in _STAMPED if name in streams and _without_stamps(streams[name])]
    for name in unstamped:
        topic = streams[name].topic
        warnings.append(f"{topic}: its headers have no stamps: receive times were taken instead.")
        streams[name] = streams[name]._replace(stamps=streams[name].received, usual=0)
    shift = streams["joints"].delay()
    if abs(shift) > MAX_DELAY * NS:
        warnings.append(
            f"{streams['joints'].topic}: receive times are {shift / NS:.3f} s later than header stamps: the "
            "recorder had another clock; all receive times were moved by that."
        )
        streams = {name: stream.moved(-shift) for name, stream in streams.items()}
        for name in unstamped:
            streams[name] = streams[name]._replace(stamps=streams[name].received, usual=0)
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


def _without_stamps(stream: Stream) -> bool:
    return not stream.stamps.any() and bool(stream.received.any())


_STAMPED = ("joints", "gripper", "object_pose", "requested", "executed", "intended")


class Jump(NamedTuple):
    """A clock that jumped: from here on messages are not used for a while."""

    received: int
    """ns, of the first message that is not used."""
    line: str
    """Topic, length and moment."""


def in_order(recorded: Recorded, first: int) -> tuple[Recorded, list[Jump]]:
    """`ordered` for every stream with header stamps."""
    streams, jumps = {}, []
    for name in _STAMPED:
        stream = getattr(recorded, name)
        if stream is not None:
            streams[name], found = ordered(stream, first)
            jumps += found
    return recorded._replace(**streams), jumps


def ordered(stream: Stream, first: int) -> tuple[Stream, list[Jump]]:
    """Without messages stamped in the future, or before one that came earlier, and each such jump.

    `first` is the ns that the jumps' moments count from.
    """
    usual = stream.delay()
    stream = stream._replace(usual=usual)  # What is left out must not change it.
    early = stream.received - stream.stamps - usual < -AHEAD * NS
    jumps = []
    for begin in np.flatnonzero(early & ~np.concatenate([[False], early[:-1]])):
        length = (stream.stamps[begin] + usual - stream.received[begin]) / NS
        at = int(stream.received[begin])
        line = f"stamps {length:.3f} s ahead of the receive time at {(at - first) / NS:.3f} s"
        jumps.append(Jump(at, f"{stream.topic}: clock jump: {line}"))
    stream = stream.take(~early)
    back = np.diff(stream.stamps)
    for position in np.flatnonzero(back < 0):
        at = int(stream.received[position + 1])
        line = f"stamps go back by {-back[position] / NS:.3f} s at {(at - first) / NS:.3f} s"
        jumps.append(Jump(at, f"{stream.topic}: clock jump: {line}"))
    return stream.take(stream.stamps >= np.maximum.accumulate(stream.stamps)), jumps
