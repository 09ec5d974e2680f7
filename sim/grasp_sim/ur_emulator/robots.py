"""What the emulated controller drives: joints and a gripper that follow at once, or a simulator.

Units: m, rad, N, s; 6 joints in the order of `ur5e.JOINT_NAMES`; poses in the base frame.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from grasp_sim import gripper, ur5e


class ObjectSeen(NamedTuple):
    """The object as perception would report it."""

    position: np.ndarray
    """(3,) m, its centre."""
    quaternion: np.ndarray
    """(4,) xyzw."""
    size: np.ndarray
    """(3,) m, full extents."""
    symmetry: int
    """n-fold about the vertical; 0 for any."""


class Robot(Protocol):
    """An arm with a gripper, and maybe an object."""

    def follow(self, joints: np.ndarray, period: float) -> None:
        """One cycle of `period` s towards joint targets (6,), the gripper as `grip` said last."""
        ...

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (6,) and velocities (6,)."""
        ...

    def currents(self) -> np.ndarray:
        """(6,) A."""
        ...

    def grip(self, opening: float, force: float, speed: float) -> None:
        """What the gripper is to do from now on: m, N, m/s."""
        ...

    def opening(self) -> float:
        """m between the pads."""
        ...

    def object_seen(self) -> ObjectSeen | None:
        """None where there is none."""
        ...

    def reset(self) -> None:
        """The arm back at its start; a new object, where there are objects."""
        ...

    def outcome(self) -> dict[str, object]:
        """The simulator's judgement of what was done since the last reset."""
        ...


class FollowingJoints:
    """An arm that is where it is sent after each cycle, and a gripper with nothing between its pads."""

    def __init__(self, start: np.ndarray = ur5e.HOME) -> None:
        """Begin at the joints `start` (6,) rad."""
        self._start = np.array(start, dtype=np.float64)
        self.reset()

    def follow(self, joints: np.ndarray, period: float) -> None:
        """See `Robot`."""
        self._velocities = (joints - self._joints) / period
        self._joints = joints.copy()
        change = self._speed * period
        self._opening += float(np.clip(self._wanted - self._opening, -change, change))

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Robot`."""
        return self._joints.copy(), self._velocities.copy()

    def currents(self) -> np.ndarray:
        """See `Robot`; none flow."""
        return np.zeros(ur5e.DOF)

    def grip(self, opening: float, force: float, speed: float) -> None:
        """See `Robot`."""
        self._wanted, self._speed = opening, speed

    def opening(self) -> float:
        """See `Robot`."""
        return self._opening

    def object_seen(self) -> ObjectSeen | None:
        """See `Robot`; there is none."""
        return None

    def reset(self) -> None:
        """See `Robot`."""
        self._joints, self._velocities = self._start.copy(), np.zeros(ur5e.DOF)
        self._opening = self._wanted = gripper.STROKE
        self._speed = gripper.SPEED

    def outcome(self) -> dict[str, object]:
        """See `Robot`; nothing to judge."""
        return {}
