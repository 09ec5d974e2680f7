"""A policy bundle as a lifecycle node: what is measured in, the policy's actions out, 20 times a second.

Configure loads the bundle and refuses one that was not made for this robot. Active, it performs a grasp when
it is asked to (`~/start`, or the Grasp action where grasp_msgs is installed), and stops on any doubt: without
further actions the servo comes to rest within one policy step. In shadow mode it computes and says what it
would do, and commands nothing.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped, Vector3Stamped
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from grasp_control.arm.assembler import MaximumAges, NotReady, StateAssembler
from grasp_control.arm.reasons import Status
from grasp_control.arm.runner import GraspConfig, GraspRunner, Outcome, Progress
from grasp_control.arm.setpoints import SLOWEST
from grasp_control.bundle import load_bundle
from grasp_control.manifest import BundleError, Expectation
from grasp_demos.episode import DemoError
from grasp_demos.messages import MessageReader, stamp_of
from grasp_demos.topics import Topics
from grasp_ros import names
from grasp_ros.convert import action_message, time_message
from grasp_ros.diagnostics import Diagnostics, Level, status_message
from grasp_ros.grasp_action import offer_grasp_action
from grasp_ros.newest import Newest
from grasp_ros.process import run_node
from grasp_ros.qos import LATCHED, NEWEST, RELIABLE
from grasp_ros.spin import spin, steady_timer
from grasp_sim.contract import POLICY_RATE_HZ, ContractError
from grasp_sim.env import HOLD
from grasp_sim.ur5e import JOINT_NAMES

HELP = """Serve a policy bundle: compute an action 20 times a second while a grasp is asked for.

A lifecycle node; with autostart:=true it configures and activates itself. Begin a grasp with
  ros2 service call /policy_server/start std_srvs/srv/Trigger
or the action /grasp, and stop it with /policy_server/stop. shadow:=true computes and says what it would do,
and commands nothing.
"""

WATCH_S = 0.01
"""s between two looks at what came in."""
PATIENCE_S = 0.05
"""s that a policy step waits for the servo's word; the arm rests meanwhile."""
LOG_S = 1.0
"""s between two lines in the log of messages that cannot be read, however many come."""
SHADOW = "/shadow"
"""Put before the topic of the actions in shadow mode."""


@dataclass
class PolicyServerConfig:
    """Settings of the policy server."""

    bundle: str
    """Folder of the policy bundle that grasp-distill or grasp-train wrote."""
    shadow: bool = False
    """Compute, and publish the actions on /shadow/requested_action, which nothing obeys."""
    speed: float = 1.0
    """Share of the speed of training: at 0.3 every policy step takes 1 / 0.3 times as long, and the arm moves
    that much slower on the same path. For the first runs on a real arm."""
    autostart: bool = False
    """Configure and activate at once, instead of waiting for a lifecycle manager."""
    base_frame: str = "base_link"
    """Frame that the object's pose must be given in."""
    tf_prefix: str = ""
    """What the driver puts before each of the arm's joint names."""
    object_size: list[float] = field(default_factory=list)
    """m, extents of the object along its axes, where nothing publishes them: [x, y, z]."""
    object_symmetry: int = 4
    """How often the object looks the same in a turn about the vertical: 4 for a square block, 2 for a box, 1
    for anything, 0 for what is round."""
    status_age: float = 0.2
    """s without a word of the safety filter after which a grasp stops."""
    max_age: MaximumAges = field(default_factory=MaximumAges)
    grasp: GraspConfig = field(default_factory=GraspConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        size = self.object_size
        if size and not (len(size) == 3 and all(0.0 < value < 1.0 for value in size)):
            raise ValueError(f"object_size={size} must be three lengths in m, each above 0 and below 1.")
        if not 0.0 < self.status_age <= 10.0:
            raise ValueError(f"status_age={self.status_age} must be above 0 and at most 10 s.")
        if not 1.0 / SLOWEST <= self.speed <= 1.0:
            raise ValueError(f"speed={self.speed} must be from {1.0 / SLOWEST:g} to 1.")
        if not 0 <= self.object_symmetry <= 1000:
            raise ValueError(f"object_symmetry={self.object_symmetry} must be from 0 to 1000.")


class PolicyServer(LifecycleNode):
    """The node. `take` gives it its settings before anything else happens."""

    def take(self, config: PolicyServerConfig) -> None:
        """Settings are declared by `run_node` once the node is there."""
        self._config = config
        self._period = 1.0 / (POLICY_RATE_HZ * config.speed)
        self._runner: GraspRunner | None = None
        self._active = False
        self._safety: Status | None = None
        self._safety_at = float("-inf")
        self._safety_says = ""
        self._requested = 0
        """ns, stamp of the last action."""
        self._executed: tuple[int, np.ndarray] | None = None
        self._diagnostics = Diagnostics(self, "policy", "ur5e")
        # Not a lifecycle publisher: that a grasp was ended by deactivation is said after it.
        self._status = Node.create_publisher(self, DiagnosticStatus, names.GRASP_STATUS, LATCHED)
        self._alive = Node.create_publisher(self, Empty, names.GRASP_ALIVE, NEWEST)
        self._read = MessageReader(Topics(base_frame=config.base_frame, tf_prefix=config.tf_prefix))
        self._inputs: list[Any] = []
        self._sources: list[tuple[str, Newest, Any, Any]] = []
        self.create_service(Trigger, "~/start", self._on_start)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self._due = 0.0
        """s of the monotonic clock, when the next policy step is due."""
        self._timer = steady_timer(self, WATCH_S, self._watch)

    # ---- lifecycle

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the bundle, and listen."""
        config = self._config
        try:
            policy = load_bundle(config.bundle, expect=Expectation())
        except BundleError as error:
            for line in str(error).splitlines():
                self.get_logger().error(line)
            self._diagnostics.report(Level.ERROR, f"the bundle was refused: {str(error).splitlines()[0]}")
            return TransitionCallbackReturn.FAILURE
        self._runner = GraspRunner(policy, config.grasp, self._period)
        self._assembler = StateAssembler(config.max_age, config.object_symmetry)
        if config.object_size:
            self._assembler.object_size(config.object_size)
        t = self._read.topics
        listen = self.create_subscription
        take, read = self._assembler, self._read
        arm = t.tf_prefix + JOINT_NAMES[0]
        joints = Newest(self, JointState, t.joint_states, NEWEST, about=arm)
        self._sources = [
            ("joints", joints, read.joints, take.joints),
            ("gripper", Newest(self, JointState, t.gripper, NEWEST), read.gripper, take.gripper),
            ("object_pose", Newest(self, PoseStamped, t.object_pose, NEWEST), read.pose, take.object_pose),
        ]
        self._inputs = [
            *(newest.subscription for _, newest, _, _ in self._sources),
            listen(Vector3Stamped, t.object_size, self._on_size, LATCHED),
            listen(JointTrajectory, t.executed_action, self._on_executed, RELIABLE),
            listen(DiagnosticStatus, names.SAFETY_STATUS, self._on_safety, LATCHED),
        ]
        topic = (SHADOW if config.shadow else "") + t.requested_action
        self._actions = Node.create_publisher(self, JointTrajectory, topic, RELIABLE)
        manifest = policy.manifest
        self.get_logger().info(
            f"{config.bundle}: {manifest.task}, {manifest.runs}, success"
            f" {manifest.success.get('success_rate', float('nan')):.0%} in simulation"
        )
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Grasp from now on when asked to."""
        self._active = True
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop, and grasp no more."""
        self._active = False
        self._stop(Outcome.CANCELLED, "the policy server was deactivated")
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of the bundle."""
        self._release()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop for good."""
        self._active = False
        self._stop(Outcome.CANCELLED, "the policy server was shut down")
        self._release()
        return TransitionCallbackReturn.SUCCESS

    def _release(self) -> None:
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        if self._inputs:
            self.destroy_publisher(self._actions)
        self._inputs, self._sources, self._runner = [], [], None

    # ---- what is measured

    def _look(self) -> tuple[int, float]:
        """Take in the newest of every source; returns this moment: ns of the node's clock, monotonic s."""
        for source, newest, read, take in self._sources:
            try:
                message = newest.take()
                if message is None:
                    continue
                values = read(message)
                if values is not None:
                    take(values, stamp=stamp_of(message, 0), received=newest.received)
            except DemoError as error:
                self._assembler.refuse(source, str(error))
        return self.get_clock().now().nanoseconds, time.monotonic()

    def _on_size(self, message: Vector3Stamped) -> None:
        try:
            self._assembler.object_size(np.asarray(self._read.size(message)))
        except DemoError as error:
            self.get_logger().error(f"/object_size: {error}", throttle_duration_sec=LOG_S)

    def _on_executed(self, message: JointTrajectory) -> None:
        try:
            self._executed = (stamp_of(message, 0), np.asarray(self._read.action(message), np.float32))
        except DemoError as error:
            self.get_logger().error(f"/executed_action: {error}", throttle_duration_sec=LOG_S)

    def _on_safety(self, message: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in message.values}
        if values.get("status") in Status.__members__:
            self._safety, self._safety_at = Status[values["status"]], time.monotonic()
            self._safety_says = message.message

    # ---- a grasp

    @property
    def progress(self) -> Progress:
        """How the present or the last grasp stands."""
        return self._runner.progress if self._runner else Progress(False, Outcome.NONE, "no bundle is loaded")

    def begin(self) -> str:
        """Begin a grasp; why not, where it cannot begin."""
        if not self._active or self._runner is None:
            return "the policy server is not active: configure and activate it"
        if self._runner.progress.running:
            return "a grasp is running: stop it first"
        if not self._config.shadow:
            why = self._not_safe()
            if why:
                return why
        try:
            clock, now = self._look()
            state = self._assembler.assemble(clock=clock, now=now)
            action = self._runner.begin(state)
        except (NotReady, ContractError, BundleError) as error:
            return str(error)
        self._timer.reset()  # steps fall on its beats
        self._due = now + self._period
        self._publish(action, clock)
        self._say()
        return ""

    def cancel(self, why: str) -> None:
        """End a running grasp."""
        self._stop(Outcome.CANCELLED, why)

    def _on_start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        why = self.begin()
        begun = "the grasp has begun: see /grasp/status"
        if self._config.shadow:
            begun = f"shadow mode, nothing is commanded: see {SHADOW}/requested_action; {self._filter_says()}"
        response.success, response.message = not why, why or begun
        return response

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = self.progress.running
        response.message = "stopped" if response.success else "no grasp was running"
        self.cancel("stopped by ~/stop")
        return response

    def _filter_says(self) -> str:
        return self._not_safe() or "the safety filter would let the arm move"

    def _not_safe(self) -> str:
        """Why the arm is not ready for actions; empty where it is."""
        silent = time.monotonic() - self._safety_at
        if silent > self._config.status_age:
            return "the safety filter is silent: is its node alive?"
        if self._safety not in (Status.OK, Status.LIMITED):
            return f"the safety filter says: {self._safety_says}"
        return ""

    def _watch(self) -> None:
        """Take in what came, stop on any doubt, and make a policy step where one is due."""
        runner = self._runner
        if runner is None:
            return
        clock, now = self._look()
        problems = self._assembler.problems(clock=clock, now=now)
        if not runner.progress.running:
            self._say_ready(problems)
            return
        if not self._config.shadow:
            self._alive.publish(Empty())
        if problems:
            self._stop(Outcome.STOPPED, "; ".join(problems))
        elif not self._config.shadow and (why := self._not_safe()):
            self._stop(Outcome.STOPPED, why)
        elif now > self._due - 0.5 * WATCH_S:
            self._step(runner, clock, now)

    def _step(self, runner: GraspRunner, clock: int, now: float) -> None:
        """One policy step, once the servo has said that it has executed the last one."""
        executed = self._executed_action()
        if executed is None:
            if now > self._due + PATIENCE_S:
                self._stop(Outcome.STOPPED, "the servo did not execute the last action: see /diagnostics")
            return
        self._due = max(self._due + self._period, now)
        try:
            action = runner.step(self._assembler.assemble(clock=clock, now=now), executed)
        except (NotReady, ContractError, BundleError) as error:
            self._stop(Outcome.STOPPED, str(error))
            return
        if action is not None:
            self._publish(action, clock)
        self._say()

    def _executed_action(self) -> np.ndarray | None:
        """What was sent to the arm since the last step; None where the servo has not said so."""
        if self._config.shadow:
            return HOLD
        if self._executed is not None and self._executed[0] == self._requested:
            return self._executed[1]
        return None

    def _say_ready(self, problems: list[str]) -> None:
        if not self._active:
            return
        if problems:
            self._diagnostics.report(Level.WARN, "; ".join(problems))
            return
        last = self.progress
        stopped = f"; the last grasp stopped: {last.message}" if last.outcome is Outcome.STOPPED else ""
        self._diagnostics.report(Level.OK, f"ready{stopped}")

    def _stop(self, outcome: Outcome, why: str) -> None:
        if self._runner is not None and self._runner.progress.running:
            self._runner.stop(outcome, why)
            self._say()

    def _publish(self, action: np.ndarray, clock: int) -> None:
        self._requested = clock
        self._actions.publish(action_message(action, time_message(clock), self._period))

    def _say(self) -> None:
        progress = self.progress
        stopped = progress.outcome is Outcome.STOPPED
        level = Level.ERROR if stopped and not progress.running else Level.OK
        line = progress.message or f"grasping: {progress.phase}"
        values = {name: getattr(progress, name) for name in progress._fields if name != "message"}
        values |= {"outcome": progress.outcome.value, "shadow": self._config.shadow}
        self._status.publish(status_message(level, "grasp", line, "ur5e", **values))
        self._diagnostics.report(level, line)


def run(node: Node, config: PolicyServerConfig) -> None:
    """Serve until ROS is shut down."""
    assert isinstance(node, PolicyServer)
    node.take(config)
    if not config.autostart:
        node.get_logger().info(
            "waiting to be configured and activated (ros2 lifecycle set, or start it with autostart:=true)"
        )
    elif node.trigger_configure() is TransitionCallbackReturn.SUCCESS:
        node.trigger_activate()
    action = offer_grasp_action(node, node)
    try:
        spin(node)
    finally:
        if action is not None:
            action.close()


def main() -> int:
    """Entry point of the node."""
    return run_node("policy_server", PolicyServerConfig, run, HELP, node_class=PolicyServer)


if __name__ == "__main__":
    sys.exit(main())
