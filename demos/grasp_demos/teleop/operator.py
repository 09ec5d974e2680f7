"""What a person at a device can ask for, and what the person is shown.

Shapes: A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np

from grasp_sim.contract import ACTION_DIM, ACTION_NAMES, GraspState

COMMANDS: Mapping[str, str] = {
    "start": "begin the episode",
    "success": "end it as a success",
    "failure": "end it as a failure; between episodes, call the last one a failure",
    "discard": "throw it away; between episodes, the last one",
    "take": "take over from the policy, or give back to it",
    "quit": "stop recording",
}
"""What a person can say besides moving the arm."""

_URGENT = ("quit", "discard", "failure", "success", "take", "start")


class Commands:
    """What the person has said since it was last asked for.

    Nothing is queued: of several the most urgent counts and the others are forgotten, so that a key that got
    stuck cannot begin one episode after the other, nor keep `quit` waiting.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, command: str) -> None:
        """One of `COMMANDS`."""
        self._said.add(command)

    def take(self) -> str:
        """The most urgent of what was said, or nothing; all of it is forgotten."""
        command = next((name for name in _URGENT if name in self._said), "")
        self._said.clear()
        return command


OPENING = ACTION_NAMES.index("opening")
FORCE = ACTION_NAMES.index("force_limit")


class Intent(NamedTuple):
    """What the person wants during the next step."""

    motion: np.ndarray
    """(4,) in [-1, 1]: x, y, z along the base frame's axes and yaw about its z, as in an action."""
    closed: bool
    """The fingers are to close, or to stay closed."""
    acting: bool
    """The person is at it: moves the arm, or has just told the fingers something."""
    command: str = ""
    """One of `COMMANDS`, or nothing."""
    present: bool = True
    """False while nobody can be there, as with no page open: the arm is held still then."""


NOTHING = Intent(np.zeros(4), False, False)
"""No wish at all."""


def action_of(intent: Intent, force: float) -> np.ndarray:
    """The action (A,) float32 of an intent; `force` in [-1, 1] is the grip-force limit's share."""
    action = np.zeros(ACTION_DIM, np.float32)
    action[:4] = np.clip(intent.motion, -1.0, 1.0)
    action[OPENING] = -1.0 if intent.closed else 1.0
    action[FORCE] = force
    return action


@dataclass(frozen=True)
class Status:
    """What the person is shown after every step."""

    phase: str
    """`ready`, `recording`, `paused`."""
    state: GraspState
    """As measured."""
    snapshot: Mapping[str, np.ndarray]
    """Of the episode's beginning; empty for a real arm."""
    episode: int
    """Number of the episode that is running, or comes next, counted from 1."""
    step: int
    """Steps recorded so far in it."""
    horizon: int
    """Steps until its time-out; 0 where there is none."""
    recorded: int
    """Demonstrations that the data set holds."""
    wanted: int
    slips: int
    """Steps of this episode in which the object slid or fell."""
    actor: str
    """One of `grasp_demos.episode.ACTORS`."""
    grasped: bool
    """Both fingers press on the object."""
    late: int
    """Steps so far that began more than a tenth of a period late."""
    verdict: str = ""
    """How the last episode ended."""
    takes_over: bool = False
    """There is a policy that the person can take over from."""
    moves: bool = True
    """The device moves the arm; False where something else does and the person only says what it was."""


class Operator(Protocol):
    """A person at a device. A context manager: the device is held inside of the block."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, closed: bool) -> None:
        """An episode starts: what was asked before is over. The fingers are closed or open."""
        ...

    def follow(self, closed: bool) -> None:
        """The policy closes or opens the fingers; the person goes on from there."""
        ...

    def poll(self, state: GraspState) -> Intent:
        """What the person wants now; never waits. Raises UserError where the device is gone."""
        ...

    def show(self, status: Status) -> None:
        """Tell the person how things stand."""
        ...


NUDGE_S = 0.15
"""s that the arm moves for one press of a key. Devices that tell presses but no releases repeat a key that is
held down, first after about half a second: a press is a nudge, holding moves on, letting go stops."""


@dataclass
class KeyMotion:
    """Motion by keys of which only presses are told: each moves the arm for `NUDGE_S`.

    The arm stops by itself when nothing more arrives, whatever the reason.
    """

    clock: Callable[[], float]
    """s, monotonic."""
    speed: float = 0.6
    """Share of the largest step, (0, 1]."""
    closed: bool = False
    _until: dict[tuple[int, int], float] = field(default_factory=dict)
    _told: float = -1.0

    def press(self, axis: int, sign: int) -> None:
        """Move along `axis` (0-2 x, y, z; 3 yaw) towards `sign` for a moment; the other way ends."""
        self._until.pop((axis, -sign), None)
        self._until[axis, sign] = self.clock() + NUDGE_S

    def toggle_gripper(self) -> None:
        """Close the open fingers, or open the closed ones."""
        self.closed = not self.closed
        self._told = self.clock() + NUDGE_S

    def change_speed(self, factor: float) -> None:
        """Move faster or slower from now on, between a tenth and all of the largest step."""
        self.speed = min(1.0, max(0.1, self.speed * factor))

    def begin(self, closed: bool) -> None:
        """Stand still, the fingers being closed or open."""
        self._until.clear()
        self._told, self.closed = -1.0, closed

    def follow(self, closed: bool) -> None:
        """Somebody else closes or opens the fingers; the person goes on from there."""
        if self.clock() >= self._told:
            self.closed = closed

    def intent(self, command: str = "", *, present: bool = True) -> Intent:
        """The wish at this moment."""
        now = self.clock()
        motion = np.zeros(4)
        for (axis, sign), until in self._until.items():
            if now < until:
                motion[axis] = sign * self.speed
        acting = bool(motion.any()) or now < self._told
        return Intent(motion, self.closed, acting, command, present)
