"""The gripper bridge as a process, between a driver and a commander in the test."""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action.server import ActionServer, GoalResponse
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

BRIDGE = "grasp_ros.gripper_bridge"
COMMANDS = "/robotiq_gripper_controller/commands"
ARM = ["elbow_joint", "shoulder_lift_joint"]


class Driver:
    """Publishes joint states at 125 Hz, with the finger joint in the middle, and notes what it is told."""

    def __init__(self, peer, *, listens: bool = True) -> None:
        self.peer = peer("driver")
        self.position, self.effort = 0.2, 12.5
        self.names = ["elbow_joint", "finger_joint", "shoulder_lift_joint"]
        self.commands: list[tuple[float, list[float]]] = []
        self.states = self.peer.hear(JointState, "/gripper/joint_states")
        self.said = self.peer.hear(DiagnosticArray, "/diagnostics")
        if listens:
            self.listen()
        best_effort = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._publisher = self.peer.node.create_publisher(JointState, "/joint_states", best_effort)
        self._commander = self.peer.node.create_publisher(JointState, "/gripper/command", 10)
        self.publishing = threading.Event()
        self.publishing.set()
        self.sent: set[tuple[int, int]] = set()
        self.peer.node.create_timer(0.008, self._publish)
        self.peer.start()

    def listen(self) -> None:
        self.peer.node.create_subscription(Float64MultiArray, COMMANDS, self._commanded, 10)

    def command(self, opening: float, force: float, *, age: float = 0.0, names=("gripper_opening",)) -> None:
        now = time.time_ns() - round(age * 1e9)
        message = JointState(name=list(names), position=[opening], effort=[force])
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(now, 1_000_000_000)
        self._commander.publish(message)

    def diagnosis(self) -> str:
        """The newest line of the bridge."""
        return self.said[-1].status[0].message if self.said else ""

    def _commanded(self, message: Float64MultiArray) -> None:
        self.commands.append((time.monotonic(), list(message.data)))

    def _publish(self) -> None:
        if not self.publishing.is_set():
            return
        values = {"finger_joint": (self.position, self.effort)}
        message = JointState(name=self.names)
        message.position = [values.get(name, (9.0, 7.0))[0] for name in self.names]
        message.effort = [values.get(name, (9.0, 7.0))[1] for name in self.names]
        message.header.stamp = self.peer.node.get_clock().now().to_msg()
        stamp = message.header.stamp
        self.sent.add((stamp.sec, stamp.nanosec))
        self._publisher.publish(message)


@pytest.fixture
def driver(peer, node_process, wait_for):
    """A driver whose states come through the bridge."""
    node_process(BRIDGE)
    driver = Driver(peer)
    wait_for(lambda: driver.states, 30)
    wait_for(lambda: driver.peer.node.count_subscribers("/gripper/command"), 20)
    return driver


def sent_when_asked(driver, wait_for, opening: float, force: float) -> list[float]:
    """Ask until it is sent (the first may go before the middleware has matched both), and return it."""
    before = len(driver.commands)

    def sent():
        driver.command(opening, force)
        time.sleep(0.02)
        return driver.commands[before:]

    return wait_for(sent, 20)[-1][1]


def test_states_in_metres_and_newtons_with_the_drivers_stamp(driver, wait_for):
    state = driver.states[-1]
    assert list(state.name) == ["gripper_opening"]
    assert state.position[0] == pytest.approx(0.06375, abs=1e-15)
    assert state.effort[0] == 12.5
    assert all((s.header.stamp.sec, s.header.stamp.nanosec) in driver.sent for s in driver.states)
    wait_for(lambda: driver.diagnosis() == "the gripper answers", 5)
    driver.effort = math.nan  # a driver that reports no force: estimated, and nothing was commanded
    wait_for(lambda: driver.states[-1].effort[0] == 0.0, 5)


def test_force_is_estimated_of_held_up_fingers_where_the_driver_reports_none(driver, wait_for):
    driver.effort = math.nan
    sent = sent_when_asked(driver, wait_for, 0.0, 60.0)
    assert sent == [pytest.approx(0.8), 60.0]
    wait_for(lambda: driver.states[-1].effort[0] == 60.0, 5)


def test_commands_are_paced_not_repeated_and_the_last_arrives(driver, wait_for):
    sent_when_asked(driver, wait_for, 0.0, 60.0)
    time.sleep(0.3)
    before = len(driver.commands)
    for k in range(120):  # at 250 Hz, each another
        driver.command(0.0002 * (k + 1), 60.0)
        time.sleep(0.004)
    last = 0.8 * (1 - 0.0002 * 120 / 0.085)
    wait_for(lambda: driver.commands[-1][1] == [pytest.approx(last), 60.0], 5)
    count = len(driver.commands)
    times = [at for at, _ in driver.commands[before:]]
    assert count - before <= (times[-1] - times[0]) * 15 + 2
    values = [value for _, value in driver.commands[before:]]
    assert all(a != b for a, b in itertools.pairwise(values))
    for _ in range(50):
        driver.command(0.0002 * 120, 60.0)
        time.sleep(0.004)
    time.sleep(0.2)
    assert len(driver.commands) == count


def test_what_cannot_be_asked_is_limited_or_refused_and_told(driver, wait_for):
    assert sent_when_asked(driver, wait_for, 0.2, 500.0) == [0.0, 120.0]
    wait_for(lambda: "opening 0.2000 m, force 500.0 N became 0.0850 m, 120.0 N" in driver.diagnosis(), 30)
    assert driver.said[-1].status[0].level == b"\x01"
    time.sleep(0.2)
    before = len(driver.commands)
    for said, refused in {
        "opening nan m, force 60.0 N is refused": {"opening": math.nan, "force": 60.0},
        "both must be finite": {"opening": 0.0, "force": -math.inf},
        "its stamp is 2.0": {"opening": 0.0, "force": 60.0, "age": 2.0},
        "its stamp is -": {"opening": 0.0, "force": 60.0, "age": -10.0},
        "it has ['finger_joint'], 1 positions and 1 efforts": {
            "opening": 0.0,
            "force": 60.0,
            "names": ["finger_joint"],
        },
    }.items():
        wait_for(
            lambda r=refused, s=said: driver.command(**r) or s in driver.diagnosis(), 30, driver.diagnosis
        )
    assert len(driver.commands) == before
    wait_for(lambda: driver.diagnosis() == "the gripper answers", 30)


def test_a_silent_driver_is_told_and_gets_no_old_command_when_it_is_back(driver, wait_for):
    sent_when_asked(driver, wait_for, 0.0, 60.0)
    driver.publishing.clear()
    wait_for(lambda: "nothing is published or sent until its driver is back" in driver.diagnosis(), 5)
    assert driver.said[-1].status[0].level == b"\x02"
    states, commands = len(driver.states), len(driver.commands)
    driver.command(0.085, 60.0)
    time.sleep(1.0)
    assert (len(driver.states), len(driver.commands)) == (states, commands)
    driver.publishing.set()
    wait_for(lambda: len(driver.states) > states + 10, 5)
    assert len(driver.commands) == commands
    # What the driver had before it was away is sent again as soon as it is asked for.
    assert sent_when_asked(driver, wait_for, 0.0, 60.0) == [pytest.approx(0.8), 60.0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"position": math.nan}, "finger_joint on /joint_states is at nan"),
        ({"position": 42.0}, "is at 42.000 rad, which lies outside 0 rad (open) to 0.8 rad (closed)"),
        ({"names": ARM}, "the last state of finger_joint on /joint_states came"),
    ],
)
def test_states_that_cannot_be_believed_are_not_passed_on(driver, wait_for, wrong, said):
    for name, value in wrong.items():
        setattr(driver, name, value)
    wait_for(lambda: said in driver.diagnosis(), 5, driver.diagnosis)
    states = len(driver.states)
    time.sleep(0.3)
    assert len(driver.states) == states


def test_what_is_missing_from_the_start_is_named(peer, node_process, wait_for):
    process = node_process(BRIDGE)
    listener = peer("listener")
    heard = listener.hear(DiagnosticArray, "/diagnostics")
    listener.start()
    wait_for(lambda: heard and "no message on /joint_states yet" in heard[-1].status[0].message, 30)
    driver = Driver(peer, listens=False)
    driver.names = ARM
    wait_for(
        lambda: (
            "finger_joint is not on /joint_states, which has elbow_joint, shoulder_lift_joint"
            in heard[-1].status[0].message
        ),
        20,
        driver.diagnosis,
    )
    driver.names = [*ARM, "finger_joint"]
    unheard = f"nobody listens on {COMMANDS}; the gripper gets no commands"
    wait_for(lambda: driver.command(0.0, 60.0) or unheard in driver.diagnosis(), 20, driver.diagnosis)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert "Traceback" not in process.said()


def test_a_commander_that_publishes_without_guarantee_is_named(driver, peer, wait_for):
    other = peer("other")
    careless = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    other.node.create_publisher(JointState, "/gripper/command", careless)
    other.start()
    wait_for(lambda: any("less than reliable" in m.status[0].message for m in driver.said), 20)
    wait_for(lambda: "2 nodes publish /gripper/command" in driver.diagnosis(), 20)


def test_where_two_command_the_driver_neither_does(driver, wait_for):
    """Each at its own pace they would lock it up."""
    node = driver.peer.node
    sent_when_asked(driver, wait_for, 0.0, 60.0)
    other = node.create_publisher(Float64MultiArray, COMMANDS, 10)
    wait_for(lambda: f"2 nodes publish {COMMANDS}" in driver.diagnosis(), 20, driver.diagnosis)
    time.sleep(0.2)
    states, commands = len(driver.states), len(driver.commands)
    driver.command(0.085, 60.0)
    time.sleep(0.5)
    assert (len(driver.states), len(driver.commands)) == (states, commands)
    node.destroy_publisher(other)
    wait_for(lambda: len(driver.states) > states + 10, 20, driver.diagnosis)
    # What it had before may be undone: it is sent again as soon as it is asked for.
    assert sent_when_asked(driver, wait_for, 0.0, 60.0) == [pytest.approx(0.8), 60.0]


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("interface:=usb", "interface='usb': it must be one of topic, parallel_gripper_command"),
        ("pace.rate:=50.0", "rate=50.0: it must be in (0, 15] Hz."),
        ("units.stroke:=0.05", "limits.opening_max=0.085 is more than units.stroke=0.05."),
        ("driver_topic:='two words'", "Invalid topic name: topic name must not contain"),
        ("use_sim_time:=7", "Trying to set parameter 'use_sim_time' to '7' of type 'INTEGER'"),
        ("pace.rte:=5.0", "there is no parameter 'pace.rte'. Did you mean 'pace.rate'?"),
    ],
)
def test_wrong_settings_are_one_line(node_process, parameter, said):
    process = node_process(BRIDGE, "-p", parameter)
    assert process.wait(30) == 1
    assert said in process.said()
    assert len(process.said().splitlines()) == 1


def test_an_action_needs_control_msgs(node_process):
    try:
        from control_msgs.action import ParallelGripperCommand  # noqa: F401
    except ImportError:
        process = node_process(BRIDGE, "-p", "interface:=parallel_gripper_command")
        assert process.wait(30) == 1
        assert "needs control_msgs/action/ParallelGripperCommand, which cannot be" in process.said()
    else:
        pytest.skip("control_msgs is installed")


@pytest.mark.parametrize("kind", ["ParallelGripperCommand", "GripperCommand"])
def test_commands_as_goals_of_an_action(peer, node_process, wait_for, kind):
    """Where control_msgs is installed, as it is with ROS distributions."""
    action = getattr(pytest.importorskip("control_msgs.action"), kind)
    interface = {"ParallelGripperCommand": "parallel_gripper_command", "GripperCommand": "gripper_command"}
    goals: list[tuple[float, float]] = []
    accepts = [True]

    def judge(goal):
        command = goal.command
        if kind == "ParallelGripperCommand":
            assert list(command.name) == ["finger_joint"]
            goals.append((command.position[0], command.effort[0]))
        else:
            goals.append((command.position, command.max_effort))
        return GoalResponse.ACCEPT if accepts[0] else GoalResponse.REJECT

    def done(handle):
        handle.succeed()
        return action.Result()

    node_process(BRIDGE, "-p", f"interface:={interface[kind]}")
    driver = Driver(peer)
    server = ActionServer(
        driver.peer.node, action, "/robotiq_gripper_controller/gripper_cmd", done, goal_callback=judge
    )
    wait_for(lambda: driver.states, 30)
    wait_for(lambda: driver.command(0.0, 60.0) or goals, 30, driver.diagnosis)
    assert goals[0] == (pytest.approx(0.8), 60.0)
    driver.command(0.085, 60.0)
    wait_for(lambda: goals[-1] == (0.0, 60.0), 10)
    accepts[0] = False
    driver.command(0.0, 60.0)
    said = "gripper_cmd rejected a command; is the gripper activated?"
    wait_for(lambda: said in driver.diagnosis(), 10, driver.diagnosis)
    count = len(goals)
    wait_for(lambda: driver.command(0.0, 60.0) or len(goals) > count, 10)  # until it is taken
    assert goals[-1] == (pytest.approx(0.8), 60.0)
    server.destroy()
