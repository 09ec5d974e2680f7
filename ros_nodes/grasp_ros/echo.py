"""Answers every joint state with a command at once: what a round trip costs without the stack."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from grasp_demos.messages import stamp_of
from grasp_demos.topics import Topics
from grasp_ros.command_record import CommandRecord
from grasp_ros.process import run_node
from grasp_ros.qos import RELIABLE, heard_from_all
from grasp_ros.spin import spin

HELP = "Answer each joint state with its positions; used by grasp-bench ros as the least a round trip takes."


@dataclass
class EchoConfig:
    """Settings of the echo."""

    commands: str = "/forward_position_controller/commands"
    """Topic of the commands."""
    record: str = ""
    """npz file for the times of joint states and answers, as of the safety node."""


def run(node: Node, config: EchoConfig) -> None:
    """Serve until ROS is shut down."""
    publisher = node.create_publisher(Float64MultiArray, config.commands, RELIABLE)

    record = CommandRecord()

    def answer(message: JointState) -> None:
        publisher.publish(Float64MultiArray(data=message.position))
        record.add(stamp_of(message, 0), node.get_clock().now().nanoseconds, 0, message.position)

    node.create_subscription(JointState, Topics().joint_states, answer, heard_from_all(5))
    spin(node)
    if config.record:
        record.save(Path(config.record))


def main() -> int:
    """Entry point of the process."""
    return run_node("echo", EchoConfig, run, HELP)


if __name__ == "__main__":
    sys.exit(main())
