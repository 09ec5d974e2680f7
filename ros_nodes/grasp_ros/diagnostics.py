"""What a node says of itself on `/diagnostics`: changes at once, and all of it again every second.

    diagnostics = Diagnostics(node, "gripper bridge", "robotiq_2f_85")
    diagnostics.report(Level.WARN, "the driver's state is 0.31 s old (limit 0.2 s)", age=0.31)

What is said for the first time is logged too, so that a terminal shows why an arm holds still.
"""

from __future__ import annotations

import re
import threading
import time
from enum import IntEnum

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node

TOPIC = "/diagnostics"
REPEAT_S = 1.0
"""s after which everything is said again, so that those who came late know, and silence means a dead node."""
LEAST_S = 0.1
"""s between two arrays: what comes and goes faster is summed up by the worst of it."""


class Level(IntEnum):
    """How bad it is, as `diagnostic_msgs/DiagnosticStatus` counts."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


def status_message(
    level: Level, name: str, message: str, hardware_id: str = "", **values: object
) -> DiagnosticStatus:
    """A status whose values are written as text, floats with six significant digits."""
    return DiagnosticStatus(
        level=bytes([level]),
        name=name,
        message=message,
        hardware_id=hardware_id,
        values=[
            KeyValue(key=key, value=f"{value:.6g}" if isinstance(value, float) else str(value))
            for key, value in values.items()
        ],
    )


class Diagnostics:
    """The one status of a node. `report` may be called from any thread, at any rate."""

    def __init__(self, node: Node, name: str, hardware_id: str) -> None:
        """`name` is shown after the node's own, as in "gripper_bridge: gripper"."""
        self._node = node
        self._name = f"{node.get_name()}: {name}"
        self._hardware_id = hardware_id
        self._lock = threading.Lock()
        self._current: DiagnosticStatus | None = None
        self._unsaid: DiagnosticStatus | None = None  # the worst that was not published yet
        self._said: tuple[int, str] | None = None
        self._last = -REPEAT_S
        self._publisher = node.create_publisher(DiagnosticArray, TOPIC, 10)
        # A steady clock: with simulated time a node that hears no /clock still says so.
        self._timer = node.create_timer(LEAST_S, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def report(self, level: Level, message: str, **values: object) -> None:
        """Say how the node is: `message` is one line that tells what is wrong and what to do."""
        status = status_message(level, self._name, message, self._hardware_id, **values)
        with self._lock:
            self._current = status
            if self._kind(status) == self._said:
                return  # only numbers differ; they go out with the next repetition
            if self._unsaid is None or status.level >= self._unsaid.level:
                self._unsaid = status
            self._publish_changes()

    def _tick(self) -> None:
        with self._lock:
            self._publish_changes()
            if self._current is not None and time.monotonic() - self._last >= REPEAT_S:
                self._publish(self._current)

    def _publish_changes(self) -> None:
        if self._current is None or time.monotonic() - self._last < LEAST_S:
            return
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is not None and self._kind(unsaid) not in (self._said, self._kind(self._current)):
            self._publish(unsaid)
        if self._kind(self._current) != self._said:
            self._publish(self._current)

    def _publish(self, status: DiagnosticStatus) -> None:
        self._last = time.monotonic()
        if self._kind(status) != self._said:
            self._said = self._kind(status)
            logger = self._node.get_logger()
            # Each from a line of its own: rclpy refuses a change of severity of one line.
            if status.level[0] >= Level.ERROR:
                logger.error(status.message)
            elif status.level[0] == Level.WARN:
                logger.warning(status.message)
            else:
                logger.info(status.message)
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    @staticmethod
    def _kind(status: DiagnosticStatus) -> tuple[int, str]:
        """Level and wording: with other numbers in it a message is still the same."""
        return status.level[0], re.sub(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|nan|inf", "#", status.message)
