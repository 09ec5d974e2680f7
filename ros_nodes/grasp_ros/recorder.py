"""Hears the topics of an episode, for `grasp-record source=ros`. What they mean is decided in `grasp_demos`.

Found by the command through the entry point `ros` of the group `grasp_demos.recorders`, since demonstrations
know nothing of ROS.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from rclpy import init
from rclpy.context import Context
from rclpy.exceptions import InvalidTopicNameException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions

from grasp_demos.topics import Topics
from grasp_demos.watch import Received
from grasp_ros.middleware import avoid_shared_memory
from grasp_sim.errors import UserError

NAME = "grasp_recorder"
DEPTH = 200
"""Messages of a topic that wait in the middleware: 0.4 s of the fastest driver."""
MOST = 50_000
"""Messages that wait here to be taken; more are dropped and counted."""
_RECORDED = (
    *("joint_states", "gripper", "object_pose", "object_size"),
    *("requested_action", "executed_action", "intended_action", "state_stamps"),
)

HEARD_FROM_ALL = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=DEPTH,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.VOLATILE,
)
"""Matches every publisher: best effort asks for less than reliable, volatile for less than latched."""
LATCHED = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Gets what was said once, before we listened."""


class TopicReceiver:
    """A node in a thread of its own that keeps messages with their receive times."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self._messages: deque[tuple[str, int, Any]] = deque()
        self._lost = 0
        self._failure = ""
        self._stop = threading.Event()
        # Unlike the clock on the wall, this one never goes back.
        self._offset = time.time_ns() - time.monotonic_ns()

    def __enter__(self) -> Self:
        """Listen. Raises UserError for a name that cannot be a topic's."""
        self._context = Context()
        avoid_shared_memory()
        # Ctrl-C is the command's own, which ends the episode first.
        init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        try:
            self._node = Node(NAME, context=self._context, use_global_arguments=False)
            self._subscribe()
        except BaseException:
            self._context.try_shutdown()
            raise
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name=NAME)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def take(self) -> Received:
        """What came in since the last call."""
        with self._lock:
            if self._failure:
                raise UserError(self._failure)
            messages, self._messages = self._messages, deque()
            lost, self._lost = self._lost, 0
            return Received(list(messages), self._now(), lost)

    def _subscribe(self) -> None:
        kinds = self._topics.types()
        for field in _RECORDED:
            topic = getattr(self._topics, field)
            package, _, name = kinds[topic].split("/")
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
            profiles = [HEARD_FROM_ALL, LATCHED] if field == "object_size" else [HEARD_FROM_ALL]
            for profile in profiles:
                try:
                    self._node.create_subscription(kind, topic, self._taker(topic), profile)
                except (InvalidTopicNameException, ValueError) as error:
                    reason = " ".join(str(error).split())
                    raise UserError(f"topics.{field}={topic} cannot be a topic: {reason}") from error

    def _taker(self, topic: str) -> Any:
        def take(message: Any) -> None:
            with self._lock:
                if len(self._messages) >= MOST:
                    self._lost += 1
                else:
                    self._messages.append((topic, self._now(), message))

        return take

    def _now(self) -> int:
        return time.monotonic_ns() + self._offset

    def _spin(self) -> None:
        try:
            while not self._stop.is_set() and self._context.ok():
                self._executor.spin_once(timeout_sec=0.1)
        except (KeyboardInterrupt, ExternalShutdownException):
            pass
        except Exception as error:
            self._fail(f"listening to the topics failed: {error!r}")
        if not self._stop.is_set():
            self._fail("ROS 2 was shut down under the recorder.")

    def _fail(self, line: str) -> None:
        with self._lock:
            self._failure = self._failure or line


def open_receiver(topics: Topics) -> TopicReceiver:
    """A receiver of the topics of an episode; use as a context manager."""
    return TopicReceiver(topics)
