"""The project's own two-finger gripper, of primitives, the same in both simulators.

Two pads move towards each other along the x axis of the TCP frame. It has the stroke, the pads and the force
range of a Robotiq 2F-85, and what its commands mean is exact: the opening is the distance between the pads in
m, the force what each pad presses with in N. It serves every task in which grip force matters; robosuite's
Robotiq 85 has no usable force limit and stays for robosuite's standard lift alone.

Frame `tcp`: origin between the pads, z along the approach direction (away from the wrist), x along the
closing direction. Half extents and positions in m.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from grasp_sim import ur5e
from grasp_sim.contract import ActionScale

STROKE = ur5e.GRIPPER_STROKE
"""m between the pads when fully open."""
FORCE_MIN, FORCE_MAX = ActionScale().force_min, ActionScale().force_max
"""N on each pad, the 2F-85's range, which the contract's actions span."""
FORCE_SCALE_MAX = 5.0
"""The greatest factor that domain randomisation puts on the force."""
SPEED = 0.15
"""m/s of the opening, the 2F-85's greatest."""
FINGER_MASS = 0.1
"""kg of each finger with its pad."""
PALM_MASS = 0.7
"""kg of the rest; with the fingers the 2F-85's 0.9 kg."""
TIP = 0.011
"""m that the fingers reach beyond the TCP along the approach direction."""


GRASP_OFFSET = -0.003
"""m from an object's centre up to the TCP while closing, if the table allows."""
TIP_CLEARANCE = 0.003
"""m kept between the fingertips and the table."""


def grasp_height(object_height: float) -> float:
    """m from the centre of an object of this height (m), on a table, up to the TCP of a tool about it."""
    return max(GRASP_OFFSET, TIP + TIP_CLEARANCE - object_height / 2.0)


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the gripper in the TCP frame."""

    half_size: tuple[float, float, float]
    centre: tuple[float, float, float]

    @property
    def volume(self) -> float:
        """m^3."""
        return 8.0 * prod(self.half_size)


PALM = Box((0.060, 0.030, 0.035), (0.0, 0.0, -0.095))
"""From the flange (145 mm behind the TCP) down to 60 mm above the TCP."""
PAD = Box((0.004, 0.011, 0.016), (0.004, 0.0, TIP - 0.016))
"""The pad of the finger on the +x side with the gripper closed (its inner face at x = 0); mirrored for the
other. Objects touch it alone."""
FINGER = Box((0.005, 0.010, 0.030), (0.013, 0.0, -0.030))
"""The finger on the +x side behind its pad, closed; ends at the TCP's height, above the pad's tip."""

PAD_MASS, REST_MASS = (FINGER_MASS * (box.volume / (PAD.volume + FINGER.volume)) for box in (PAD, FINGER))
"""kg of a pad and of the rest of its finger, of one density."""
