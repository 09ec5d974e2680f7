"""Answers every joint state with a command at once: what a round trip costs without the stack."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from grasp_demos.topics import Topics
from grasp_ros.process import run_node
from grasp_ros.qos import RELIABLE, heard_from_all
from grasp_ros.spin import spin

HELP = "Answer each joint state with its positions; used by grasp-bench ros as the least a round trip takes."


@dataclass
class EchoConfig:
    """Settings of the echo."""

    commands: str = "/forward_position_controller/commands"
    """Topic of the commands."""


def run(node: Node, config: EchoConfig) -> None:
    """Serve until ROS is shut down."""
    publisher = node.create_publisher(Float64MultiArray, config.commands, RELIABLE)

    def answer(message: JointState) -> None:
        publisher.publish(Float64MultiArray(data=message.position))

    node.create_subscription(JointState, Topics().joint_states, answer, heard_from_all(5))
    spin(node)


def main() -> int:
    """Entry point of the process."""
    return run_node("echo", EchoConfig, run, HELP)


if __name__ == "__main__":
    sys.exit(main())
