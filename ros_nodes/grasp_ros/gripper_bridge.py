"""The gripper in metres and newtons, whatever its driver speaks; decisions are in `grasp_control.arm`."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from sensor_msgs.msg import JointState

from grasp_control.arm.grip import GripLimiter, GripLimits
from grasp_control.arm.gripper import CommandPacer, FingerUnits, Grip, GripForce, GripPace
from grasp_demos.episode import DemoError
from grasp_demos.messages import stamp_of
from grasp_demos.topics import Topics
from grasp_ros import names
from grasp_ros.convert import GRIPPER_JOINT, NS, gripper_message
from grasp_ros.diagnostics import Diagnostics, Level
from grasp_ros.gripper_driver import INTERFACES, TOPIC, open_driver
from grasp_ros.newest import Newest
from grasp_ros.process import run_node
from grasp_ros.qos import RELIABLE, heard_from_all
from grasp_ros.spin import spin

HELP = """Give the gripper in metres and newtons, whatever its driver speaks.

Reads the finger joint out of `/joint_states` and publishes `/gripper/joint_states`; takes `/gripper/command`
and sends it to the driver, at most 15 times a second. Where the driver's state stops, it publishes nothing,
so that whoever needs the gripper notices, sends nothing either, and says why on `/diagnostics`.
"""
SHOWN_S = 1.0
"""s for which something that happened once stays in the diagnostics."""
AHEAD_S = 0.1
"""s that a stamp may lie in the future: clocks of two machines."""


@dataclass
class GripperBridgeConfig:
    """Settings of the gripper bridge."""

    joint_states: str = Topics.joint_states
    """Topic of the driver's sensor_msgs/JointState with the finger joint among its joints."""
    finger_joint: str = "finger_joint"
    """Name of that joint."""
    gripper: str = Topics.gripper
    """Topic written: sensor_msgs/JointState of the joint gripper_opening: position is the opening in m,
    effort the grip force in N, stamped as the driver stamped it."""
    gripper_command: str = names.GRIPPER_COMMAND
    """Topic read: the same form; effort is the force limit in N."""
    interface: str = TOPIC
    """How the driver takes commands: topic, parallel_gripper_command or gripper_command (actions of
    control_msgs)."""
    driver_topic: str = "/robotiq_gripper_controller/commands"
    """Where commands go as a topic: std_msgs/Float64MultiArray [finger joint (rad), force (N)]."""
    driver_action: str = "/robotiq_gripper_controller/gripper_cmd"
    """Where commands go as an action."""
    state_rate: float = 100.0
    """Hz at which the gripper's state is published, or the driver's if that is less."""
    state_age: float = 0.2
    """s without a state of the finger joint after which the driver counts as silent."""
    units: FingerUnits = field(default_factory=FingerUnits)
    """What the driver's numbers mean."""
    limits: GripLimits = field(default_factory=GripLimits)
    """What may be asked of the gripper."""
    pace: GripPace = field(default_factory=GripPace)
    """How often the driver is commanded."""

    def __post_init__(self) -> None:
        if self.interface not in INTERFACES:
            raise ValueError(f"interface={self.interface!r}: it must be one of {', '.join(INTERFACES)}.")
        if not 1.0 <= self.state_rate <= 1000.0:
            raise ValueError(f"state_rate={self.state_rate} must be from 1 to 1000 Hz.")
        if not 0.0 < self.state_age < math.inf:
            raise ValueError(f"state_age={self.state_age}: it must be above 0 s.")
        if self.limits.opening_max > self.units.stroke:
            raise ValueError(
                f"limits.opening_max={self.limits.opening_max} is more than units.stroke={self.units.stroke}."
            )


class GripperBridge:
    """Wires what `grasp_control.arm` knows of grippers to topics."""

    def __init__(self, node: Node, config: GripperBridgeConfig) -> None:
        self._node, self._config = node, config
        self._pacer = CommandPacer(config.pace)
        self._limiter = GripLimiter(config.limits)
        self._force = GripForce()
        self._started = time.monotonic()
        self._state_at: float | None = None  # the last usable state was received
        self._heard: list[str] | None = None  # joints of the last message on joint_states
        self._values: dict[str, float] = {}
        self._events: dict[str, tuple[float, str]] = {}  # what happened once: shown until, text
        self._state_fault = ""
        self._rivals = 0
        self._diagnostics = Diagnostics(node, "gripper", "")
        self._driver = open_driver(
            node,
            config.interface,
            config.driver_topic,
            config.driver_action,
            config.finger_joint,
            self._on_refused,
        )
        self._publisher = node.create_publisher(JointState, config.gripper, RELIABLE)
        self._newest = Newest(node, JointState, config.joint_states, heard_from_all(10), self._on_arrival)
        # Reliable, since the last command must arrive; whoever offers less is named.
        mismatch = SubscriptionEventCallbacks(incompatible_qos=self._on_incompatible)
        node.create_subscription(
            JointState, config.gripper_command, self._on_command, RELIABLE, event_callbacks=mismatch
        )
        self._timer = node.create_timer(0.1, self._report, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _on_arrival(self) -> None:
        """Look at the finger joint as often as its state is published, and not 500 times a second."""
        now = self._newest.received
        early = self._state_at is not None and now - self._state_at < 0.9 / self._config.state_rate
        if early or (self._state_at is not None and not self._newest.holds(self._config.finger_joint)):
            return
        try:
            message = self._newest.take()
        except DemoError as error:
            self._state_fault = f"cannot be read: {error}"
            return
        if message is not None:
            self._on_states(message, now)

    def _on_states(self, message: JointState, now: float) -> None:
        self._heard = list(message.name)
        if self._config.finger_joint not in self._heard:
            return  # another broadcaster's joints; missed for too long, `_report` says so
        k = self._heard.index(self._config.finger_joint)
        position = message.position[k] if k < len(message.position) else math.nan
        self._state_fault = self._config.units.fault(position)
        if self._state_fault:
            return
        opening = self._config.units.opening(position)
        if self._state_at is not None and now - self._state_at > self._config.state_age:
            self._pacer.forget()
        self._state_at = now
        effort = message.effort[k] if k < len(message.effort) else math.nan
        force = self._config.units.force(effort)
        estimate = self._force.estimate(opening, now)
        self._values = {"opening_m": opening, "force_N": estimate if force is None else force}
        if self._rivals:
            self._pacer.forget()  # whatever the gripper has now is of somebody else
            return
        self._publisher.publish(gripper_message(opening, self._values["force_N"], message.header.stamp))
        self._send(now)

    def _on_command(self, message: JointState) -> None:
        now = time.monotonic()
        if list(message.name) != [GRIPPER_JOINT] or len(message.position) != 1 or len(message.effort) != 1:
            self._happened(
                "command",
                f"a command on {self._config.gripper_command} is refused: it must have the one joint"
                f" {GRIPPER_JOINT} with its position (m) and effort (N); it has {list(message.name)[:8]},"
                f" {len(message.position)} positions and {len(message.effort)} efforts",
            )
            return
        if (age := self._age(message)) is not None and not -AHEAD_S <= age <= self._config.pace.command_age:
            limit = self._config.pace.command_age
            self._happened(
                "command",
                f"a command on {self._config.gripper_command} is refused: its stamp is {age:.3f} s old (from"
                f" {-AHEAD_S:g} to {limit:g} s is taken); does its sender's clock agree with this machine's?",
            )
            return
        opening, force = message.position[0], message.effort[0]
        command = self._limiter.limit(opening, force)
        if not (math.isfinite(opening) and math.isfinite(force)):
            self._happened("command", f"opening {opening} m, force {force} N is refused: both must be finite")
            return
        if command is not None:
            if command.reason is not None:
                self._happened("limits", command.reason.text)
            self._pacer.offer(Grip(command.opening, command.force), now)
            self._send(now)

    def _age(self, message: JointState) -> float | None:
        """s since the message was stamped, infinite for an impossible stamp; None of a message without one,
        such as a person types."""
        try:
            stamp = stamp_of(message, 0)
        except DemoError:
            return math.inf
        return (self._node.get_clock().now().nanoseconds - stamp) / NS if stamp else None

    def _send(self, now: float) -> None:
        """Send what is due, while the driver shows that it lives and listens."""
        if self._rivals or self._silent(now) or not self._driver.listens():
            return
        command = self._pacer.due(now)
        if command is not None:
            self._driver.send(self._config.units.position(command.opening), command.force)
            self._force.commanded(command)

    def _silent(self, now: float) -> bool:
        return self._state_at is None or now - self._state_at > self._config.state_age

    def _happened(self, key: str, text: str) -> None:
        self._events[key] = (time.monotonic() + SHOWN_S, text)
        self._report()

    def _on_refused(self, why: str) -> None:
        self._pacer.refused()
        self._happened("driver", why)

    def _on_incompatible(self, event: object) -> None:
        self._happened(
            "qos",
            f"a publisher of {self._config.gripper_command} offers less than reliable delivery and is not"
            " heard; let it publish reliably",
        )

    def _report(self) -> None:
        now = time.monotonic()
        self._rivals = self._driver.rivals()
        self._events = {key: event for key, event in self._events.items() if event[0] > now}
        silence = self._silence(now)
        said = [silence] if silence else []
        level = Level.ERROR if silence else Level.OK
        if not silence and self._pacer.waits(now) and not self._driver.listens():
            said.append(f"nobody listens on {self._driver.name}; the gripper gets no commands")
            level = Level.ERROR
        if (senders := self._node.count_publishers(self._config.gripper_command)) > 1:
            said.append(f"{senders} nodes publish {self._config.gripper_command}; only one may")
            level = max(level, Level.WARN)
        if self._events:
            said += [text for _, text in self._events.values()]
            level = max(level, Level.WARN)
        self._diagnostics.report(level, "; ".join(said) or "the gripper answers", **self._values)

    def _silence(self, now: float) -> str:
        """Why there is no state to publish, or ""."""
        config = self._config
        if self._rivals > 0:
            return (
                f"{self._rivals + 1} nodes publish {self._driver.name}, and twice as many commands lock the"
                " gripper's driver up; nothing is published or sent until the other one has ended"
            )
        if not self._silent(now):
            return ""
        if self._state_at is None and now - self._started < config.state_age:
            return ""
        if self._state_fault:
            return f"{config.finger_joint} on {config.joint_states} {self._state_fault}"
        if self._heard is None:
            return f"no message on {config.joint_states} yet; is the robot's driver running?"
        if self._state_at is None:
            return (
                f"{config.finger_joint} is not on {config.joint_states}, which has"
                f" {', '.join(self._heard[:12])}; is that its name, and does the gripper's driver run?"
            )
        return (
            f"the last state of {config.finger_joint} on {config.joint_states} came"
            f" {now - self._state_at:.2f} s ago (limit {config.state_age:g} s); nothing is published or sent"
            " until its driver is back"
        )


def run(node: Node, config: GripperBridgeConfig) -> None:
    """Bridge until ROS is shut down."""
    GripperBridge(node, config)
    spin(node)


def main() -> int:
    """Entry point of the node."""
    return run_node("gripper_bridge", GripperBridgeConfig, run, HELP)


if __name__ == "__main__":
    sys.exit(main())
