"""Labels the steps on which the held object slides in the fingers or is dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grasp_sim.contract import GraspState

SLIP_DISTANCE = 0.005
"""m that the object moves in the fingers' frame before it counts as a slip. A well held object creeps up to
1.2 mm in 3 s in simulation."""
LIFT_HEIGHT = 0.01
"""m above the height at which it was grasped, beyond which losing the object counts as a drop."""


@dataclass(frozen=True, slots=True)
class SlipLabels:
    """What happened to the held object during one step."""

    slip: bool
    drop: bool


def object_in_tcp(state: GraspState) -> np.ndarray:
    """(3,) m, the object's centre in the frame of the fingers."""
    x, y, z, w = state.tcp_quaternion
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return rotation.T @ (state.object_position - state.tcp_position)


class SlipTracker:
    """Follows the object in the fingers' frame from the step on which both fingers hold it.

    Each further `SLIP_DISTANCE` from the last anchor is one labelled step. When the grasp ends with the
    object lifted by more than `LIFT_HEIGHT`, that step is a drop.
    """

    def __init__(self) -> None:
        self._anchor: np.ndarray | None = None
        self._grasp_height = 0.0
        self._last_height = 0.0

    def reset(self) -> None:
        """Forget the grasp; call at the start of an episode."""
        self._anchor = None
        self._grasp_height = self._last_height = 0.0

    def update(self, state: GraspState, grasped: bool) -> SlipLabels:
        """Labels of the step that led to `state`; `grasped`: both fingers touch the object now."""
        height = float(state.object_position[2])
        slip = drop = False
        if grasped:
            position = object_in_tcp(state)
            if self._anchor is None:
                self._anchor, self._grasp_height = position, height
            elif np.linalg.norm(position - self._anchor) > SLIP_DISTANCE:
                slip, self._anchor = True, position
        elif self._anchor is not None:
            drop = self._last_height - self._grasp_height > LIFT_HEIGHT
            self._anchor = None
        self._last_height = height
        return SlipLabels(slip=slip, drop=drop)

    def save(self) -> np.ndarray:
        """(5,) float64: anchor (NaN when nothing is held), height at the grasp, last height."""
        anchor = np.full(3, np.nan) if self._anchor is None else self._anchor
        return np.array([*anchor, self._grasp_height, self._last_height])

    def load(self, saved: np.ndarray) -> None:
        """Inverse of `save`."""
        self._anchor = None if np.isnan(saved[0]) else saved[:3].copy()
        self._grasp_height, self._last_height = float(saved[3]), float(saved[4])
