"""Spinning a node of the control loop."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.timer import Timer

from grasp_ros.process import goes_on

MAX_PRIORITY = 90
"""Of SCHED_FIFO; the kernel's own threads lie above."""


def spin(node: Node) -> None:
    """Run a node's callbacks in this thread until the process is told to end.

    The events executor answers a 500 Hz topic with half the delay of the others, which the control loop
    needs; its own `spin` cannot be interrupted.
    """
    executor = EventsExecutor(context=node.context)
    executor.add_node(node)
    gc.collect()
    gc.freeze()  # what lives until the end is not looked at again in the middle of a control cycle
    try:
        while goes_on():
            executor.spin_once(timeout_sec=0.1)
    finally:
        executor.shutdown()


def steady_timer(node: Node, period: float, call: Callable[[], None]) -> Timer:
    """A timer of s that goes on when the computer's clock is set back or a simulated one stands; a node's
    usual one waits until that clock has caught up, and with it whatever it watches over."""
    return node.create_timer(period, call, clock=Clock(clock_type=ClockType.STEADY_TIME))


def take_priority(node: Node, priority: int) -> None:
    """Ask for the real-time scheduler (SCHED_FIFO); 0 leaves the usual one. Refused, the node goes on and
    says what to allow."""
    if not priority:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        node.get_logger().warning(
            f"realtime_priority={priority} was refused ({error}): allow it with an rtprio line in"
            " /etc/security/limits.conf, or set 0; the loop runs at the usual priority"
        )
