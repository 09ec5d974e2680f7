"""Watches the messages of a running robot: says what is missing, and begins episodes with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from grasp_demos.collect import Collector
from grasp_demos.episode import DemoError, Metadata
from grasp_demos.incremental import HISTORY, MAX_TICK_DELAY, Resampler
from grasp_demos.resample import MaximumAge, assemble_states, prepare
from grasp_demos.streams import BEGINNING, NS, Recorded, Span, Stream
from grasp_demos.topics import Topics
from grasp_sim.contract import ActionScale, GraspState

SETTLE = NS // 4
"""ns after an episode's beginning until it is decided which topics of actions are in use."""
_SHOWN = Metadata("", "servo", ActionScale(), "human-like", complete=False)
"""Of no episode: a state is only shown."""
_ACTIONS = ("requested", "executed", "intended")


class Received(NamedTuple):
    """What came in since it was asked last."""

    messages: list[tuple[str, int, Any]]
    """Topic, receive time in ns, message; receive times never decrease."""
    now: int
    """ns on the same clock: nothing that was received up to here is still to come."""
    lost: int
    """Messages that were dropped because nobody asked for too long."""


class Receiver(Protocol):
    """What hears the topics. A context manager: it listens inside of the block."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def take(self) -> Received:
        """What came in since the last call; never waits. Raises UserError where nothing can come any more."""
        ...


class Fault(NamedTuple):
    """A message that cannot be used."""

    received: int
    line: str


class Watch:
    """The messages of the last seconds."""

    def __init__(
        self, topics: Topics, limits: MaximumAge, *, object_size: Sequence[float], object_symmetry: int
    ) -> None:
        """
        Args:
            topics: names.
            limits: maximum ages.
            object_size: m, full extents, until the topic says otherwise; empty where it has to.
            object_symmetry: n-fold rotational symmetry of the object about the vertical axis.
        """
        self.now = 0
        """ns."""
        self._topics, self._limits, self._symmetry = topics, limits, object_symmetry
        self._collector = Collector(topics)
        if len(object_size):
            self._collector.assume(topics.object_size, tuple(object_size))
        self._faults: dict[str, Fault] = {}
        self._worst: Fault | None = None

    def take(self, received: Received, *, since: int | None = None) -> None:
        """Take in messages, and forget what is older than a few seconds, or not needed from `since` ns on.

        Between episodes (`since` None) the past of a topic whose clock jumped back is forgotten, too.
        """
        self.now = received.now
        for topic, at, message in received.messages:
            before = self._collector.latest(topic)
            try:
                self._collector.add(topic, at, message)
            except DemoError as error:
                self._faults[topic] = Fault(at, f"{topic}: {error.__cause__}")
                self._worst = self._worst or self._faults[topic]
                continue
            after = self._collector.latest(topic)
            if after != before:
                self._faults.pop(topic, None)
            if since is None and before is not None and after is not None and after.stamp < before.stamp:
                self._collector.forget(at, topic, keep=1)
        if received.lost:
            lost = Fault(self.now, f"{received.lost} messages came faster than they could be taken in")
            self._worst = self._worst or lost
        self._collector.forget(self.now - HISTORY if since is None else since)

    @property
    def fault(self) -> Fault | None:
        """The first message since the last `begin` that cannot be used."""
        return self._worst

    def missing(self) -> list[str]:
        """A line for each source of the state that is not there, not new enough, or not to be used."""
        t, limits = self._topics, self._limits
        lines = [fault.line for topic, fault in self._faults.items()]
        for topic, limit in (
            (t.joint_states, limits.joints),
            (t.gripper, limits.gripper),
            (t.object_pose, limits.object_pose),
            (t.object_size, np.inf),
        ):
            latest = self._collector.latest(topic)
            if topic in self._faults:
                continue
            if latest is None:
                hint = ", and object_size is not set" if topic == t.object_size else ""
                lines.append(f"{topic}: no message yet{hint}")
            elif self.now - latest.received > limit * NS:
                lines.append(f"{topic}: nothing new within {limit:g} s")
        return lines

    def missing_commands(self) -> str:
        """Where a command has to come from, where there is none."""
        t = self._topics
        for topic in (t.requested_action, t.executed_action):
            latest = self._collector.latest(topic)
            if latest is not None and self.now - latest.received <= self._limits.command * NS:
                return ""
        return f"no command on {t.requested_action} or {t.executed_action}"

    def state(self) -> GraspState | None:
        """As it is now; None where something is missing."""
        if self.missing():
            return None
        try:
            streams = self._collector.recorded(self.now - HISTORY, self.now, actions=False)
            recorded, span, _ = prepare(
                _with_usual(streams), Span(_SHOWN, self.now, object_symmetry=self._symmetry), 0, []
            )
        except DemoError:
            return None
        return assemble_states(recorded, span, np.array([span.begin]))[0]

    def begin(self, metadata: Metadata, asked: int) -> Resampler | None:
        """An episode asked for at `asked` ns; None until the first command is there, and a moment more.

        It begins with the first command that is in force then. The topics of actions that were heard are
        used. Raises DemoError where the clocks of the sources differ.
        """
        if self.missing_commands():
            return None
        streams = _with_usual(self._collector.recorded(asked - HISTORY, self.now))
        span = Span(metadata, asked, object_symmetry=self._symmetry)
        recorded, moved, _ = prepare(streams, span, asked, [])
        assert moved.begin is not None
        shift = asked - moved.begin
        begin, used = moved.begin, {"joints", "gripper", "object_pose"}
        for name in _ACTIONS:
            stream: Stream | None = getattr(recorded, name)
            if stream is None:
                continue
            stamps = stream.stamps[stream.received > moved.begin - self._limits.command * NS]
            if len(stamps):
                used.add(name)
                begin = max(begin, int(stamps[0]))
        if self.now < begin + shift + SETTLE:
            return None
        stamps = self._collector.latest(self._topics.state_stamps)
        ticked = stamps is not None and self.now - stamps.received <= MAX_TICK_DELAY
        usual = {name: getattr(streams, name).usual for name in used}
        return Resampler(span._replace(begin=begin + shift), usual, self._limits, ticked)

    def clear(self) -> None:
        """Faults up to now are of the past."""
        self._worst = None

    def recorded(self, since: int, until: int) -> Recorded:
        """The streams received between two times in ns, and two messages of each before them."""
        return self._collector.recorded(since, until)


def _with_usual(recorded: Recorded) -> Recorded:
    """The streams with the delay that was usual lately."""
    streams = {name: s for name, s in recorded._asdict().items() if s is not None}
    return recorded._replace(
        **{
            name: s._replace(usual=int(np.median((s.received - s.stamps)[-BEGINNING:])))
            for name, s in streams.items()
        }
    )
