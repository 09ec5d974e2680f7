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

from grasp_demos.episode import DemoError


class Newest:
    """Subscribes to a topic. One thread."""

    def __init__(
        self,
        node: Node,
        kind: Any,
        topic: str,
        qos: QoSProfile,
        on_arrival: Callable[[], None] | None = None,
        *,
        about: str = "",
    ) -> None:
        """
        Args:
            node: subscribes.
            kind: of the messages.
            topic: name.
            qos: of the subscription.
            on_arrival: called after each message has come in.
            about: a name that a message must hold; others, as of another driver's joints on the same topic,
                are taken for none. A longer name that has it in it is another.
        """
        self.received = float("-inf")
        """s of the monotonic clock when the newest message came."""
        self._kind, self._on_arrival, self._about = kind, on_arrival, _in_cdr(about) if about else b""
        self._content: bytes | None = None
        self.subscription = node.create_subscription(kind, topic, self._keep, qos, raw=True)

    def _keep(self, content: Any) -> None:
        if self._about not in content:
            return
        self._content, self.received = content, time.monotonic()
        if self._on_arrival is not None:
            self._on_arrival()

    def holds(self, text: str) -> bool:
        """Whether the message that was not taken yet holds a text."""
        return self._content is not None and _in_cdr(text) in self._content

    def take(self) -> Any | None:
        """The newest message, or None where it was taken before; DemoError for bytes that are no message."""
        content, self._content = self._content, None
        try:
            return None if content is None else deserialize_message(content, self._kind)
        except RuntimeError as error:  # of the middleware, which says no more than the type
            raise DemoError("its bytes cannot be decoded: does its sender have the same type?") from error


def _in_cdr(text: str) -> bytes:
    """A string as it lies in a message: its length, itself and a zero. All of today's machines are little
    endian; a message of another is taken for none."""
    content = text.encode() + b"\0"
    return len(content).to_bytes(4, "little") + content
