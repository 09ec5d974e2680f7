"""The table of topics is what the running nodes publish and subscribe."""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("rclpy")

from grasp_demos.topics import Topics
from grasp_ros.demo import BUNDLE
from grasp_ros.graph import GRAPH, NODES, draw
from grasp_ros.recorder import open_receiver
from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher

APART = {
    *("/parameter_events", "/rosout", "/policy_server/transition_event"),
    *("/sim/outcome", "/sim/faults", "/io_and_status_controller/robot_mode"),
}
"""Every node's own, and what no other node hears."""


def test_the_table_names_each_topic_once_and_known_nodes_only():
    assert len({topic.name for topic in GRAPH}) == len(GRAPH)
    for topic in GRAPH:
        assert topic.publishers
        assert {*topic.publishers, *topic.subscribers} <= set(NODES)


def test_the_picture_can_be_drawn(tmp_path):
    draw().savefig(tmp_path / "topics.png")
    assert (tmp_path / "topics.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_running_nodes_say_and_hear_what_the_table_says(tmp_path, ros_domain):
    domain = int(os.environ["ROS_DOMAIN_ID"])
    parameters = {"policy_server": {"bundle": str(BUNDLE), "autostart": True}}
    with (
        Stack(tmp_path, domain, parameters) as stack,
        Watcher(domain) as watcher,
        open_receiver(Topics()),
    ):
        node = watcher.node

        def seen() -> dict[str, tuple[set[str], set[str]]]:
            watcher.spin()
            found = {}
            for name in NODES:
                try:
                    found[name] = (
                        {topic for topic, _ in node.get_publisher_names_and_types_by_node(name, "/")},
                        {topic for topic, _ in node.get_subscriber_names_and_types_by_node(name, "/")},
                    )
                except RuntimeError:  # it is not there yet
                    found[name] = (set(), set())
            return found

        def expected() -> dict[str, tuple[set[str], set[str]]]:
            return {
                name: (
                    {topic.name for topic in GRAPH if name in topic.publishers},
                    {topic.name for topic in GRAPH if name in topic.subscribers},
                )
                for name in NODES
            }

        def of_interest(found):
            published = {topic for says, _ in found.values() for topic in says} - APART
            return {name: (says - APART, hears & published) for name, (says, hears) in found.items()}

        end = time.monotonic() + 120.0
        while (found := of_interest(seen())) != expected() and time.monotonic() < end:
            stack.check()
        assert found == expected()
