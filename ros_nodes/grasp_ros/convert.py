"""Messages of the stack made from numbers. Read they are by `grasp_demos.messages`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration, Time
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from grasp_sim.contract import ACTION_NAMES

NS = 1_000_000_000
GRIPPER_JOINT = "gripper_opening"
"""The one joint of the gripper's messages: position is the opening in m, effort the force in N."""


def time_message(ns: int) -> Time:
    """A stamp of whole nanoseconds."""
    seconds, rest = divmod(ns, NS)
    return Time(sec=seconds, nanosec=rest)


def duration_message(seconds: float) -> Duration:
    """A duration of s, not negative."""
    whole, rest = divmod(round(seconds * NS), NS)
    return Duration(sec=whole, nanosec=rest)


def action_message(action: np.ndarray, stamp: Time, period: float = 0.0) -> JointTrajectory:
    """An action (A,) of the policy, stamped with the time of the state that it answers.

    `period`: s that the policy step takes; 0 where it is that of training.
    """
    point = JointTrajectoryPoint(
        positions=[float(value) for value in action], time_from_start=duration_message(period)
    )
    message = JointTrajectory(joint_names=list(ACTION_NAMES), points=[point])
    message.header.stamp = stamp
    return message


def joint_message(
    names: Sequence[str], positions: np.ndarray, velocities: np.ndarray, stamp: Time, frame: str = ""
) -> JointState:
    """Positions (rad) and velocities (rad/s) of joints by name."""
    message = JointState(name=list(names), position=positions.tolist(), velocity=velocities.tolist())
    message.header.stamp = stamp
    message.header.frame_id = frame
    return message


def gripper_message(opening: float, force: float, stamp: Time) -> JointState:
    """An opening (m) with a force (N): measured, or commanded with that limit."""
    message = JointState(name=[GRIPPER_JOINT], position=[opening], effort=[force])
    message.header.stamp = stamp
    return message
