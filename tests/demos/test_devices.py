"""Keyboard and gamepad: what their bytes and events mean, and a real grasp with the keys of a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import termios
import threading
import time

import numpy as np
import pytest
from evdev import InputEvent, ecodes

from grasp_demos.reader import read_dataset
from grasp_demos.teleop.gamepad import DEAD_ZONE, GamepadOperator, Range
from grasp_demos.teleop.keyboard import KeyboardOperator, keys_of
from grasp_demos.validate import require_valid
from grasp_sim.errors import UserError


def test_what_a_terminal_sends_is_read_as_keys():
    assert keys_of(b"wW \r\x7f\x1b[A\x1bOB\x1b[5~g") == [
        *("w", "w", "space", "enter", "backspace", "up", "down", "page up", "g"),
    ]
    assert keys_of(b"\x1b") == ["escape"]
    assert keys_of(b"\x1b[15~w\x1b[1;5C\xc3\xa9d") == ["w", "d"]  # F5, ctrl and right, an accented letter
    assert keys_of(b"\x1b[") == []
    assert keys_of(b"") == []


def test_keys_move_say_and_change_the_speed():
    now = [0.0]
    operator = KeyboardOperator(clock=lambda: now[0])
    operator.press(["w", "e", "+", "enter", "x"])
    intent = operator._motion.intent()
    assert intent.motion[0] == pytest.approx(0.75)
    assert intent.motion[3] == pytest.approx(-0.75)
    assert operator._commands.take() == "quit"  # the most urgent of both
    assert operator._commands.take() == ""


def test_without_a_terminal_the_keyboard_is_refused(monkeypatch):
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(UserError, match=r"needs a terminal.*source=browser"), KeyboardOperator():
            pass


def test_sticks_and_buttons_of_a_gamepad():
    pad = GamepadOperator()
    sticks = (ecodes.ABS_X, ecodes.ABS_Y, ecodes.ABS_RX, ecodes.ABS_RY)
    pad._ranges = dict.fromkeys(sticks, Range(-32768, 32767))

    def report(*events: tuple[int, int, int]) -> None:
        pad.handle([InputEvent(0, 0, *event) for event in events])

    report((ecodes.EV_ABS, ecodes.ABS_Y, -32768), (ecodes.EV_ABS, ecodes.ABS_X, 3000))
    np.testing.assert_allclose(pad._motion, [1.0, 0.0, 0.0, 0.0])  # pushed away; a worn stick's rest
    report((ecodes.EV_ABS, ecodes.ABS_RY, 16384), (ecodes.EV_ABS, ecodes.ABS_Y, 0))
    assert pad._motion[2] == pytest.approx(-(0.5 - DEAD_ZONE) / (1 - DEAD_ZONE), abs=1e-3)
    assert pad._motion[0] == 0.0
    for button in (ecodes.BTN_START, ecodes.BTN_TL):
        report((ecodes.EV_KEY, button, 1), (ecodes.EV_KEY, button, 0))
    report((ecodes.EV_KEY, ecodes.BTN_SOUTH, 1))
    assert pad._commands.take() == "take"
    assert pad._gripper.closed
    report((ecodes.EV_SYN, ecodes.SYN_DROPPED, 0))
    assert not pad._motion.any()


def test_a_gamepad_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match=r"no gamepad.*source=browser"), GamepadOperator():
        pass
    with pytest.raises(UserError, match="does not exist"), GamepadOperator(str(tmp_path / "event9")):
        pass


@pytest.mark.slow
def test_a_real_grasp_with_the_keys_of_a_terminal(tmp_path, terminal):
    out = tmp_path / "demos"
    command = ["-m", "grasp_demos.record", "source=keyboard", "episodes=1", f"out={out}"]
    recorder = terminal(*command, "env.name=pybullet-lift", "page.show=false", "time_limit=300")
    lift_by_keys(recorder)
    assert recorder.wait() == 0
    (episode,) = read_dataset(out)
    require_valid([episode])
    assert episode.is_demonstration
    assert episode.metadata.source == "keyboard"


def lift_by_keys(terminal) -> None:
    """Look where the object is and press keys, until the command ends."""
    wanted = re.compile(r"object from the tool\s+([+-]\d+) mm \w+\s+([+-]\d+) mm \w+\s+([+-]\d+) mm")
    closed_at = None
    end = time.monotonic() + 120
    while "press enter" not in terminal.read():
        time.sleep(0.1)
    terminal.press("----\r")  # slow enough that a nudge is less than what is aimed at
    while terminal.process.poll() is None:
        assert time.monotonic() < end, terminal.read()
        found = wanted.findall(terminal.read())
        if not found:
            continue
        x, y, z = map(int, found[-1])
        if closed_at is not None:
            if time.monotonic() - closed_at > 1.5:
                terminal.press("r")
        elif abs(x) <= 7 and abs(y) <= 7 and z >= -7:
            terminal.press(" ")
            closed_at = time.monotonic()
        else:
            keys = ("w" if x > 7 else "s" if x < -7 else "") + ("a" if y > 7 else "d" if y < -7 else "")
            if not keys or z < -80:
                keys += "f"
            terminal.press(keys)
            time.sleep(0.2)  # what comes of it shows when the nudge is over
        time.sleep(0.05)


@pytest.fixture
def keyboard(monkeypatch):
    """A keyboard whose terminal is a real one, and the terminal's other end."""
    outside, inside = pty.openpty()
    with open(inside, "rb", buffering=0) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield KeyboardOperator(), outside
    with contextlib.suppress(OSError):
        os.close(outside)


def test_a_terminal_that_was_closed_is_told_once(keyboard):
    operator, outside = keyboard

    def lose() -> None:
        with operator:
            os.close(outside)
            operator.poll(None)

    with pytest.raises(UserError, match=r"^the terminal was closed\.$"):
        lose()


def test_the_terminal_is_as_before_where_taking_it_fails(keyboard, monkeypatch):
    operator, _ = keyboard
    before = termios.tcgetattr(sys.stdin.fileno())

    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(operator._live, "start", stop)
    with pytest.raises(KeyboardInterrupt), operator:
        pass
    assert termios.tcgetattr(sys.stdin.fileno()) == before


def test_a_flood_of_bytes_delays_nothing_and_quit_is_heard(keyboard):
    operator, outside = keyboard
    flooding = threading.Event()

    def flood() -> None:
        os.set_blocking(outside, False)
        while not flooding.is_set():
            with contextlib.suppress(BlockingIOError):
                os.write(outside, b"1w" * 2048)

    thread = threading.Thread(target=flood)
    with operator:
        thread.start()
        try:
            for _ in range(20):
                began = time.monotonic()
                assert operator.poll(None).command in ("success", "")
                assert time.monotonic() - began < 1.0
            end = time.monotonic() + 20.0
            while operator.poll(None).command != "quit":
                with contextlib.suppress(BlockingIOError):
                    os.write(outside, b"x")
                assert time.monotonic() < end
        finally:
            flooding.set()
            thread.join()


def test_quit_is_heard_behind_more_than_a_person_presses():
    operator = KeyboardOperator()
    operator.press(["1"] * 100 + ["x"])
    assert operator._commands.take() == "quit"


def test_a_closed_input_is_refused_like_one_that_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as `<&-` leaves it
    with pytest.raises(UserError, match=r"needs a terminal.*source=browser"), KeyboardOperator():
        pass


def test_what_is_no_gamepad_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for path, said in (
        (os.devnull, "is no input device"),
        (str(tmp_path / "pipe"), "is no device"),
        (str(tmp_path / "file"), "is no device"),
        (str(tmp_path), "is no device"),
    ):
        with pytest.raises(UserError, match=rf"gamepad={path} {said}.*such as /dev/input/event3"):
            GamepadOperator(path).__enter__()
