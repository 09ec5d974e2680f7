"""Resampling while the messages come in: step by step, with the numbers that `resample` gives afterwards.

A state is final when its tick has passed. The action of a step is final when a command stamped after its tick
is there, on every topic of actions; that is one period later as a rule. A command that does not come ends the
episode after twice its maximum age.

Whatever leaves steps out of `resample` ends the episode here, before the first such step: the person sees it
and begins again, instead of finding the episode in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, Episode, Step
from grasp_demos.gaps import latest
from grasp_demos.resample import Faults, MaximumAge, assemble, find_faults, prepare
from grasp_demos.streams import NS, Recorded, Span, Stream
from grasp_sim.contract import GraspState, unpack_state

HISTORY = 3 * NS
"""ns before its last tick from which `Resampler.advance` has to be given messages: a command may be stamped
ahead of its receipt, and a velocity may have to follow from the message before."""
MAX_TICK_DELAY = NS // 2
"""ns without a recorded tick that end an episode."""


class Advance(NamedTuple):
    """What has become final."""

    steps: list[Step]
    """In order, following those given before; reward and ends are those of a running episode."""
    problem: str
    """Why the episode is over before what was asked, in one line; empty where it is not."""


class Resampler:
    """One episode as it grows."""

    def __init__(self, span: Span, usual: Mapping[str, int], limits: MaximumAge, ticked: bool) -> None:
        """
        Args:
            span: with `begin`, a moment when all sources and a command are there; `end` is not used.
            usual: ns from stamp to receipt by field of `Recorded`; the fields of actions among it are those
                that are used.
            limits: maximum ages.
            ticked: take the ticks of the stream `stamps`, not every period's.
        """
        assert span.begin is not None
        self.start: GraspState | None = None
        """The state at the first tick; None until the first step is final."""
        metadata = replace(span.metadata, success=False, complete=False)
        self._span, self._limits, self._ticked = span._replace(metadata=metadata, end=None), limits, ticked
        self._usual = dict(usual)
        self._period = round(NS / span.metadata.rate_hz)
        self._last: int | None = None
        """The last tick whose state was given, on the clock of the receive times."""
        self._begin = span.begin
        self._shift = 0
        self._over = False

    @property
    def since(self) -> int:
        """ns: messages received from here on are needed."""
        return (self._begin if self._last is None else self._last) - HISTORY

    def advance(self, recorded: Recorded, now: int, *, end: bool = False) -> Advance:
        """The steps that have become final at `now` (ns).

        Args:
            recorded: all messages received from `since` to `now`.
            now: on the clock of the receive times; nothing received up to it may follow.
            end: the episode ends now, so that all steps are final.

        Nothing follows an end or a problem. Raises DemoError as `resample` does.
        """
        assert not self._over
        recorded = self._known(recorded)
        recorded, span, jumps = prepare(recorded, self._span, self._begin, [])
        assert span.begin is not None
        self._shift = self._begin - span.begin
        now, first = now - self._shift, span.begin
        problem = ""
        jumps = [jump for jump in jumps if jump.received > first]
        if jumps:
            jump = min(jumps)
            problem, now, end = jump.line, jump.received - 1, True
            recorded = _until(recorded, now)
        stalled = any(s.stamps[-1] + 2 * self._limits.command * NS < now for s in recorded.commands)
        ticks = self._ticks(recorded, first, now)
        if self._ticked and not problem and now - int(ticks[-1] if len(ticks) else first) > MAX_TICK_DELAY:
            assert recorded.stamps is not None
            problem = self._no_tick(recorded.stamps.topic, ticks, first)
            end = True
        final = len(ticks) - 1
        if not (end or stalled):
            answered = min(int(s.stamps[-1]) for s in recorded.commands)
            final = min(final, int(np.searchsorted(ticks, answered, side="left")))
        self._over = bool(end or problem)
        if final < 1:
            return Advance([], problem)
        ticks = ticks[: final + 1]
        faults = find_faults(recorded, ticks, span, self._limits)
        wrong = np.flatnonzero(~faults.usable)
        if len(wrong):
            self._over = True
            ticks = ticks[: wrong[0] + 1]
            problem = _name(recorded, faults, int(wrong[0]), int(ticks[-1]), first)
        if len(ticks) < 2:
            return Advance([], problem)
        if span.origin is None:
            span = span._replace(origin=int(ticks[0]))
            self._span = self._span._replace(origin=span.origin)
        with np.errstate(over="ignore"):
            episode = assemble(recorded, span, ticks)
        if self.start is None:
            self.start = episode.start
        self._last = int(ticks[-1]) + self._shift
        return Advance(_steps(episode), problem)

    def _known(self, recorded: Recorded) -> Recorded:
        """The streams that are used, with their usual delays."""
        streams: dict[str, Stream | None] = {}
        for name, stream in recorded._asdict().items():
            if stream is not None and (name in self._usual or name == "object_size"):
                streams[name] = stream._replace(usual=self._usual.get(name))
            else:
                streams[name] = None
        if self._ticked:
            streams["stamps"] = recorded.stamps
        return Recorded(**streams)  # type: ignore[arg-type]

    def _ticks(self, recorded: Recorded, first: int, now: int) -> np.ndarray:
        """(K,) ns on the joints' clock, from the last one given, or the first of all, to `now`."""
        start = first if self._last is None else self._last - self._shift
        if not self._ticked:
            return np.arange(start, now + 1, self._period, dtype=np.int64)
        assert recorded.stamps is not None
        ticks = np.unique(recorded.stamps.received)
        return ticks[(ticks >= start) & (ticks <= now)]

    @staticmethod
    def _no_tick(topic: str, ticks: np.ndarray, first: int) -> str:
        at = (int(ticks[-1] if len(ticks) else first) - first) / NS
        return f"{topic}: no tick within {MAX_TICK_DELAY / NS:g} s after {at:.3f} s"


def _name(recorded: Recorded, faults: Faults, step: int, tick: int, first: int) -> str:
    """The sources at fault in the step that begins at `tick`, with the ages of their latest messages."""
    lines = []
    for position, (topic, limit, bad) in enumerate(faults.silent):
        measured = position < len(_MEASURED)
        if not (bad[step] or (measured and bad[step + 1])):
            continue
        stream = (
            getattr(recorded, _MEASURED[position])
            if measured
            else recorded.commands[position - len(_MEASURED)]
        )
        used = int(latest(stream.received if measured else stream.stamps, np.array([tick]))[0])
        age = f"the latest is {(tick - int(stream.stamps[used])) / NS:.3f} s old" if used >= 0 else "none yet"
        lines.append(f"{topic}: nothing new within {limit:g} s, {age}")
    if not lines and recorded.stamps is not None:
        lines.append(f"{recorded.stamps.topic}: the next tick is late")
    return f"{'; '.join(lines)} at {(tick - first) / NS:.3f} s"


_MEASURED = ("joints", "gripper", "object_pose")
"""In the order of `find_faults`, which names the actions after them."""


def _until(recorded: Recorded, now: int) -> Recorded:
    """Without what was received after `now`."""
    streams = {name: s for name, s in recorded._asdict().items() if s is not None}
    return recorded._replace(**{name: s.take(s.received <= now) for name, s in streams.items()})


def _steps(episode: Episode) -> list[Step]:
    return [
        Step(
            intended_action=episode.intended_actions[k],
            requested_action=episode.requested_actions[k],
            executed_action=episode.executed_actions[k],
            reward=float(episode.rewards[k]),
            terminated=bool(episode.terminations[k]),
            truncated=bool(episode.truncations[k]),
            slip=bool(episode.slips[k]),
            drop=bool(episode.drops[k]),
            state=unpack_state(episode.states[k + 1]),
            observation=episode.observations[k + 1],
            actor=ACTORS[episode.actors[k]],
            simulator_state=episode.simulator_states[k + 1],
        )
        for k in range(len(episode))
    ]


def finished(step: Step, success: bool) -> Step:
    """An episode's last step, with the operator's verdict: without a simulator there is no other reward."""
    return step._replace(reward=float(success), terminated=success, truncated=not success)
