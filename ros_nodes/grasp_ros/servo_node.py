"""The servo as a node: actions of the policy in, joint setpoints at the driver's rate out.

A setpoint goes to the safety filter, never to the driver. The servo starts from the measured joints whenever
the safety filter does (its epoch has changed), and says so in every setpoint. Without a further action the
setpoint rests after one policy step.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from trajectory_msgs.msg import JointTrajectory

from grasp_control.arm.reasons import Status
from grasp_control.arm.setpoints import SetpointStream
from grasp_demos.episode import DemoError
from grasp_demos.messages import MessageReader, stamp_of
from grasp_demos.topics import Topics
from grasp_ros import names
from grasp_ros.convert import NS, action_message, gripper_message
from grasp_ros.diagnostics import Diagnostics, Level
from grasp_ros.newest import Newest
from grasp_ros.process import run_node
from grasp_ros.qos import LATCHED, NEWEST, RELIABLE
from grasp_ros.spin import MAX_PRIORITY, spin, steady_timer, take_priority
from grasp_sim.contract import POLICY_RATE_HZ, ContractError
from grasp_sim.env import ACTION_SCALES
from grasp_sim.servo import ServoStatus
from grasp_sim.ur5e import DOF, JOINT_NAMES

HELP = """Turn the policy's actions into joint setpoints at the rate of the driver's joint states.

Takes /requested_action, /joint_states and /safety/status; publishes /servo/setpoint (to the safety filter),
/executed_action and /gripper/command. Other names: -r /joint_states:=/ur/joint_states.
"""


@dataclass
class ServoNodeConfig:
    """Settings of the servo node."""

    tf_prefix: str = ""
    """What the driver puts before each of the arm's joint names."""
    action_age: float = 0.15
    """s that an action may be old by the stamp of the state it answers; an older one is refused."""
    joints_age: float = 0.1
    """s without joint states after which actions are refused."""
    status_age: float = 0.2
    """s without a word of the safety filter after which actions are refused."""
    alive_age: float = 0.04
    """s without a sign of life of the policy server, in the middle of a grasp, until the setpoint brakes."""
    action_timeout: float = 0.05
    """s at rest without a further action after which the end of the actions is reported."""
    realtime_priority: int = 0
    """Of the real-time scheduler; 0 leaves the usual one."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("action_age", "joints_age", "status_age", "alive_age", "action_timeout"):
            value = getattr(self, name)
            if not 0.0 < value <= 10.0:
                raise ValueError(f"{name}={value} must be above 0 and at most 10 s.")
        if not 0 <= self.realtime_priority <= MAX_PRIORITY:
            raise ValueError(f"realtime_priority={self.realtime_priority} must be from 0 to {MAX_PRIORITY}.")


class ServoNode:
    """Wires a `SetpointStream` to its topics."""

    def __init__(self, node: Node, config: ServoNodeConfig) -> None:
        self._node, self._config = node, config
        topics = Topics(tf_prefix=config.tf_prefix)
        self._read = MessageReader(topics)
        self._stream = SetpointStream(ACTION_SCALES["servo"])
        self._names = [config.tf_prefix + name for name in JOINT_NAMES]
        self._joints: np.ndarray | None = None
        self._status_at = self._rest_at = self._alive_at = self._acted_at = float("-inf")
        self._epoch, self._seeded = "", ""
        self._safety = Status.WAITING
        self._moving = False
        self._grasping = False
        self._refusal = self._unreadable = ""
        self._diagnostics = Diagnostics(node, "servo", "ur5e")
        self._setpoints = node.create_publisher(JointState, names.SETPOINT, NEWEST)
        self._executed = node.create_publisher(JointTrajectory, topics.executed_action, RELIABLE)
        self._gripper = node.create_publisher(JointState, names.GRIPPER_COMMAND, RELIABLE)
        self._newest = Newest(
            node, JointState, topics.joint_states, NEWEST, self._publish_setpoint, about=self._names[0]
        )
        self._setpoint = JointState(name=self._names)
        node.create_subscription(JointTrajectory, topics.requested_action, self._on_action, RELIABLE)
        node.create_subscription(DiagnosticStatus, names.SAFETY_STATUS, self._on_status, LATCHED)
        node.create_subscription(DiagnosticStatus, names.GRASP_STATUS, self._on_grasp, LATCHED)
        node.create_subscription(Empty, names.GRASP_ALIVE, self._on_alive, NEWEST)
        steady_timer(node, 0.02, self._watch)

    def _on_status(self, message: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in message.values}
        try:
            self._safety, self._epoch = Status[values["status"]], values["epoch"]
        except KeyError:
            return  # not of the safety filter
        self._status_at = time.monotonic()

    def _on_grasp(self, message: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in message.values}
        self._grasping = values.get("running") == "True" and values.get("shadow") != "True"

    def _on_alive(self, message: Empty) -> None:
        self._alive_at = time.monotonic()

    def _look(self) -> bool:
        """Read the newest joint state, unless it was read before or cannot be; whether it was read now."""
        try:
            message = self._newest.take()
            values = None if message is None else self._read.joints(message)
        except DemoError as error:
            self._unreadable = f"/joint_states: {error}"
            return False
        if values is None:
            return False
        self._unreadable = ""
        self._joints = np.asarray(values)[:DOF]
        return True

    def _publish_setpoint(self) -> None:
        """With each joint state of the driver; from the measured joints when the safety filter began anew."""
        # From this very joint state or from the next: an older one is from before the filter began anew, and
        # the arm would be led back to where it stood then.
        if self._epoch != self._seeded and self._look():
            assert self._joints is not None
            self._stream.reset(self._joints)
            self._seeded = self._epoch
        if not self._stream.ready:
            return
        now = self._newest.received
        alive_until = self._alive_at + self._config.alive_age
        if self._acted_at < alive_until < now:  # an action that came later is of somebody else
            self._stream.brake(now)
        positions, velocities = self._stream.at(now)
        message = self._setpoint
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.header.frame_id = self._seeded
        message.position, message.velocity = positions.tolist(), velocities.tolist()
        self._setpoints.publish(message)

    def _on_action(self, message: JointTrajectory) -> None:
        now = time.monotonic()
        self._look()
        try:
            why = self._why_not(message, now)
            if why:
                self._refusal = f"an action was refused: {why}"
                return
            assert self._joints is not None
            action = np.asarray(self._read.action(message))
            lasts = next(iter(message.points)).time_from_start
            period = lasts.sec + lasts.nanosec / NS
            done = self._stream.act(action, self._joints, now, period or None)
        except (DemoError, ContractError) as error:
            self._refusal = f"/requested_action: {error}"
            return
        self._acted_at = now
        self._rest_at, self._moving = now + (period or 1.0 / POLICY_RATE_HZ), True
        self._refusal = done.reason if done.status is ServoStatus.HOLD else ""
        self._executed.publish(action_message(done.action, message.header.stamp))
        self._gripper.publish(
            gripper_message(done.command.opening, done.command.force_limit, message.header.stamp)
        )

    def _why_not(self, message: JointTrajectory, now: float) -> str:
        """Why an action cannot be executed; empty where it can."""
        config = self._config
        if now - self._newest.received > config.joints_age:
            return f"no joint states for {min(now - self._newest.received, 9999.0):.2f} s"
        if self._joints is None or self._unreadable:
            return self._unreadable or "no joint state has been read yet"
        if now - self._status_at > config.status_age:
            return "the safety filter is silent: is its node alive?"
        if self._safety not in (Status.OK, Status.LIMITED):
            return f"the safety filter says {self._safety.name}: see /safety/status"
        if self._seeded != self._epoch:
            return "the servo has not restarted from the measured joints yet"
        age = (self._node.get_clock().now().nanoseconds - stamp_of(message, 0)) / NS
        if not -0.05 <= age <= config.action_age:
            return f"it answers a state of {age:.3f} s ago, at most {config.action_age:g} s"
        return ""

    def _watch(self) -> None:
        now = time.monotonic()
        if self._moving and now > self._rest_at + self._config.action_timeout:
            self._moving = False
        if now - self._newest.received > self._config.joints_age:
            line = self._unreadable or "no joint states: is the driver alive?"
            self._diagnostics.report(Level.ERROR, f"{line} The setpoint rests")
        elif now - self._status_at > self._config.status_age:
            self._diagnostics.report(
                Level.ERROR, "the safety filter is silent: is its node alive? Nothing reaches the driver"
            )
        elif self._refusal:
            self._diagnostics.report(Level.WARN, self._refusal)
        elif self._moving:
            self._diagnostics.report(Level.OK, "executing actions")
        elif self._grasping:
            self._diagnostics.report(
                Level.WARN, "the actions stopped in the middle of a grasp: is the policy server alive?"
            )
        else:
            self._diagnostics.report(Level.OK, "at rest, waiting for actions")


def run(node: Node, config: ServoNodeConfig) -> None:
    """Serve until ROS is shut down."""
    take_priority(node, config.realtime_priority)
    ServoNode(node, config)
    spin(node)


def main() -> int:
    """Entry point of the node."""
    return run_node("servo", ServoNodeConfig, run, HELP)


if __name__ == "__main__":
    sys.exit(main())
