"""Real ROS 2 on loopback: a domain for each test, and nodes that play the other side."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading

import pytest

from grasp_ros.middleware import avoid_shared_memory

_COUNT = itertools.count()


class Peer:
    """A node of the test's own in a thread, which remembers what it hears."""

    def __init__(self, name: str) -> None:
        from rclpy import init
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node
        from rclpy.signals import SignalHandlerOptions

        self.context = Context()
        init(context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node(name, context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.thread_id: int | None = None

    def hear(self, kind, topic: str, qos=10) -> list:
        """The messages of a topic, as they come."""
        heard: list = []
        self.node.create_subscription(kind, topic, heard.append, qos)
        return heard

    def start(self) -> Peer:
        """Spin from now on."""
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()
        return self

    def end(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()

    def _spin(self) -> None:
        self.thread_id = threading.get_ident()
        while not self._stop.is_set():
            self.executor.spin_once(timeout_sec=0.05)


@pytest.fixture
def ros_domain(monkeypatch) -> None:
    """A ROS domain of this test's own."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(1 + (os.getpid() * 7 + next(_COUNT)) % 59))
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS"):
        monkeypatch.setenv(name, "")  # to be undone, too
    avoid_shared_memory()


@pytest.fixture
def peer(ros_domain):
    """Makes nodes by name."""
    pytest.importorskip("rclpy")
    peers: list[Peer] = []

    def make(name: str) -> Peer:
        peers.append(Peer(name))
        return peers[-1]

    yield make
    for one in peers:
        one.end()


@pytest.fixture
def node_process(ros_domain, tmp_path):
    """Starts `python -m module --ros-args -p name:=value ...`; `.said()` is what it wrote."""
    running: list[subprocess.Popen] = []

    def start(module: str, *ros_arguments: str) -> subprocess.Popen:
        log = tmp_path / f"{module}-{len(running)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", module, "--ros-args", *ros_arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process.said = log.read_text  # type: ignore[attr-defined]
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
