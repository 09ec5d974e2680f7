"""Keeps an arm's cycle for one grasp: takes in what was measured, sends what the loop decides.

The one place with real time in it; one thread. Where the robot falls silent the safety filter brakes, and
when it stays silent the session ends: nothing more is sent, and the controller's watchdog ends the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from grasp_control.arm.assembler import NotReady
from grasp_control.arm.grasp_loop import Cycle, GraspLoop
from grasp_control.arm.grip import GripLimiter
from grasp_control.arm.gripper import Grip
from grasp_control.arm.object_poses import PoseSource
from grasp_control.arm.robotiq import GripReading
from grasp_control.arm.rtde import Measured
from grasp_control.arm.runner import GraspRunner, Outcome
from grasp_sim.errors import UserError

READY_WITHIN = 10.0
"""s for everything that a grasp needs to be there."""
SETTLE = 0.3
"""s that the arm is held after a grasp before control is given back."""
LATE = 1.5
"""Cycles without a measurement after which one goes by without."""


class Arm(Protocol):
    """What `rtde.RtdeArm` offers here."""

    def next(self, deadline: float) -> Measured | None: ...
    def silent_for(self, now: float) -> float: ...
    def servo(self, positions: np.ndarray) -> bool: ...
    def wait(self) -> bool: ...


class Gripper(Protocol):
    """What `robotiq.RobotiqGripper` offers here."""

    @property
    def fault(self) -> str: ...
    def newest(self) -> GripReading | None: ...
    def command(self, command: Grip) -> None: ...


class Session:
    """One grasp over connected devices. `perform` it."""

    def __init__(
        self,
        arm: Arm,
        gripper: Gripper,
        poses: PoseSource,
        loop: GraspLoop,
        runner: GraspRunner,
        *,
        limiter: GripLimiter,
        period: float,
        lost_after: float,
        shadow: bool,
    ) -> None:
        """`period`: s of the robot's cycle; `lost_after`: s of silence after which the robot is lost."""
        self._arm, self._gripper, self._poses = arm, gripper, poses
        self._loop, self._runner, self._limiter = loop, runner, limiter
        self._period, self._lost_after, self._shadow = period, lost_after, shadow

    def perform(self) -> None:
        """Hold the arm until all is there, perform the grasp, and hold it again for a moment.

        Raises UserError when the robot is lost, cannot move, or something is not there in time.
        """
        self._keep(lambda: not self._waiting_for(), READY_WITHIN)
        waits = self._waiting_for()
        if waits:
            raise UserError(f"not begun: after {READY_WITHIN:g} s {'; '.join(waits)}.")
        try:
            self._loop.begin(time.monotonic())
        except NotReady as reason:  # it has grown old in this very moment
            raise UserError(f"not begun: {reason}.") from reason
        while self._runner.progress.running:
            self._cycle()
        self._keep(lambda: bool(self._loop.trouble()), SETTLE, stop_on_trouble=False)

    def _keep(self, done: Callable[[], bool], seconds: float, *, stop_on_trouble: bool = True) -> None:
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            self._cycle()
            if stop_on_trouble and self._loop.trouble():
                raise UserError(f"{self._loop.trouble()}.")

    def _waiting_for(self) -> list[str]:
        lines = self._loop.problems(time.monotonic())
        if self._poses.refused:
            lines.append(self._poses.refused)
        if self._gripper.fault:
            lines.append(self._gripper.fault)
        return lines or self._loop.held_by()

    def _cycle(self) -> None:
        measured = self._arm.next(time.monotonic() + LATE * self._period)
        now = time.monotonic()
        if measured is not None:
            self._loop.arm(measured)
        elif self._arm.silent_for(now) > self._lost_after:
            self._runner.stop(Outcome.STOPPED, "the robot fell silent")
            raise UserError(
                f"the robot sent nothing for {self._lost_after:g} s: is it on, and connected? Nothing more"
                " is sent to it, and the watchdog of its controller ends the program."
            )
        self._loop.gripper(self._gripper.newest(), now)
        self._loop.object_seen(self._poses.take(), now)
        self._send(self._loop.step(now))

    def _send(self, cycle: Cycle) -> None:
        if self._shadow:
            return
        if cycle.positions is None:
            self._arm.wait()
        else:
            self._arm.servo(cycle.positions)
        if cycle.grip is not None:
            allowed = self._limiter.limit(*cycle.grip)
            if allowed is not None:
                self._gripper.command(Grip(allowed.opening, allowed.force))
