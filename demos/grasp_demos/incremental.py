"""Resampling while the messages come in: step by step, with the numbers that `resample` gives afterwards.

A state is final when its tick has passed. The action of a step is final when a command stamped after its tick
is there, on every topic of actions; that is one period later as a rule.

Where commands stop, the task may be done: the episode rests, and ends one period after the last command if
that is asked for. If they go on after more than their maximum age, it is a gap.

Whatever leaves steps out of `resample` ends the episode here, before the first such step: the person sees it
and begins again, instead of finding the episode in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, Episode, Step
from grasp_demos.gaps import latest, stale
from grasp_demos.resample import Faults, MaximumAge, assemble, find_faults, prepare
from grasp_demos.streams import NS, Recorded, Span, Stream
from grasp_sim.contract import GraspState, unpack_state

HISTORY = 3 * NS
"""ns before its last tick from which `Resampler.advance` has to be given messages: a command may be stamped
ahead of its receipt, and a velocity may have to follow from the message before."""
MAX_TICK_DELAY = NS // 2
"""ns without a recorded tick after which an episode rests."""
REST = 30 * NS
"""ns that an episode may rest; messages are kept all the while."""


class Advance(NamedTuple):
    """What has become final."""

    steps: list[Step]
    """In order, following those given before; reward and ends are those of a running episode."""
    problem: str
    """Why the episode is over before what was asked, in one line; empty where it is not."""
    resting: str
    """Which commands or ticks have stopped, so that no step becomes final; empty where none have."""


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
        answered = min(int(stream.stamps[-1]) for stream in recorded.commands)
        silent = answered + 2 * self._limits.command * NS < now
        if end and answered + self._limits.command * NS < now:
            now = answered + self._period
        ticks = self._ticks(recorded, first, now)
        ticked = int(ticks[-1]) if len(ticks) else first
        resting = ""
        if not end and (silent or (self._ticked and now - ticked > MAX_TICK_DELAY)):
            resting = self._rest(recorded, answered, silent)
            gone = _gone(recorded, self._limits, now, first)
            if gone or now - min(answered, ticked) > REST:
                end, problem = True, gone or f"{resting} for {REST / NS:g} s"
        final = len(ticks) - 1
        if not end:
            final = min(final, int(np.searchsorted(ticks, answered, side="left")))
        self._over = bool(end or problem)
        if final < 1:
            return Advance([], problem, resting)
        ticks = ticks[: final + 1]
        faults = find_faults(recorded, ticks, span, self._limits)
        wrong = np.flatnonzero(~faults.usable)
        if len(wrong):
            self._over = True
            problem = _name(recorded, faults, int(wrong[0]), ticks, first)
            ticks = ticks[: wrong[0] + 1]
        if len(ticks) < 2:
            return Advance([], problem, resting)
        if span.origin is None:
            span = span._replace(origin=int(ticks[0]))
            self._span = self._span._replace(origin=span.origin)
        with np.errstate(over="ignore"):
            episode = assemble(recorded, span, ticks)
        if self.start is None:
            self.start = episode.start
        self._last = int(ticks[-1]) + self._shift
        return Advance(_steps(episode), problem, resting)

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

    def _rest(self, recorded: Recorded, answered: int, silent: bool) -> str:
        """Which source of commands or ticks has stopped."""
        if not silent:
            assert recorded.stamps is not None
            return f"{recorded.stamps.topic}: no more ticks"
        topic = next(s.topic for s in recorded.commands if s.stamps[-1] == answered)
        return f"{topic}: no more commands"


def _gone(recorded: Recorded, limits: MaximumAge, now: int, first: int) -> str:
    """The sources of the state that are silent at `now`."""
    lines = []
    for name in _MEASURED:
        stream, limit = getattr(recorded, name), getattr(limits, name)
        if stale(stream, np.array([now]), limit)[0]:
            lines.append(_silence(stream.topic, limit, now - int(stream.stamps[-1]), now - first))
    return "; ".join(lines)


def _name(recorded: Recorded, faults: Faults, step: int, ticks: np.ndarray, first: int) -> str:
    """The sources at fault in a step, with the ages of their latest messages."""
    lines = []
    for position, (topic, limit, bad) in enumerate(faults.silent):
        measured = position < len(_MEASURED)
        if not (bad[step] or (measured and bad[step + 1])):
            continue
        if measured:
            stream = getattr(recorded, _MEASURED[position])
            times = stream.received
        else:
            stream = recorded.commands[position - len(_MEASURED)]
            times = stream.stamps
        at = int(ticks[step if bad[step] else step + 1])
        used = int(latest(times, np.array([at]))[0])
        age = at - int(stream.stamps[used]) if used >= 0 else None
        lines.append(_silence(topic, limit, age, at - first))
    if not lines and recorded.stamps is not None:
        lines.append(f"{recorded.stamps.topic}: the next tick is late at {(ticks[step] - first) / NS:.3f} s")
    return "; ".join(lines)


def _silence(topic: str, limit: float, age: int | None, at: int) -> str:
    held = "none yet" if age is None else f"the latest is {age / NS:.3f} s old"
    return f"{topic}: nothing new within {limit:g} s, {held} at {at / NS:.3f} s"


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
