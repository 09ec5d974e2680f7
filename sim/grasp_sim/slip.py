"""Labels the steps on which the held object slides in the fingers or is dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grasp_sim.contract import GraspState

SLIP_DISTANCE = 0.005
"""m that the object moves in the fingers' frame before it counts as a slip. A well held object creeps up to
1.2 mm in 3 s in simulation."""
SETTLED = 0.0005
"""m per step of change in the opening, below which the fingers have stopped closing."""
LIFT_HEIGHT = 0.01
"""m above the height at which it was grasped, beyond which losing the object counts as a drop."""
PARTED = 0.002
"""m of change of the opening in a step without contact from which the fingers have lost what they held: they
have opened, or closed on nothing."""
BOUNCES = 2
"""Steps in a row without contact for which fingers that have not parted still hold. Pads bounce on an object
that slides, by a tenth of a millimetre: in MuJoCo one of them is off it in a quarter of all moments."""


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

    While the fingers still close, they push the object about: the anchor follows until the opening has
    settled. From then on each further `SLIP_DISTANCE` along the pads is one labelled step; motion along the
    closing direction is the fingers', not a slip. The grasp ends when the fingers part, or lose touch for
    longer than they bounce. If the object was lifted by more than `LIFT_HEIGHT`, that step is a drop.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the grasp; call at the start of an episode."""
        self._held = False
        self._settled = False
        self._bounces = 0
        self._anchor = np.zeros(2)
        self._grasp_height = 0.0
        self._height = 0.0
        self._opening = 0.0

    def update(self, state: GraspState, grasped: bool) -> SlipLabels:
        """Labels of the step that led to `state`; `grasped`: both fingers touch the object now."""
        height, opening = float(state.object_position[2]), float(state.gripper_opening)
        slip = drop = False
        if grasped:
            along_pads = object_in_tcp(state)[1:]
            if not self._held:
                self._held, self._settled, self._grasp_height = True, False, height
                self._anchor = along_pads
            elif not self._settled:
                self._settled = abs(opening - self._opening) < SETTLED
                self._anchor = along_pads
            elif np.linalg.norm(along_pads - self._anchor) > SLIP_DISTANCE:
                slip, self._anchor = True, along_pads
            self._bounces, self._height = 0, height
        elif self._held:
            self._bounces += 1
            if self._bounces > BOUNCES or abs(opening - self._opening) > PARTED:
                drop = self._height - self._grasp_height > LIFT_HEIGHT
                self._held = False
        self._opening = opening
        return SlipLabels(slip=slip, drop=drop)

    def save(self) -> np.ndarray:
        """(8,) float64, everything `load` needs."""
        numbers = (self._grasp_height, self._height, self._opening, self._bounces)
        return np.array([self._held, self._settled, *self._anchor, *numbers], dtype=np.float64)

    def load(self, saved: np.ndarray) -> None:
        """Inverse of `save`."""
        self._held, self._settled = bool(saved[0]), bool(saved[1])
        self._anchor = saved[2:4].copy()
        self._grasp_height, self._height, self._opening = (float(v) for v in saved[4:7])
        self._bounces = int(saved[7])
