"""Operational space control of a six-joint arm, in the arithmetic of robosuite's OSC_POSE.

The law is O. Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE J. Robotics and Automation 3(1), 1987, as robosuite 1.5.2 implements it
(`controllers/parts/arm/osc.py`, `utils/control_utils.py`) with its default configuration for the UR5e: fixed
impedance, position and orientation uncoupled, goals relative to the pose reached. It needs a model of the
arm's dynamics but no simulator, so any simulator can call it.

Every sum is taken in robosuite's order and by the same linear algebra, down to the memory layout of matrices,
because contacts amplify the last bit of a torque within a second: a law that is equal but for rounding cannot
be checked against robosuite's.

Shapes: 6 joints, in the order of the Jacobian's columns. Vectors of the tool are (3,), rotations (3, 3) map
the tool's axes to the frame of control. That frame is any one that does not move, the same for all arguments
of a call: the base frame or a simulator's world frame. Arrays are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

POSITION_SCALE = 0.05
"""m that robosuite's action of 1 moves the goal along an axis of the base frame."""
ROTATION_SCALE = 0.5
"""rad that robosuite's action of 1 turns the goal about an axis of the base frame."""
STIFFNESS = 150.0
"""1/s^2, acceleration per error, the same along and about all axes."""
DAMPING_RATIO = 1.0
"""Of the second-order error dynamics; 1 is critical."""
POSTURE_STIFFNESS = 10.0
"""1/s^2 of the joints' return to the posture in the null space, which is critically damped."""


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for numba, kept on disk where some folder for it is writable."""
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # numba found no folder it may write to: compile in each process
        return numba.njit(function)


def quaternion_of(rotation_vector: np.ndarray) -> np.ndarray:
    """(4,) xyzw of a rotation vector (3,) in rad.

    Not compiled, since NumPy's sine and cosine differ in the last bit from those that numba calls.
    """
    angle = np.linalg.norm(rotation_vector)
    if math.isclose(angle, 0.0):
        return np.array([0.0, 0.0, 0.0, 1.0])
    quaternion = np.empty(4)
    quaternion[:3] = rotation_vector / angle * np.sin(angle / 2.0)
    quaternion[3] = np.cos(angle / 2.0)
    return quaternion


@jit
def rotation_of(quaternion: np.ndarray) -> np.ndarray:
    """(3, 3) of a quaternion (4,) xyzw of any length, in single precision as in robosuite."""
    q = np.empty(4, dtype=np.float32)
    for i in range(4):
        q[i] = quaternion[i - 1]
    squared = np.dot(q, q)
    if squared < 4.0 * np.finfo(np.float64).eps:
        return np.eye(3)
    q *= math.sqrt(2.0 / squared)
    wx, wy, wz = q[0] * q[1], q[0] * q[2], q[0] * q[3]
    xx, yy, zz = q[1] * q[1], q[2] * q[2], q[3] * q[3]
    xy, xz, yz = q[1] * q[2], q[1] * q[3], q[2] * q[3]
    return np.array(
        (
            (1.0 - yy - zz, xy - wz, xz + wy),
            (xy + wz, 1.0 - xx - zz, yz - wx),
            (xz - wy, yz + wx, 1.0 - xx - yy),
        )
    )


def limited(vector: np.ndarray, limit: float) -> np.ndarray:
    """(3,) with each number within +-limit, as robosuite clips an action before it scales it."""
    # As `np.clip`, which takes twice as long to find out what it is given.
    return np.minimum(np.maximum(np.asarray(vector, dtype=np.float64), -limit), limit)


@jit
def goal_pose(
    position: np.ndarray,
    rotation: np.ndarray,
    delta_position: np.ndarray,
    delta_quaternion: np.ndarray,
    base_position: np.ndarray,
    base_rotation: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The goal's position (3,) in m and rotation (3, 3), both in the frame of control.

    The goal is the tool's pose (`position`, `rotation`) moved by `delta_position` (3,) in m and turned by
    `delta_quaternion` (4,) xyzw about the tool's origin, both along the axes of the base frame, whose pose in
    the frame of control is `base_position` and `base_rotation`. The goal goes through the base frame even
    where the result is the same, because that rounds as robosuite does.
    """
    from_base = np.ascontiguousarray(base_rotation.T)
    in_base = np.dot(from_base, position) - np.dot(from_base, base_position) + delta_position
    turned = np.dot(rotation_of(delta_quaternion), np.dot(from_base, rotation))
    return base_position + np.dot(base_rotation, in_base), np.dot(base_rotation, turned)


@jit
def rotation_error(goal: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """(3,) in the frame of control: the axis that turns `rotation` into `goal`, times the angle's sine."""
    error = np.empty(3)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        total = 0.0
        for axis in range(3):  # the cross product of this axis before and after
            total += rotation[j, axis] * goal[k, axis] - rotation[k, axis] * goal[j, axis]
        error[i] = 0.5 * total
    return error


@jit
def is_finite(array: np.ndarray) -> bool:
    """Whether every element is."""
    for value in array.flat:  # noqa: SIM110 (numba has no `all` over a generator)
        if not math.isfinite(value):
            return False
    return True


@jit
def _tool_inertia(jacobian: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """(K, K) of the arm along K rows of the Jacobian (K, 6), from the inverse of its mass matrix (6, 6)."""
    return np.linalg.pinv(np.dot(np.dot(jacobian, inverse), jacobian.T))


@jit
def joint_torques(
    goal_position: np.ndarray,
    goal_rotation: np.ndarray,
    position: np.ndarray,
    rotation: np.ndarray,
    linear_velocity: np.ndarray,
    angular_velocity: np.ndarray,
    jacobian: np.ndarray,
    mass_matrix: np.ndarray,
    bias: np.ndarray,
    joint_positions: np.ndarray,
    joint_velocities: np.ndarray,
    posture: np.ndarray,
    stiffness: float,
    damping_ratio: float,
) -> np.ndarray:
    """Joint torques (6,) in N m that pull the tool to the goal; not limited to what the motors can give.

    All are NaN if an argument is not finite or a matrix cannot be inverted: check before use.

    goal_position, goal_rotation: (3,) m and (3, 3), from `goal_pose`.
    position, rotation: (3,) m and (3, 3) of the tool now.
    linear_velocity, angular_velocity: (3,) m/s of the tool's origin and (3,) rad/s.
    jacobian: (6, 6), rows linear then angular velocity of the tool per joint velocity.
    mass_matrix: (6, 6) kg m^2, the arm's joint-space inertia.
    bias: (6,) N m, gravity, Coriolis and centrifugal torques to be compensated.
    joint_positions, joint_velocities: (6,) rad and rad/s.
    posture: (6,) rad that the joints return to where the tool's pose leaves them free, which for six joints
    is near singular poses alone.
    stiffness, damping_ratio: of the tool's error, one value for all axes; robosuite's are STIFFNESS and
    DAMPING_RATIO. Required, as numba takes ten times as long over defaults as the law itself.
    """
    result = np.empty(6)
    result[:] = np.nan
    # Checked here, as an exception inside compiled code leaks the arrays of that call.
    if not (is_finite(mass_matrix) and is_finite(jacobian)):
        return result
    mass = np.asfortranarray(mass_matrix)
    full = np.ascontiguousarray(jacobian)
    try:
        inverse = np.linalg.inv(mass)
        inertia = _tool_inertia(full, inverse)
        inertia_linear = _tool_inertia(full[:3], inverse)
        inertia_angular = _tool_inertia(full[3:], inverse)
    except Exception:  # singular, or an overflow on the way
        return result

    # Loops, since numba takes much longer to compile sums of arrays.
    damping = 2.0 * math.sqrt(stiffness) * damping_ratio
    error = rotation_error(goal_rotation, rotation)
    force, torque = np.empty(3), np.empty(3)
    for i in range(3):
        force[i] = (goal_position[i] - position[i]) * stiffness - linear_velocity[i] * damping
        torque[i] = error[i] * stiffness - angular_velocity[i] * damping
    wrench = np.empty(6)
    wrench[:3] = np.dot(inertia_linear, force)
    wrench[3:] = np.dot(inertia_angular, torque)
    tool_torques = np.dot(full.T, wrench)

    null_space = np.dot(np.dot(np.dot(inverse, full.T), inertia), full)
    returning = np.empty(6)
    posture_damping = math.sqrt(POSTURE_STIFFNESS) * 2.0
    for i in range(6):
        lag = posture[i] - joint_positions[i]
        returning[i] = POSTURE_STIFFNESS * lag - posture_damping * joint_velocities[i]
        for j in range(6):
            null_space[i, j] = (1.0 if i == j else 0.0) - null_space[i, j]
    posture_torques = np.dot(null_space.T, np.dot(mass, returning))
    for i in range(6):
        result[i] = tool_torques[i] + bias[i] + posture_torques[i]
    if not is_finite(result):
        result[:] = np.nan
    return result
