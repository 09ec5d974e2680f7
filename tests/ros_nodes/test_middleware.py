"""Messages travel over UDP: who is killed in shared memory makes others wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grasp_ros.middleware import LOOPBACK, avoid_shared_memory

RANGE, PROFILE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTDDS_DEFAULT_PROFILES_FILE"
TRANSPORTS = "FASTDDS_BUILTIN_TRANSPORTS"


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({}, {TRANSPORTS: "UDPv4"}),
        ({RANGE: "SUBNET"}, {RANGE: "SUBNET", TRANSPORTS: "UDPv4"}),
        (
            {RANGE: "LOCALHOST"},
            {RANGE: "SYSTEM_DEFAULT", TRANSPORTS: "UDPv4", PROFILE: str(LOOPBACK)},
        ),
        (
            {"ROS_LOCALHOST_ONLY": "1"},
            {RANGE: "SYSTEM_DEFAULT", TRANSPORTS: "UDPv4", PROFILE: str(LOOPBACK)},
        ),
        (
            {RANGE: "LOCALHOST", "RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"},
            {RANGE: "LOCALHOST", "RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp", TRANSPORTS: "UDPv4"},
        ),
        (
            {RANGE: "LOCALHOST", "ROS_STATIC_PEERS": "10.0.0.2"},
            {RANGE: "LOCALHOST", "ROS_STATIC_PEERS": "10.0.0.2", TRANSPORTS: "UDPv4"},
        ),
        ({RANGE: "LOCALHOST", PROFILE: "mine.xml"}, {RANGE: "LOCALHOST", PROFILE: "mine.xml"}),
        ({TRANSPORTS: "SHM"}, {TRANSPORTS: "SHM"}),
    ],
)
def test_what_is_chosen_stays_and_nothing_else_uses_shared_memory(given, after):
    environment = dict(given)
    avoid_shared_memory(environment)
    assert environment == after
    environment |= {name: value for name, value in given.items() if name == RANGE}  # as tests do
    avoid_shared_memory(environment)
    assert environment == after


@pytest.mark.parametrize("discovery", ["LOCALHOST", "SUBNET"])
def test_a_node_has_no_shared_memory_and_is_heard_by_those_that_have(discovery, peer, wait_for, monkeypatch):
    from diagnostic_msgs.msg import DiagnosticArray

    for name in (PROFILE, TRANSPORTS):
        monkeypatch.delenv(name)
    monkeypatch.setenv(RANGE, discovery)
    listener = peer("with_shared_memory")
    heard = listener.hear(DiagnosticArray, "/diagnostics")
    listener.start()
    assert any("shm" in name for name in threads(os.getpid()))
    command = [sys.executable, "-m", "grasp_ros.safety_node"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
        try:
            wait_for(lambda: heard, 30, lambda: "the node is not heard")
            names = threads(node.pid)
        finally:
            node.kill()
    assert any("dds.udp" in name for name in names)
    assert not any("shm" in name for name in names)


def threads(pid: int) -> list[str]:
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
