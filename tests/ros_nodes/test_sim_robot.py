"""The simulated robot as a process of its own, seen through its topics."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from geometry_msgs.msg import PoseStamped, Vector3Stamped
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, Float64MultiArray, String
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from grasp_ros import ur_status
from grasp_ros.sim_robot import GRIPPER_COMMANDS, SimRobotConfig
from grasp_ros.sim_topics import FAULTS, OUTCOME
from grasp_ros.ur_status import LATCHED, RobotMode, SafetyMode, mode_of
from grasp_sim.contract import ActionScale, GraspState, decode, encode, unpack_state
from grasp_sim.driver import finger_of, opening_of
from grasp_sim.expert import ScriptedExpert
from grasp_sim.servo import Servo
from grasp_sim.ur5e import HOME, JOINT_NAMES, Kinematics

JOINTS, POSE, SIZE = "/joint_states", "/object_pose", "/object_size"
NS = 1_000_000_000
HEARD = {
    JOINTS: (JointState, QoSProfile(depth=500)),
    POSE: (PoseStamped, QoSProfile(depth=50)),
    SIZE: (Vector3Stamped, LATCHED),
    OUTCOME: (String, LATCHED),
    FAULTS: (String, QoSProfile(depth=50)),
    ur_status.SPEED_SCALING: (Float64, QoSProfile(depth=50)),
    ur_status.PROGRAM_RUNNING: (Bool, LATCHED),
    ur_status.ROBOT_MODE: (ur_status.RobotModeMessage, LATCHED),
    ur_status.SAFETY_MODE: (ur_status.SafetyModeMessage, LATCHED),
}


class Robot:
    """The process, and a node that hears and commands it."""

    def __init__(self, folder, *parameters: str) -> None:
        self.record = folder / "record.npz"
        given = (f"record:={self.record}", "env:=pybullet-lift", "rate:=125", *parameters)
        arguments = [part for text in given for part in ("-p", text)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grasp_ros.sim_robot", "--ros-args", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = Node("tester", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.heard = defaultdict(list)
        for topic, (kind, profile) in HEARD.items():
            self.node.create_subscription(kind, topic, self.heard[topic].append, profile)
        self.publishers = {}
        self.wait(lambda: self.running and self.heard[JOINTS], "the program to run")

    def spin(self) -> None:
        self.executor.spin_once(timeout_sec=0.05)

    def wait(self, condition, what: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < end, f"waited for {what}"
            self.spin()

    def messages(self, topic: str, count: int) -> list:
        """The next ones."""
        self.heard[topic].clear()
        self.wait(lambda: len(self.heard[topic]) >= count, f"{count} of {topic}")
        return self.heard[topic][:count]

    def silent(self, topic: str, seconds: float) -> bool:
        """Whether nothing comes for that long."""
        self.heard[topic].clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.spin()
        return not self.heard[topic]

    def last(self, topic: str):
        return self.heard[topic][-1] if self.heard[topic] else None

    @property
    def running(self) -> bool:
        said = self.last(ur_status.PROGRAM_RUNNING)
        return said is not None and said.data

    @property
    def safety_mode(self) -> int:
        return mode_of(self.last(ur_status.SAFETY_MODE))

    def joints(self) -> np.ndarray:
        """(6,) the next positions, by name."""
        message = self.messages(JOINTS, 1)[0]
        return np.array([message.position[message.name.index(name)] for name in JOINT_NAMES])

    def send(self, topic: str, message) -> None:
        if topic not in self.publishers:
            self.publishers[topic] = self.node.create_publisher(type(message), topic, 10)
            self.wait(lambda: self.node.count_subscribers(topic), f"a subscriber of {topic}")
            # Known to the graph is not yet matched.
            self.wait(lambda: self.publishers[topic].get_subscription_count(), f"a match of {topic}")
        self.publishers[topic].publish(message)

    def command(self, values, controller: str = "forward_position_controller") -> None:
        self.send(f"/{controller}/commands", Float64MultiArray(data=[float(v) for v in values]))

    def call(self, name: str, request=None, kind=Trigger):
        client = self.node.create_client(kind, f"/sim_robot/{name}")
        self.wait(client.service_is_ready, f"service {name}")
        future = client.call_async(request or kind.Request())
        self.wait(future.done, f"the answer of {name}")
        return future.result()

    def inject(self, fault: str, on: bool) -> None:
        assert self.call(f"inject/{fault}", SetBool.Request(data=on), SetBool).success

    def end(self, number=signal.SIGINT) -> tuple[int, str]:
        """Stop it; its exit code and what it printed."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def start(ros_domain, monkeypatch, tmp_path):
    """Starts robots in a ROS domain of the test's own."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    robots = []

    def robot(*parameters: str) -> Robot:
        robots.append(Robot(tmp_path, *parameters))
        return robots[-1]

    yield robot
    for one in robots:
        one.close()


def stamp_of(message) -> int:
    return message.header.stamp.sec * NS + message.header.stamp.nanosec


def test_topics_orders_and_quirks_are_the_drivers(start):
    robot = start()
    states = robot.messages(JOINTS, 100)
    for message in states:
        assert message.name == [
            "elbow_joint", "finger_joint", "shoulder_lift_joint", "shoulder_pan_joint",
            "wrist_1_joint", "wrist_2_joint", "wrist_3_joint",
        ]  # fmt: skip
        assert [len(part) for part in (message.position, message.velocity, message.effort)] == [7, 7, 7]
    stamps = np.array([stamp_of(message) for message in states])
    assert (np.diff(stamps) > 0).all()
    assert abs(stamps[-1] - time.time_ns()) < 10 * NS
    poses = robot.messages(POSE, 10)
    assert poses[-1].header.frame_id == "base_link"
    np.testing.assert_allclose(robot.joints(), HOME, atol=0.1)
    robot.wait(lambda: robot.last(ur_status.SPEED_SCALING), "speed scaling")
    assert robot.last(ur_status.SPEED_SCALING).data == 100.0
    assert mode_of(robot.last(ur_status.ROBOT_MODE)) == RobotMode.RUNNING
    assert robot.safety_mode == SafetyMode.NORMAL
    outcome = json.loads(robot.last(OUTCOME).data)
    assert outcome == {
        "episode": 0, "seed": 0, "success": False, "grasped": False, "slips": 0, "drops": 0, "broken": False,
        "sim_fault": False, "object_symmetry": 4,
    }  # fmt: skip
    assert robot.last(SIZE).header.frame_id == "base_link"
    assert 0.039 < robot.last(SIZE).vector.x < 0.045
    robot.end()
    record = np.load(robot.record)
    cycle_of = {int(stamp): cycle for cycle, stamp in enumerate(record["stamps"])}
    for pose in poses:  # the first cycle at or after each 30th of a second, whatever the machine does
        cycle = cycle_of[stamp_of(pose)]
        assert np.floor(cycle * 30 / 125) > np.floor((cycle - 1) * 30 / 125)


def test_a_command_is_repeated_for_ever_and_what_is_none_is_ignored(start):
    robot = start()
    home = robot.joints()
    goal = home + 0.004
    robot.command(goal)
    robot.wait(lambda: np.allclose(robot.joints(), goal, atol=1e-3), "the goal")
    for wrong in ([0.0] * 5, [0.0] * 7, [float("nan")] * 6, []):
        robot.command(wrong)
    robot.command(home + 0.5, "forward_velocity_controller")
    for _ in range(50):
        np.testing.assert_allclose(robot.joints(), goal, atol=1e-3)
    assert robot.safety_mode == SafetyMode.NORMAL
    assert robot.heard[FAULTS] == []
    code, said = robot.end()
    assert code == 0
    assert "command size 5 does not match the number of joints, 6" in said
    record = np.load(robot.record)
    np.testing.assert_array_equal(record["commands"][0], goal)
    assert np.isnan(record["commands"][1]).all()
    assert len(record["commands"]) == len(record["command_times"]) == 2
    assert record["targets"].shape == (len(record["stamps"]), 6)
    np.testing.assert_array_equal(record["targets"][-1], goal)
    np.testing.assert_array_equal(record["episodes"], [[0, 0]])


def test_protective_stop_pauses_and_resuming_continues_the_old_motion(start):
    robot = start("controller:=forward_velocity_controller")
    robot.command([0.2, 0, 0, 0, 0, 0], "forward_velocity_controller")
    before = robot.joints()[0]
    robot.wait(lambda: robot.joints()[0] > before + 0.01, "the arm to move")
    assert robot.call("protective_stop").success
    robot.wait(lambda: robot.safety_mode == SafetyMode.PROTECTIVE_STOP and not robot.running, "the stop")
    robot.heard[ur_status.SPEED_SCALING].clear()
    robot.messages(JOINTS, 30)  # until it stands
    still = robot.joints()
    for _ in range(20):
        np.testing.assert_allclose(robot.joints(), still, atol=1e-4)
    robot.wait(lambda: robot.last(ur_status.SPEED_SCALING), "speed scaling")
    assert robot.last(ur_status.SPEED_SCALING).data == 0.0
    assert robot.call("resume").success
    robot.wait(lambda: robot.safety_mode == SafetyMode.NORMAL and robot.running, "the program")
    robot.wait(lambda: robot.joints()[0] > still[0] + 0.01, "the arm to move again")
    assert robot.heard[FAULTS] == []


JUMPS = {
    "a step": lambda robot: robot.command(robot.joints() + np.eye(6)[2] * 0.5),
    "nan": lambda robot: robot.command([*robot.joints()[:5], float("nan")]),
}


@pytest.mark.parametrize("jump", JUMPS)
def test_a_command_that_a_robot_cannot_follow_stops_it_and_is_told(jump, start):
    robot = start()
    before = robot.joints()
    JUMPS[jump](robot)
    robot.wait(lambda: robot.heard[FAULTS], "a fault")
    assert robot.last(FAULTS).data.startswith("protective stop: the target ")
    robot.wait(lambda: robot.safety_mode == SafetyMode.PROTECTIVE_STOP and not robot.running, "the stop")
    np.testing.assert_allclose(robot.joints(), before, atol=1e-3)
    robot.end()
    assert np.load(robot.record)["faults"].tolist() == [robot.last(FAULTS).data]


def test_a_trajectory_is_followed_and_one_without_end_at_rest_is_refused(start):
    robot = start("controller:=scaled_joint_trajectory_controller")
    topic = "/scaled_joint_trajectory_controller/joint_trajectory"
    home = robot.joints()
    order = sorted(range(6), key=JOINT_NAMES.__getitem__)

    def trajectory(goal, **more) -> JointTrajectory:
        point = JointTrajectoryPoint(positions=[float(goal[k]) for k in order], **more)
        point.time_from_start.nanosec = 400_000_000
        return JointTrajectory(joint_names=[JOINT_NAMES[k] for k in order], points=[point])

    robot.send(topic, trajectory(home - 0.2, velocities=[0.1] * 6))  # refused
    robot.send(topic, trajectory(home + 0.2))
    robot.wait(lambda: np.allclose(robot.joints(), home + 0.2, atol=2e-3), "the goal")
    robot.send(topic, trajectory(home, velocities=[0.0] * 6))
    robot.wait(lambda: np.allclose(robot.joints(), home, atol=2e-3), "home")
    assert robot.heard[FAULTS] == []
    code, said = robot.end(signal.SIGTERM)
    assert code == 0
    assert "the velocity of the last point is not zero" in said
    record = np.load(robot.record)
    np.testing.assert_array_equal(record["commands"], [home + 0.2, home])
    np.testing.assert_allclose(record["command_offsets"], 0.4)


def test_a_reset_stops_the_program_brings_a_new_object_and_forgets_commands(start):
    robot = start("seed:=7")
    home = robot.joints()
    robot.command(home + 0.01)
    robot.send(GRIPPER_COMMANDS, Float64MultiArray(data=[0.8, 60.0]))
    robot.wait(lambda: robot.messages(JOINTS, 1)[0].position[1] > 0.7, "the gripper to close")
    size = robot.last(SIZE).vector.x
    robot.heard[ur_status.PROGRAM_RUNNING].clear()
    assert robot.call("reset").success
    robot.wait(lambda: len(robot.heard[ur_status.PROGRAM_RUNNING]) >= 2, "the program to stop and run")
    assert [said.data for said in robot.heard[ur_status.PROGRAM_RUNNING]] == [False, True]
    robot.wait(lambda: json.loads(robot.last(OUTCOME).data)["episode"] == 1, "the outcome")
    assert json.loads(robot.last(OUTCOME).data)["seed"] == 8
    robot.wait(lambda: robot.last(SIZE).vector.x != size, "a new object")
    message = robot.messages(JOINTS, 20)[-1]
    assert message.position[1] < 0.01
    from grasp_sim.driven import DrivenSimulation

    simulation = DrivenSimulation("pybullet-lift", 125)
    expected = simulation.reset(8)
    simulation.close()
    np.testing.assert_allclose(robot.joints(), expected.joint_positions, atol=1e-3)
    assert robot.last(SIZE).vector.x == expected.object_size[0]
    assert robot.heard[FAULTS] == []


def test_what_is_published_is_what_is_judged(start):
    """The observation from the messages' numbers is the simulator's own for the same instant, bit by bit."""
    robot = start("env:=robosuite-objects", "seed:=3")
    home = robot.joints()
    robot.send(GRIPPER_COMMANDS, Float64MultiArray(data=[0.4, 60.0]))
    for k in range(40):
        robot.command(home + 0.002 * k)
        robot.joints()
    robot.wait(lambda: len(robot.heard[POSE]) >= 20, "poses")
    robot.send(GRIPPER_COMMANDS, Float64MultiArray(data=[0.8, 60.0]))
    robot.heard[POSE].clear()
    robot.messages(JOINTS, 120)
    symmetry = json.loads(robot.last(OUTCOME).data)["object_symmetry"]
    size = robot.last(SIZE).vector
    code, _ = robot.end()
    assert code == 0
    record = np.load(robot.record)
    own = {
        int(stamp): unpack_state(row) for stamp, row in zip(record["stamps"], record["states"], strict=True)
    }
    arms = {stamp_of(message): message for message in robot.heard[JOINTS]}
    kinematics, same = Kinematics(), 0
    for pose in robot.heard[POSE]:
        stamp = stamp_of(pose)
        if stamp not in arms:
            continue
        arm, p, q = arms[stamp], pose.pose.position, pose.pose.orientation
        at = [arm.name.index(name) for name in JOINT_NAMES]
        position, quaternion = kinematics.forward(np.array([arm.position[k] for k in at]))
        seconds = stamp * 1e-9
        state = GraspState(
            joint_positions=np.array([arm.position[k] for k in at]),
            joint_velocities=np.array([arm.velocity[k] for k in at]),
            tcp_position=position,
            tcp_quaternion=quaternion,
            gripper_opening=opening_of(arm.position[arm.name.index("finger_joint")]),
            gripper_force=arm.effort[arm.name.index("finger_joint")],
            object_position=np.array([p.x, p.y, p.z]),
            object_quaternion=np.array([q.x, q.y, q.z, q.w]),
            object_size=np.array([size.x, size.y, size.z]),
            object_symmetry=symmetry,
            **dict.fromkeys(("joint_time", "gripper_time", "object_time", "time"), seconds),
        )
        np.testing.assert_array_equal(encode(state), encode(own[stamp]))
        np.testing.assert_array_equal(state.joint_velocities, own[stamp].joint_velocities)
        same += 1
    assert same >= 15


def test_injected_faults_come_and_go(start):
    robot = start()
    robot.inject("joint_states_nan", True)
    robot.wait(lambda: np.isnan(robot.messages(JOINTS, 1)[0].position[0]), "NaN")
    robot.inject("joint_states_nan", False)
    robot.wait(lambda: not np.isnan(robot.messages(JOINTS, 1)[0].position[0]), "numbers")

    robot.inject("joint_states_missing", True)
    robot.wait(lambda: "elbow_joint" not in robot.messages(JOINTS, 1)[0].name, "no elbow")
    assert len(robot.messages(JOINTS, 1)[0].position) == 6
    robot.inject("joint_states_missing", False)

    robot.inject("joint_states_old", True)
    states, poses = set(), set()

    def old() -> bool:
        """Of some cycle both messages were heard, whichever came first."""
        states.update(stamp_of(state) + NS for state in robot.messages(JOINTS, 1))
        poses.update(map(stamp_of, robot.heard[POSE]))
        return bool(states & poses)

    robot.wait(old, "a stamp of a second ago")
    robot.inject("joint_states_old", False)

    robot.inject("object_pose_stop", True)
    robot.wait(lambda: robot.silent(POSE, 0.5), "no pose")
    assert robot.heard[JOINTS]
    robot.inject("object_pose_stop", False)
    robot.messages(POSE, 1)

    for fault in ("joint_states_stop", "driver_pause"):
        robot.inject(fault, True)
        robot.wait(lambda: robot.silent(JOINTS, 0.5), "silence")
        robot.inject(fault, False)
        robot.messages(JOINTS, 5)


def test_a_driver_that_is_not_connected_yet_publishes_zeros(start):
    robot = start("zeros_first:=true")
    assert any(robot.joints() != 0.0)
    robot.end()
    record = np.load(robot.record)
    early = record["stamps"][:25].tolist()  # 0.2 s of 125 Hz
    zeros = [m for m in robot.heard[JOINTS] if not any(m.position)]
    assert {stamp_of(message) for message in zeros} <= set(early)
    assert (record["states"][:, :6] != 0.0).any(axis=1).all()


def test_a_record_is_written_on_request_only_where_one_is_kept(start):
    robot = start()
    assert robot.call("save_record").success
    assert len(np.load(robot.record)["stamps"]) > 0
    robot.end()
    other = start("record:=''")
    answer = other.call("save_record")
    assert (answer.success, answer.message) == (
        False, "nothing is recorded: start with the parameter record=FILE.npz",
    )  # fmt: skip


WRONG = {
    "env:=pybullet-lifts": "env=pybullet-lifts is not known. Did you mean 'pybullet-lift'?",
    "controller:=mine": "controller=mine is not known.",
    "rate:=250": "rate=250 must be 125 or 500.",
    "seed:=-1": "seed=-1 must be from 0 to 2147483647.",
    "speed_slider:=0.0": "speed_slider=0.0 must be above 0 and at most 100 percent.",
    "record:=/no/such/place/r.npz": "record=/no/such/place/r.npz: there is no folder for it.",
}


@pytest.mark.parametrize("given", WRONG)
def test_settings_are_checked(given):
    name, value = given.split(":=")
    kind = type(getattr(SimRobotConfig(), name))
    with pytest.raises(ValueError, match=re.escape(WRONG[given])):
        SimRobotConfig(**{name: kind(value)})


@pytest.mark.slow
def test_an_object_is_grasped_through_the_topics(start):
    """The scripted expert hears and commands the robot by messages alone."""
    robot = start("env:=robosuite-objects")
    scale, expert, servo = ActionScale(), ScriptedExpert(ActionScale(), "servo", 60.0), Servo()
    kinematics = Kinematics()

    def state() -> GraspState:
        arm, pose, size = robot.messages(JOINTS, 1)[0], robot.last(POSE).pose, robot.last(SIZE).vector
        joints = np.array([arm.position[arm.name.index(name)] for name in JOINT_NAMES])
        position, quaternion = kinematics.forward(joints)
        p, q, finger = pose.position, pose.orientation, arm.name.index("finger_joint")
        return GraspState(
            joint_positions=joints,
            joint_velocities=np.zeros(6),
            tcp_position=position,
            tcp_quaternion=quaternion,
            gripper_opening=opening_of(arm.position[finger]),
            gripper_force=arm.effort[finger],
            object_position=np.array([p.x, p.y, p.z]),
            object_quaternion=np.array([q.x, q.y, q.z, q.w]),
            object_size=np.array([size.x, size.y, size.z]),
            object_symmetry=json.loads(robot.last(OUTCOME).data)["object_symmetry"],
            time=stamp_of(arm) / NS,
        )

    robot.messages(POSE, 1)
    now, goal, command = state(), None, None
    servo.reset(now.joint_positions)
    sent, due, told, begin, sent_at = now.joint_positions, now.time, None, now.time, 0.0
    while not json.loads(robot.last(OUTCOME).data)["success"]:
        if now.time >= due:  # s of the robot's clock, so that a busy machine only slows it down
            command = decode(expert.act(now), scale)
            goal, due = servo.step(now.joint_positions, command), now.time + 0.05
            hand = [finger_of(command.opening), command.force_limit]
            if hand != told:  # 20 a second would lock the gripper up
                robot.send(GRIPPER_COMMANDS, Float64MultiArray(data=hand))
                told = hand
        if time.monotonic() - sent_at >= 1 / 125:  # after a stall, states come faster than cycles
            sent = sent + np.clip(goal - sent, -0.012, 0.012)  # of 25 mrad that a cycle may ask for
            robot.command(sent)
            sent_at = time.monotonic()
        now = state()
        assert robot.heard[FAULTS] == []
        assert now.time < begin + 20.0
    outcome = json.loads(robot.last(OUTCOME).data)
    assert (outcome["grasped"], outcome["broken"]) == (True, False)
    robot.end()
    record = np.load(robot.record)
    assert np.abs(np.diff(record["commands"], axis=0)).max() <= 0.0121
    assert unpack_state(record["states"][-1]).gripper_force == pytest.approx(60.0, rel=0.2)
