"""A driver for measuring delays: joint states at a steady rate, and when commands came.

The arm follows every command exactly, so that the safety filter lets motion through. Actions at the policy's
rate let the servo draw lines all the while. A process of its own; writes an npz at its end.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass

import numpy as np
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from grasp_demos.topics import Topics
from grasp_ros import ur_status
from grasp_ros.convert import action_message, gripper_message, joint_message, time_message
from grasp_ros.process import goes_on, run_node
from grasp_ros.qos import LATCHED, RELIABLE
from grasp_sim import ur5e

HELP = "Publish joint states at a steady rate and note when each was answered; used by grasp-bench ros."
NOISE = 1e-7
"""rad, of the published positions."""
SWING_S = 2.0
"""s of one swing of the actions to and fro."""


@dataclass
class BenchDriverConfig:
    """Settings of the measuring driver."""

    out: str
    """npz file for the times."""
    rate: int = 500
    """Hz of the joint states."""
    warm_up: float = 3.0
    """s before times are noted."""
    seconds: float = 300.0
    """s for which times are noted."""
    commands: str = "/forward_position_controller/commands"
    """Topic of the commands."""


class BenchDriver:
    """Publishes, listens and notes."""

    def __init__(self, node: Node, config: BenchDriverConfig) -> None:
        self._node, self._config = node, config
        topics = Topics()
        self._arm = node.create_publisher(JointState, topics.joint_states, RELIABLE)
        self._gripper = node.create_publisher(JointState, topics.gripper, RELIABLE)
        self._actions = node.create_publisher(JointTrajectory, topics.requested_action, RELIABLE)
        self._scaling = node.create_publisher(Float64, ur_status.SPEED_SCALING, RELIABLE)
        self._running = node.create_publisher(Bool, ur_status.PROGRAM_RUNNING, LATCHED)
        self._running.publish(Bool(data=True))
        node.create_subscription(Float64MultiArray, config.commands, self._on_command, RELIABLE)
        self._joints = ur5e.HOME.copy()
        self._received: list[int] = []
        self._commands: list[np.ndarray] = []
        self._largest = 0.0

    def _on_command(self, message: Float64MultiArray) -> None:
        self._received.append(time.time_ns())
        command = np.array(message.data)
        self._commands.append(command[: ur5e.DOF])
        if command.shape == (ur5e.DOF,) and np.isfinite(command).all():
            self._largest = max(self._largest, float(np.abs(command - self._joints).max()))
            self._joints = command

    def run(self) -> None:
        """Measure, and write what was measured."""
        executor = EventsExecutor(context=self._node.context)
        executor.add_node(self._node)
        period = 1_000_000_000 // self._config.rate
        cycles = round((self._config.warm_up + self._config.seconds) * self._config.rate)
        published: list[int] = []
        gc.collect()
        gc.freeze()
        due = time.monotonic_ns() + period
        for cycle in range(cycles):
            while (left := due - time.monotonic_ns()) > 0:
                executor.spin_once(timeout_sec=left * 1e-9)
                if not goes_on():
                    return
            due = max(due + period, time.monotonic_ns())
            published.append(time.time_ns())
            stamp = time_message(published[-1])
            seen = self._joints + NOISE * np.sin(cycle)  # no two alike, so that an echo's answers differ too
            self._arm.publish(joint_message(ur5e.JOINT_NAMES, seen, np.zeros(ur5e.DOF), stamp))
            if cycle % 5 == 0:
                self._gripper.publish(gripper_message(0.085, 0.0, stamp))
            if cycle % (self._config.rate // 20) == 0:
                angle = 2.0 * np.pi * cycle / (SWING_S * self._config.rate)
                action = np.array([0.5 * np.cos(angle), 0.5 * np.sin(angle), 0.0, 0.0, 1.0, 0.0])
                self._actions.publish(action_message(action, stamp))
            if cycle % (self._config.rate // 10) == 0:
                self._scaling.publish(Float64(data=100.0))
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            executor.spin_once(timeout_sec=0.01)
        np.savez(
            self._config.out,
            warm_up=np.array(round(self._config.warm_up * self._config.rate)),
            published=np.array(published, np.int64),
            received=np.array(self._received, np.int64),
            commands=np.array(self._commands).reshape(-1, ur5e.DOF),
            largest_step=np.array(self._largest),
        )


def main() -> int:
    """Entry point of the process."""
    return run_node("bench_driver", BenchDriverConfig, lambda n, c: BenchDriver(n, c).run(), HELP)


if __name__ == "__main__":
    sys.exit(main())
