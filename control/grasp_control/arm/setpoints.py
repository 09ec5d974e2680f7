"""The servo at the driver's rate: an action of the policy becomes a line of joint setpoints.

The same servo as in simulation, from the measured joints; between two targets the line that the simulators
interpolate too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import ActionScale, Command, ContractError, decode, executed_action
from grasp_sim.servo import Servo, ServoConfig, ServoStatus

DEPLOYED = ServoConfig(max_position_lead=0.02, max_yaw_lead=0.15)
"""Half the lead of the simulators. The safety filter can be slower than the servo; a simulated arm never is.
The target would wind up ahead of it, below the floor that the tool is kept above, and what the policy does
against that would come late."""
BRAKING = 40.0
"""rad/s^2, how the setpoint comes to rest. If it stood at once, the safety filter, which must not, would
overshoot and bring the arm back."""
SLOWEST = 20.0
"""Times as long as in training that a policy step may take."""


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

    def __init__(self, scale: ActionScale, config: ServoConfig = DEPLOYED) -> None:
        self._scale = scale
        self._servo = Servo(config)
        self._period = config.period
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

    def act(
        self, action: np.ndarray, joint_positions: np.ndarray, now: float, period: float | None = None
    ) -> Executed:
        """Begin the line of one policy step from where the setpoint is at `now`.

        Args:
            action: (A,), clipped to [-1, 1]; ContractError where it cannot be sent to an arm.
            joint_positions: (6,) measured.
            now: s.
            period: s that the step takes, if longer than in training, for an arm that moves slower;
                ContractError below that, or above `SLOWEST` times it.
        """
        usual = self._servo.config.period
        period = usual if period is None else period
        if not usual * (1.0 - 1e-6) <= period <= SLOWEST * usual:
            raise ContractError(
                f"a policy step of {period:g} s is asked for; it must be from {usual:g} to"
                f" {SLOWEST * usual:g} s"
            )
        sent = executed_action(action)
        command = decode(sent, self._scale)
        self._start = self.at(now)[0]
        self._goal = self._servo.step(joint_positions, command)
        self._began, self._period = now, period
        if self._servo.status is ServoStatus.HOLD:
            self._start = self._goal  # no line leads there: it is where the target or the arm was already
        return Executed(sent, command, self._servo.status, self._servo.reason)

    def brake(self, now: float) -> None:
        """Brake from `now` on: whoever gives the actions is not there any more. Nothing happens at rest."""
        elapsed = now - self._began
        if 0.0 < elapsed < self._period:
            self._goal, self._period = self.at(now)[0], elapsed

    def at(self, now: float) -> tuple[np.ndarray, np.ndarray]:
        """Setpoint (6,) in rad and its velocity (6,) in rad/s at `now`.

        Where no further action came in time it brakes by `BRAKING` along the line, as an arm has to.
        """
        move, elapsed = self._goal - self._start, now - self._began
        velocity = move / self._period
        if elapsed <= self._period:
            return self._start + max(elapsed, 0.0) * velocity, velocity
        stopping = float(np.abs(velocity).max()) / BRAKING
        if stopping == 0.0:
            return self._goal.copy(), velocity
        late = min(elapsed - self._period, stopping)
        left = 1.0 - late / stopping
        return self._goal + velocity * (0.5 * late * (1.0 + left)), velocity * left
