"""The servo at the driver's rate: an action of the policy becomes a line of joint setpoints.

The same servo as in simulation, from the measured joints; between two targets the line that the simulators
interpolate too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import ActionScale, Command, decode, executed_action
from grasp_sim.servo import Servo, ServoConfig, ServoStatus


class Executed(NamedTuple):
    """What became of an action."""

    action: np.ndarray
    """(A,) in [-1, 1], as it was sent."""
    command: Command
    status: ServoStatus
    reason: str
    """Why the servo limited it or held; empty where it did not."""


class SetpointStream:
    """Where each joint is to be at any moment. Times are monotonic, in s."""

    def __init__(self, scale: ActionScale, config: ServoConfig | None = None) -> None:
        self._scale = scale
        self._servo = Servo(config)
        self._start = self._goal = np.zeros(ur5e.DOF)
        self._began = 0.0

    @property
    def ready(self) -> bool:
        """`reset` was called."""
        return self._servo.joint_target is not None

    def reset(self, joint_positions: np.ndarray) -> None:
        """Stay at the measured joints (6,); ValueError if they are not 6 finite numbers."""
        self._servo.reset(joint_positions)
        assert self._servo.joint_target is not None
        self._start = self._goal = self._servo.joint_target.copy()

    def act(self, action: np.ndarray, joint_positions: np.ndarray, now: float) -> Executed:
        """Begin the line of one policy step from where the setpoint is at `now`.

        Args:
            action: (A,), clipped to [-1, 1]; ContractError where it cannot be sent to an arm.
            joint_positions: (6,) measured.
            now: s.
        """
        sent = executed_action(action)
        command = decode(sent, self._scale)
        self._start = self.at(now)[0]
        self._goal = self._servo.step(joint_positions, command)
        self._began = now
        if self._servo.status is ServoStatus.HOLD:
            self._start = self._goal  # no line leads there: it is where the target or the arm was already
        return Executed(sent, command, self._servo.status, self._servo.reason)

    def at(self, now: float) -> tuple[np.ndarray, np.ndarray]:
        """Setpoint (6,) in rad and its velocity (6,) in rad/s at `now`; after a period it is at rest."""
        period = self._servo.config.period
        share = min(max((now - self._began) / period, 0.0), 1.0)
        move = self._goal - self._start
        velocity = move / period if share < 1.0 else np.zeros(ur5e.DOF)
        return self._start + share * move, velocity
