"""A Robotiq 2F-85 through the socket of Robotiq's URCap (port 63352 of the robot's controller).

A thread of its own asks and commands in turn, since an answer takes milliseconds that the arm's loop lacks.
The URCap tells no force: held fingers press with what they were told, and whether they hold is its `OBJ`.

Units: m between the fingertips, N of grip force, s.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from grasp_control.arm.gripper import CommandPacer, Grip, GripPace
from grasp_sim.errors import UserError
from grasp_sim.gripper import FORCE_MAX, FORCE_MIN, STROKE

PORT = 63352
ACTIVE = 3
"""`STA` of a gripper that was activated."""
_HELD = (1, 2)  # OBJ: the fingers were stopped by an object, opening or closing
_FULL = 255
_TIMEOUT = 0.5  # s for one answer


@dataclass
class RobotiqConfig:
    """How the gripper is reached and what its counts mean."""

    port: int = PORT
    """TCP port of Robotiq's URCap on the robot's address."""
    open_count: int = 3
    """What its POS reads fully open; 0 to 255."""
    closed_count: int = 230
    """What its POS reads fully closed; 0 to 255."""
    read_rate: float = 50.0
    """Hz at which it is asked where the fingers are."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.port < 65536:
            raise ValueError(f"gripper.port={self.port} must be from 1 to 65535.")
        if not 0 <= self.open_count < self.closed_count <= _FULL:
            raise ValueError(
                f"gripper.open_count={self.open_count} and gripper.closed_count={self.closed_count}:"
                " 0 <= open_count < closed_count <= 255."
            )
        if not 5.0 <= self.read_rate <= 125.0:
            raise ValueError(f"gripper.read_rate={self.read_rate} must be from 5 to 125 Hz.")

    def opening(self, count: int) -> float:
        """m at a POS."""
        return STROKE * (1.0 - (count - self.open_count) / (self.closed_count - self.open_count))

    def count(self, opening: float) -> int:
        """POS of an opening (m)."""
        share = 1.0 - min(max(opening / STROKE, 0.0), 1.0)
        return round(self.open_count + share * (self.closed_count - self.open_count))


def force_count(force: float) -> int:
    """FOR of a force limit (N): 20 N at 0, 235 N at 255."""
    share = (force - FORCE_MIN) / (FORCE_MAX - FORCE_MIN)
    return round(min(max(share, 0.0), 1.0) * _FULL)


class GripReading(NamedTuple):
    """What the gripper said last."""

    opening: float
    """m."""
    force: float
    """N."""
    measured: float
    """s, monotonic."""


class RobotiqGripper:
    """A connected gripper: `newest` and `command` never wait."""

    def __init__(self, host: str, config: RobotiqConfig) -> None:
        """Connect. Raises UserError where no gripper answers, or one that is not activated."""
        self._config = config
        self._pacer = CommandPacer(GripPace())
        self._force = 0.0
        self._newest: GripReading | None = None
        self._fault = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        place = f"{host}, port {config.port}"
        try:
            self._socket = socket.create_connection((host, config.port), timeout=_TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines = self._socket.makefile("r", encoding="ascii", errors="replace", newline="\n")
            status = self._get("STA")
            self._read()
        except OSError as error:
            raise UserError(
                f"no gripper answers at {place} ({error}): is Robotiq's URCap installed and running?"
            ) from error
        if status != ACTIVE:
            raise UserError(f"the gripper at {place} is not activated: activate it on the pendant.")
        self._thread = threading.Thread(target=self._run, name="robotiq", daemon=True)
        self._thread.start()

    def newest(self) -> GripReading | None:
        """The newest reading."""
        with self._lock:
            return self._newest

    @property
    def fault(self) -> str:
        """Why readings stopped, or ""."""
        return self._fault

    def command(self, command: Grip) -> None:
        """What the fingers are to do from now on; sent when the pace of commands allows."""
        with self._lock:
            self._pacer.offer(command, time.monotonic())

    def close(self) -> None:
        """Stop asking; the fingers keep doing what they were told last."""
        self._ended.set()
        self._thread.join()
        self._lines.close()
        self._socket.close()

    def _run(self) -> None:
        period = 1.0 / self._config.read_rate
        while not self._ended.wait(period):
            try:
                with self._lock:
                    due = self._pacer.due(time.monotonic())
                if due is not None:
                    self._send(due)
                self._read()
            except OSError as error:
                self._fault = f"the gripper's socket failed: {error}"
                return

    def _send(self, command: Grip) -> None:
        position, force = self._config.count(command.opening), force_count(command.force)
        answer = self._ask(f"SET POS {position} SPE {_FULL} FOR {force} GTO 1")
        if answer != "ack":
            raise OSError(f"a command was answered by {answer!r}")
        self._force = command.force

    def _read(self) -> None:
        measured = time.monotonic()
        opening = self._config.opening(self._get("POS"))
        force = self._force if self._get("OBJ") in _HELD else 0.0
        with self._lock:
            self._newest = GripReading(opening, force, measured)

    def _get(self, name: str) -> int:
        answer = self._ask(f"GET {name}").split()
        if len(answer) != 2 or answer[0] != name or not answer[1].isdecimal() or int(answer[1]) > _FULL:
            raise OSError(f"GET {name} was answered by {' '.join(answer)!r}"[:80])
        return int(answer[1])

    def _ask(self, line: str) -> str:
        self._socket.sendall(line.encode() + b"\n")
        answer = self._lines.readline(80)
        if not answer:
            raise OSError("the gripper closed the connection")
        return answer.strip()
