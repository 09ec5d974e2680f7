"""The keyboard of a terminal.

A terminal tells which keys are pressed, and repeats a key that is held down, but not when it is let go: see
`operator.KeyMotion`.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from grasp_demos.teleop.operator import COMMANDS, Commands, Intent, KeyMotion, Status
from grasp_sim.contract import GraspState, yaw_error
from grasp_sim.errors import UserError

MOTIONS: Mapping[str, tuple[int, int]] = {
    **{"w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1)},
    **{"r": (2, 1), "f": (2, -1), "q": (3, 1), "e": (3, -1)},
    **{"up": (0, 1), "down": (0, -1), "left": (1, 1), "right": (1, -1)},
    **{"page up": (2, 1), "page down": (2, -1)},
}
"""Axis and direction of a key: forward is +x, away from the base; left is +y."""
KEY_COMMANDS: Mapping[str, str] = {
    **{"enter": "start", "1": "success", "0": "failure", "backspace": "discard", "t": "take"},
    **{"escape": "quit", "x": "quit"},
}
"""What a key says."""
GRIPPER_KEYS = ("space", "g")
SPEED_KEYS = {"+": 1.25, "=": 1.25, "-": 0.8}

_SEQUENCES = {
    **{b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"},
    **{b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left"},
    **{b"\x1b[5~": "page up", b"\x1b[6~": "page down"},
    **{b"\r": "enter", b"\n": "enter", b" ": "space", b"\x7f": "backspace", b"\x08": "backspace"},
}
_LONGEST = max(map(len, _SEQUENCES))

KEY_BYTES = 4096
"""Bytes of one poll that are read as keys: more than any person presses in a step."""
READ_BYTES = 65536
"""Bytes of one poll that are read at all. It is what a terminal holds back, so nothing waits long behind."""
_CLOSED = "the terminal was closed."
_QUIT_BYTES = tuple(
    key.encode()
    for name, command in KEY_COMMANDS.items()
    if command == "quit" and len(name) == 1
    for key in (name, name.upper())
)


def keys_of(data: bytes) -> list[str]:
    """Names of the keys in what a terminal sent; unknown sequences are skipped whole."""
    keys, cursor = [], 0
    while cursor < len(data):
        for length in range(min(_LONGEST, len(data) - cursor), 0, -1):
            name = _SEQUENCES.get(data[cursor : cursor + length])
            if name is not None:
                break
        else:
            length = _escape_length(data[cursor:])
            name = "escape" if data[cursor : cursor + length] == b"\x1b" else ""
            if length == 1 and data[cursor : cursor + 1].isascii() and chr(data[cursor]).isprintable():
                name = chr(data[cursor]).lower()
        cursor += length
        if name:
            keys.append(name)
    return keys


def _escape_length(data: bytes) -> int:
    """Bytes of the control sequence that `data` begins with; 1 for a plain byte or a lone Escape."""
    if data[:2] not in (b"\x1b[", b"\x1bO"):
        return 1
    for length, byte in enumerate(data[2:], start=3):
        if 0x40 <= byte <= 0x7E:  # the final byte of an ANSI sequence
            return length
    return len(data)


class KeyboardOperator:
    """A person at a terminal, who sees where the tool is and what was recorded."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._motion = KeyMotion(clock)
        self._commands = Commands()
        self._live = Live(console=Console(), auto_refresh=False, transient=True)
        self._descriptor, self._before = -1, None

    def __enter__(self) -> Self:
        """Take the terminal. Raises UserError where there is none."""
        if sys.stdin is None or not sys.stdin.isatty():
            raise UserError(
                "source=keyboard needs a terminal to read keys from, and the input is none: start it in a"
                " terminal, or use source=browser."
            )
        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor)
            self._live.start()
        except BaseException as error:  # Ctrl-C among them: the terminal is given back all the same.
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A terminal that was closed has nothing to restore; saying so must not hide why recording ended.
        with suppress(OSError):
            self._live.stop()
        if self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, self._before)

    def begin(self, closed: bool) -> None:
        """An episode starts."""
        self._commands.take()
        self._motion.begin(closed)

    def follow(self, closed: bool) -> None:
        """The policy closes or opens the fingers."""
        self._motion.follow(closed)

    def poll(self, state: GraspState) -> Intent:
        """What was pressed since the last call. Raises UserError where the terminal was closed.

        Of a flood of bytes the first KEY_BYTES count as keys; in the rest only `quit` is looked for.
        """
        data = self._read()
        self.press(keys_of(data[:KEY_BYTES]))
        if any(key in data[KEY_BYTES:] for key in _QUIT_BYTES):
            self._commands.say("quit")
        return self._motion.intent(self._commands.take())

    def press(self, keys: list[str]) -> None:
        """These keys were pressed, in this order."""
        for key in keys:
            if key in MOTIONS:
                self._motion.press(*MOTIONS[key])
            elif key in GRIPPER_KEYS:
                self._motion.toggle_gripper()
            elif key in SPEED_KEYS:
                self._motion.change_speed(SPEED_KEYS[key])
            elif key in KEY_COMMANDS:
                self._commands.say(KEY_COMMANDS[key])

    def _read(self) -> bytes:
        data = b""
        while len(data) < READ_BYTES and select.select([self._descriptor], [], [], 0.0)[0]:
            try:
                part = os.read(self._descriptor, READ_BYTES - len(data))
            except OSError as error:  # EIO: nobody holds the terminal's other end
                raise UserError(_CLOSED) from error
            if not part:
                raise UserError(_CLOSED)
            data += part
        return data

    def show(self, status: Status) -> None:
        """Draw the panel anew. Raises UserError where the terminal was closed."""
        try:
            self._live.update(panel(status, self._motion), refresh=True)
        except OSError as error:
            raise UserError(_CLOSED) from error


def panel(status: Status, motion: KeyMotion) -> Panel:
    """What the person sees in the terminal."""
    state = status.state
    x, y, z = 1000.0 * (state.object_position - state.tcp_position)
    numbers = Table.grid(padding=(0, 3))
    numbers.add_row(
        "object from the tool",
        f"{x:+5.0f} mm {'forward' if x >= 0 else 'back'}",
        f"{y:+5.0f} mm {'left' if y >= 0 else 'right'}",
        f"{z:+5.0f} mm {'up' if z >= 0 else 'down'}",
        f"{57.3 * yaw_error(state):+4.0f} deg",
    )
    numbers.add_row(
        "gripper",
        f"{round(1000 * state.gripper_opening):5d} mm",
        f"{state.gripper_force:5.0f} N",
        "holds the object" if status.grasped else _wanted(status, motion),
        f"speed {motion.speed:.0%}" if status.moves else "",
    )
    keys = Table.grid(padding=(0, 3))
    if status.moves:
        keys.add_row("w s / up down", "forward, back", "a d / left right", "left, right")
        keys.add_row("r f / page up, down", "up, down", "q e", "turn left, right")
        keys.add_row("space", "close or open", "+ -", "faster, slower")
    said: dict[str, str] = {}
    for key, command in KEY_COMMANDS.items():
        said.setdefault(command, key)
    shown = [name for name in COMMANDS if name != "take" or status.takes_over]
    for left in range(0, len(shown), 2):
        row = [text for name in shown[left : left + 2] for text in (said[name], COMMANDS[name])]
        keys.add_row(*row)
    title = {
        "ready": f"episode {status.episode}: move, or press enter, to begin",
        "recording": f"recording episode {status.episode}: step {status.step}",
        "paused": f"episode {status.episode} is held",
    }[status.phase]
    if status.phase == "ready" and status.takes_over:
        title = f"episode {status.episode}: press enter, and the policy begins"
    if status.phase == "ready" and not status.moves:
        title = f"episode {status.episode}: press enter to begin"
    lines = [f"{status.recorded} of {status.wanted} demonstrations"]
    if status.phase == "recording":
        lines.append(f"{status.actor} acts" if status.takes_over else "")
        lines.append(f"time-out at {status.horizon}" if status.horizon else "")
        lines.append(f"{status.slips} slips" if status.slips else "")
    if status.late:
        lines.append(f"{status.late} late steps: the machine is too slow")
    head = "   ".join(line for line in lines if line)
    return Panel(Group(head, status.verdict, "", numbers, "", keys), title=title)


def _wanted(status: Status, motion: KeyMotion) -> str:
    """What the fingers were told, as far as the device tells them."""
    if not status.moves:
        return ""
    return "closing" if motion.closed else "open"
