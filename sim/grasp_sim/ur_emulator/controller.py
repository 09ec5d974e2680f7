"""What a Universal Robots controller does each cycle, without sockets.

It runs one program, the control script that ur_rtde uploads: the script reads a command number and its
arguments from input registers and answers in output registers. What matters for safety is modelled as it is:

- a servoJ or speedJ goes on for ever once begun, whoever has died, until a stop or the end of the program;
- a watchdog stops the program when its register is no longer written;
- a protective stop pauses the program; played again, it goes on with the old motion;
- a target that asks for more than the joints' greatest speed is a protective stop.

Units: rad, rad/s, s; 6 joints in the order of `ur5e.JOINT_NAMES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from grasp_sim import ur5e
from grasp_sim.ur_emulator.robots import Robot


class Runtime(IntEnum):
    """RTDE's `runtime_state`."""

    STOPPED = 1
    PLAYING = 2
    PAUSED = 4


class Safety(IntEnum):
    """RTDE's `safety_mode`."""

    NORMAL = 1
    PROTECTIVE_STOP = 3


ROBOT_MODE_RUNNING = 7
STOP_DECELERATION = 10.0
"""rad/s^2, of a stop that names none."""
READY, DONE = 1, 2
"""What the script says in output_int_register_0."""
RUSH = 1.5
"""A servoJ target farther from the one before than so many cycles at the greatest speed is a protective stop.
It is judged from command to command, whenever they arrive: on a busy computer several arrive at once."""


class Command(IntEnum):
    """Numbers of ur_rtde's control script that are known here; any other stops the program."""

    NONE = 0
    SPEED_J = 9
    SERVO_J = 11
    SPEED_STOP = 15
    SERVO_STOP = 16
    PROTECTIVE_STOP = 31
    STOP_J = 34
    SET_WATCHDOG = 35
    STOP_SCRIPT = 255


@dataclass
class Asked:
    """The greatest that a client asked of the joints, as its servoJ targets follow one another."""

    commands: int = 0
    step: float = 0.0
    """rad from one target to the next."""
    first_step: float = 0.0
    """rad from the measured joints to the first target after standing still."""
    velocity: float = 0.0
    """rad/s, of the steps taken as one period each."""
    acceleration: float = 0.0
    """rad/s^2, likewise."""


@dataclass
class Controller:
    """The controller of one robot."""

    robot: Robot
    period: float = 0.002
    """s per cycle: 0.002 for an e-Series, 0.008 for a CB3."""
    time: float = 0.0
    """s since it was switched on."""
    runtime: Runtime = Runtime.STOPPED
    safety: Safety = Safety.NORMAL
    speed_scaling: float = 1.0
    """The speed slider, 0 to 1."""
    inputs: dict[str, object] = field(default_factory=dict)
    """Values of input registers by name."""
    outputs: dict[str, object] = field(default_factory=dict)
    """Values of output registers by name."""
    asked: Asked = field(default_factory=Asked)
    log: list[str] = field(default_factory=list)
    """What happened, in words."""

    def __post_init__(self) -> None:
        self._target: np.ndarray | None = None  # of servoJ
        self._speed: np.ndarray | None = None  # of speedJ
        self._deceleration = STOP_DECELERATION
        self._executing = False
        self._watchdog = 0.0  # s; 0: none
        self._written = 0.0  # s, when the command register was last written
        self._velocity = np.zeros(ur5e.DOF)  # rad/s, as commanded
        self._position = self.robot.joints()[0]
        self._last_asked: tuple[np.ndarray, np.ndarray] | None = None

    # What the network asks for.

    def write(self, values: dict[str, object]) -> None:
        """Input registers, as an RTDE data package brings them."""
        self.inputs.update(values)
        if "input_int_register_0" in values:
            self._written = self.time
            if values["input_int_register_0"] == Command.SERVO_J and self.runtime == Runtime.PLAYING:
                self._note_asked(self._vector(0))

    def upload(self, script: str) -> None:
        """Begin a program; what ran before ends."""
        if self.safety != Safety.NORMAL:
            self.log.append("a program was sent during a protective stop and refused")
            return
        self.stop("another program was sent" if self.runtime != Runtime.STOPPED else "")
        if "rtde_cmd" not in script:
            self.log.append("a program that is not ur_rtde's control script was refused")
            return
        self._executing, self._watchdog = False, 0.0
        self.runtime = Runtime.PLAYING
        self.outputs.update(output_int_register_0=0, output_int_register_1=0, output_int_register_2=0)
        self.log.append("program started")

    def stop(self, why: str = "stopped by the dashboard") -> None:
        """End the program; the arm comes to rest."""
        if self.runtime != Runtime.STOPPED:
            self.log.append(f"program stopped: {why}")
        self.runtime = Runtime.STOPPED
        self._target = self._speed = None
        self._watchdog = 0.0

    def play(self) -> bool:
        """Go on with a paused program, and with the motion it was in."""
        if self.runtime == Runtime.PAUSED and self.safety == Safety.NORMAL:
            self.runtime = Runtime.PLAYING
            self._written = self.time
            self.log.append("program goes on")
        return self.runtime == Runtime.PLAYING

    def pause(self) -> None:
        """Pause the program; the arm comes to rest and what it was doing is kept."""
        if self.runtime == Runtime.PLAYING:
            self.runtime = Runtime.PAUSED
            self.log.append("program paused")

    def protective_stop(self, why: str = "on demand") -> None:
        """Brake at once and pause the program."""
        if self.safety == Safety.NORMAL:
            self.log.append(f"protective stop: {why}")
        self.safety = Safety.PROTECTIVE_STOP
        self._velocity = np.zeros(ur5e.DOF)
        self.pause()

    def unlock(self) -> None:
        """Release the protective stop; a paused program stays paused."""
        if self.safety != Safety.NORMAL:
            self.log.append("protective stop released")
        self.safety = Safety.NORMAL

    def reset(self) -> None:
        """The robot back at its start, and nothing remembered of what was asked before."""
        self.robot.reset()
        self._position, self._velocity = self.robot.joints()[0], np.zeros(ur5e.DOF)
        self._last_asked, self.asked = None, Asked()

    # The cycle.

    def step(self) -> None:
        """One cycle: the program, then the arm."""
        self.time += self.period
        if self.runtime == Runtime.PLAYING:
            if self._watchdog and self.time - self._written > self._watchdog:
                self.stop(f"the watchdog: no command for {self.time - self._written:.3f} s")
            else:
                self._run_script()
        self._move()

    def state(self) -> dict[str, object]:
        """RTDE's output variables; what is not modelled is left out, and sent as zeros."""
        joints, velocities = self.robot.joints()
        playing, normal = self.runtime == Runtime.PLAYING, self.safety == Safety.NORMAL
        return {
            **self.outputs,
            "timestamp": self.time,
            "actual_q": joints,
            "actual_qd": velocities,
            "target_q": self._position,
            "target_qd": self._velocity,
            "actual_current": self.robot.currents(),
            "robot_mode": ROBOT_MODE_RUNNING,
            "safety_mode": int(self.safety),
            "safety_status_bits": 1 if normal else 1 << 2,
            "robot_status_bits": 1 | playing << 1,
            "runtime_state": int(self.runtime),
            "speed_scaling": self.speed_scaling,
            "target_speed_fraction": self.speed_scaling,
        }

    def _run_script(self) -> None:
        number = self.inputs.get("input_int_register_0", 0)
        try:
            command = Command(int(number))  # type: ignore[call-overload]
        except ValueError:
            self.stop(f"the emulator knows no command {number} of ur_rtde's control script")
            return
        if command in (Command.SERVO_J, Command.SPEED_J):
            self._realtime(command)
            self.outputs["output_int_register_0"] = READY
        elif command == Command.NONE:
            self._executing = False
            self.outputs["output_int_register_0"] = READY
        elif not self._executing:
            self._executing = True
            self._execute(command)

    def _realtime(self, command: Command) -> None:
        if command == Command.SERVO_J:
            self._target, self._speed = self._vector(0), None
        else:
            self._target, self._speed = None, self._vector(0)
            self._deceleration = max(self._double(6), 1e-3)

    def _execute(self, command: Command) -> None:
        if command == Command.STOP_SCRIPT:
            self.stop("the client ended it")
            return
        if command == Command.SET_WATCHDOG:
            self._watchdog = 1.0 / max(self._double(0), 1e-3)
        elif command == Command.PROTECTIVE_STOP:
            self.protective_stop("asked for by the client")
        else:
            self._target = self._speed = None
            self._deceleration = max(self._double(0), 1e-3)
            self._last_asked = None
        self.outputs["output_int_register_0"] = DONE

    def _move(self) -> None:
        """Where the robot's drives are sent in this cycle."""
        if self.safety != Safety.NORMAL:
            self.robot.follow(self._position, self.period)
            return
        before = self._position
        limit = ur5e.VELOCITY_MAX * self.period * self.speed_scaling
        if self.runtime == Runtime.PLAYING and self._target is not None:
            self._position = before + np.clip(self._target - before, -limit, limit)
        elif self.runtime == Runtime.PLAYING and self._speed is not None:
            change = self._deceleration * self.period
            velocity = self._velocity + np.clip(
                self._speed * self.speed_scaling - self._velocity, -change, change
            )
            self._position = before + np.clip(velocity * self.period, -limit, limit)
        else:
            change = self._deceleration * self.period
            slower = np.sign(self._velocity) * np.maximum(np.abs(self._velocity) - change, 0.0)
            self._position = before + slower * self.period
        self._velocity = (self._position - before) / self.period
        self.robot.follow(self._position, self.period)

    def _note_asked(self, target: np.ndarray) -> None:
        asked, most = self.asked, ur5e.VELOCITY_MAX * self.period * RUSH
        asked.commands += 1
        from_arm = target - self.robot.joints()[0]
        before, step_before = self._last_asked or (target - from_arm, np.zeros(ur5e.DOF))
        step = target - before
        starts = self._last_asked is None
        if (np.abs(step) > most).any() and (np.abs(from_arm) <= most).all():
            step, starts = from_arm, True  # a new start, from where the arm is
        if starts:
            asked.first_step = max(asked.first_step, float(np.abs(step).max()))
        else:
            asked.step = max(asked.step, float(np.abs(step).max()))
            asked.velocity = asked.step / self.period
            change = float(np.abs(step - step_before).max()) / self.period**2
            asked.acceleration = max(asked.acceleration, change)
        self._last_asked = target, np.zeros(ur5e.DOF) if starts else step
        if (np.abs(step) > most).any():
            worst = int(np.abs(step).argmax())
            self.protective_stop(f"{ur5e.JOINT_NAMES[worst]} was sent {abs(step[worst]):.3f} rad away")

    def _double(self, index: int) -> float:
        return float(self.inputs.get(f"input_double_register_{index}", 0.0))  # type: ignore[arg-type]

    def _vector(self, index: int) -> np.ndarray:
        return np.array([self._double(index + i) for i in range(ur5e.DOF)])
