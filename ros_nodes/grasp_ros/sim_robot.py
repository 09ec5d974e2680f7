"""A simulated robot behind the topics of a UR driver, a gripper's driver and perception, in real time.

Messages go to `grasp_sim.driver.Driver`, what it makes of them to `grasp_sim.driven.DrivenSimulation`, and
the state of that to messages. One thread does all of it: commands that arrive during a cycle act in the next.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rclpy.executors import Executor
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from grasp_ros.npz import unwritable
from grasp_ros.process import goes_on, run_node
from grasp_ros.sim_record import SimRecord
from grasp_ros.sim_topics import SimTopics
from grasp_sim import registry
from grasp_sim.cli import require_choice
from grasp_sim.contract import pack_state
from grasp_sim.controllers import TrajectoryPoint
from grasp_sim.driven import RATES, DrivenSimulation
from grasp_sim.driver import CONTROLLERS, TRAJECTORY, Driver, finger_of, opening_of
from grasp_sim.errors import UserError
from grasp_sim.ur5e import JOINT_NAMES

GRIPPER_COMMANDS = "/robotiq_gripper_controller/commands"
"""std_msgs/Float64MultiArray: finger joint in rad, force in N."""

OBJECT_RATE, STATUS_RATE = 30.0, 10.0
"""Hz of the object's pose, and of the speed scaling."""
RESTART = 0.3
"""s that the program is stopped before an episode."""
ZEROS = 0.2
"""s of joint states of zeros from a driver that is not connected yet."""
CATCH_UP = 3
"""Cycles that a late simulation makes up for at once; beyond, time is left out."""
WAITING = 100
"""Commands that wait in the middleware, and that are taken at once at most."""

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
        if self.record and (why := unwritable(Path(self.record))):
            raise ValueError(f"record={self.record}: {why}.")


class SimRobot:
    """The robot; `run` keeps it going until ROS is shut down."""

    def __init__(self, node: Node, config: SimRobotConfig) -> None:
        self._node, self._config = node, config
        self._simulation = DrivenSimulation(config.env, config.rate)
        self._driver = Driver(config.controller, self._simulation.period)
        self._driver.speed_slider = config.speed_slider / 100.0
        self._record = SimRecord() if config.record else None
        self._topics = SimTopics(node)
        self._episode, self._cycles = -1, 0
        self._restart_in = 0  # cycles
        self._overruns = 0  # cycles that were left out
        self._taken = 0  # commands
        self._subscribe()
        self._begin_episode()

    # ---- commands

    def _subscribe(self) -> None:
        subscribe, depth = self._node.create_subscription, QoSProfile(depth=WAITING)
        for name in CONTROLLERS:
            active = name == self._config.controller  # the others are there and take no command
            if name == TRAJECTORY:
                take = self._on_trajectory if active else _ignore
                subscribe(JointTrajectory, f"/{name}/joint_trajectory", take, depth)
            else:
                take = self._on_command if active else _ignore
                subscribe(Float64MultiArray, f"/{name}/commands", take, depth)
        subscribe(Float64MultiArray, GRIPPER_COMMANDS, self._on_gripper, depth)
        for service, act in (
            ("reset", self._begin_episode),
            ("protective_stop", self._driver.stop),
            ("resume", self._driver.resume),
            ("save_record", self._save_record),
        ):
            self._node.create_service(Trigger, f"~/{service}", _answering(act))

    def _on_command(self, message: Float64MultiArray) -> None:
        assert self._driver.forward
        values = list(message.data)
        if self._takes(self._driver.forward.accept(values)) and self._record:
            self._record.command(time.monotonic(), values)

    def _on_trajectory(self, message: JointTrajectory) -> None:
        assert self._driver.trajectory
        points = [
            TrajectoryPoint(_seconds(p.time_from_start), list(p.positions), list(p.velocities))
            for p in message.points
        ]
        begin = _seconds(message.header.stamp)  # zero: at once
        begin -= self._now() * 1e-9 if begin else 0.0
        names = list(message.joint_names)
        if self._takes(self._driver.trajectory.accept(names, points, begin)) and self._record:
            order = [names.index(name) for name in JOINT_NAMES]
            for point in points:
                values = [point.positions[k] for k in order]
                self._record.command(time.monotonic(), values, begin + point.time)

    def _on_gripper(self, message: Float64MultiArray) -> None:
        values, now = list(message.data), time.monotonic()
        if self._takes(self._driver.command_gripper(values, now)) and self._record:
            self._record.gripper(now, values)

    def _takes(self, refused: str) -> bool:
        """Count a command, and say why it is refused."""
        self._taken += 1
        if refused:
            self._node.get_logger().error(refused, throttle_duration_sec=1.0)
        return not refused

    # ---- episodes

    def _begin_episode(self) -> None:
        self._episode += 1
        state = self._simulation.reset(self._config.seed + self._episode)
        self._driver.place(state.joint_positions)
        self._restart_in = round(RESTART / self._simulation.period)
        self._topics.object_size(state, self._now())
        if self._record:
            self._record.episode(self._simulation.outcome.seed)

    def _save_record(self) -> None:
        if self._record is None:
            raise UserError("nothing is recorded: start with the parameter record=FILE.npz")
        self._record.overruns = self._overruns
        try:
            self._record.save(Path(self._config.record))
        except OSError as error:
            raise UserError(f"record={self._config.record} cannot be written: {error.strerror}") from error

    # ---- cycles

    def run(self) -> None:
        """Cycle in real time until ROS is shut down, then write the record."""
        executor = EventsExecutor(context=self._node.context)
        executor.add_node(self._node)
        period = self._simulation.period
        due = time.monotonic()
        try:
            while goes_on():
                self._serve(executor, due)
                late = math.floor((time.monotonic() - due) / period)
                if late > CATCH_UP:
                    due += late * period
                    self._overruns += late
                due += period
                if not self._topics.injected["driver_pause"]:
                    self._cycle()
        finally:
            if self._record:
                self._save_record()
            self._simulation.close()

    def _serve(self, executor: Executor, due: float) -> None:
        """Take what arrives until `due`, and then what waits already: the last command is to act."""
        left = due - time.monotonic()
        while left > 0.0:
            executor.spin_once(timeout_sec=left)
            left = due - time.monotonic()
        for _ in range(WAITING):
            taken = self._taken
            executor.spin_once(timeout_sec=0.0)
            if self._taken == taken:
                return

    def _cycle(self) -> None:
        if self._restart_in:
            self._restart_in -= 1
            if not self._restart_in:
                self._driver.run_program()
        driver, topics, simulation = self._driver, self._topics, self._simulation
        target = driver.next_target()
        state = simulation.cycle(target, driver.opening, driver.force_limit)
        stamp, finger = self._now(), finger_of(state.gripper_opening)
        not_connected = self._config.zeros_first and self._cycles * simulation.period < ZEROS
        topics.joints(state, finger, stamp, not_connected)
        if self._comes_up(OBJECT_RATE):
            topics.object_pose(state, stamp)
        if self._comes_up(STATUS_RATE):
            topics.speed_scaling(driver)
        faults, driver.faults = driver.faults, []
        for text in faults:
            topics.fault(text)
        topics.changes(driver, self._episode, simulation.outcome)
        if self._record:
            self._record.faults += faults
            # The opening as the finger joint tells it, which may differ from the true one in the last digit.
            told = pack_state(replace(state, gripper_opening=opening_of(finger)))
            self._record.cycle(stamp, time.monotonic(), target, driver.program_running, told)
        self._cycles += 1

    def _comes_up(self, rate: float) -> bool:
        """Whether a multiple of 1 / rate falls into this cycle."""
        share = rate * self._simulation.period
        return math.floor(self._cycles * share) != math.floor((self._cycles - 1) * share)

    def _now(self) -> int:
        return self._node.get_clock().now().nanoseconds


def _ignore(message: Any) -> None:
    pass


def _answering(act: Callable[[], None]) -> Callable[[Any, Any], Any]:
    def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            act()
            response.success = True
        except UserError as error:
            response.success, response.message = False, str(error)
        return response

    return answer


def _seconds(moment: Any) -> float:
    return moment.sec + moment.nanosec * 1e-9


def _run(node: Node, config: SimRobotConfig) -> None:
    SimRobot(node, config).run()


def main() -> int:
    """`sim_robot`."""
    return run_node("sim_robot", SimRobotConfig, _run, HELP)


if __name__ == "__main__":
    sys.exit(main())
