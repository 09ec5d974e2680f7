"""A gripper behind its driver: the driver's units, the pace of commands, and a grip force it may not report.

A driver speaks of the angle of a finger joint; the contract of the distance between the fingertips in m and
of the grip force in N. Times are seconds of a monotonic clock that is passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from grasp_sim.gripper import STROKE


class Grip(NamedTuple):
    """What the fingers are asked to do."""

    opening: float
    """m between the fingertips."""
    force: float
    """N, the largest grip force."""


@dataclass
class FingerUnits:
    """What the driver's numbers mean. Between open and closed the opening is linear in the joint's position,
    as in the 2F-85's own register."""

    stroke: float = STROKE
    """m between the fingertips of the open gripper."""
    open_position: float = 0.0
    """rad, the driver's joint with the gripper open."""
    closed_position: float = 0.8
    """rad, the driver's joint with the gripper closed; 0.7929 with Robotiq's driver."""
    effort_scale: float = 1.0
    """N of grip force per unit of the driver's effort; 0 where its effort means nothing: the force is then
    estimated, as it is where the driver reports none (see `GripForce`)."""

    def __post_init__(self) -> None:
        _require(0.0 < self.stroke <= 1.0, f"stroke={self.stroke}: it must be in (0, 1] m.")
        _require(
            math.isfinite(self.open_position)
            and math.isfinite(self.closed_position)
            and abs(self.closed_position - self.open_position) > 1e-3,
            f"open_position={self.open_position} and closed_position={self.closed_position}: they must be"
            " two different positions of the finger joint.",
        )
        _require(math.isfinite(self.effort_scale), f"effort_scale={self.effort_scale}: it must be finite.")

    def opening(self, position: float) -> float:
        """m between the fingertips at a position (rad) of the driver's joint."""
        span = self.closed_position - self.open_position
        return self.stroke * (1.0 - (position - self.open_position) / span)

    def position(self, opening: float) -> float:
        """rad of the driver's joint at an opening (m)."""
        span = self.closed_position - self.open_position
        return self.open_position + (1.0 - opening / self.stroke) * span

    def fault(self, position: float) -> str:
        """Why a measured position (rad) cannot be believed, or ""."""
        if not math.isfinite(position):
            return f"is at {position}"
        opening = self.opening(position)
        if not -BEYOND * self.stroke <= opening <= (1.0 + BEYOND) * self.stroke:
            return (
                f"is at {position:.3f} rad, which lies outside {self.open_position:g} rad (open) to"
                f" {self.closed_position:g} rad (closed); are units.open_position and units.closed_position"
                " this driver's?"
            )
        return ""

    def force(self, effort: float) -> float | None:
        """N of grip force that the driver's effort tells, None where it tells nothing."""
        if self.effort_scale == 0.0 or not math.isfinite(effort):
            return None
        return max(0.0, effort * self.effort_scale)


BEYOND = 0.1
"""Share of the stroke that a measured opening may lie outside it: fingers bend, calibrations differ."""


@dataclass
class GripPace:
    """How often the driver is commanded."""

    rate: float = 15.0
    """Hz, the most commands a second: above about 15 Hz drivers of this gripper lock up."""
    opening_step: float = 1e-4
    """m by which a command's opening must differ from the last one sent to be sent itself; the 2F-85 resolves
    0.4 mm."""
    force_step: float = 0.5
    """N, likewise for the force; the 2F-85 resolves 0.8 N."""
    command_age: float = 0.5
    """s after which a command that could not be sent, or came late, is refused."""

    def __post_init__(self) -> None:
        _require(0.0 < self.rate <= 15.0, f"rate={self.rate}: it must be in (0, 15] Hz.")
        for name in ("opening_step", "force_step"):
            value = getattr(self, name)
            _require(0.0 <= value < math.inf, f"{name}={value}: it must be 0 or more.")
        _require(0.0 < self.command_age < math.inf, f"command_age={self.command_age}: it must be above 0 s.")


class CommandPacer:
    """Lets through at most `rate` commands a second: the newest, none twice, and the last one always."""

    def __init__(self, pace: GripPace) -> None:
        self._pace = pace
        self._sent: Grip | None = None
        self._sent_at = -math.inf
        self._waiting: Grip | None = None
        self._offered_at = -math.inf

    def offer(self, command: Grip, now: float) -> None:
        """The gripper shall do this from now on; what was waiting is out of date."""
        self._waiting = None if self._is_sent(command) else command
        self._offered_at = now

    def due(self, now: float) -> Grip | None:
        """The command to send now, if any; it counts as sent."""
        if not self.waits(now) or now - self._sent_at < 1.0 / self._pace.rate:
            return None
        self._sent, self._sent_at, self._waiting = self._waiting, now, None
        return self._sent

    def forget(self) -> None:
        """The driver was away and may not have what was sent: send the next command whatever it is."""
        self._sent = self._waiting = None

    def refused(self) -> None:
        """The driver did not take what was sent: when it is asked for again, send it again."""
        self._sent = None

    def waits(self, now: float) -> bool:
        """Whether a command waits to be sent."""
        return self._waiting is not None and now - self._offered_at <= self._pace.command_age

    def _is_sent(self, command: Grip) -> bool:
        return (
            self._sent is not None
            and abs(command.opening - self._sent.opening) <= self._pace.opening_step
            and abs(command.force - self._sent.force) <= self._pace.force_step
        )


STALL_TIME, STALL_DISTANCE = 0.2, 0.0005
"""s without moving further than this (m) after which fingers are held up. The slowest 2F-85 closes 4 mm in
that time, and its driver starts within it."""
SHORT_BY = 0.002
"""m by which held-up fingers are wider than commanded; less is the inaccuracy of an empty gripper."""


class GripForce:
    """The grip force where the driver tells none: what was commanded while the fingers stop short, else 0."""

    def __init__(self) -> None:
        self._command: Grip | None = None
        self._place = math.nan
        self._still_since = math.inf
        self._short_since = math.inf

    def commanded(self, command: Grip) -> None:
        """This was sent to the driver."""
        self._command = command

    def estimate(self, opening: float, now: float) -> float:
        """N, at a measured opening (m)."""
        if not abs(opening - self._place) <= STALL_DISTANCE:
            self._place, self._still_since = opening, now
        if self._command is None or opening <= self._command.opening + SHORT_BY:
            self._short_since = math.inf
            return 0.0
        self._short_since = min(self._short_since, now)
        held_up = now - max(self._still_since, self._short_since) >= STALL_TIME
        return self._command.force if held_up else 0.0


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
