"""Safety filter and servo as processes, before a driver of the test's own that follows exactly."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

pytest.importorskip("rclpy")

from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from grasp_ros import ur_status
from grasp_ros.convert import action_message, gripper_message, joint_message
from grasp_ros.qos import LATCHED, RELIABLE
from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher, values_of
from grasp_sim import ur5e

pytestmark = pytest.mark.slow

RATE = 100
LIMITS = {
    "limits.rate_hz": float(RATE),
    "limits.measured_max_age": 0.5,
    "limits.setpoint_max_age": 0.5,
    "limits.gripper_max_age": 0.5,
    "limits.cycle_gap_max": 1.0,
    "limits.following_max": 0.3,
    "limits.following_lost": 0.9,
}
ASIDE = np.array([0.3, 0.2, 0.0, 0.0, 1.0, 0.0])


class Driver:
    """Publishes the arm's joints where its last command put them."""

    def __init__(self, stack: Stack, watcher: Watcher) -> None:
        self.stack, self.watcher, node = stack, watcher, watcher.node
        self.joints = ur5e.HOME.copy()
        self.commands: list[np.ndarray] = []
        make = node.create_publisher
        self.arm = make(JointState, "/joint_states", RELIABLE)
        self.gripper = make(JointState, "/gripper/joint_states", RELIABLE)
        self.actions = make(JointTrajectory, "/requested_action", RELIABLE)
        self.running = make(Bool, ur_status.PROGRAM_RUNNING, LATCHED)
        self.running.publish(Bool(data=True))
        node.create_subscription(
            Float64MultiArray,
            "/forward_position_controller/commands",
            lambda message: self.commands.append(np.array(message.data)),
            RELIABLE,
        )
        self.cycles = 0

    def stamp(self):
        return self.watcher.node.get_clock().now().to_msg()

    def foreign(self) -> None:
        """Joints of another driver, on the same topic."""
        message = JointState(name=["left_finger_joint"], position=[0.1])
        message.header.stamp = self.stamp()
        self.arm.publish(message)

    def cycle(self, *, moving=False, foreign=False, stalled=False) -> None:
        end = time.monotonic() + 1.0 / RATE
        if not stalled:
            if self.commands:
                self.joints = self.commands[-1]
            self.arm.publish(joint_message(ur5e.JOINT_NAMES, self.joints, np.zeros(6), self.stamp()))
        self.gripper.publish(gripper_message(0.085, 0.0, self.stamp()))
        if foreign:
            self.foreign()
        if moving and self.cycles % (RATE // 20) == 0:
            self.actions.publish(action_message(ASIDE, self.stamp()))
        self.cycles += 1
        while (left := end - time.monotonic()) > 0:
            self.watcher.spin(left)

    def until(self, ready, what: str, **how) -> None:
        self.stack.wait_for(lambda: self.cycle(**how) or ready(), what, 120.0)

    def moves(self) -> bool:
        return values_of(self.watcher.safety).get("status") in ("OK", "LIMITED")


@pytest.fixture
def driver(tmp_path):
    domain = 200 + os.getpid() % 30
    parameters = {"safety": LIMITS, "servo": {"action_age": 0.5, "joints_age": 0.5, "status_age": 1.0}}
    with Stack(tmp_path, domain, parameters, ("safety", "servo")) as stack, Watcher(domain) as watcher:
        driver = Driver(stack, watcher)
        driver.until(driver.moves, "the arm may not move")
        yield driver


def test_joints_of_another_driver_are_none_of_the_arms(driver):
    """They neither stop the arm nor stand for it while its own driver stalls."""
    before = driver.joints.copy()
    driver.until(
        lambda: np.abs(driver.joints - before).max() > 0.05, "it does not move", moving=True, foreign=True
    )
    for _ in range(3):
        driver.watcher.spin()
    driver.cycle(stalled=True, foreign=True)  # answers to the last joint state are let in
    count = len(driver.commands)
    for _ in range(30):
        driver.cycle(stalled=True, foreign=True)
    assert len(driver.commands) == count


def test_an_action_with_an_impossible_stamp_is_refused(driver):
    message = action_message(ASIDE, driver.stamp())
    message.header.stamp.nanosec = 4_000_000_000
    driver.actions.publish(message)
    driver.until(
        lambda: any("out of range" in s.message for s in driver.watcher.diagnostics), "it is not refused"
    )
    before = driver.joints.copy()
    driver.until(lambda: np.abs(driver.joints - before).max() > 0.02, "the servo has died", moving=True)


def test_where_two_command_the_arm_neither_does(driver):
    """It would jump between them."""
    node = driver.watcher.node
    other = node.create_publisher(Float64MultiArray, "/forward_position_controller/commands", RELIABLE)

    def named() -> bool:
        return "rival_commander" in values_of(driver.watcher.safety).get("reasons", "")

    driver.until(named, "nobody says so", moving=True)
    driver.cycle(moving=True)
    count, joints = len(driver.commands), driver.joints.copy()
    for _ in range(30):
        driver.cycle(moving=True)
    assert len(driver.commands) == count
    node.destroy_publisher(other)
    driver.until(driver.moves, "it does not start anew")
    assert np.abs(driver.commands[-1] - joints).max() < 0.01


def test_a_start_leads_from_the_joints_of_now_though_others_cannot_be_read(driver):
    """The servo must not begin from where the arm stood before a person moved it."""
    driver.until(
        lambda: np.abs(driver.joints - ur5e.HOME).max() > 0.05, "it does not move", moving=True
    )  # it has read where the arm was
    driver.running.publish(Bool(data=False))
    driver.until(lambda: not driver.moves(), "the arm does not stop")
    moved = driver.joints + np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.0])
    began, running = time.monotonic(), False
    while time.monotonic() - began < 6.0:
        driver.commands.clear()  # by hand: it does not follow
        driver.joints = moved
        driver.cycle()
        for _ in range(3):  # between two joint states of the driver
            broken = joint_message(ur5e.JOINT_NAMES, np.full(6, np.nan), np.zeros(6), driver.stamp())
            driver.arm.publish(broken)
            driver.watcher.spin(0.003)
        if not running and time.monotonic() - began > 1.0:
            driver.running.publish(Bool(data=True))
            running = True
        if driver.commands:
            assert np.abs(driver.commands[-1] - driver.joints).max() < 0.01 or not running
    assert driver.moves()


def test_an_arm_that_was_moved_while_its_driver_was_away_is_not_sent_back(driver):
    """The new driver would jump to the last command of before."""
    driver.until(lambda: np.abs(driver.joints - ur5e.HOME).max() > 0.05, "it does not move", moving=True)
    for _ in range(round(1.5 * RATE)):
        driver.cycle(stalled=True)
    driver.commands.clear()
    moved = driver.joints = driver.joints - np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    driver.until(lambda: driver.commands, "nothing is sent any more")
    np.testing.assert_allclose(driver.commands[0], moved, atol=1e-6)
    driver.until(driver.moves, "it does not start anew")
    np.testing.assert_allclose(driver.commands[-1], moved, atol=1e-6)


@pytest.mark.parametrize("gone", [False, True])
def test_a_record_that_cannot_be_written_is_one_line(node_process, tmp_path, gone):
    folder = tmp_path / "records"
    folder.mkdir()
    record = folder / "record.npz" if gone else folder
    process = node_process("grasp_ros.safety_node", "-p", f"record:={record}", "-p", "output:=velocity")
    if gone:
        time.sleep(0.1)
        end = time.monotonic() + 60.0
        while "no joint states" not in process.said() and time.monotonic() < end:
            time.sleep(0.1)
        folder.rmdir()
        process.terminate()
    assert process.wait(60) == 1
    (line,) = [line for line in process.said().splitlines() if line.startswith("safety: ")]
    assert ("cannot be written" if gone else "it is a folder") in line
    assert "Traceback" not in process.said()
