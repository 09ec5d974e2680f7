"""The robot's side of a UR driver with a gripper: which command moves the arm, and which stops it.

It knows neither a simulator nor ROS. Joints (6,) rad in the order of `grasp_sim.ur5e.JOINT_NAMES`; `now` is s
of one monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from grasp_sim import gripper
from grasp_sim.controllers import ForwardController, TrajectoryController
from grasp_sim.errors import find
from grasp_sim.ur5e import JOINT_NAMES, POSITION_MAX, POSITION_MIN, VELOCITY_MAX

POSITION, VELOCITY, TRAJECTORY = (
    "forward_position_controller",
    "forward_velocity_controller",
    "scaled_joint_trajectory_controller",
)
CONTROLLERS = (POSITION, VELOCITY, TRAJECTORY)
"""The controllers of which one is active."""

FINGER_CLOSED = 0.8
"""rad of the gripper's finger joint with the gripper closed; 0 with it open."""
GRIPPER_COMMANDS = 18
"""Commands within a second that the gripper's driver endures: 15 and the jitter of their timing."""
LOCKED = 1.0
"""s that it takes no command after more."""

CAUGHT_UP = 0.03
"""s by which a stream of position commands may be late, the least that UR's `servoj` looks ahead. A command
that makes up for cycles without one may move the target by as much as these would have."""

_TOLERANCE = 1e-6  # of the velocity limit, for rounding


def finger_of(opening: float) -> float:
    """rad of the finger joint at an opening in m."""
    return FINGER_CLOSED * (1.0 - opening / gripper.STROKE)


def opening_of(finger: float) -> float:
    """m between the pads at a finger joint in rad."""
    return gripper.STROKE * (1.0 - finger / FINGER_CLOSED)


class Driver:
    """What a driver's controllers pass on to the arm, cycle by cycle.

    The arm's own controller stops it for good (a protective stop, noted in `faults`) where a cycle asks for
    more than its greatest velocity (see `CAUGHT_UP`), for a position beyond its limits, or for what is not a
    number. A stop pauses the program. The controllers keep their commands and take new ones, so that resuming
    goes on with whatever the last one was.
    """

    def __init__(self, controller: str, period: float) -> None:
        """`controller`: one of `CONTROLLERS`, the active one; `period`: s of a cycle."""
        find("controller", controller, dict.fromkeys(CONTROLLERS))
        self.active, self.period = controller, period
        self.forward: ForwardController | None = None
        """The active controller, where it is one of these."""
        self.trajectory: TrajectoryController | None = None
        if controller == TRAJECTORY:
            self.trajectory = self._controller = TrajectoryController()
        else:
            self.forward = self._controller = ForwardController(velocities=controller == VELOCITY)
        self.program_running, self.protective_stop = False, False
        self.speed_slider = 1.0
        """Share of the speed that the person at the robot allows; only trajectories heed it."""
        self.faults: list[str] = []
        """What the robot stopped for, or its gripper locked up for, oldest first; the caller may empty it."""
        self.opening, self.force_limit = gripper.STROKE, gripper.FORCE_MAX
        """m and N, what the gripper was last told."""
        self._gripper_times: deque[float] = deque(maxlen=GRIPPER_COMMANDS + 1)
        self._locked_until = -math.inf
        self._target = np.zeros(len(JOINT_NAMES))
        self._stream = _Stream(CAUGHT_UP / period if controller == POSITION else 0.0)

    def place(self, joints: np.ndarray) -> None:
        """The arm stands at `joints`, gripper open, no program runs, and no controller has a command."""
        self._target = np.array(joints, dtype=np.float64)
        self.opening, self.force_limit = gripper.STROKE, gripper.FORCE_MAX
        self.program_running = self.protective_stop = False
        self._controller.clear()

    def run_program(self) -> None:
        """Start the program; the controllers begin without a command."""
        self._controller.clear()
        self._stream.begin()
        self.program_running = not self.protective_stop

    def stop(self) -> None:
        """Protective stop: the arm stands where it is, the program is paused."""
        self.protective_stop, self.program_running = True, False

    def resume(self) -> None:
        """End a protective stop: the program goes on, with the commands that the controllers hold."""
        if self.protective_stop:
            self.protective_stop, self.program_running = False, True
            self._stream.begin()

    @property
    def speed_scaling(self) -> float:
        """Share of the speed that the program runs at."""
        return self.speed_slider if self.program_running else 0.0

    def command_gripper(self, values: Sequence[float], now: float) -> str:
        """Take finger joint (rad) and force (N); returns why the command is refused, empty where not."""
        self._gripper_times.append(now)
        if now < self._locked_until:
            return "the gripper's driver is locked up"
        if len(self._gripper_times) > GRIPPER_COMMANDS and now - self._gripper_times[0] < 1.0:
            self._locked_until = now + LOCKED
            self.faults.append(
                f"gripper: more than {GRIPPER_COMMANDS} commands in a second lock its driver up"
            )
            return self.faults[-1]
        if len(values) != 2 or not all(math.isfinite(value) for value in values):
            return f"a gripper command is finger (rad) and force (N), finite; it was {list(values)}"
        self.opening = min(max(opening_of(values[0]), 0.0), gripper.STROKE)
        self.force_limit = min(max(values[1], gripper.FORCE_MIN), gripper.FORCE_MAX)
        return ""

    def next_target(self) -> np.ndarray:
        """The arm's target (6,) for the next cycle."""
        if self.program_running:
            arrived = self.forward.arrived if self.forward else 0
            wanted = self._controller.next(self._target, self.period, self.speed_scaling)
            fault = self._fault(wanted, arrived)
            if fault:
                self.faults.append(fault)
                self.stop()
            else:
                self._target = wanted
        return self._target

    def _fault(self, wanted: np.ndarray, arrived: int) -> str:
        """Why the robot stops at this target, for which `arrived` commands came; empty where it does not."""
        if not np.isfinite(wanted).all():
            return f"protective stop: the target is not finite: {wanted.tolist()}"
        speed = np.abs(wanted - self._target) / self.period
        worst = int((speed / VELOCITY_MAX).argmax())
        cycles = math.ceil(speed[worst] / VELOCITY_MAX[worst] - _TOLERANCE)
        if not self._stream.may_move(cycles, arrived):
            return (
                f"protective stop: the target of {JOINT_NAMES[worst]} moves by"
                f" {abs(wanted[worst] - self._target[worst]):.4f} rad in a cycle, {speed[worst]:.2f} rad/s;"
                f" at most {VELOCITY_MAX[worst]:.2f}"
            )
        outside = (wanted < POSITION_MIN) | (wanted > POSITION_MAX)
        if outside.any():
            worst = int(outside.argmax())
            return (
                f"protective stop: the target of {JOINT_NAMES[worst]} is {wanted[worst]:.4f} rad; it must be"
                f" from {POSITION_MIN[worst]:.4f} to {POSITION_MAX[worst]:.4f}"
            )
        return ""


class _Stream:
    """How far a stream of commands is behind the cycles, of which each should have one."""

    def __init__(self, most: float) -> None:
        """`most`: cycles that may be made up for."""
        self._most = most
        self.begin()

    def begin(self) -> None:
        """The next command is the first, and not late."""
        self._behind, self._quiet = 0, math.inf

    def may_move(self, cycles: int, arrived: int) -> bool:
        """Whether a cycle for which `arrived` commands came may move as far as `cycles` of them."""
        if arrived:
            allowed = 1 + self._behind
            self._behind, self._quiet = max(allowed - max(arrived, cycles, 1), 0), 0
            return cycles <= allowed
        self._quiet += 1
        self._behind = self._behind + 1 if self._quiet <= self._most else 0
        return cycles <= 1
