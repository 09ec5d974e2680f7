"""Where arm and gripper are: fast kinematics, and the distances that must be kept.

Frames: 0 is the base, joint j (in the order of `ur5e.JOINT_NAMES`) moves frame j + 1, 7 is the TCP. Lengths
in m, base frame. Shapes: C constraints.

A *clearance* is how far a posture is inside one limit; negative is outside. Along a straight line in joint
space it changes by at most `REACH` times the joints' way, since no point of the arm is further from a joint
than the links between them are long. So the clearances at a few postures prove those in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.osc import jit

TCP = ur5e.DOF + 1


class Capsule(NamedTuple):
    """All points within `radius` of the segment from `start` to `end`, in a frame of the arm."""

    name: str
    frame: int
    start: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float


_HALF_OPEN = gripper.STROKE / 2.0
_SIDE = _HALF_OPEN + gripper.FINGER.centre[0] + gripper.FINGER.half_size[0]  # of the open fingers, outside
_ACROSS = gripper.PAD.half_size[1]

CAPSULES: tuple[Capsule, ...] = (
    Capsule("base", 0, (0.0, 0.0, -0.10), (0.0, 0.0, 0.06), 0.080),
    Capsule("shoulder", 1, (0.0, -0.005, 0.0), (0.0, 0.020, 0.0), 0.087),
    Capsule("upper arm", 2, (0.0, 0.0, 0.0), (0.0, 0.0, 0.425), 0.098),
    Capsule("forearm", 3, (0.0, 0.0, 0.0), (0.0, 0.0, 0.385), 0.080),
    Capsule("wrist 1", 4, (0.0, 0.100, 0.0), (0.0, 0.125, 0.0), 0.067),
    Capsule("wrist 2", 5, (0.0, 0.0, 0.090), (0.0, 0.0, 0.105), 0.066),
    Capsule("wrist 3", 6, (0.0, 0.060, 0.0), (0.0, 0.100, 0.0), 0.046),
    Capsule("palm", TCP, (-0.030, 0.0, -0.095), (0.030, 0.0, -0.095), 0.055),
    Capsule("fingers", TCP, (-0.040, 0.0, -0.025), (0.040, 0.0, -0.025), 0.043),
)
"""Each encloses robosuite's mesh of its link, or the boxes of `grasp_sim.gripper`, the fingers anywhere."""

_NAMES = [capsule.name for capsule in CAPSULES]
_TOOL = ("wrist 3", "palm", "fingers")
PAIRS: tuple[tuple[str, str], ...] = (
    *(("base", other) for other in ("forearm", "wrist 1", "wrist 2", *_TOOL)),
    *(("shoulder", other) for other in ("forearm", "wrist 1", "wrist 2", *_TOOL)),
    *(("upper arm", other) for other in ("wrist 1", "wrist 2", *_TOOL)),
    *(("forearm", other) for other in _TOOL),
)
"""Capsules that can meet: neighbours in the chain cannot, or always touch."""

TIPS: tuple[tuple[float, float, float], ...] = (
    (0.0, 0.0, 0.0),  # the TCP itself
    *((side * _SIDE, across * _ACROSS, gripper.TIP) for side in (-1.0, 1.0) for across in (-1.0, 1.0)),
)
"""Points in the TCP frame that must stay above the floor: the TCP and the corners of the open fingers."""

ABOVE_FLOOR = ("upper arm", "forearm", "wrist 1", "wrist 2", "wrist 3", "palm")
"""Capsules that must stay above the floor with their whole radius."""


class Constraint(NamedTuple):
    """One clearance."""

    kind: str
    """A key of `grasp_control.arm.reasons.KINDS`."""
    what: str
    """For people: which part of the arm, or which side."""


CONSTRAINTS: tuple[Constraint, ...] = (
    *(Constraint("workspace", f"TCP {axis} {end}") for axis in "xyz" for end in ("min", "max")),
    *(Constraint("floor", what) for what in ("TCP", *["a fingertip"] * 4)),
    *(Constraint("floor", name) for name in ABOVE_FLOOR),
    Constraint("singularity", "manipulability"),
    *(Constraint("self_collision", f"{one} and {other}") for one, other in PAIRS),
)
"""(C), the order of `clearances`."""

COUNT = len(CONSTRAINTS)
SINGULARITY = next(i for i, constraint in enumerate(CONSTRAINTS) if constraint.kind == "singularity")
_FIRST_TIP, _FIRST_CAPSULE, _FIRST_PAIR = 6, 6 + len(TIPS), SINGULARITY + 1

LIMIT_COUNT = 9
"""Numbers that `clearances` goes by: TCP x min, max, y min, max, z min, max, floor, least |det J|, least
distance."""


# ---- the chain as numbers: a turn by the joint and a shift to the next joint


def _turn_matrix(wxyz: tuple[float, ...]) -> np.ndarray:
    w, x, y, z = np.array(wxyz) / np.linalg.norm(wxyz)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _zero_turn(link: tuple) -> float:
    """The fixed turn of a link as an angle about its own joint's axis; the UR5e has no others."""
    _, _, turn, axis = link
    half = np.array(turn[1:]) / np.linalg.norm(turn)
    if not np.allclose(np.cross(half, axis), 0.0):
        raise ValueError(f"link {link[0]} is turned about another axis than its joint's.")
    return 2.0 * float(np.arctan2(half @ np.array(axis), turn[0] / np.linalg.norm(turn)))


SHIFT = np.array([link[1] for link in ur5e.LINKS])
ABOUT_Z = np.array([link[3] == (0, 0, 1) for link in ur5e.LINKS])
ZERO = np.array([_zero_turn(link) for link in ur5e.LINKS])
_FLANGE_TURN = _turn_matrix(ur5e.FLANGE[1])
TOOL_SHIFT = np.array(ur5e.FLANGE[0]) + _FLANGE_TURN @ np.array(ur5e.T_FLANGE_TCP[0])
TOOL_TURN = _FLANGE_TURN @ _turn_matrix(ur5e.T_FLANGE_TCP[1])
A2, A3, D5 = float(SHIFT[2, 2]), float(SHIFT[3, 2]), float(SHIFT[5, 2])

_INDEX = {name: i for i, name in enumerate(_NAMES)}
_FRAME = np.array([capsule.frame for capsule in CAPSULES])
_ENDS = np.array([(capsule.start, capsule.end) for capsule in CAPSULES])
_RADIUS = np.array([capsule.radius for capsule in CAPSULES])
_TIP = np.array(TIPS)
_LOW = np.array([_INDEX[name] for name in ABOVE_FLOOR])
_PAIR = np.array([(_INDEX[one], _INDEX[other]) for one, other in PAIRS])


def _reach(frame: int, points: np.ndarray) -> np.ndarray:
    """(6,) m: no point of a frame is ever further from each joint's axis than this."""
    shifts = [float(np.linalg.norm(shift)) for shift in (*SHIFT, TOOL_SHIFT)]
    ends = float(np.linalg.norm(points, axis=-1).max())
    return np.array([sum(shifts[j + 1 : frame]) + ends if j < frame else 0.0 for j in range(ur5e.DOF)])


def _reaches() -> np.ndarray:
    rows = [_reach(TCP, np.zeros((1, 3)))] * 6
    rows += [_reach(TCP, tip[None]) for tip in _TIP]
    capsule = [_reach(int(frame), ends) for frame, ends in zip(_FRAME, _ENDS, strict=True)]
    rows += [capsule[i] for i in _LOW]
    # |det J| = A2 A3 |s3 s5 (A2 c2 + A3 c23 - D5 s234)|, and no sine or cosine is above 1.
    whole = A2 + A3 + D5
    rows.append(A2 * A3 * np.array([0.0, whole, whole + A3 + D5, D5, whole, 0.0]))
    for one, other in _PAIR:
        rows.append(np.where(np.arange(ur5e.DOF) >= _FRAME[one], capsule[other], 0.0))
    return np.array(rows)


REACH = _reaches()
"""(C, 6) m/rad (1/rad of the manipulability): the most that a clearance changes per rad of each joint."""


# ---- compiled


@jit
def frames(joints, positions, rotations):
    """Fill positions (8, 3) in m and rotation matrices (8, 3, 3), base from frame, of joints (6,) in rad."""
    positions[0] = 0.0
    rotations[0] = 0.0
    for k in range(3):
        rotations[0, k, k] = 1.0
    for j in range(6):
        turn, cos, sin = rotations[j], np.cos(joints[j] + ZERO[j]), np.sin(joints[j] + ZERO[j])
        for k in range(3):
            x, y, z = turn[k, 0], turn[k, 1], turn[k, 2]
            positions[j + 1, k] = positions[j, k] + x * SHIFT[j, 0] + y * SHIFT[j, 1] + z * SHIFT[j, 2]
            if ABOUT_Z[j]:
                rotations[j + 1, k, 0] = cos * x + sin * y
                rotations[j + 1, k, 1] = cos * y - sin * x
                rotations[j + 1, k, 2] = z
            else:
                rotations[j + 1, k, 0] = cos * x - sin * z
                rotations[j + 1, k, 1] = y
                rotations[j + 1, k, 2] = sin * x + cos * z
    for k in range(3):
        positions[7, k] = positions[6, k]
        for m in range(3):
            positions[7, k] += rotations[6, k, m] * TOOL_SHIFT[m]
            total = 0.0
            for n in range(3):
                total += rotations[6, k, n] * TOOL_TURN[n, m]
            rotations[7, k, m] = total


@jit
def jacobian(joints):
    """(6, 6): rows are linear (m) then angular (rad) velocity of the TCP in the base frame, per joint."""
    positions, rotations = np.empty((8, 3)), np.empty((8, 3, 3))
    frames(joints, positions, rotations)
    result = np.empty((6, 6))
    for j in range(6):
        axis = rotations[j + 1, :, 2] if ABOUT_Z[j] else rotations[j + 1, :, 1]
        x, y, z = positions[7] - positions[j + 1]
        result[0, j] = axis[1] * z - axis[2] * y
        result[1, j] = axis[2] * x - axis[0] * z
        result[2, j] = axis[0] * y - axis[1] * x
        result[3:, j] = axis
    return result


@jit
def _unit(value):
    return min(max(value, 0.0), 1.0)


@jit
def segment_distance(a, b, c, d):
    """m between the segments a b and c d, ends (3,) (Ericson, Real-Time Collision Detection, 2005)."""
    ux, uy, uz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    vx, vy, vz = d[0] - c[0], d[1] - c[1], d[2] - c[2]
    wx, wy, wz = a[0] - c[0], a[1] - c[1], a[2] - c[2]
    uu, vv, uv = ux * ux + uy * uy + uz * uz, vx * vx + vy * vy + vz * vz, ux * vx + uy * vy + uz * vz
    uw, vw = ux * wx + uy * wy + uz * wz, vx * wx + vy * wy + vz * wz
    across = uu * vv - uv * uv
    s = _unit((uv * vw - uw * vv) / across) if across > 1e-12 else 0.0
    t = (uv * s + vw) / vv
    if t < 0.0 or t > 1.0:
        t = _unit(t)
        s = _unit((uv * t - uw) / uu)
    x, y, z = wx + s * ux - t * vx, wy + s * uy - t * vy, wz + s * uz - t * vz
    return np.sqrt(x * x + y * y + z * z)


@jit
def manipulability(joints):
    """|det J|: 0 where the arm loses a direction (elbow stretched, wrist aligned, wrist above shoulder)."""
    lift, both = joints[1], joints[1] + joints[2]
    shoulder = A2 * np.cos(lift) + A3 * np.cos(both) - D5 * np.sin(both + joints[3])
    return abs(A2 * A3 * np.sin(joints[2]) * np.sin(joints[4]) * shoulder)


@jit
def clearances(joints, limits, out):
    """Fill `out` (C,) with how far joints (6,) rad are inside each of `limits` (LIMIT_COUNT,)."""
    positions, rotations = np.empty((8, 3)), np.empty((8, 3, 3))
    frames(joints, positions, rotations)
    for axis in range(3):
        out[2 * axis] = positions[7, axis] - limits[2 * axis]
        out[2 * axis + 1] = limits[2 * axis + 1] - positions[7, axis]
    floor, down = limits[6], rotations[7, 2]
    for i in range(len(_TIP)):
        tip = down[0] * _TIP[i, 0] + down[1] * _TIP[i, 1] + down[2] * _TIP[i, 2]
        out[_FIRST_TIP + i] = positions[7, 2] + tip - floor
    ends = np.empty((len(_FRAME), 2, 3))
    for i in range(len(_FRAME)):
        frame = _FRAME[i]
        for end in range(2):
            for k in range(3):
                ends[i, end, k] = positions[frame, k]
                for m in range(3):
                    ends[i, end, k] += rotations[frame, k, m] * _ENDS[i, end, m]
    for i in range(len(_LOW)):
        low = _LOW[i]
        out[_FIRST_CAPSULE + i] = min(ends[low, 0, 2], ends[low, 1, 2]) - _RADIUS[low] - floor
    out[SINGULARITY] = manipulability(joints) - limits[7]
    for i in range(len(_PAIR)):
        one, other = _PAIR[i, 0], _PAIR[i, 1]
        apart = segment_distance(ends[one, 0], ends[one, 1], ends[other, 0], ends[other, 1])
        out[_FIRST_PAIR + i] = apart - _RADIUS[one] - _RADIUS[other] - limits[8]
