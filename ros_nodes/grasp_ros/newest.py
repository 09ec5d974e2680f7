"""The newest message of a topic, decoded only when somebody looks at it.

A driver sends joint states 500 times a second, and most nodes need a few of them: decoding every one in
Python would take a tenth of a core in each node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message


class Newest:
    """Subscribes to a topic. One thread."""

    def __init__(
        self,
        node: Node,
        kind: Any,
        topic: str,
        qos: QoSProfile,
        on_arrival: Callable[[], None] | None = None,
    ) -> None:
        """`on_arrival` is called after each message has come in."""
        self.received = float("-inf")
        """s of the monotonic clock when the newest message came."""
        self._kind, self._on_arrival = kind, on_arrival
        self._content: bytes | None = None
        self.subscription = node.create_subscription(kind, topic, self._keep, qos, raw=True)

    def _keep(self, content: Any) -> None:
        self._content, self.received = content, time.monotonic()
        if self._on_arrival is not None:
            self._on_arrival()

    def holds(self, text: str) -> bool:
        """Whether the message that was not taken yet holds a text; names are plain bytes in CDR."""
        return self._content is not None and text.encode() in self._content

    def take(self) -> Any | None:
        """The newest message, or None where it was taken before."""
        content, self._content = self._content, None
        return None if content is None else deserialize_message(content, self._kind)
