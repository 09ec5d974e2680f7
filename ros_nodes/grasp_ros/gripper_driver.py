"""The ways to a gripper's driver: a topic of numbers, or an action of `control_msgs` where it is installed.

`control_msgs` comes with ROS distributions and is not among the packages that pip installs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from rclpy.action.client import ActionClient
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from grasp_ros.qos import RELIABLE
from grasp_sim.errors import UserError

TOPIC = "topic"
PARALLEL = "parallel_gripper_command"
GRIPPER = "gripper_command"
INTERFACES = (TOPIC, PARALLEL, GRIPPER)
"""std_msgs/Float64MultiArray [rad, N]; the action control_msgs/ParallelGripperCommand; its predecessor
control_msgs/GripperCommand."""

Refused = Callable[[str], None]
"""Told why the driver did not take a command."""


class GripperDriver(Protocol):
    """Takes commands in the driver's own units."""

    name: str
    """The topic or action, for messages."""

    def listens(self) -> bool:
        """Whether somebody would get a command that is sent now."""
        ...

    def rivals(self) -> int:
        """How many others command it, as far as can be known."""
        ...

    def send(self, position: float, force: float) -> None:
        """Move the finger joint to a position (rad) with at most this force (N)."""
        ...


class CommandTopic:
    """Commands as [finger joint (rad), force (N)] of a Float64MultiArray."""

    def __init__(self, node: Node, topic: str) -> None:
        self._node = node
        self._publisher = node.create_publisher(Float64MultiArray, topic, RELIABLE)
        self.name = self._publisher.topic_name

    def listens(self) -> bool:
        return self._publisher.get_subscription_count() > 0

    def rivals(self) -> int:
        return self._node.count_publishers(self.name) - 1

    def send(self, position: float, force: float) -> None:
        self._publisher.publish(Float64MultiArray(data=[position, force]))


class CommandAction:
    """Commands as goals of an action; a new goal replaces the one before it, as the controllers define."""

    def __init__(self, node: Node, action: str, kind: str, finger_joint: str, refused: Refused) -> None:
        """`kind` is PARALLEL or GRIPPER. Raises UserError where control_msgs cannot be imported."""
        type_name = {PARALLEL: "ParallelGripperCommand", GRIPPER: "GripperCommand"}[kind]
        try:
            self._type: Any = getattr(importlib.import_module("control_msgs.action"), type_name)
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"interface={kind} needs control_msgs/action/{type_name}, which cannot be imported ({error});"
                f" source a ROS distribution that has it (ros-<distribution>-control-msgs), or use"
                f" interface={TOPIC}."
            ) from error
        self._client = ActionClient(node, self._type, action)
        self._parallel = kind == PARALLEL
        self._joint = finger_joint
        self._refused = refused
        self.name = node.resolve_service_name(action)

    def listens(self) -> bool:
        return self._client.server_is_ready()

    def rivals(self) -> int:
        return 0  # clients of an action cannot be told from each other

    def send(self, position: float, force: float) -> None:
        goal = self._type.Goal()
        if self._parallel:
            goal.command = JointState(name=[self._joint], position=[position], effort=[force])
        else:
            goal.command.position, goal.command.max_effort = position, force
        self._client.send_goal_async(goal).add_done_callback(self._answered)

    def _answered(self, future: Any) -> None:
        if not future.result().accepted:
            self._refused(f"{self.name} rejected a command; is the gripper activated?")


def open_driver(
    node: Node, interface: str, topic: str, action: str, finger_joint: str, refused: Refused
) -> GripperDriver:
    """The way to the driver that is named by `interface`, one of INTERFACES."""
    if interface == TOPIC:
        return CommandTopic(node, topic)
    return CommandAction(node, action, interface, finger_joint, refused)
