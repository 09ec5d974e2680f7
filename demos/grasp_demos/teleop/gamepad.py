"""A gamepad, read through Linux's event devices.

Left stick: forward, back, left and right; right stick: up and down, turn. A: close or open. Start, X
(success), Y (failure), B (discard), left shoulder (take over), Select (stop recording). Names are those of an
Xbox pad; on others the buttons at the same places.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from evdev import InputDevice, InputEvent, ecodes, list_devices

from grasp_demos.teleop.operator import Commands, Intent, KeyMotion, Status
from grasp_demos.teleop.status_line import StatusLine
from grasp_sim.contract import GraspState
from grasp_sim.errors import UserError

DEAD_ZONE = 0.15
"""Share of a stick's way in which it counts as let go: worn sticks do not return to their middle."""

AXES: Mapping[int, tuple[int, int]] = {
    ecodes.ABS_Y: (0, -1),
    ecodes.ABS_X: (1, -1),
    ecodes.ABS_RY: (2, -1),
    ecodes.ABS_RX: (3, -1),
}
"""Motion axis and sign of a stick: pushed away is -1 on a pad and forward (+x) on the arm."""
BUTTONS: Mapping[int, str] = {
    ecodes.BTN_START: "start",
    ecodes.BTN_WEST: "success",
    ecodes.BTN_NORTH: "failure",
    ecodes.BTN_EAST: "discard",
    ecodes.BTN_TL: "take",
    ecodes.BTN_SELECT: "quit",
}
"""What a button says."""
GRIPPER_BUTTON = ecodes.BTN_SOUTH


class Range(NamedTuple):
    """What an axis of a pad reports."""

    low: int
    high: int

    def share(self, value: int) -> float:
        """From -1 to 1, 0 inside of the dead zone and growing from its edge."""
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        share = float(np.clip((value - middle) / half, -1.0, 1.0))
        beyond = max(0.0, abs(share) - DEAD_ZONE) / (1.0 - DEAD_ZONE)
        return float(np.copysign(beyond, share)) if beyond else 0.0


class GamepadOperator:
    """A person with a gamepad."""

    def __init__(self, path: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        """`path` is the device file; empty takes the first gamepad that is found, when it is entered."""
        self._path = path
        self._device: Any = None
        self._ranges: dict[int, Range] = {}
        self._motion = np.zeros(4)
        self._gripper = KeyMotion(clock)
        self._commands = Commands()
        self._line = StatusLine()

    def __enter__(self) -> Self:
        """Take the pad. Raises UserError naming what was found where there is none."""
        self._device = _opened(self._path) if self._path else _first_gamepad()
        self._ranges = _ranges(self._device)
        lacking = [str(ecodes.ABS[axis]) for axis in AXES if axis not in self._ranges]
        if lacking:
            name = self._device.name
            self._device.close()
            raise UserError(f"{self._device.path} ({name}) is no gamepad: it lacks {', '.join(lacking)}.")
        print(f"Gamepad: {self._device.name} ({self._device.path}).", flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._device.close()
        self._line.end()

    def begin(self, closed: bool) -> None:
        """An episode starts. Sticks stay where they are held."""
        self._commands.take()
        self._gripper.begin(closed)

    def follow(self, closed: bool) -> None:
        """The policy closes or opens the fingers."""
        self._gripper.follow(closed)

    def poll(self, state: GraspState) -> Intent:
        """Where the sticks are, and what was pressed since the last call. UserError where the pad is gone."""
        try:
            self.handle(self._device.read())
        except BlockingIOError:
            pass  # nothing new
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            raise UserError(
                f"the gamepad {self._device.path} is gone: connect it and record again."
            ) from error
        intent = self._gripper.intent(self._commands.take())
        return intent._replace(motion=self._motion.copy(), acting=intent.acting or bool(self._motion.any()))

    def handle(self, events: Iterable[InputEvent]) -> None:
        """Take in what the pad reported."""
        for event in events:
            if event.type == ecodes.EV_ABS and event.code in AXES:
                axis, sign = AXES[event.code]
                self._motion[axis] = sign * self._ranges[event.code].share(event.value)
            elif event.type == ecodes.EV_KEY and event.value == 1:
                if event.code == GRIPPER_BUTTON:
                    self._gripper.toggle_gripper()
                elif event.code in BUTTONS:
                    self._commands.say(BUTTONS[event.code])
            elif event.type == ecodes.EV_SYN and event.code == ecodes.SYN_DROPPED:
                # The system lost events: where the sticks are is unknown until they are moved again.
                self._motion[:] = 0.0

    def show(self, status: Status) -> None:
        """One line in the terminal."""
        self._line.show(status)


def _opened(path: str) -> Any:
    """The device at `path`. Raises UserError saying what it is to be where it is none."""
    if not Path(path).exists():
        raise UserError(f"gamepad={path} does not exist.{_found()}")
    wanted = f"it must be the device file of a gamepad, such as /dev/input/event3.{_found()}"
    if not stat.S_ISCHR(os.stat(path).st_mode):  # Opening a pipe would wait for who writes into it.
        raise UserError(f"gamepad={path} is no device: {wanted}")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        raise UserError(
            f"gamepad={path} cannot be read ({error.strerror}): join the group that owns it (often `input`)."
        ) from error
    try:
        return InputDevice(path)
    except OSError as error:
        raise UserError(f"gamepad={path} is no input device ({error.strerror}): {wanted}") from error


def _first_gamepad() -> Any:
    for path in sorted(list_devices()):
        device = InputDevice(path)
        if ecodes.BTN_GAMEPAD in device.capabilities().get(ecodes.EV_KEY, []):
            return device
        device.close()
    raise UserError(f"there is no gamepad.{_found()} Connect one, or use source=browser.")


def _found() -> str:
    """What input devices there are."""
    names = []
    for path in sorted(list_devices()):
        device = InputDevice(path)
        names.append(f"{path} ({device.name})")
        device.close()
    return f" Readable input devices: {', '.join(names) or 'none'}."


def _ranges(device: Any) -> dict[int, Range]:
    axes = device.capabilities().get(ecodes.EV_ABS, [])
    return {code: Range(info.min, info.max) for code, info in axes if info.max > info.min}
