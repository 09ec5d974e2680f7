"""ROS 2 messages to plain arrays, by the names inside them.

Any object with the fields of the message type will do: what rclpy delivers as well as what a bag's reader
decodes. No ROS package is imported here.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, DemoError
from grasp_demos.header import EpisodeHeader, parse_header, parse_numbers
from grasp_demos.streams import BEGINNING, NS, OUTCOME, Recorded, Stream
from grasp_demos.topics import Topics
from grasp_sim.contract import ACTION_NAMES
from grasp_sim.ur5e import DOF, JOINT_NAMES

MAX_MESSAGES = 2_000_000
"""Of one topic: more are refused. 500 Hz for an hour."""
MAX_TIME = 2**62
"""ns; a later stamp, in the year 2116, is a damaged one."""
_UNIT = 1e-3
"""How far the length of a quaternion may be from 1."""


Numbers = np.ndarray | tuple[float, ...]


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
        t = self.topics
        self._convert = {
            t.joint_states: self._joints,
            t.gripper: self._gripper,
            t.object_pose: self._pose,
            t.object_size: self._size,
            t.requested_action: self._action,
            t.executed_action: self._action,
            t.intended_action: self._action,
            t.state_stamps: self._stamps,
            t.episode_step: self._step,
        }
        self._joint_names = tuple(t.tf_prefix + name for name in JOINT_NAMES)
        self._columns: dict[tuple[str, ...], list[int] | None] = {}

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
                    rows.append((received, _stamp(message, received), values))
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

    def _joints(self, message: Any) -> Numbers | None:
        """Positions, then velocities (NaN where not measured); None for a message of other joints alone."""
        names = tuple(message.name)
        if names not in self._columns:
            self._columns[names] = _columns(names, self._joint_names)
        columns = self._columns[names]
        if columns is None:
            return None
        positions = _finite("position", message.position, names)
        velocities = np.full(DOF, np.nan)
        if len(message.velocity) == len(names):
            velocities = np.asarray(message.velocity, np.float64)[columns]
        return np.concatenate([positions[columns], velocities])

    def _gripper(self, message: Any) -> Numbers:
        names = tuple(message.name)
        if len(names) != 1:
            raise DemoError(f"it has {len(names)} joints ({', '.join(names)}); the gripper is one")
        return (*_finite("position", message.position, names), *_finite("effort", message.effort, names))

    def _pose(self, message: Any) -> Numbers:
        frame = message.header.frame_id.removeprefix("/")
        if frame != self.topics.base_frame:
            raise DemoError(f"it is in the frame '{frame}'; it must be in '{self.topics.base_frame}'")
        p, q = message.pose.position, message.pose.orientation
        values = (p.x, p.y, p.z, q.x, q.y, q.z, q.w)
        _all_finite(values)
        length = float(np.linalg.norm(values[3:]))
        if abs(length - 1.0) > _UNIT:
            raise DemoError(f"its quaternion has length {length:.6g}; a rotation has 1")
        return values

    def _size(self, message: Any) -> Numbers:
        vector = message.vector
        values = (vector.x, vector.y, vector.z)
        _all_finite(values)
        if min(values) <= 0.0:
            raise DemoError(f"it has extents {values}; they must be positive")
        return values

    def _action(self, message: Any) -> Numbers:
        names = tuple(message.joint_names)
        columns = _columns(names, ACTION_NAMES)
        if columns is None or len(message.points) == 0:
            raise DemoError(f"it holds no action; it needs {', '.join(ACTION_NAMES)} and a point")
        return _finite("action", message.points[0].positions, names)[columns]

    def _stamps(self, message: Any) -> Numbers:
        if len(message.data) != 4:
            raise DemoError(f"it has {len(message.data)} numbers; it must have 4 times")
        _all_finite(message.data)
        return np.asarray(message.data, np.float64)

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


def _columns(held: tuple[str, ...], wanted: tuple[str, ...]) -> list[int] | None:
    """Position of every wanted name; None where there is none of them at all."""
    missing = [name for name in wanted if name not in held]
    if len(missing) == len(wanted):
        return None
    if missing:
        raise DemoError(f"it lacks {', '.join(missing)}; it has {', '.join(held[:12])}")
    twice = [name for name in wanted if held.count(name) > 1]
    if twice:
        raise DemoError(f"it names {twice[0]} twice")
    return [held.index(name) for name in wanted]


def _finite(what: str, values: Any, names: tuple[str, ...]) -> np.ndarray:
    """One number for each name; raises DemoError naming the one that is missing or not finite."""
    values = np.asarray(values, np.float64)
    if len(values) != len(names):
        raise DemoError(f"it has {len(values)} numbers of {what} for {len(names)} names")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DemoError(f"{what} of {names[bad[0]]} is {values[bad[0]]}")
    return values


def _all_finite(values: Any) -> None:
    if not np.isfinite(values).all():
        raise DemoError(f"it holds a number that is not finite: {list(map(float, values))}")


def _stamp(message: Any, received: int) -> int:
    header = getattr(message, "header", None)
    if header is None:
        return received
    stamp = header.stamp.sec * NS + header.stamp.nanosec
    if abs(stamp) >= MAX_TIME or header.stamp.nanosec >= NS:
        raise DemoError(f"its stamp of {header.stamp.sec} s and {header.stamp.nanosec} ns is out of range")
    return stamp


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
