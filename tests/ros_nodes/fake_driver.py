"""A robot's driver, perception and commands: publishes an episode in real time, as a process of its own.

Arguments: an episode file, a folder, and what goes wrong after a second of the episode (`nothing`, `nan`,
`missing`, `stale-object`, `back`, `wrong-size`, `flood`), or `as-exported` for the messages that an export
holds, at their times.

Until the file `go` appears in the folder the arm stands still and nobody commands it; the first commands are
those of the episode. Its end is the line `done`; the arm stands still again then.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import rclpy
from geometry_msgs.msg import PoseStamped, Vector3Stamped
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from grasp_demos.reader import read_episode
from grasp_demos.topics import Topics
from grasp_sim.contract import ACTION_NAMES, unpack_state
from grasp_sim.ur5e import JOINT_NAMES

NS = 1_000_000_000
T = Topics()
BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
ALPHABETICAL = sorted(range(6), key=lambda k: JOINT_NAMES[k])


class Driver:
    def __init__(self, node: Node, episode, fault: str) -> None:
        self.node, self.episode, self.fault = node, episode, fault
        self.states = [unpack_state(row) for row in episode.states]
        self.times = np.array([s.time for s in self.states]) - self.states[0].time
        self.arm = node.create_publisher(JointState, T.joint_states, BEST_EFFORT)
        self.gripper = node.create_publisher(JointState, T.gripper, RELIABLE)
        self.pose = node.create_publisher(PoseStamped, T.object_pose, BEST_EFFORT)
        self.size = node.create_publisher(Vector3Stamped, T.object_size, LATCHED)
        self.requested = node.create_publisher(JointTrajectory, T.requested_action, RELIABLE)
        self.executed = node.create_publisher(JointTrajectory, T.executed_action, RELIABLE)
        self.sent = 0
        size = Vector3Stamped()
        size.vector.x, size.vector.y, size.vector.z = map(float, self.states[0].object_size)
        self.size.publish(size)

    def at(self, seconds: float):
        """Joint positions, velocities, and the state before `seconds` of the episode."""
        k = int(np.clip(np.searchsorted(self.times, seconds, side="right") - 1, 0, len(self.times) - 1))
        columns = [
            [np.interp(seconds, self.times, [getattr(s, name)[j] for s in self.states]) for j in range(6)]
            for name in ("joint_positions", "joint_velocities")
        ]
        return *columns, self.states[k]

    def wrong(self, fault: str, seconds: float) -> bool:
        return self.fault == fault and seconds > 1.0

    def publish_arm(self, seconds: float, now: int) -> None:
        positions, velocities, _ = self.at(seconds)
        message = JointState()
        order = ALPHABETICAL[1:] if self.wrong("missing", seconds) else ALPHABETICAL
        message.name = [JOINT_NAMES[k] for k in order] + ["finger_joint"]
        message.position = [float(positions[k]) for k in order] + [0.1]
        message.velocity = [float(velocities[k]) for k in order] + [0.0]
        if self.wrong("nan", seconds):
            message.position[0] = float("nan")
        if self.wrong("wrong-size", seconds):
            message.position = message.position[:4]
        stamp(message, now - 30 * NS if self.wrong("back", seconds) else now)
        for _ in range(200 if self.wrong("flood", seconds) else 1):
            self.arm.publish(message)

    def publish_gripper(self, seconds: float, now: int) -> None:
        state = self.at(seconds)[2]
        message = JointState(name=["gripper"], position=[state.gripper_opening], effort=[state.gripper_force])
        stamp(message, now)
        self.gripper.publish(message)

    def publish_object(self, seconds: float, now: int) -> None:
        state = self.at(seconds)[2]
        message = PoseStamped()
        message.header.frame_id = "base_link"
        p, q = message.pose.position, message.pose.orientation
        p.x, p.y, p.z = map(float, state.object_position)
        q.x, q.y, q.z, q.w = map(float, state.object_quaternion)
        stamp(message, now)
        if not self.wrong("stale-object", seconds):
            self.pose.publish(message)

    def publish_command(self, seconds: float, now: int) -> None:
        """Every command that is due, stamped with the time of the state that it answers."""
        while self.sent <= min(seconds * 20, len(self.episode) - 1):
            for publisher, actions in (
                (self.requested, self.episode.requested_actions),
                (self.executed, self.episode.executed_actions),
            ):
                point = JointTrajectoryPoint(positions=actions[self.sent].astype(float).tolist())
                message = JointTrajectory(joint_names=list(ACTION_NAMES), points=[point])
                stamp(message, now - round(seconds * NS) + self.sent * NS // 20)
                publisher.publish(message)
            self.sent += 1

    def run(self, folder: Path) -> None:
        """Each source at its own rate, until the process is stopped."""
        rates = (
            (self.publish_arm, NS // 125), (self.publish_gripper, NS // 30),
            (self.publish_object, NS // 10), (self.publish_command, NS // 20),
        )  # fmt: skip
        begin, done = None, False
        due = [time.time_ns()] * len(rates)
        while rclpy.ok():
            now = time.time_ns()
            if begin is None and (folder / "go").exists():
                begin = due[3] = now
            seconds = -1.0 if begin is None else (now - begin) / NS
            for position, (publish, period) in enumerate(rates):
                if now >= due[position]:
                    publish(seconds, now)
                    due[position] = max(due[position] + period, now - period)
            if not done and seconds > self.times[-1]:
                done = True
                print("done", flush=True)
            time.sleep(0.001)


def stamp(message, ns: int) -> None:
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(ns, NS)


def stamp_of(message) -> int:
    return message.header.stamp.sec * NS + message.header.stamp.nanosec


def replay(node: Node, episode, folder: Path) -> None:
    """The messages of an export, moved to now; a state's tick comes 10 ms after its sources."""
    from grasp_demos.convert.ros_messages import episode_messages

    classes = {
        "sensor_msgs/msg/JointState": JointState, "geometry_msgs/msg/PoseStamped": PoseStamped,
        "geometry_msgs/msg/Vector3Stamped": Vector3Stamped,
        "std_msgs/msg/Float64MultiArray": Float64MultiArray,
        "trajectory_msgs/msg/JointTrajectory": JointTrajectory,
    }  # fmt: skip
    publishers, messages = {}, []
    for raw in episode_messages([episode], T):
        if raw.type_name in classes and raw.topic != T.tcp_pose:
            kind = classes[raw.type_name]
            if raw.topic not in publishers:
                publishers[raw.topic] = node.create_publisher(kind, raw.topic, RELIABLE)
            messages.append((raw.topic, raw.time, deserialize_message(bytes(raw.data), kind)))
    first = messages[0][1]
    still = messages[:4]
    held = [stamp_of(message) for _, _, message in still]

    def stand_still(offset: int) -> None:
        for (topic, time_ns, message), original in zip(still, held, strict=True):
            stamp(message, original - time_ns + offset)
            publishers[topic].publish(message)
        time.sleep(0.05)

    while not (folder / "go").exists():
        stand_still(time.time_ns())
    for (_, _, message), original in zip(still, held, strict=True):
        stamp(message, original)
    shift = time.time_ns() + NS // 20 - first
    for topic, time_ns, message in messages:
        due = time_ns + shift
        if topic == T.state_stamps:
            due += 10_000_000
        while time.time_ns() < due:
            time.sleep(0.0005)
        if topic != T.state_stamps:
            stamp(message, stamp_of(message) + shift)
        publishers[topic].publish(message)
    print("done", flush=True)
    state = {topic: message for topic, _, message in messages}
    while rclpy.ok():
        for topic in (T.joint_states, T.gripper, T.object_pose, T.object_size):
            stamp(state[topic], time.time_ns())
            publishers[topic].publish(state[topic])
        time.sleep(0.05)


def main(path: str, folder: str, fault: str) -> None:
    rclpy.init()
    node = rclpy.create_node("fake_driver")
    episode = read_episode(Path(path))
    if fault == "as-exported":
        replay(node, episode, Path(folder))
    else:
        Driver(node, episode, fault).run(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
