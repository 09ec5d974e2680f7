"""The limits of motion under which a policy was trained. No torch: the robot's side reads them."""

from __future__ import annotations

from dataclasses import dataclass

from grasp_sim.servo import ServoConfig

_SERVO = ServoConfig()


@dataclass(frozen=True, slots=True)
class Limits:
    """What the servo makes of the policy's deltas, by default the installed servo's.

    A policy has learned how far and how fast the arm follows; under other limits it meets an arm that it does
    not know. In control mode `osc` robosuite's controller moves the arm and these are not in force.
    """

    position_lead: float = _SERVO.max_position_lead
    """m that the Cartesian target may run ahead of the measured TCP."""
    yaw_lead: float = _SERVO.max_yaw_lead
    """rad that the target heading may run ahead of the measured one."""
    joint_lead: float = _SERVO.max_joint_lead
    """rad between joint target and measured joint beyond which the servo starts again from the measured."""
    rotation_step: float = _SERVO.max_rotation_step
    """rad per policy step, yaw and the correction of a tilted tool together."""
    joint_velocity: tuple[float, ...] = tuple(_SERVO.velocity_max.tolist())
    """(6,) rad/s."""
    joint_min: tuple[float, ...] = tuple(_SERVO.position_min.tolist())
    """(6,) rad."""
    joint_max: tuple[float, ...] = tuple(_SERVO.position_max.tolist())
    """(6,) rad."""
