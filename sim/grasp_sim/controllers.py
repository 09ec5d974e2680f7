"""The controllers of a UR driver, as far as commands show them: what they take, refuse, and make of it.

Shapes: joints (6,) rad in the order of `grasp_sim.ur5e.JOINT_NAMES`. `accept` returns why a command is
refused, empty where it is taken. `next` returns the arm's target for a cycle and may be called for ever: none
of them has a watchdog.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grasp_sim.ur5e import DOF, JOINT_NAMES


class ForwardController:
    """`forward_position_controller` and `forward_velocity_controller`: the last command is repeated for ever.

    A wrong number of values is refused, all NaN is no command, and a NaN among numbers is passed on.
    """

    def __init__(self, velocities: bool) -> None:
        """`velocities`: commands are rad/s, else rad."""
        self._velocities = velocities
        self.clear()

    def clear(self) -> None:
        """Forget the command, as on activation."""
        self._command: np.ndarray | None = None
        self.arrived = 0
        """Commands that were taken since the last cycle."""

    def accept(self, values: Sequence[float]) -> str:
        """Take a command of 6 values."""
        if len(values) != DOF:
            return f"command size {len(values)} does not match the number of joints, {DOF}"
        if not all(math.isnan(value) for value in values):
            self._command = np.array(values, dtype=np.float64)
            self.arrived += 1
        return ""

    def next(self, target: np.ndarray, period: float, scaling: float) -> np.ndarray:
        """The target after `target`, a cycle of `period` s later. The speed scaling has no effect here."""
        self.arrived = 0
        if self._command is None:
            return target
        return target + self._command * period if self._velocities else self._command


class TrajectoryPoint(NamedTuple):
    """A point of a trajectory, its joints in the order of the trajectory's names."""

    time: float
    """s from the trajectory's start."""
    positions: Sequence[float]
    """rad."""
    velocities: Sequence[float] = ()
    """rad/s; empty: the way to and from this point is straight."""


class _Waypoint(NamedTuple):
    time: float
    positions: np.ndarray
    velocities: np.ndarray | None


class TrajectoryController:
    """`scaled_joint_trajectory_controller`: from where the arm is to each point, at the time of the point.

    A point that is due at once is jumped to, however far it is. Time passes as the speed scaling says.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the trajectory, as on activation."""
        self._new: list[_Waypoint] = []
        self._points: list[_Waypoint] = []
        self._time = 0.0
        self._velocity = np.zeros(DOF)

    def accept(self, names: Sequence[str], points: Sequence[TrajectoryPoint], begin: float = 0.0) -> str:
        """Take a trajectory that starts in `begin` s (negative: it began before)."""
        refused = self._refusal(names, points, begin)
        if not refused:
            order = [list(names).index(name) for name in JOINT_NAMES]
            self._new = [
                _Waypoint(
                    point.time + begin,
                    np.array(point.positions, dtype=np.float64)[order],
                    np.array(point.velocities, dtype=np.float64)[order] if point.velocities else None,
                )
                for point in points
            ]
        return refused

    def _refusal(self, names: Sequence[str], points: Sequence[TrajectoryPoint], begin: float) -> str:
        if sorted(names) != sorted(JOINT_NAMES):
            return f"the trajectory's joints {list(names)} are not the controller's {list(JOINT_NAMES)}"
        if not points:
            return "the trajectory is empty"
        for number, point in enumerate(points):
            if len(point.positions) != DOF or len(point.velocities) not in (0, DOF):
                return (
                    f"point {number} has {len(point.positions)} positions and {len(point.velocities)}"
                    f" velocities for {DOF} joints"
                )
            if number and not point.time > points[number - 1].time:
                return f"the times of points {number - 1} and {number} do not increase"
        if any(points[-1].velocities):
            return "the velocity of the last point is not zero"
        if points[-1].time + begin < 0.0:
            return f"the trajectory ends {-points[-1].time - begin:.3f} s in the past"
        return ""

    def next(self, target: np.ndarray, period: float, scaling: float) -> np.ndarray:
        """The target after `target`, a cycle of `period` s later; `scaling` 0 to 1."""
        if self._new:
            self._points = [_Waypoint(0.0, target, self._velocity), *self._new]
            self._new, self._time = [], 0.0
        if not self._points:
            return target
        self._time += period * scaling
        position = self._at(self._time)
        self._velocity = (position - target) / period
        return position

    def _at(self, time: float) -> np.ndarray:
        points = self._points
        # The point that the arm came from counts until the first of the trajectory is due.
        later = bisect.bisect_right([point.time for point in points[1:]], time) + 1
        if later == len(points):
            return points[-1].positions
        before, after = points[later - 1], points[later]
        length = after.time - before.time
        share = (time - before.time) / length
        way = after.positions - before.positions
        if before.velocities is None or after.velocities is None:
            return before.positions + share * way
        leave, arrive = before.velocities * length, after.velocities * length  # cubic Hermite
        return (
            before.positions
            + share * leave
            + share**2 * (3.0 * way - 2.0 * leave - arrive)
            + share**3 * (leave + arrive - 2.0 * way)
        )
