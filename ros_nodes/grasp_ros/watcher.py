"""Hears what the nodes say of a grasp and calls their services, from outside of them."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, Self

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String
from std_srvs.srv import Trigger

from grasp_ros import names
from grasp_ros.middleware import avoid_shared_memory
from grasp_ros.qos import LATCHED, RELIABLE
from grasp_sim.errors import UserError


def values_of(status: DiagnosticStatus | None) -> dict[str, str]:
    """The values of a status by their keys; none of None."""
    return {} if status is None else {pair.key: pair.value for pair in status.values}


class Watcher:
    """A node without parameters of its own; a context manager. One thread: `spin` lets messages in."""

    def __init__(self, domain_id: int) -> None:
        self._domain_id = domain_id
        self.safety: DiagnosticStatus | None = None
        self.grasp: DiagnosticStatus | None = None
        self.outcome: dict[str, Any] = {}
        """The simulator's judgement of the present episode."""
        self.diagnostics: list[DiagnosticStatus] = []
        """Everything that was said on /diagnostics."""

    def __enter__(self) -> Self:
        # Read by the middleware when the participant is made; only this machine is of interest.
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        avoid_shared_memory()
        self.context = Context()
        rclpy.init(context=self.context, domain_id=self._domain_id)
        self.node = Node("grasp_watcher", context=self.context, use_global_arguments=False)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        listen = self.node.create_subscription
        listen(DiagnosticStatus, names.SAFETY_STATUS, lambda m: setattr(self, "safety", m), LATCHED)
        listen(DiagnosticStatus, names.GRASP_STATUS, lambda m: setattr(self, "grasp", m), LATCHED)
        listen(String, names.SIM_OUTCOME, self._on_outcome, LATCHED)
        listen(DiagnosticArray, "/diagnostics", lambda m: self.diagnostics.extend(m.status), RELIABLE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()

    def _on_outcome(self, message: String) -> None:
        self.outcome = json.loads(message.data)

    def spin(self, seconds: float = 0.02) -> None:
        """Let messages in for a moment."""
        self._executor.spin_once(timeout_sec=seconds)

    def call(self, service: str, seconds: float = 10.0) -> Trigger.Response:
        """Call a Trigger service; UserError where nobody answers."""
        client = self.node.create_client(Trigger, service)
        try:
            if not client.wait_for_service(timeout_sec=seconds):
                raise UserError(f"nobody offers {service}: is its node alive?")
            future = client.call_async(Trigger.Request())
            self._executor.spin_until_future_complete(future, timeout_sec=seconds)
            answer = future.result() if future.done() else None
            if answer is None:
                raise UserError(f"{service} did not answer within {seconds:g} s")
            return answer
        finally:
            self.node.destroy_client(client)
