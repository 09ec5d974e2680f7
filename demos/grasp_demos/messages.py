"""ROS 2 messages to plain numbers, by the names inside them; the same for bags, the recorder and the nodes.

Any object with the fields of the message type will do: what rclpy delivers as well as what a bag's reader
decodes. No ROS package is imported here. Raised is DemoError, saying what is wrong with the message: a joint
that is missing, a number that is not finite, another frame, a quaternion of no rotation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grasp_demos.episode import DemoError
from grasp_demos.streams import NS
from grasp_demos.topics import Topics
from grasp_sim.contract import ACTION_NAMES
from grasp_sim.ur5e import DOF, JOINT_NAMES

MAX_TIME = 2**62
"""ns; a later stamp, in the year 2116, is a damaged one."""
_KNOWN_ORDERS = 64
"""Orders of names kept; a robot has one or two."""
_UNIT = 1e-3
"""How far the length of a quaternion may be from 1."""

Numbers = np.ndarray | tuple[float, ...]


class MessageReader:
    """Reads the messages of the topics of an episode."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._joint_names = tuple(topics.tf_prefix + name for name in JOINT_NAMES)
        self._columns: dict[tuple[str, ...], list[int] | None] = {}

    def joints(self, message: Any) -> Numbers | None:
        """Positions, then velocities (NaN where not measured); None for a message of other joints alone."""
        names = tuple(message.name)
        if names not in self._columns:
            if len(self._columns) >= _KNOWN_ORDERS:
                self._columns.clear()  # somebody sends new names in every message
            self._columns[names] = _columns(names, self._joint_names)
        columns = self._columns[names]
        if columns is None:
            return None
        positions = _sized("position", message.position, names)[columns]
        _require_finite("position", positions, self._joint_names)  # whatever other joints have
        velocities = np.full(DOF, np.nan)
        if len(message.velocity) == len(names):
            velocities = np.asarray(message.velocity, np.float64)[columns]
        return np.concatenate([positions, velocities])

    def gripper(self, message: Any) -> Numbers:
        """Opening (m) and grip force (N) of a JointState with one joint."""
        names = tuple(message.name)
        if len(names) != 1:
            raise DemoError(f"it has {len(names)} joints ({', '.join(names)}); the gripper is one")
        return (*_finite("position", message.position, names), *_finite("effort", message.effort, names))

    def pose(self, message: Any) -> Numbers:
        """Position (m) and xyzw quaternion of a PoseStamped in the base frame."""
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

    def size(self, message: Any) -> Numbers:
        """Extents (m) of a Vector3Stamped."""
        vector = message.vector
        values = (vector.x, vector.y, vector.z)
        _all_finite(values)
        if min(values) <= 0.0:
            raise DemoError(f"it has extents {values}; they must be positive")
        return values

    def action(self, message: Any) -> Numbers:
        """The numbers of `contract.ACTION_NAMES` in a JointTrajectory's first point."""
        names = tuple(message.joint_names)
        columns = _columns(names, ACTION_NAMES)
        if columns is None or len(message.points) == 0:
            raise DemoError(f"it holds no action; it needs {', '.join(ACTION_NAMES)} and a point")
        return _finite("action", message.points[0].positions, names)[columns]

    def stamps(self, message: Any) -> Numbers:
        """Time, joint, gripper and object time (s) of a Float64MultiArray."""
        if len(message.data) != 4:
            raise DemoError(f"it has {len(message.data)} numbers; it must have 4 times")
        _all_finite(message.data)
        return np.asarray(message.data, np.float64)


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


def _sized(what: str, values: Any, names: tuple[str, ...]) -> np.ndarray:
    """One number for each name."""
    values = np.asarray(values, np.float64)
    if len(values) != len(names):
        raise DemoError(f"it has {len(values)} numbers of {what} for {len(names)} names")
    return values


def _finite(what: str, values: Any, names: tuple[str, ...]) -> np.ndarray:
    """One finite number for each name."""
    values = _sized(what, values, names)
    _require_finite(what, values, names)
    return values


def _require_finite(what: str, values: np.ndarray, names: tuple[str, ...]) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DemoError(f"{what} of {names[bad[0]]} is {values[bad[0]]}")


def _all_finite(values: Any) -> None:
    if not np.isfinite(values).all():
        raise DemoError(f"it holds a number that is not finite: {list(map(float, values))}")


def stamp_of(message: Any, received: int) -> int:
    """ns of the header's stamp, or `received` for a message without a header."""
    header = getattr(message, "header", None)
    if header is None:
        return received
    stamp = header.stamp.sec * NS + header.stamp.nanosec
    if abs(stamp) >= MAX_TIME or header.stamp.nanosec >= NS:
        raise DemoError(f"its stamp of {header.stamp.sec} s and {header.stamp.nanosec} ns is out of range")
    return stamp
