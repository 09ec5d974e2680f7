"""The newest message of a topic, and what is taken for none."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy")

from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState

from grasp_demos.episode import DemoError
from grasp_ros.newest import Newest
from grasp_ros.qos import NEWEST


def bytes_of(*names: str) -> bytes:
    return serialize_message(JointState(name=list(names), position=[0.5] * len(names)))


@pytest.fixture
def newest(peer):
    return Newest(peer("listener").node, JointState, "/joint_states", NEWEST, about="elbow_joint")


def test_a_longer_name_is_another(newest):
    """The joints of a second arm have the same names with a prefix, on the same topic."""
    newest._keep(bytes_of("left_elbow_joint"))
    newest._keep(bytes_of("elbow_joint_2"))
    assert newest.take() is None
    assert newest.received == float("-inf")
    newest._keep(bytes_of("left_elbow_joint", "elbow_joint"))
    assert not newest.holds("left_elbow")
    assert newest.holds("left_elbow_joint")
    assert list(newest.take().name) == ["left_elbow_joint", "elbow_joint"]
    assert newest.take() is None


def test_damaged_bytes_are_an_error_once(newest):
    """Of a sender with another definition of the type, or one that means harm."""
    whole = bytes_of("elbow_joint", "wrist_3_joint")
    for damaged in (whole[:-20], whole.replace(b"wrist", b"")):
        newest._keep(damaged)
        with pytest.raises(DemoError, match="cannot be decoded"):
            newest.take()
        assert newest.take() is None
