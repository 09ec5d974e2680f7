"""The safety filter as a node: the only one that sends anything to the driver of the arm.

Once in every cycle of the driver, with each of its joint states, the filter makes one command of the newest
setpoint and what is known of the robot. Decisions are the filter's.

Without joint states nothing is sent: a driver that stalls takes only the last of the commands that came
meanwhile, which would be a jump; on the last command that it has, the arm stands. A velocity controller would
go on for ever, so that it is told to brake. When they are back, the arm may have been moved, and the driver
may be another, which would jump to the last command: it gets none until the filter starts from where the
arm is.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import Reason, Status
from grasp_control.arm.safety import SafetyFilter, Verdict
from grasp_demos.episode import DemoError
from grasp_demos.messages import MessageReader, stamp_of
from grasp_demos.topics import Topics
from grasp_ros import names, ur_status
from grasp_ros.command_record import CommandRecord
from grasp_ros.convert import NS
from grasp_ros.diagnostics import Diagnostics, Level, status_message
from grasp_ros.npz import unwritable
from grasp_ros.process import run_node
from grasp_ros.qos import LATCHED, NEWEST, RELIABLE
from grasp_ros.spin import MAX_PRIORITY, spin, steady_timer, take_priority
from grasp_sim.cli import require_choice
from grasp_sim.errors import UserError
from grasp_sim.ur5e import DOF, JOINT_NAMES

HELP = """Keep every command to the arm within its limits, and hold the arm still where there is any doubt.

Takes /servo/setpoint, /joint_states, /gripper/joint_states and the driver's status topics; publishes the
driver's commands, /safety/status and /diagnostics. Other names: -r /joint_states:=/ur/joint_states.
"""

OUTPUTS = {
    "position": "/forward_position_controller/commands",
    "velocity": "/forward_velocity_controller/commands",
    "trajectory": "/scaled_joint_trajectory_controller/joint_trajectory",
}
"""What the driver's controller takes, and the topic of such a controller of the Universal Robots driver."""
HEARTBEAT_S = 0.05
"""s after which the status is said again, whether it changed or not."""
RIVALS_S = 0.05
"""s between two looks for other nodes that command the arm."""
SILENCE_S = 0.01
"""s without joint states after which a timer brakes a velocity controller in their place."""

_NUMBERS = {status: number for number, status in enumerate(Status)}
_LEVELS = {
    Status.WAITING: Level.WARN,
    Status.RAMPING: Level.OK,
    Status.OK: Level.OK,
    Status.LIMITED: Level.WARN,
    Status.HOLD: Level.ERROR,
}


@dataclass
class SafetyNodeConfig:
    """Settings of the safety node."""

    output: str = "position"
    """What the driver's controller takes: 'position', 'velocity' or 'trajectory'."""
    controller: str = ""
    """Topic of the driver's controller; empty takes the Universal Robots driver's of that kind."""
    trajectory_rate: float = 25.0
    """Hz at which points are sent to a trajectory controller; each is to be reached after one such period."""
    tf_prefix: str = ""
    """What the driver puts before each of the arm's joint names."""
    realtime_priority: int = 0
    """Of the real-time scheduler; 0 leaves the usual one."""
    record: str = ""
    """npz file for every command and its time, written at the end (`command_record`); empty: none."""
    limits: SafetyConfig = field(default_factory=SafetyConfig)

    def __post_init__(self) -> None:
        """Check the choices and ranges."""
        require_choice("output", self.output, OUTPUTS)
        if not 1.0 <= self.trajectory_rate <= self.limits.rate_hz:
            raise ValueError(
                f"trajectory_rate={self.trajectory_rate} must be from 1 to"
                f" limits.rate_hz={self.limits.rate_hz}."
            )
        if self.record and (why := unwritable(Path(self.record))):
            raise ValueError(f"record={self.record}: {why}.")
        if not 0 <= self.realtime_priority <= MAX_PRIORITY:
            raise ValueError(f"realtime_priority={self.realtime_priority} must be from 0 to {MAX_PRIORITY}.")


class SafetyNode:
    """Wires a `SafetyFilter` to its topics."""

    def __init__(self, node: Node, config: SafetyNodeConfig) -> None:
        self._node, self._config = node, config
        topics = Topics(tf_prefix=config.tf_prefix)
        self._read = MessageReader(topics)
        self._filter = SafetyFilter(config.limits)
        self._names = [config.tf_prefix + name for name in JOINT_NAMES]
        self._period = 1.0 / config.limits.rate_hz
        self._heard = self._said_at = self._sent_at = float("-inf")
        self._said: tuple[Status, int, tuple[str, ...]] | None = None
        self._unreadable: dict[str, str] = {}
        self._stamp = self._rivals = 0
        self._joints = np.zeros(DOF)
        self._gap_epoch = -1
        """Of the filter, since joint states were missing last."""
        self.record = CommandRecord() if config.record else None
        self._diagnostics = Diagnostics(node, "safety", "ur5e")
        self._status = node.create_publisher(DiagnosticStatus, names.SAFETY_STATUS, LATCHED)
        controller = config.controller or OUTPUTS[config.output]
        kind = JointTrajectory if config.output == "trajectory" else Float64MultiArray
        self._driver = node.create_publisher(kind, controller, RELIABLE)
        node.create_subscription(JointState, topics.joint_states, self._on_joints, NEWEST)
        node.create_subscription(JointState, names.SETPOINT, self._on_setpoint, NEWEST)
        node.create_subscription(JointState, topics.gripper, self._on_gripper, NEWEST)
        node.create_subscription(Float64, ur_status.SPEED_SCALING, self._on_scaling, NEWEST)
        node.create_subscription(Bool, ur_status.PROGRAM_RUNNING, self._on_program, LATCHED)
        node.create_subscription(
            ur_status.SafetyModeMessage, ur_status.SAFETY_MODE, self._on_safety_mode, LATCHED
        )
        steady_timer(node, 0.5 * SILENCE_S, self._watch)
        steady_timer(node, RIVALS_S, self._look_for_rivals)
        self._stand_in = steady_timer(node, self._period, self._brake_unseen)
        self._stand_in.cancel()  # a running timer of that rate would take as long as the filter

    def _on_joints(self, message: JointState) -> None:
        now = time.monotonic()
        values = self._values("/joint_states", self._read.joints, message)
        if values is not None:
            self._filter.measured(values[:DOF], values[DOF:], stamp_age=self._age(message), now=now)
            self._joints = values[:DOF]
            self._stamp = message.header.stamp.sec * NS + message.header.stamp.nanosec
        elif "/joint_states" in self._unreadable:
            self._filter.measured(np.full(DOF, np.nan), stamp_age=0.0, now=now)  # so that the reason says so
        else:
            return  # of other joints: the arm's driver may stall all the while
        self._heard = now
        if self._rivals:
            self._yield(now)
        else:
            self._step(now)

    def _yield(self, now: float) -> None:
        """Two that command one arm would make it jump between them: send nothing, and to a velocity
        controller, which would go on, what both can agree on. The filter starts anew afterwards."""
        if self._config.output == "velocity":
            self._driver.publish(Float64MultiArray(data=[0.0] * DOF))
        reason = Reason("rival_commander", f"{self._rivals + 1} nodes publish {self._driver.topic_name}")
        self._say(Verdict(None, None, Status.HOLD, (reason,), self._filter.epoch), now)

    def _on_setpoint(self, message: JointState) -> None:
        values = self._values("/servo/setpoint", self._read.joints, message)
        if values is not None:
            epoch = message.header.frame_id
            self._filter.setpoint(
                values[:DOF],
                epoch=int(epoch) if epoch.isdecimal() and len(epoch) < 10 else -1,
                stamp_age=self._age(message),
                now=time.monotonic(),
            )

    def _on_gripper(self, message: JointState) -> None:
        values = self._values("/gripper/joint_states", self._read.gripper, message)
        if values is not None:
            self._filter.gripper(float(values[1]), stamp_age=self._age(message), now=time.monotonic())

    def _values(self, topic: str, read: Any, message: JointState) -> np.ndarray | None:
        """The message's numbers; None for one that is not about us, or cannot be used, which is said."""
        try:
            values = read(message)
        except DemoError as error:
            self._unreadable[topic] = str(error)
            return None
        if values is not None:
            self._unreadable.pop(topic, None)
        return None if values is None else np.asarray(values)

    def _on_scaling(self, message: Float64) -> None:
        self._filter.robot(speed_scaling=message.data)

    def _on_program(self, message: Bool) -> None:
        self._filter.robot(program_running=message.data)

    def _on_safety_mode(self, message: Any) -> None:
        moves = ur_status.mode_of(message) in (ur_status.SafetyMode.NORMAL, ur_status.SafetyMode.REDUCED)
        self._filter.robot(protective_stop=not moves)

    def _look_for_rivals(self) -> None:
        self._rivals = self._node.count_publishers(self._driver.topic_name) - 1

    def _watch(self) -> None:
        now = time.monotonic()
        silent = now - self._heard
        if self._config.output == "velocity" and silent > SILENCE_S:
            if self._stand_in.is_canceled():
                self._stand_in.reset()
        elif silent > self._config.limits.measured_max_age:
            self._say_silent(now)
        if silent <= SILENCE_S and not self._stand_in.is_canceled():
            self._stand_in.cancel()

    def _brake_unseen(self) -> None:
        now = time.monotonic()
        if now - self._heard > SILENCE_S and not self._rivals:
            self._step(now)

    def _say_silent(self, now: float) -> None:
        """Joint states are missing; the filter is not asked, since it would count on commands being sent."""
        reason = Reason("measured_stale", self._silence(now))
        self._say(Verdict(None, None, Status.HOLD, (reason,), self._filter.epoch), now)

    def _silence(self, now: float) -> str:
        if self._heard == float("-inf"):
            return "no joint states yet: is the driver alive, and the topic's name right?"
        return f"no joint states for {now - self._heard:.2f} s: is the driver alive? Nothing is sent"

    def _age(self, message: JointState) -> float:
        """s since the message's stamp; infinite for one that has none or an impossible one."""
        try:
            stamp = stamp_of(message, 0)
        except DemoError:
            return float("inf")
        return (self._node.get_clock().now().nanoseconds - stamp) / NS if stamp else float("inf")

    def _step(self, now: float) -> None:
        verdict = self._filter.step(now)
        self._send(verdict, now)
        self._say(verdict, now)

    def _send(self, verdict: Verdict, now: float) -> None:
        chosen = verdict.velocities if self._config.output == "velocity" else verdict.positions
        if chosen is None or self._leads_back(verdict):
            return
        if self._config.output != "trajectory":
            command = chosen.tolist()
            self._driver.publish(Float64MultiArray(data=command))
            if self.record is not None:
                sent = self._node.get_clock().now().nanoseconds
                self.record.add(self._stamp, sent, _NUMBERS[verdict.status], command)
        elif now - self._sent_at >= 1.0 / self._config.trajectory_rate - 0.5 * self._period:
            self._sent_at = now
            ahead = Duration(nanosec=round(NS / self._config.trajectory_rate))
            point = JointTrajectoryPoint(positions=chosen.tolist(), time_from_start=ahead)
            self._driver.publish(JointTrajectory(joint_names=self._names, points=[point]))

    def _leads_back(self, verdict: Verdict) -> bool:
        """Whether the arm was moved away from the last command while there were no joint states."""
        if any(reason.key == "cycle_gap" for reason in verdict.reasons):
            self._gap_epoch = verdict.epoch
        if verdict.epoch != self._gap_epoch or verdict.positions is None or self._config.output == "velocity":
            return False
        away = float(np.abs(verdict.positions - self._joints).max())
        return away > self._filter.moved

    def _say(self, verdict: Verdict, now: float) -> None:
        """The status when it changes and as a heartbeat; each intervention on /diagnostics."""
        said = (verdict.status, verdict.epoch, tuple(reason.key for reason in verdict.reasons))
        if said == self._said and now - self._said_at < HEARTBEAT_S:
            return
        self._said, self._said_at = said, now
        lines = [f"{reason.key}: {reason.text}" for reason in verdict.reasons]
        lines += [f"{topic}: {why}" for topic, why in self._unreadable.items()]
        message = "; ".join(lines) or verdict.status.value
        level, keys = _LEVELS[verdict.status], ",".join(said[2])
        values = {"status": verdict.status.name, "epoch": verdict.epoch, "reasons": keys}
        self._status.publish(status_message(level, "safety", message, "ur5e", **values))
        self._diagnostics.report(level, message, **values)


def run(node: Node, config: SafetyNodeConfig) -> None:
    """Serve until ROS is shut down."""
    take_priority(node, config.realtime_priority)
    safety = SafetyNode(node, config)
    try:
        spin(node)
    finally:
        if safety.record is not None:
            _save(safety.record, config.record)


def _save(record: CommandRecord, path: str) -> None:
    try:
        record.save(Path(path))
    except OSError as error:  # such as a full disk
        raise UserError(f"record={path} cannot be written: {error.strerror}") from error


def main() -> int:
    """Entry point of the node."""
    return run_node("safety", SafetyNodeConfig, run, HELP)


if __name__ == "__main__":
    sys.exit(main())
