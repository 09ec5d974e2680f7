"""The ROS 2 topics that hold an episode: their names, types, and what their fields mean.

The nodes publish them, bags are written with them and read by them. Everything is mapped by the names inside
the messages, never by position.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

JOINT_STATE = "sensor_msgs/msg/JointState"
POSE = "geometry_msgs/msg/PoseStamped"
VECTOR = "geometry_msgs/msg/Vector3Stamped"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
NUMBERS = "std_msgs/msg/Float64MultiArray"
TEXT = "std_msgs/msg/String"


@dataclass
class Topics:
    """Names of topics, frames and prefixes; the defaults are what the nodes and `export` use."""

    joint_states: str = "/joint_states"
    """sensor_msgs/JointState: positions (rad) and velocities (rad/s) of the arm, in any order."""
    gripper: str = "/gripper/joint_states"
    """sensor_msgs/JointState with one joint: position is the opening (m), effort the grip force (N)."""
    object_pose: str = "/object_pose"
    """geometry_msgs/PoseStamped of the object's centre."""
    object_size: str = "/object_size"
    """geometry_msgs/Vector3Stamped: full extents (m) along the object's axes."""
    tcp_pose: str = "/tcp_pose"
    """geometry_msgs/PoseStamped, written for other programs; read back is forward kinematics alone."""
    requested_action: str = "/requested_action"
    """trajectory_msgs/JointTrajectory of one point; joint_names are the action's names, each in [-1, 1]."""
    executed_action: str = "/executed_action"
    """Likewise: the action as it was sent."""
    intended_action: str = "/intended_action"
    """Likewise: the action before noise."""
    state_stamps: str = "/grasp_state/stamps"
    """std_msgs/Float64MultiArray: time, joint_time, gripper_time, object_time (s) of the assembled state."""
    episode_start: str = "/episode/start"
    """std_msgs/String, JSON: metadata, snapshot, what does not change during the episode."""
    episode_step: str = "/episode/step"
    """std_msgs/String, JSON: reward, ends, slip, drop, actor and the simulator's state after a step."""
    episode_end: str = "/episode/end"
    """std_msgs/String, JSON: success."""
    base_frame: str = "base_link"
    """Frame that the object's pose must be given in."""
    tf_prefix: str = ""
    """What the driver puts before each of the arm's joint names."""

    def types(self) -> dict[str, str]:
        """Message type by topic,."""
        return {getattr(self, field): kind for field, kind in _TYPES.items()}

    def __post_init__(self) -> None:
        names = [getattr(self, field.name) for field in fields(self) if field.name in _TYPES]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"topics: {twice[0]} is named for two things; each needs a topic of its own.")


_TYPES = {
    "joint_states": JOINT_STATE,
    "gripper": JOINT_STATE,
    "object_pose": POSE,
    "object_size": VECTOR,
    "tcp_pose": POSE,
    "requested_action": TRAJECTORY,
    "executed_action": TRAJECTORY,
    "intended_action": TRAJECTORY,
    "state_stamps": NUMBERS,
    "episode_start": TEXT,
    "episode_step": TEXT,
    "episode_end": TEXT,
}
