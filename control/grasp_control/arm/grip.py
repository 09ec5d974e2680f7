"""Limits of what the gripper is commanded."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from grasp_control.arm.reasons import Reason
from grasp_sim import gripper


@dataclass
class GripLimits:
    """Range of the gripper's commands. The greatest force is for a first run; the 2F-85 can do 235 N."""

    opening_max: float = gripper.STROKE
    """m between the fingertips."""
    force_min: float = gripper.FORCE_MIN
    """N, the least that the gripper can be set to."""
    force_max: float = 120.0
    """N."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 < self.opening_max <= gripper.STROKE:
            raise ValueError(f"opening_max={self.opening_max!r} must be above 0, at most {gripper.STROKE} m.")
        if not 0.0 <= self.force_min <= self.force_max <= gripper.FORCE_MAX:
            raise ValueError(
                f"force_min={self.force_min!r} and force_max={self.force_max!r} must be in order, from 0 to"
                f" {gripper.FORCE_MAX} N."
            )


class GripCommand(NamedTuple):
    """What to send to the gripper."""

    opening: float
    """m between the fingertips."""
    force: float
    """N."""
    reason: Reason | None
    """Why it is not what was asked."""


class GripLimiter:
    """Keeps commands of the gripper in range; one that is not finite is refused and the last one stays."""

    def __init__(self, limits: GripLimits | None = None) -> None:
        self.limits = limits or GripLimits()
        self._last: tuple[float, float] | None = None

    def limit(self, opening: float, force: float) -> GripCommand | None:
        """The command to send for a wanted opening (m) and greatest force (N); None while there is none."""
        if not (isfinite(opening) and isfinite(force)):
            if self._last is None:
                return None
            text = f"opening {opening} m, force {force} N; {self._last[0]:.4f} m, {self._last[1]:.0f} N stays"
            return GripCommand(*self._last, Reason("grip_command_invalid", text))
        allowed = self.limits
        kept = (
            min(max(float(opening), 0.0), allowed.opening_max),
            min(max(float(force), allowed.force_min), allowed.force_max),
        )
        self._last = kept
        if kept == (opening, force):
            return GripCommand(*kept, None)
        text = f"opening {opening:.4f} m, force {force:.1f} N became {kept[0]:.4f} m, {kept[1]:.1f} N"
        return GripCommand(*kept, Reason("grip_command_limited", text))
