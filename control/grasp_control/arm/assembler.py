"""The newest of every source of measurements, put together into one `GraspState`.

The same for ROS 2 topics and for any other driver. Two clocks: `stamp` and `clock` are of the computer's
clock that messages are stamped with, in whole ns; `received` and `now` are monotonic, in s. A source is used
while both its last receipt and its last stamp are young enough, so that neither a source that stopped nor one
that repeats old measurements is taken for a living one.

Shapes: 6 joints in the order of `grasp_sim.ur5e.JOINT_NAMES`. Base frame, m, rad, N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import GraspState

NS = 1_000_000_000
AHEAD = 0.05
"""s that a stamp may lie in the future, for clocks that are synchronised over a network."""
MAX_AGE = 10.0
"""s; a maximum age above it would be none."""
_CLOCKS = "are the computers' clocks the same?"


class NotReady(Exception):
    """A state cannot be assembled; the text says which source is missing or old, and what to look at."""


@dataclass
class MaximumAges:
    """s that the newest measurement of each source may be old."""

    joints: float = 0.1
    """s that the arm's joint states may be old."""
    gripper: float = 0.2
    """s that the gripper's state may be old."""
    object_pose: float = 0.5
    """s that the object's pose may be old; the policy is told the age."""

    def __post_init__(self) -> None:
        """Check the range."""
        for name, value in vars(self).items():
            if not 0.0 < value <= MAX_AGE:
                raise ValueError(f"max_age.{name}={value} must be above 0 and at most {MAX_AGE:g} s.")


class _Newest(NamedTuple):
    values: np.ndarray
    stamp: int
    received: float


class StateAssembler:
    """Keeps the newest measurement of each source. One thread at a time."""

    def __init__(self, ages: MaximumAges, object_symmetry: int = 4) -> None:
        """`object_symmetry` as in `GraspState`; cameras do not tell it."""
        self._ages = ages
        self._symmetry = object_symmetry
        self._kinematics = ur5e.Kinematics()
        self._newest: dict[str, _Newest] = {}
        self._refused: dict[str, str] = {}
        self._origin: int | None = None
        self._size: np.ndarray | None = None

    def joints(self, values: np.ndarray, *, stamp: int, received: float) -> None:
        """Take (12,) positions and velocities. A velocity that was not measured (not finite) follows from the
        measurement before."""
        values = np.array(values, dtype=np.float64)
        velocities = values[ur5e.DOF :]
        missing = ~np.isfinite(velocities)
        if missing.any():
            before = self._newest.get("joints")
            velocities[missing] = 0.0
            if before is not None and stamp > before.stamp:
                moved = (values - before.values)[: ur5e.DOF] * NS / (stamp - before.stamp)
                velocities[missing] = moved[missing]
        self._take("joints", values, stamp, received)

    def gripper(self, values: Sequence[float], *, stamp: int, received: float) -> None:
        """Take the opening (m) and the grip force (N)."""
        self._take("gripper", np.array(values, dtype=np.float64), stamp, received)

    def object_pose(self, values: Sequence[float], *, stamp: int, received: float) -> None:
        """Take position (m) and xyzw quaternion, base frame."""
        self._take("object_pose", np.array(values, dtype=np.float64), stamp, received)

    def object_size(self, size: Sequence[float] | np.ndarray) -> None:
        """Take the object's extents (3,) in m, which do not age."""
        self._size = np.array(size, dtype=np.float64)

    def refuse(self, source: str, why: str) -> None:
        """A message of `source` could not be used; said until the next one that can."""
        self._refused[source] = why

    def problems(self, *, clock: int, now: float) -> list[str]:
        """A line for each source that is missing or too old, in the order of importance; empty when ready."""
        lines = []
        for source, most in vars(self._ages).items():
            line = self._problem(source, most, clock, now)
            if line:
                refused = self._refused.get(source)
                lines.append(f"{line} ({refused})" if refused else line)
        if self._size is None:
            lines.append("the object's size is not known: publish it, or set the parameter object_size")
        return lines

    def joint_positions(self) -> np.ndarray | None:
        """The newest measured positions (6,), whatever their age."""
        newest = self._newest.get("joints")
        return None if newest is None else newest.values[: ur5e.DOF].copy()

    def assemble(self, *, clock: int, now: float) -> GraspState:
        """The state at `clock`. Its times count from the first joint state's stamp.

        Raises NotReady naming every source that is missing or too old.
        """
        problems = self.problems(clock=clock, now=now)
        if problems:
            raise NotReady("; ".join(problems))
        joints, gripper, seen = (self._newest[name] for name in ("joints", "gripper", "object_pose"))
        assert self._size is not None
        assert self._origin is not None
        positions = joints.values[: ur5e.DOF]
        tcp_position, rotation = self._kinematics.pose(positions)
        # A stamp may lie a little ahead of this clock; nothing is measured after the state it is part of.
        times = [
            (min(stamp, clock) - self._origin) / NS for stamp in (joints.stamp, gripper.stamp, seen.stamp)
        ]
        return GraspState(
            joint_positions=positions.copy(),
            joint_velocities=joints.values[ur5e.DOF :].copy(),
            tcp_position=tcp_position,
            tcp_quaternion=ur5e.quaternion_of(rotation),
            gripper_opening=float(gripper.values[0]),
            gripper_force=float(gripper.values[1]),
            object_position=seen.values[:3].copy(),
            object_quaternion=seen.values[3:].copy(),
            object_size=self._size.copy(),
            object_symmetry=self._symmetry,
            joint_time=times[0],
            gripper_time=times[1],
            object_time=times[2],
            time=(clock - self._origin) / NS,
        )

    def _take(self, source: str, values: np.ndarray, stamp: int, received: float) -> None:
        if not np.isfinite(values).all():
            self.refuse(source, f"it holds a number that is not finite: {values.tolist()}")
            return
        before = self._newest.get(source)
        if before is not None and stamp < before.stamp:
            self.refuse(source, f"its stamps go back by {(before.stamp - stamp) / NS:.3f} s")
            if received - before.received < MAX_AGE:  # after that it is a driver that began anew
                return
        if self._origin is None and source == "joints":
            self._origin = stamp
        self._newest[source] = _Newest(values, stamp, received)
        self._refused.pop(source, None)

    def _problem(self, source: str, most: float, clock: int, now: float) -> str:
        newest = self._newest.get(source)
        name = source.replace("_", " ")
        if newest is None:
            return f"no {name} yet: is its topic published?"
        silent = now - newest.received
        if silent > most:
            return f"{name}: nothing for {silent:.3f} s, at most {most:g} s"
        if not newest.stamp:
            return f"{name}: its messages have no time stamp, so their age is not known"
        age = (clock - newest.stamp) / NS
        if age > most:
            return f"{name}: stamped {age:.3f} s ago, at most {most:g} s: {_CLOCKS}"
        if age < -AHEAD:
            return f"{name}: stamped {-age:.3f} s in the future: {_CLOCKS}"
        return ""
