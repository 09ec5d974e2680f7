"""Cartesian deltas to joint targets, the same in both simulators and on the arm.

Shapes: 6 joints in the order of `grasp_sim.ur5e.JOINT_NAMES`. Positions are in m and rad in the base frame.
The tool is kept pointing straight down; its heading is the yaw of the TCP's x axis about the base's z axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import POLICY_RATE_HZ, Command

_MOST_ITERATIONS = 100


@dataclass(frozen=True, slots=True)
class ServoConfig:
    """Limits of the servo. The defaults suit 20 policy steps a second."""

    period: float = 1.0 / POLICY_RATE_HZ
    """s per policy step."""
    iterations: int = 2
    """Damped-least-squares iterations per policy step."""
    damping: float = 0.02
    """Of the least squares, in the Jacobian's units."""
    max_position_lead: float = 0.04
    """m that the Cartesian target may run ahead of the measured TCP."""
    max_yaw_lead: float = 0.3
    """rad that the target heading may run ahead of the measured one."""
    max_joint_lead: float = 0.35
    """rad between joint target and measured joint beyond which the arm is taken to be blocked or moved."""
    max_rotation_step: float = 0.15
    """rad per policy step, yaw and the correction of a tilted tool together."""
    position_min: np.ndarray = field(default_factory=lambda: ur5e.POSITION_MIN.copy())
    """(6,) rad."""
    position_max: np.ndarray = field(default_factory=lambda: ur5e.POSITION_MAX.copy())
    """(6,) rad."""
    velocity_max: np.ndarray = field(default_factory=lambda: ur5e.VELOCITY_MAX.copy())
    """(6,) rad/s."""


class ServoStatus(Enum):
    """What became of the last command."""

    OK = "ok"
    LIMITED = "limited"  # executed, but slower or less far than asked
    HOLD = "hold"  # not executed; the joint target stays where it was


def down_rotation(yaw: float) -> np.ndarray:
    """(3, 3), base from tcp: z straight down, x at `yaw` rad about the base frame's z axis."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, sin, 0.0], [sin, -cos, 0.0], [0.0, 0.0, -1.0]])


def upright_turn(rotation: np.ndarray, delta_yaw: float) -> np.ndarray:
    """Rotation vector (3,), base frame, from a tool at `rotation` (3, 3) to one that points straight down and
    heads `delta_yaw` rad further."""
    return rotation_error(down_rotation(heading(rotation) + delta_yaw), rotation)


def wrap(angle: float) -> float:
    """The same angle in [-pi, pi)."""
    return float((angle + np.pi) % (2.0 * np.pi) - np.pi)


def heading(rotation: np.ndarray) -> float:
    """Yaw in rad of the x axis of a rotation matrix (3, 3)."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


def rotation_error(target: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Rotation vector (3,), in the base frame, that turns `current` into `target` (both (3, 3))."""
    difference = target @ current.T
    axis = 0.5 * np.array(
        [
            difference[2, 1] - difference[1, 2],
            difference[0, 2] - difference[2, 0],
            difference[1, 0] - difference[0, 1],
        ]
    )
    sine = length_of(axis)
    cosine = 0.5 * (float(difference[0, 0] + difference[1, 1] + difference[2, 2]) - 1.0)
    if sine < 1e-9:
        return axis
    return axis * (np.arctan2(sine, cosine) / sine)


def length_of(vector: np.ndarray) -> float:
    """Euclidean norm of a vector; NumPy's own takes longer to find out that it is given one."""
    return math.sqrt(vector @ vector)


def shorten(vector: np.ndarray, length: float) -> np.ndarray:
    """The vector, scaled down to `length` if it is longer."""
    norm = length_of(vector)
    return vector if norm <= length else vector * (length / norm)


def damped_step(jacobian: np.ndarray, error: np.ndarray, damping: float) -> np.ndarray:
    """Joint step (6,) that reduces a pose error (6,) by damped least squares."""
    square = jacobian @ jacobian.T
    square.flat[:: len(square) + 1] += damping**2  # the diagonal
    return jacobian.T @ np.linalg.solve(square, error)


def interpolate(start: np.ndarray, goal: np.ndarray, steps: int) -> np.ndarray:
    """(steps, 6) joint targets on the line from `start` (excluded) to `goal` (included)."""
    fractions = np.arange(1, steps + 1)[:, None] / steps
    return start + fractions * (goal - start)


def joints_at(position: np.ndarray, yaw: float, near: np.ndarray) -> np.ndarray:
    """Joints (6,) rad that hold the tool straight down at `position` (3,) m, base frame, heading `yaw` rad.

    Found from `near` (6,) on by damped least squares; raises ValueError where they are not found.
    """
    kinematics, rotation, joints = ur5e.Kinematics(), down_rotation(yaw), np.array(near)
    for _ in range(_MOST_ITERATIONS):
        reached, turned, jacobian = kinematics.pose_and_jacobian(joints)
        error = np.concatenate([position - reached, rotation_error(rotation, turned)])
        if length_of(error) < 1e-6:
            return joints
        joints += damped_step(jacobian, shorten(error, 0.2), 1e-3)
    raise ValueError(f"the tool does not reach {np.round(position, 3).tolist()} m at yaw {yaw:.3f} rad.")


class Servo:
    """Turns one `Command` per policy step into a joint target.

    Keeps a Cartesian target that commands accumulate on, so the lag of the arm does not eat small deltas. The
    target never runs further ahead of the measured pose than the configuration allows.
    """

    def __init__(self, config: ServoConfig | None = None, kinematics: ur5e.Kinematics | None = None) -> None:
        self.config = config or ServoConfig()
        self.kinematics = kinematics or ur5e.Kinematics()
        self.status = ServoStatus.HOLD
        self.reason = "the servo was not reset yet"
        self.target_position = np.zeros(3)
        """(3,) m, base frame."""
        self.target_yaw = 0.0
        """rad."""
        self.joint_target: np.ndarray | None = None
        """(6,) rad, what `step` returned last; None before the first reset."""

    def reset(self, joint_positions: np.ndarray) -> None:
        """Start from measured joints (6,): the target becomes the present pose.

        Raises ValueError if they are not 6 finite numbers.
        """
        joints = np.array(joint_positions, dtype=np.float64)
        if joints.shape != (ur5e.DOF,) or not np.isfinite(joints).all():
            raise ValueError(
                f"the servo starts from 6 finite joint positions; it was given {joints.tolist()}"
            )
        self.target_position, rotation = self.kinematics.pose(joints)
        self.target_yaw = heading(rotation)
        self.joint_target = joints
        self.status, self.reason = ServoStatus.OK, ""

    def step(self, joint_positions: np.ndarray, command: Command) -> np.ndarray:
        """The joint target (6,) in rad for the end of this policy step.

        `joint_positions` (6,) are the measured joints. On non-finite input or at a joint limit the previous
        target is returned again; `status` and `reason` say what happened.
        """
        if self.joint_target is None:
            raise RuntimeError(
                "Servo.step before Servo.reset: the servo must start from the measured joints."
            )
        joints = np.asarray(joint_positions, dtype=np.float64)
        if joints.shape != (ur5e.DOF,) or not np.isfinite(joints).all():
            return self._hold(f"joint positions are not 6 finite numbers: {joints.tolist()}")
        if not (np.isfinite(command.delta_position).all() and np.isfinite(command.delta_yaw)):
            return self._hold(f"the command is not finite: {command}")
        lead = np.abs(self.joint_target - joints)
        if lead.max() > self.config.max_joint_lead:
            worst = ur5e.JOINT_NAMES[int(lead.argmax())]
            self.reset(joints)  # staying at the measured pose is the only target that moves nothing
            return self._hold(
                f"{worst} is {lead.max():.2f} rad from its target; restarted from the measured pose"
            )

        before = self.target_position, self.target_yaw
        self._move_target(joints, command)
        target, limited = self._solve()
        outside = (target < self.config.position_min) | (target > self.config.position_max)
        if outside.any():
            self.target_position, self.target_yaw = before
            return self._hold(f"{ur5e.JOINT_NAMES[int(outside.argmax())]} would leave its limits")
        self.joint_target = target
        self.status = ServoStatus.LIMITED if limited else ServoStatus.OK
        self.reason = limited
        return target.copy()

    def save(self) -> dict[str, np.ndarray]:
        """The targets, for a snapshot."""
        if self.joint_target is None:
            raise RuntimeError("Servo.save before Servo.reset: there is no target yet.")
        return {
            "target_position": self.target_position.copy(),
            "target_yaw": np.array([self.target_yaw]),
            "joint_target": self.joint_target.copy(),
        }

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Inverse of `save`."""
        self.target_position = saved["target_position"].copy()
        self.target_yaw = float(saved["target_yaw"][0])
        self.joint_target = saved["joint_target"].copy()
        self.status, self.reason = ServoStatus.OK, ""

    def _hold(self, reason: str) -> np.ndarray:
        self.status, self.reason = ServoStatus.HOLD, reason
        assert self.joint_target is not None
        return self.joint_target.copy()

    def _move_target(self, joints: np.ndarray, command: Command) -> None:
        """Accumulate the command, then clamp the target to the neighbourhood of the measured pose."""
        position, rotation = self.kinematics.pose(joints)
        offset = self.target_position + command.delta_position - position
        self.target_position = position + shorten(offset, self.config.max_position_lead)
        yaw = heading(rotation)
        ahead = wrap(self.target_yaw + command.delta_yaw - yaw)
        most = self.config.max_yaw_lead
        self.target_yaw = wrap(yaw + min(max(ahead, -most), most))

    def _solve(self) -> tuple[np.ndarray, str]:
        """The joint target nearest to the Cartesian one, and what limited it (empty if nothing did)."""
        assert self.joint_target is not None
        start = self.joint_target
        joints = start.copy()
        wanted = down_rotation(self.target_yaw)
        _, rotation = self.kinematics.pose(joints)
        turn = rotation_error(wanted, rotation)
        limited = ""
        if length_of(turn) > self.config.max_rotation_step:
            limited = "rotation step"
            wanted = rotation_of(shorten(turn, self.config.max_rotation_step)) @ rotation
        for _ in range(self.config.iterations):
            position, rotation, jacobian = self.kinematics.pose_and_jacobian(joints)
            error = np.concatenate([self.target_position - position, rotation_error(wanted, rotation)])
            joints = joints + damped_step(jacobian, error, self.config.damping)
        move = joints - start
        excess = float((np.abs(move) / (self.config.velocity_max * self.config.period)).max())
        if excess > 1.0:
            return start + move / excess, "joint velocity"
        return joints, limited


def rotation_of(vector: np.ndarray) -> np.ndarray:
    """(3, 3) rotation matrix of a rotation vector (3,) (Rodrigues' formula)."""
    angle = length_of(vector)
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
