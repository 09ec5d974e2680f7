"""The messages of an episode, taken one at a time and given back as streams of numbers."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, DemoError
from grasp_demos.header import EpisodeHeader, parse_header, parse_numbers
from grasp_demos.messages import MAX_TIME, MessageReader, Numbers, stamp_of
from grasp_demos.streams import BEGINNING, NS, OUTCOME, Recorded, Stream
from grasp_demos.topics import Topics

MAX_MESSAGES = 2_000_000
"""Of one topic: more are refused. 500 Hz for an hour."""


class Start(NamedTuple):
    """An episode's beginning as it was announced."""

    received: int
    header: EpisodeHeader


class Times(NamedTuple):
    """When a message was received and measured, ns."""

    received: int
    stamp: int


class Collector:
    """Takes messages one at a time and gives them back as streams."""

    def __init__(self, topics: Topics | None = None) -> None:
        self.topics = topics or Topics()
        self.starts: list[Start] = []
        self.ends: list[tuple[int, bool]] = []
        """(ns, success) of every announced end."""
        self._rows: dict[str, list[tuple[int, int, Numbers]]] = {}
        t, read = self.topics, MessageReader(self.topics)
        self._convert = {
            t.joint_states: read.joints,
            t.gripper: read.gripper,
            t.object_pose: read.pose,
            t.object_size: read.size,
            t.requested_action: read.action,
            t.executed_action: read.action,
            t.intended_action: read.action,
            t.state_stamps: read.stamps,
            t.episode_step: self._step,
        }

    def add(self, topic: str, received: int, message: Any) -> None:
        """Take in one message of one of the topics.

        Raises DemoError naming the topic, the time and what is wrong: a joint that is missing, a number that
        is not finite, another frame, a quaternion of no rotation.
        """
        try:
            if not 0 <= received < MAX_TIME:
                raise DemoError(f"its receive time of {received} ns is out of range")
            if topic == self.topics.episode_start:
                self.starts.append(Start(received, parse_header(message.data)))
            elif topic == self.topics.episode_end:
                self.ends.append((received, _success(message.data)))
            else:
                values = self._convert[topic](message)
                if values is not None:
                    rows = self._rows.setdefault(topic, [])
                    if len(rows) >= MAX_MESSAGES:
                        raise DemoError(f"more than {MAX_MESSAGES} messages; split the recording")
                    rows.append((received, stamp_of(message, received), values))
        except DemoError as error:
            raise DemoError(f"{topic} at {received / NS:.3f} s: {error}") from error

    def assume(self, topic: str, values: Numbers) -> None:
        """Take these numbers for a topic of which nothing may ever be heard."""
        self._rows.setdefault(topic, []).insert(0, (0, 0, values))

    def latest(self, topic: str) -> Times | None:
        """When the topic's last message was received and measured."""
        rows = self._rows.get(topic)
        return Times(*rows[-1][:2]) if rows else None

    def forget(self, before: int, topic: str | None = None, keep: int = BEGINNING + 2) -> None:
        """Drop what was received before a time in ns, of one topic or of all; `keep` messages stay."""
        for rows in self._rows.values() if topic is None else [self._rows[topic]]:
            old = bisect_left(rows, before, key=lambda row: row[0])
            del rows[: max(0, min(old, len(rows) - keep))]

    @property
    def first(self) -> int:
        """Receive time in ns of the first message; 0 where there is none."""
        times = [rows[0][0] for rows in self._rows.values()] + [start.received for start in self.starts]
        return min(times, default=0)

    @property
    def last(self) -> int:
        """Receive time in ns of the last message; 0 where there is none."""
        return max((rows[-1][0] for rows in self._rows.values()), default=0)

    def jumps(self) -> list[str]:
        """A line for every topic whose messages were not received in the order of their receive times."""
        lines = []
        for topic, rows in self._rows.items():
            times = np.array([row[0] for row in rows], np.int64)
            back = np.diff(times)
            if (back < -NS // 10).any():
                at = int(np.argmin(back))
                lines.append(
                    f"{topic}: clock jump: receive times go back by {-back[at] / NS:.3f} s at "
                    f"{(times[at] - self.first) / NS:.3f} s."
                )
        return lines

    def recorded(self, begin: int | None = None, end: int | None = None, *, actions: bool = True) -> Recorded:
        """The streams of what was received from `begin` to `end`, and the last two messages before `begin`.

        Two, since a velocity that was not measured follows from the message before.

        Raises DemoError naming the topics without which there is no episode, or no state where `actions` is
        false.
        """
        t = self.topics
        needed = {
            "joints": t.joint_states, "gripper": t.gripper, "object_pose": t.object_pose,
            "object_size": t.object_size,
        }  # fmt: skip
        others = {
            "requested": t.requested_action, "executed": t.executed_action, "intended": t.intended_action,
            "stamps": t.state_stamps, "outcomes": t.episode_step,
        }  # fmt: skip
        streams = {n: self._stream(topic, begin, end) for n, topic in (needed | others).items()}
        missing = [topic for name, topic in needed.items() if streams[name] is None]
        if actions and streams["requested"] is None and streams["executed"] is None:
            missing.append(f"{t.requested_action} or {t.executed_action}")
        if missing:
            raise DemoError(f"holds no usable message on {', '.join(missing)}")
        return Recorded(**streams)  # type: ignore[arg-type]

    def _stream(self, topic: str, begin: int | None, end: int | None) -> Stream | None:
        rows = self._rows.get(topic)
        if not rows:
            return None
        received = np.array([row[0] for row in rows], np.int64)
        order = np.argsort(received, kind="stable")
        received = received[order]
        low = 0 if begin is None else max(int(np.searchsorted(received, begin, side="left")) - 2, 0)
        high = len(rows) if end is None else int(np.searchsorted(received, end, side="right"))
        chosen = order[low:high]
        if not len(chosen):
            return None
        widths = {len(rows[k][2]) for k in chosen}
        if len(widths) > 1:
            raise DemoError(f"{topic} has messages of {' and '.join(map(str, sorted(widths)))} numbers")
        return Stream(
            topic,
            received[low:high],
            np.array([rows[k][1] for k in chosen], np.int64),
            np.array([rows[k][2] for k in chosen], np.float64),
        )

    def _step(self, message: Any) -> Numbers:
        values = _json(message.data)
        moving = parse_numbers(values.get("simulator_state", []), None, "a simulator's state")
        if values.get("actor") not in ACTORS:
            raise DemoError(f"its actor is {values.get('actor')!r}; it must be one of {', '.join(ACTORS)}")
        values["actor"] = ACTORS.index(values["actor"])
        missing = [name for name in OUTCOME if type(values.get(name)) not in (bool, int, float)]
        if missing:
            raise DemoError(f"it lacks a number of {', '.join(missing)}")
        numbers = [float(v) if type(v := values[name]) is bool else v for name in OUTCOME]
        return np.concatenate([parse_numbers(numbers, len(OUTCOME), "outcomes"), moving])


def _json(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DemoError(f"its text is no JSON ({error})") from error
    if not isinstance(values, dict):
        raise DemoError("its text is JSON, but no object")
    return values


def _success(text: str) -> bool:
    success = _json(text).get("success")
    if type(success) is not bool:
        raise DemoError(f"success is {success!r}; it must be true or false")
    return success
