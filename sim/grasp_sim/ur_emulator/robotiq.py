"""The socket of Robotiq's URCap (port 63352): `GET POS`, `SET POS 128 FOR 40`, with a gripper behind it."""

from __future__ import annotations

from grasp_sim import gripper
from grasp_sim.ur_emulator.robots import Robot

PORT = 63352
COUNT_OPEN, COUNT_CLOSED = 3, 230
"""What POS reads of a 2F-85 that is fully open and fully closed, of 0 to 255."""
SPEED_MIN = 0.02
"""m/s at SPE 0; at 255 `gripper.SPEED`."""
STILL = 0.002
"""m/s below which the fingers count as standing."""
SETTLE = 0.1
"""s without movement, short of the goal, after which an object is taken to be between the fingers."""
MOVING, STOPPED_OPENING, STOPPED_CLOSING, AT_GOAL = range(4)
_WRITABLE = ("ACT", "GTO", "ATR", "ADR", "FOR", "SPE", "POS", "SID")
_READABLE = (*_WRITABLE, "PRE", "OBJ", "STA", "FLT")


class UrcapGripper:
    """The gripper's variables, and what they make the robot's fingers do."""

    def __init__(self, robot: Robot, activated: bool = True) -> None:
        """`activated`: as after a person pressed Activate on the pendant; else it waits for `SET ACT 1`."""
        self._robot = robot
        self._values = {**dict.fromkeys(_WRITABLE, 0), "SPE": 255, "SID": 9, "FLT": 0}
        self._values["ACT"] = self._values["GTO"] = int(activated)
        self._still = 0.0
        self._last = robot.opening()
        self._object = AT_GOAL

    def step(self, period: float) -> None:
        """One cycle of `period` s: whether the fingers move, arrived or hold something."""
        opening = self._robot.opening()
        moving = abs(opening - self._last) > STILL * period
        self._still = 0.0 if moving else self._still + period
        self._last = opening
        away = self._values["POS"] - self._count(opening)
        if abs(away) <= 2:
            self._object = AT_GOAL
        elif self._still > SETTLE and self._values["GTO"]:
            self._object = STOPPED_CLOSING if away > 0 else STOPPED_OPENING
        else:
            self._object = MOVING

    def answer(self, line: str) -> str:
        """What the socket says to a line, without line ends. A `SET` is acknowledged by `ack`."""
        words = line.split()
        if len(words) == 2 and words[0] == "GET" and words[1] in _READABLE:
            return f"{words[1]} {self._read(words[1])}"
        pairs = list(zip(words[1::2], words[2::2], strict=False))
        known = all(name in _WRITABLE and value.isdecimal() and int(value) < 256 for name, value in pairs)
        if words[:1] == ["SET"] and pairs and len(words) == 1 + 2 * len(pairs) and known:
            self._values.update({name: int(value) for name, value in pairs})
            self._drive()
            return "ack"
        return "?"

    def _read(self, name: str) -> int:
        if name == "POS":
            return self._count(self._robot.opening())
        if name == "PRE":
            return self._values["POS"]
        if name == "OBJ":
            return self._object
        if name == "STA":
            return 3 if self._values["ACT"] else 0
        return self._values[name]

    def _drive(self) -> None:
        if not (self._values["ACT"] and self._values["GTO"]):
            return
        closed = (self._values["POS"] - COUNT_OPEN) / (COUNT_CLOSED - COUNT_OPEN)
        opening = gripper.STROKE * (1.0 - min(max(closed, 0.0), 1.0))
        force = gripper.FORCE_MIN + self._values["FOR"] / 255 * (gripper.FORCE_MAX - gripper.FORCE_MIN)
        speed = SPEED_MIN + self._values["SPE"] / 255 * (gripper.SPEED - SPEED_MIN)
        self._robot.grip(opening, force, speed)

    @staticmethod
    def _count(opening: float) -> int:
        return round(COUNT_OPEN + (1.0 - opening / gripper.STROKE) * (COUNT_CLOSED - COUNT_OPEN))
