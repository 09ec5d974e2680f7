"""A simulated robot behind the topics of a UR driver, a gripper's driver and perception, in real time.

Messages go to `grasp_sim.driver.Driver`, what it makes of them to `grasp_sim.driven.DrivenSimulation`, and
the state of that to messages. One thread does all of it: commands that arrive during a cycle act in the next.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from geometry_msgs.msg import PoseStamped, Vector3Stamped
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.time import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray, String
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from grasp_demos.topics import Topics
from grasp_ros import ur_status
from grasp_ros.process import run_node
from grasp_ros.sim_record import SimRecord
from grasp_ros.ur_status import LATCHED, RobotMode, SafetyMode
from grasp_sim import registry
from grasp_sim.cli import require_choice
from grasp_sim.contract import pack_state
from grasp_sim.controllers import TrajectoryPoint
from grasp_sim.driven import RATES, DrivenSimulation
from grasp_sim.driver import CONTROLLERS, TRAJECTORY, Driver, finger_of, opening_of
from grasp_sim.errors import UserError
from grasp_sim.ur5e import JOINT_NAMES

GRIPPER_COMMANDS = "/robotiq_gripper_controller/commands"
OUTCOME, FAULTS = "/sim/outcome", "/sim/faults"
FINGER = "finger_joint"
NAMES = (*JOINT_NAMES, FINGER)
ALPHABETICAL = sorted(range(len(NAMES)), key=NAMES.__getitem__)
"""The order in which the joints are published: elbow first, the finger second."""

OBJECT_RATE, STATUS_RATE = 30.0, 10.0
"""Hz of the object's pose, and of the speed scaling."""
RESTART = 0.3
"""s that the program is stopped between two episodes."""
ZEROS = 0.2
"""s of joint states of zeros from a driver that is not connected yet."""
CATCH_UP = 3
"""Cycles that a late simulation makes up for at once; beyond, time is left out."""
OLD = 1.0
"""s by which the injected fault makes stamps old."""
INJECTED = (
    "joint_states_stop",
    "joint_states_nan",
    "joint_states_missing",
    "joint_states_old",
    "object_pose_stop",
    "driver_pause",
)
"""Faults, each a std_srvs/SetBool service below `~/inject/`: no joint states, NaN in the elbow's position, no
elbow, stamps from the past, no object pose, a driver that neither moves nor publishes."""

HELP = """A simulated UR5e with a gripper and an object, behind the topics of the real drivers.

Commands act while the program runs. Services: ~/reset brings a new object, and the arm back to its start;
~/protective_stop and ~/resume; ~/save_record writes what parameter `record` names; ~/inject/<fault> with a
SetBool. Subscribe to /sim/outcome for what became of the episode and /sim/faults for what stopped the robot.

Example: sim_robot --ros-args -p env:=pybullet-lift -p rate:=500"""


@dataclass
class SimRobotConfig:
    """The simulated robot."""

    env: str = "pybullet-lift"
    """Registered environment, <simulator>-<task>."""
    rate: int = 500
    """Hz of the driver's cycle and of the joint states: 125 (CB3) or 500 (e-Series)."""
    controller: str = CONTROLLERS[0]
    """The active controller; commands to the others are ignored, as those to inactive controllers are."""
    seed: int = 0
    """Of the first episode; each reset takes the next number. An environment reset with it is the same."""
    speed_slider: float = 100.0
    """Percent, what a person set on the teach pendant; trajectories run that much slower."""
    zeros_first: bool = False
    """Publish joint states of zeros for 0.2 s, as a driver does that is not connected yet."""
    record: str = ""
    """npz file for the commands and states of every cycle, written at the end; empty: none."""

    def __post_init__(self) -> None:
        """Check names and ranges."""
        require_choice("env", self.env, registry.names())
        require_choice("controller", self.controller, CONTROLLERS)
        if self.rate not in RATES:
            raise ValueError(f"rate={self.rate} must be {RATES[0]} or {RATES[1]}.")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} must be from 0 to {2**31 - 1}.")
        if not 0.0 < self.speed_slider <= 100.0:
            raise ValueError(f"speed_slider={self.speed_slider} must be above 0 and at most 100 percent.")
        if self.record and not Path(self.record).resolve().parent.is_dir():
            raise ValueError(f"record={self.record}: there is no folder for it.")


class SimRobot:
    """The robot; `run` keeps it going until ROS is shut down."""

    def __init__(self, node: Node, config: SimRobotConfig) -> None:
        self._node, self._config = node, config
        self._simulation = DrivenSimulation(config.env, config.rate)
        self._driver = Driver(config.controller, self._simulation.period)
        self._driver.speed_slider = config.speed_slider / 100.0
        self._record = SimRecord() if config.record else None
        self._injected = dict.fromkeys(INJECTED, False)
        self._episode, self._cycles = -1, 0
        self._restart_in = 0
        self._overruns = 0
        self._said: dict[str, Any] = {}
        self._joint_states = JointState(name=[NAMES[k] for k in ALPHABETICAL])
        self._advertise()
        self._subscribe()
        self._begin_episode()

    # ---- topics

    def _advertise(self) -> None:
        make, reliable, topics = self._node.create_publisher, QoSProfile(depth=10), Topics()
        self._frame = topics.base_frame
        self._arm = make(JointState, topics.joint_states, reliable)
        self._pose = make(PoseStamped, topics.object_pose, reliable)
        self._size = make(Vector3Stamped, topics.object_size, LATCHED)
        self._scaling = make(Float64, ur_status.SPEED_SCALING, reliable)
        self._running = make(Bool, ur_status.PROGRAM_RUNNING, LATCHED)
        self._robot_mode = make(ur_status.RobotModeMessage, ur_status.ROBOT_MODE, LATCHED)
        self._safety_mode = make(ur_status.SafetyModeMessage, ur_status.SAFETY_MODE, LATCHED)
        self._outcome = make(String, OUTCOME, LATCHED)
        self._faults = make(String, FAULTS, QoSProfile(depth=100))

    def _subscribe(self) -> None:
        subscribe, depth = self._node.create_subscription, QoSProfile(depth=10)
        for name in CONTROLLERS:
            active = name == self._config.controller  # the others are there and take no command
            if name == TRAJECTORY:
                take, kind, topic = self._on_trajectory, JointTrajectory, f"/{name}/joint_trajectory"
            else:
                take, kind, topic = self._on_command, Float64MultiArray, f"/{name}/commands"
            subscribe(kind, topic, take if active else _ignore, depth)
        subscribe(Float64MultiArray, GRIPPER_COMMANDS, self._on_gripper, depth)
        for service, act in (
            ("reset", self._begin_episode),
            ("protective_stop", self._driver.stop),
            ("resume", self._driver.resume),
            ("save_record", self._save_record),
        ):
            self._node.create_service(Trigger, f"~/{service}", _answering(act))
        for fault in INJECTED:
            self._node.create_service(SetBool, f"~/inject/{fault}", self._injecting(fault))

    def _on_command(self, message: Float64MultiArray) -> None:
        assert self._driver.forward
        values = message.data.tolist()
        if not self._refused(self._driver.forward.accept(values)) and self._record:
            self._record.command(time.monotonic(), values)

    def _on_trajectory(self, message: JointTrajectory) -> None:
        assert self._driver.trajectory
        points = [
            TrajectoryPoint(_seconds(p.time_from_start), p.positions.tolist(), p.velocities.tolist())
            for p in message.points
        ]
        begin = _seconds(message.header.stamp)  # zero: at once
        begin -= self._now() * 1e-9 if begin else 0.0
        refused = self._driver.trajectory.accept(message.joint_names, points, begin)
        if not self._refused(refused) and self._record:
            order = [message.joint_names.index(name) for name in JOINT_NAMES]
            for point in points:
                values = [point.positions[k] for k in order]
                self._record.command(time.monotonic(), values, begin + point.time)

    def _on_gripper(self, message: Float64MultiArray) -> None:
        values, now = message.data.tolist(), time.monotonic()
        if not self._refused(self._driver.command_gripper(values, now)) and self._record:
            self._record.gripper(now, values)

    def _refused(self, reason: str) -> str:
        if reason:
            self._node.get_logger().error(reason, throttle_duration_sec=1.0)
        return reason

    def _injecting(self, fault: str) -> Any:
        def answer(request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
            self._injected[fault] = request.data
            response.success = True
            return response

        return answer

    # ---- episodes

    def _begin_episode(self) -> None:
        self._episode += 1
        state = self._simulation.reset(self._config.seed + self._episode)
        self._driver.place(state.joint_positions)
        self._restart_in = round(RESTART / self._simulation.period)
        if self._record:
            self._record.episode(self._simulation.outcome.seed)
        size = Vector3Stamped()
        size.header.frame_id, size.header.stamp = self._frame, self._node.get_clock().now().to_msg()
        size.vector.x, size.vector.y, size.vector.z = state.object_size.tolist()
        self._size.publish(size)

    def _save_record(self) -> None:
        if self._record is None:
            raise UserError("nothing is recorded: start with the parameter record=FILE.npz")
        self._record.overruns = self._overruns
        self._record.save(Path(self._config.record))

    # ---- cycles

    def run(self) -> None:
        """Cycle in real time until ROS is shut down, then write the record."""
        executor = EventsExecutor(context=self._node.context)
        executor.add_node(self._node)
        period = self._simulation.period
        due = time.monotonic()
        try:
            while self._node.context.ok():
                left = due - time.monotonic()
                executor.spin_once(timeout_sec=max(left, 0.0))
                now = time.monotonic()
                if now < due:
                    continue
                late = math.floor((now - due) / period)
                if late > CATCH_UP:
                    due += late * period
                    self._overruns += late
                due += period
                if not self._injected["driver_pause"]:
                    self._cycle()
        finally:
            executor.remove_node(self._node)
            if self._record:
                self._save_record()
            self._simulation.close()

    def _now(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _cycle(self) -> None:
        if self._restart_in:
            self._restart_in -= 1
            if not self._restart_in:
                self._driver.run_program()
        driver = self._driver
        target = driver.next_target()
        state = self._simulation.cycle(target, driver.opening, driver.force_limit)
        stamp, finger = self._now(), finger_of(state.gripper_opening)
        self._publish_joints(stamp, finger)
        if self._comes_up(OBJECT_RATE) and not self._injected["object_pose_stop"]:
            self._publish_object(stamp)
        if self._comes_up(STATUS_RATE):
            self._scaling.publish(Float64(data=100.0 * driver.speed_scaling))
        self._publish_changes()
        if self._record:
            now = time.monotonic()
            # The opening as the finger joint tells it, which may differ from the true one in the last digit.
            told = pack_state(replace(state, gripper_opening=opening_of(finger)))
            self._record.cycle(stamp, now, target, driver.program_running, told)
        self._cycles += 1

    def _comes_up(self, rate: float) -> bool:
        """Whether a multiple of 1 / rate falls into this cycle."""
        share = rate * self._simulation.period
        return math.floor(self._cycles * share) != math.floor((self._cycles - 1) * share)

    def _publish_joints(self, stamp: int, finger: float) -> None:
        if self._injected["joint_states_stop"]:
            return
        state, message = self._simulation.state, self._joint_states
        positions = [*state.joint_positions.tolist(), finger]
        velocities = [*state.joint_velocities.tolist(), 0.0]
        efforts = [0.0] * len(JOINT_NAMES) + [state.gripper_force]
        if self._config.zeros_first and self._cycles * self._simulation.period < ZEROS:
            positions = velocities = efforts = [0.0] * len(NAMES)
        elif self._injected["joint_states_nan"]:
            positions[JOINT_NAMES.index("elbow_joint")] = math.nan
        order = ALPHABETICAL[1:] if self._injected["joint_states_missing"] else ALPHABETICAL
        message.header.stamp = _stamp(stamp - self._injected["joint_states_old"] * round(OLD * 1e9))
        message.name = [NAMES[k] for k in order]
        message.position = [positions[k] for k in order]
        message.velocity = [velocities[k] for k in order]
        message.effort = [efforts[k] for k in order]
        self._arm.publish(message)

    def _publish_object(self, stamp: int) -> None:
        state, message = self._simulation.state, PoseStamped()
        message.header.frame_id, message.header.stamp = self._frame, _stamp(stamp)
        p, q = message.pose.position, message.pose.orientation
        p.x, p.y, p.z = state.object_position.tolist()
        q.x, q.y, q.z, q.w = state.object_quaternion.tolist()
        self._pose.publish(message)

    def _publish_changes(self) -> None:
        """What is latched, where it is not what was said last."""
        driver = self._driver
        while driver.faults:
            text = driver.faults.pop(0)
            self._faults.publish(String(data=text))
            self._node.get_logger().error(text)
            if self._record:
                self._record.faults.append(text)
        stopped = SafetyMode.PROTECTIVE_STOP if driver.protective_stop else SafetyMode.NORMAL
        outcome = {"episode": self._episode, **asdict(self._simulation.outcome)}
        for publisher, said, make in (
            (self._robot_mode, RobotMode.RUNNING, ur_status.robot_mode_message),
            (self._safety_mode, stopped, ur_status.safety_mode_message),
            (self._running, driver.program_running, lambda running: Bool(data=running)),
            (self._outcome, outcome, lambda values: String(data=json.dumps(values))),
        ):
            if self._said.get(publisher.topic_name) != said:
                self._said[publisher.topic_name] = said
                publisher.publish(make(said))


def _ignore(message: Any) -> None:
    pass


def _answering(act: Any) -> Any:
    def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            act()
            response.success = True
        except (UserError, OSError) as error:
            response.success, response.message = False, str(error)
        return response

    return answer


def _stamp(nanoseconds: int) -> Any:
    return Time(nanoseconds=nanoseconds).to_msg()


def _seconds(moment: Any) -> float:
    return moment.sec + moment.nanosec * 1e-9


def _run(node: Node, config: SimRobotConfig) -> None:
    SimRobot(node, config).run()


def main() -> int:
    """`sim_robot`."""
    return run_node("sim_robot", SimRobotConfig, _run, HELP)


if __name__ == "__main__":
    sys.exit(main())
