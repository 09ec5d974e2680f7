"""What the simulated robot publishes, as drivers and perception would, and the faults that tests ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped, Vector3Stamped
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.time import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, String
from std_srvs.srv import SetBool

from grasp_demos.topics import Topics
from grasp_ros import ur_status
from grasp_ros.ur_status import LATCHED, RobotMode, SafetyMode
from grasp_sim.contract import GraspState
from grasp_sim.driven import Outcome
from grasp_sim.driver import Driver
from grasp_sim.pybullet_dynamics import ArmDynamics
from grasp_sim.ur5e import DOF, JOINT_NAMES

OUTCOME = "/sim/outcome"
"""std_msgs/String, latched: JSON of the number of the episode and of `grasp_sim.driven.Outcome`."""
FAULTS = "/sim/faults"
"""std_msgs/String: each cause for which the robot stopped or its gripper locked up."""

FINGER = "finger_joint"
NAMES = (*JOINT_NAMES, FINGER)
ALPHABETICAL = sorted(range(len(NAMES)), key=NAMES.__getitem__)
"""The order in which the joints are published: elbow first, the finger second."""
TORQUE_CONSTANT = 11.0
"""N m/A of the motors with their gears, about. The published current is what holds the arm's weight."""
OLD = 1_000_000_000
"""ns by which the injected fault makes stamps old."""
INJECTED = (
    "joint_states_stop",
    "joint_states_nan",
    "joint_states_missing",
    "joint_states_old",
    "object_pose_stop",
    "driver_pause",
)
"""Faults, each a std_srvs/SetBool service below `~/inject/`: no joint states, NaN in the elbow's position, no
elbow, stamps of a second ago, no object pose, a driver that neither moves nor publishes."""


class SimTopics:
    """The publishers, and the services that inject faults. Stamps are ns of the node's clock."""

    def __init__(self, node: Node) -> None:
        self._node = node
        make, reliable, topics = node.create_publisher, QoSProfile(depth=10), Topics()
        self._frame = topics.base_frame
        self._joints = make(JointState, topics.joint_states, reliable)
        self._pose = make(PoseStamped, topics.object_pose, reliable)
        self._size = make(Vector3Stamped, topics.object_size, LATCHED)
        self._scaling = make(Float64, ur_status.SPEED_SCALING, reliable)
        self._running = make(Bool, ur_status.PROGRAM_RUNNING, LATCHED)
        self._robot_mode = make(ur_status.RobotModeMessage, ur_status.ROBOT_MODE, LATCHED)
        self._safety_mode = make(ur_status.SafetyModeMessage, ur_status.SAFETY_MODE, LATCHED)
        self._outcome = make(String, OUTCOME, LATCHED)
        self._faults = make(String, FAULTS, QoSProfile(depth=100))
        self._message = JointState(name=[NAMES[k] for k in ALPHABETICAL])
        self._dynamics = ArmDynamics(np.zeros(DOF))
        self._said: dict[str, Any] = {}
        self.injected: dict[str, bool] = dict.fromkeys(INJECTED, False)
        """Which faults are on."""
        for fault in INJECTED:
            node.create_service(SetBool, f"~/inject/{fault}", self._injecting(fault))

    def _injecting(self, fault: str) -> Callable[[Any, Any], Any]:
        def answer(request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
            self.injected[fault] = request.data
            response.success = True
            return response

        return answer

    def joints(self, state: GraspState, finger: float, stamp: int, zeros: bool) -> None:
        """The joint states; `finger` in rad; `zeros` as from a driver that is not connected yet."""
        injected, message = self.injected, self._message
        if injected["joint_states_stop"]:
            return
        positions = [*state.joint_positions.tolist(), finger]
        velocities = [*state.joint_velocities.tolist(), 0.0]
        weight = self._dynamics.gravity_torques([*positions[:DOF], 0.0, 0.0])
        efforts = [*(weight / TORQUE_CONSTANT).tolist(), state.gripper_force]
        if zeros:
            positions = velocities = efforts = [0.0] * len(NAMES)
        elif injected["joint_states_nan"]:
            positions[JOINT_NAMES.index("elbow_joint")] = math.nan
        order = ALPHABETICAL[1:] if injected["joint_states_missing"] else ALPHABETICAL
        message.header.stamp = _stamp(stamp - OLD if injected["joint_states_old"] else stamp)
        message.name = [NAMES[k] for k in order]
        message.position = [positions[k] for k in order]
        message.velocity = [velocities[k] for k in order]
        message.effort = [efforts[k] for k in order]
        self._joints.publish(message)

    def object_pose(self, state: GraspState, stamp: int) -> None:
        """Where the object is."""
        if self.injected["object_pose_stop"]:
            return
        message = PoseStamped()
        message.header.frame_id, message.header.stamp = self._frame, _stamp(stamp)
        p, q = message.pose.position, message.pose.orientation
        p.x, p.y, p.z = state.object_position.tolist()
        q.x, q.y, q.z, q.w = state.object_quaternion.tolist()
        self._pose.publish(message)

    def object_size(self, state: GraspState, stamp: int) -> None:
        """The size of a new object."""
        message = Vector3Stamped()
        message.header.frame_id, message.header.stamp = self._frame, _stamp(stamp)
        message.vector.x, message.vector.y, message.vector.z = state.object_size.tolist()
        self._size.publish(message)

    def speed_scaling(self, driver: Driver) -> None:
        """In percent."""
        self._scaling.publish(Float64(data=100.0 * driver.speed_scaling))

    def fault(self, text: str) -> None:
        """What stopped the robot."""
        self._faults.publish(String(data=text))
        self._node.get_logger().error(text)

    def changes(self, driver: Driver, episode: int, outcome: Outcome) -> None:
        """What is latched, where it is not what was said last."""
        safety = SafetyMode.PROTECTIVE_STOP if driver.protective_stop else SafetyMode.NORMAL
        self._say(self._robot_mode, RobotMode.RUNNING, ur_status.robot_mode_message)
        self._say(self._safety_mode, safety, ur_status.safety_mode_message)
        self._say(self._running, driver.program_running, _running_message)
        self._say(self._outcome, (episode, outcome), _outcome_message)

    def _say(self, publisher: Any, value: Any, message_of: Callable[[Any], Any]) -> None:
        if self._said.get(publisher.topic_name) != value:
            self._said[publisher.topic_name] = value
            publisher.publish(message_of(value))


def _running_message(running: bool) -> Bool:
    return Bool(data=running)


def _outcome_message(said: tuple[int, Outcome]) -> String:
    episode, outcome = said
    return String(data=json.dumps({"episode": episode, **asdict(outcome)}))


def _stamp(nanoseconds: int) -> Any:
    return Time(nanoseconds=nanoseconds).to_msg()
