"""One Universal Robots arm without ROS, through ur_rtde: its measurements in, joint setpoints out.

What ur_rtde does not do, and this must:

- Its `isConnected` stays true for 2.5 s of silence, and its `servoJ` says yes to a robot that has gone. So
  the age of measurements is judged by the robot's own time stamps, and nothing is sent to a silent robot.
- Left alone after a loss it connects again by itself and sends its last command once more. So a loss is final
  here: the caller ends, and begins anew.
- Its program on the controller goes on with the last setpoint for ever. So the controller's watchdog is set:
  without commands it ends the program.
- Some of its calls wait for up to 300 s, and taking its objects away waits for ever for a silent robot. So
  what ends things runs under a deadline, and the objects are left to the end of the process.

Units: rad, rad/s, s; 6 joints in the order of `grasp_sim.ur5e.JOINT_NAMES`, which is the controller's.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grasp_sim.errors import UserError

RUNNING = 7
"""RTDE's `robot_mode` of an arm with power and released brakes."""
_MODES = {3: "powered off", 4: "powered on, not started", 5: "idle: its brakes are on", 6: "backdriven"}
NORMAL, REDUCED = 1, 2
"""RTDE's `safety_mode` in which the arm may move."""
PROTECTIVE_STOP = 3
_SAFETY = {
    PROTECTIVE_STOP: "a protective stop",
    4: "recovery",
    5: "a safeguard stop",
    6: "an emergency stop of the system",
    7: "an emergency stop",
    8: "a violation",
    9: "a fault",
}
PLAYING = 2
"""RTDE's `runtime_state` of a running program."""

_VARIABLES = [
    *("timestamp", "actual_q", "actual_qd", "robot_mode", "safety_mode", "runtime_state", "speed_scaling"),
]
_POLL = 2e-4
"""s between looks for the next measurement."""
_END_WITHIN = 1.0
"""s that each part of ending may take. After 2.5 s of silence ur_rtde begins to connect again by itself."""
_DRIFT = 1e-4
"""Largest rate at which the robot's clock may run slow against this computer's."""


@dataclass
class RtdeConfig:
    """How the arm is reached and how closely it follows."""

    host: str = "127.0.0.2"
    """Address of the robot's controller, or of grasp-emulate."""
    rate: int = 500
    """Hz of the controller: 500 for an e-Series, 125 for a CB3."""
    lookahead: float = 0.1
    """s over which the controller smooths the setpoints, 0.03 to 0.2."""
    gain: float = 300.0
    """How hard the controller pulls towards the setpoint, 100 to 2000."""
    watchdog: float = 10.0
    """Hz of commands below which the controller ends the program, whatever has become of this process."""
    lost_after: float = 0.5
    """s without a measurement after which the robot counts as lost."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.host:
            raise ValueError("rtde.host is empty: name the robot's address.")
        if self.rate not in (125, 500):
            raise ValueError(f"rtde.rate={self.rate} must be 125 or 500.")
        for name, low, high in (
            ("lookahead", 0.03, 0.2),
            ("gain", 100.0, 2000.0),
            ("watchdog", 5.0, 50.0),
            ("lost_after", 0.05, 2.0),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"rtde.{name}={getattr(self, name)} must be from {low:g} to {high:g}.")


class Measured(NamedTuple):
    """One package of the arm's measurements."""

    stamp: float
    """s, the robot's clock."""
    received: float
    """s, monotonic."""
    age: float
    """s between measuring and receiving, more than the quickest so far: packages that queued are old."""
    positions: np.ndarray
    """(6,) rad."""
    velocities: np.ndarray
    """(6,) rad/s."""
    robot_mode: int
    safety_mode: int
    runtime_state: int
    speed_scaling: float
    """0 to 1."""

    def fault(self) -> str:
        """Why this arm cannot move now, or ""."""
        if self.safety_mode not in (NORMAL, REDUCED):
            what = _SAFETY.get(self.safety_mode, f"safety mode {self.safety_mode}")
            return f"the robot is in {what}: see what happened, release it on the pendant, then begin anew"
        if self.robot_mode != RUNNING:
            what = _MODES.get(self.robot_mode, f"in robot mode {self.robot_mode}")
            return f"the robot is {what}: switch it on and release its brakes"
        return ""


class StampClock:
    """Ages of measurements by the stamps of a clock that shares neither zero nor exact rate with ours."""

    def __init__(self) -> None:
        self._offset = math.inf
        self._at = 0.0

    def age(self, stamp: float, received: float) -> float:
        """s that a measurement took to arrive, beyond the quickest there was."""
        offset = received - stamp
        allowed = self._offset + _DRIFT * (received - self._at)
        self._offset, self._at = min(offset, allowed), received
        return offset - self._offset


class RtdeArm:
    """A connected arm. `connect` measures alone; `take_control` uploads the program that moves it."""

    def __init__(self, config: RtdeConfig) -> None:
        self.config = config
        self._clock = StampClock()
        self._receive: Any = None
        self._control: Any = None
        self._newest: Measured | None = None

    def connect(self) -> Measured:
        """Connect and measure. Raises UserError where no robot answers, or an arm that cannot move."""
        host = self.config.host
        receive = _module("rtde_receive").RTDEReceiveInterface
        self._receive = _kept(
            f"no robot answers at rtde.host={host}: is it on, and RTDE enabled? (To try: grasp-emulate.)",
            lambda: receive(host, float(self.config.rate), _VARIABLES),
        )
        measured = self.next(time.monotonic() + self.config.lost_after)
        if measured is None:
            raise UserError(f"the robot at {host} is connected but sends no measurements.")
        if measured.fault():
            raise UserError(f"{measured.fault()}.")
        return measured

    def take_control(self) -> None:
        """Start ur_rtde's program on the controller, which holds the arm where it is, and its watchdog.

        Raises UserError where another program runs, which ur_rtde would end, or where it cannot be started.
        """
        host = self.config.host
        present = self.next(time.monotonic() + self.config.lost_after)
        if present is None:
            raise UserError(f"the robot at {host} no longer sends measurements.")
        if present.runtime_state == PLAYING:
            raise UserError(f"a program runs on the robot at {host}: stop it on the pendant, begin anew.")
        control = _module("rtde_control").RTDEControlInterface
        self._control = _kept(
            f"the robot at {host} takes no program: is it in remote control, and no other client connected?",
            lambda: control(host, float(self.config.rate)),
        )
        if not self._control.setWatchdog(self.config.watchdog):
            self.end()
            raise UserError(f"the robot at {host} refused the watchdog, without which nothing moves here.")
        until = time.monotonic() + _END_WITHIN
        while present.runtime_state != PLAYING:  # told by another stream than the one that waited for it
            present = self.next(until)
            if present is None or not self.wait():
                self.end()
                raise UserError(f"the program sent to the robot at {host} does not run.")

    def next(self, deadline: float) -> Measured | None:
        """The next package, or None when none came before `deadline` (monotonic s)."""
        before = -1.0 if self._newest is None else self._newest.stamp
        while (stamp := self._receive.getTimestamp()) == before:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL)
        self._newest = self._read(stamp)
        return self._newest

    def silent_for(self, now: float) -> float:
        """s since a package came."""
        return math.inf if self._newest is None else now - self._newest.received

    def servo(self, positions: np.ndarray) -> bool:
        """Send a setpoint (6,). False where the program does not take it; nothing goes to a silent robot."""
        period, config = 1.0 / self.config.rate, self.config
        # Speed and acceleration are ignored by servoj.
        return self._told(
            lambda: self._control.servoJ(positions.tolist(), 0.0, 0.0, period, config.lookahead, config.gain)
        )

    def wait(self) -> bool:
        """Send no setpoint, but keep the watchdog waiting too; answers as `servo`."""
        return self._told(lambda: self._control.kickWatchdog())

    def _told(self, command: Callable[[], bool]) -> bool:
        if self.silent_for(time.monotonic()) > self.config.lost_after:
            return False
        try:
            return bool(command())
        except RuntimeError:  # the connection broke; `silent_for` will tell of it
            return False

    def end(self) -> str:
        """Come to rest, end the program and disconnect; what a person must do where that failed, else "".

        The arm stays where it is, held by its own controller.
        """
        answers = self.silent_for(time.monotonic()) < self.config.lost_after
        left = self._end_program(answers) if self._control is not None else ""
        for interface in (self._control, self._receive):
            if interface is not None and answers:
                _within(_END_WITHIN, interface.disconnect)
        self._control = self._receive = None
        return left

    def _end_program(self, answers: bool) -> str:
        if answers and _within(_END_WITHIN, lambda: _come_to_rest(self._control)):
            return ""
        # A paused program would go on with its old motion when played: the dashboard ends it.
        if _within(_END_WITHIN, self._stop_by_dashboard) or not answers:  # then its watchdog ends it
            return ""
        return "the program on the controller could not be ended: press Stop on the pendant"

    def _stop_by_dashboard(self) -> bool:
        client = _module("dashboard_client").DashboardClient(self.config.host)
        client.connect()
        client.stop()
        client.disconnect()
        return True

    def _read(self, stamp: float) -> Measured:
        """A consistent package: the library may take in the next one between two of our calls."""
        receive = self._receive
        while True:
            values = (
                np.array(receive.getActualQ()),
                np.array(receive.getActualQd()),
                int(receive.getRobotMode()),
                int(receive.getSafetyMode()),
                int(receive.getRuntimeState()),
                float(receive.getSpeedScaling()),
            )
            after = receive.getTimestamp()
            if after == stamp:
                received = time.monotonic()
                return Measured(stamp, received, self._clock.age(stamp, received), *values)
            stamp = after


def _come_to_rest(control: Any) -> bool:
    """End the motion, then the program; False where the robot did neither, such as in a protective stop."""
    if not control.servoStop():
        return False
    control.stopScript()
    return not control.isProgramRunning()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            "ur_rtde is not installed, through which the robot is reached: pip install 'empo2-grasp[rtde]'."
        ) from error


def _kept(failure: str, call: Callable[[], Any]) -> Any:
    """An interface of ur_rtde, or UserError; it is never taken away, since its destructor may not return."""
    try:
        interface = call()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(interface))
        return interface
    except (RuntimeError, ValueError) as error:  # ur_rtde's, of the C++ library's many kinds
        reason = " ".join(str(error).split())
        raise UserError(f"{failure} ur_rtde says: {reason}") from error


def _within(seconds: float, call: Callable[[], object]) -> bool:
    """Whether `call` came to a good end in time; it is left behind when it did not."""
    result: list[object] = []

    def run() -> None:
        with suppress(Exception):  # of the library, on a connection that may be gone
            result.append(call())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(result and result[0])
