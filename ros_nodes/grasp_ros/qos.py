"""Quality of service of the stack's topics."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def _profile(depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=reliability, durability=durability
    )


def heard_from_all(depth: int) -> QoSProfile:
    """For a subscription that matches every publisher: best effort asks for less than reliable, volatile for
    less than latched."""
    return _profile(depth, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)


NEWEST = heard_from_all(1)
"""For a subscription to a stream of which only the newest message counts."""
RELIABLE = _profile(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
"""For what must arrive and is of no use later: actions and commands."""
LATCHED = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
"""For what is said once and holds until something else is said."""
