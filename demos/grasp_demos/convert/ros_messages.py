"""Episodes as ROS 2 messages in CDR, in the order in which a robot's nodes would have sent them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.convert.format import load_package
from grasp_demos.episode import ACTORS, DemoError, Episode
from grasp_demos.header import header_json
from grasp_demos.streams import NS, OUTCOME
from grasp_demos.topics import NUMBERS, TEXT, Topics
from grasp_sim.contract import ACTION_NAMES, GraspState, unpack_state
from grasp_sim.ur5e import GRIPPER_STROKE, JOINT_NAMES

_PAUSE = 10 * NS
"""Between two episodes of one recording."""
_ALPHABETICAL = sorted(range(len(JOINT_NAMES)), key=lambda k: JOINT_NAMES[k])
"""The order in which the robot's driver lists its joints."""
_GRIPPER_JOINT, _CLOSED = "finger_joint", 0.8
"""The 2F-85's driven joint, 0 rad open; written among the arm's joints as its driver does."""


class Raw(NamedTuple):
    """A message as it lies in a file."""

    topic: str
    type_name: str
    """Such as `sensor_msgs/msg/JointState`."""
    time: int
    """ns, when it was received."""
    data: bytes | memoryview
    """CDR."""


@cache
def typestore() -> Any:
    """Definitions of the messages of ROS 2 Jazzy."""
    typesys = load_package("rosbags.typesys", "ROS 2 recordings")
    return typesys.get_typestore(typesys.Stores.ROS2_JAZZY)


def episode_messages(episodes: Sequence[Episode], topics: Topics) -> Iterator[Raw]:
    """All messages of the episodes in the order of their receive times, one episode after the other.

    A state's messages are received at its time and stamped with their sources' times; an action is stamped
    with the time of the state it answers. Raises DemoError for an object whose symmetry changes.
    """
    begin = _PAUSE
    for episode in episodes:
        if episode.metadata.recorded_at:
            begin = max(begin, round(datetime.fromisoformat(episode.metadata.recorded_at).timestamp()) * NS)
        origin = begin - round(episode.start.time * NS)
        yield from _episode(episode, topics, origin)
        begin = origin + round(unpack_state(episode.states[-1]).time * NS) + _PAUSE


def _episode(episode: Episode, topics: Topics, origin: int) -> Iterator[Raw]:
    make, kinds = _Maker(origin), topics.types()
    states = [unpack_state(row) for row in episode.states]
    if len({state.object_symmetry for state in states}) > 1:
        raise DemoError(f"{episode}: the object's symmetry changes; a recording holds one an episode.")
    header = header_json(
        episode,
        object_symmetry=states[0].object_symmetry,
        origin_ns=origin,
        simulator_state=episode.simulator_states[0].tolist(),
    )
    yield make.raw(topics.episode_start, TEXT, states[0].time, make.text(header))
    for k, state in enumerate(states):
        messages: list[tuple[str, Any]] = [
            (topics.joint_states, make.arm(state, topics)),
            (topics.gripper, make.gripper(state)),
            (
                topics.object_pose,
                make.pose(state.object_time, topics, state.object_position, state.object_quaternion),
            ),
            (topics.object_size, make.size(state.object_time, topics, state.object_size)),
            (topics.tcp_pose, make.pose(state.joint_time, topics, state.tcp_position, state.tcp_quaternion)),
            (
                topics.state_stamps,
                make.numbers([state.time, state.joint_time, state.gripper_time, state.object_time]),
            ),
        ]
        if k > 0:
            messages.append((topics.episode_step, make.text(_step_json(episode, k - 1))))
        if k < len(episode):
            messages += [
                (topics.intended_action, make.action(state.time, episode.intended_actions[k])),
                (topics.requested_action, make.action(state.time, episode.requested_actions[k])),
                (topics.executed_action, make.action(state.time, episode.executed_actions[k])),
            ]
        for topic, message in messages:
            yield make.raw(topic, kinds[topic], state.time, message)
    end = json.dumps({"success": episode.metadata.success, "complete": episode.metadata.complete})
    yield make.raw(topics.episode_end, TEXT, states[-1].time, make.text(end))


def _step_json(episode: Episode, step: int) -> str:
    values = {
        "reward": float(episode.rewards[step]),
        "terminated": bool(episode.terminations[step]),
        "truncated": bool(episode.truncations[step]),
        "slip": bool(episode.slips[step]),
        "drop": bool(episode.drops[step]),
        "actor": ACTORS[episode.actors[step]],
    }
    assert tuple(values) == OUTCOME
    return json.dumps(values | {"simulator_state": episode.simulator_states[step + 1].tolist()})


class _Maker:
    """Makes messages whose times (s) count from `origin` (ns)."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._store = typestore()

    def raw(self, topic: str, kind: str, time: float, message: Any) -> Raw:
        return Raw(topic, kind, self._ns(time), self._store.serialize_cdr(message, kind))

    def _ns(self, time: float) -> int:
        return self._origin + round(time * NS)

    def _new(self, kind: str, *values: object) -> Any:
        return self._store.types[kind](*values)

    def _header(self, time: float, frame: str) -> Any:
        seconds, rest = divmod(self._ns(time), NS)
        return self._new(
            "std_msgs/msg/Header", self._new("builtin_interfaces/msg/Time", seconds, rest), frame
        )

    def _joint_state(self, time: float, names: list[str], *columns: list[float]) -> Any:
        arrays = [np.array(column, np.float64) for column in columns]
        return self._new("sensor_msgs/msg/JointState", self._header(time, ""), names, *arrays)

    def arm(self, state: GraspState, topics: Topics) -> Any:
        names = [topics.tf_prefix + JOINT_NAMES[k] for k in _ALPHABETICAL] + [_GRIPPER_JOINT]
        finger = _CLOSED * (1.0 - state.gripper_opening / GRIPPER_STROKE)
        positions = [*state.joint_positions[_ALPHABETICAL], finger]
        velocities = [*state.joint_velocities[_ALPHABETICAL], 0.0]
        return self._joint_state(state.joint_time, names, positions, velocities, [])

    def gripper(self, state: GraspState) -> Any:
        opening, force = [state.gripper_opening], [state.gripper_force]
        return self._joint_state(state.gripper_time, ["gripper_opening"], opening, [], force)

    def pose(self, time: float, topics: Topics, position: np.ndarray, quaternion: np.ndarray) -> Any:
        point = self._new("geometry_msgs/msg/Point", *map(float, position))
        turn = self._new("geometry_msgs/msg/Quaternion", *map(float, quaternion))
        pose = self._new("geometry_msgs/msg/Pose", point, turn)
        return self._new("geometry_msgs/msg/PoseStamped", self._header(time, topics.base_frame), pose)

    def size(self, time: float, topics: Topics, size: np.ndarray) -> Any:
        vector = self._new("geometry_msgs/msg/Vector3", *map(float, size))
        return self._new("geometry_msgs/msg/Vector3Stamped", self._header(time, topics.base_frame), vector)

    def action(self, time: float, action: np.ndarray) -> Any:
        none, zero = np.zeros(0), self._new("builtin_interfaces/msg/Duration", 0, 0)
        values = np.asarray(action, np.float64)
        point = self._new("trajectory_msgs/msg/JointTrajectoryPoint", values, none, none, none, zero)
        header = self._header(time, "")
        return self._new("trajectory_msgs/msg/JointTrajectory", header, list(ACTION_NAMES), [point])

    def numbers(self, values: list[float]) -> Any:
        layout = self._new("std_msgs/msg/MultiArrayLayout", [], 0)
        return self._new(NUMBERS, layout, np.array(values, np.float64))

    def text(self, text: str) -> Any:
        return self._new(TEXT, text)
