"""Schedules over training progress in [0, 1]."""

from __future__ import annotations

import math


def linear(start: float, end: float, progress: float) -> float:
    """From `start` to `end` in a straight line; constant outside [0, 1]."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def cosine(start: float, end: float, progress: float) -> float:
    """From `start` to `end` along half a cosine; constant outside [0, 1]."""
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
