"""A grasp program performed from wherever the arm is, by what the policy may see."""

from __future__ import annotations

import numpy as np

from grasp_sim.contract import ActionScale, GraspState, yaw_of
from grasp_sim.program_env import DESCENT, SETTLING, STOPPED, Plan, poses
from grasp_sim.scene import CONTROL_PERIOD, Start
from grasp_sim.servo import shorten

GAIN = 0.7
"""Share of the way to where the tool should be that a step asks for; the servo's target accumulates."""
ALIGNED = (0.006, 0.08)
"""m and rad within which the tool has arrived."""
PATIENCE = 25
"""Steps after which the descent and the closing are over, arrived or not."""


class ProgramPilot:
    """Goes to where the program begins, then does what it says; feedback on every step."""

    def __init__(self, plan: Plan, start: Start, scale: ActionScale) -> None:
        """`start` is the episode's, whose object has not been moved yet."""
        self._plan, self._scale = plan, scale
        self._grasp, self._hover, self._yaw = poses(start, plan)
        self._force = 2.0 * (plan.force - scale.force_min) / (scale.force_max - scale.force_min) - 1.0
        self._phase, self._steps = "approach", 0
        self._settling = 2 + round(SETTLING / CONTROL_PERIOD) * plan.settles
        self._opening = plan.width

    def act(self, state: GraspState) -> np.ndarray:
        """The action (6,) float32 in [-1, 1] for this state."""
        self._steps += 1
        self._choose_phase(state)
        turn = self._turn(state)
        if self._phase == "approach":
            move = GAIN * (self._hover - state.tcp_position)
            if state.tcp_position[2] < self._hover[2] - 0.02:
                move[:2] *= 0.3  # rise first, so that the fingers do not sweep the object away
        elif self._phase == "descend":
            move = shorten(GAIN * (self._grasp - state.tcp_position), DESCENT * CONTROL_PERIOD)
        elif self._phase == "close":
            self._opening = max(self._opening - self._plan.closing * CONTROL_PERIOD, 0.0)
            move, turn = np.zeros(3), 0.0
        else:
            speed = self._plan.lift if self._phase == "lift" else 0.0
            move, turn = np.array([0.0, 0.0, speed * CONTROL_PERIOD]), 0.0
            self._opening = 0.0
        opening = 2.0 * self._opening / self._scale.opening - 1.0
        yaw = GAIN * turn / self._scale.yaw
        action = np.array([*(move / self._scale.position), yaw, opening, self._force])
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _choose_phase(self, state: GraspState) -> None:
        if self._phase == "approach":
            away = float(np.linalg.norm(self._hover - state.tcp_position))
            if away < ALIGNED[0] and abs(self._turn(state)) < ALIGNED[1]:
                self._begin("descend")
        elif self._phase == "descend":
            away = float(np.linalg.norm(self._grasp - state.tcp_position))
            if away < ALIGNED[0] or self._steps > PATIENCE:
                self._begin("close")
        elif self._phase == "close":
            stopped = self._opening < state.gripper_opening - STOPPED
            if stopped or self._opening == 0.0:
                self._begin("settle")
        elif self._phase == "settle" and self._steps > self._settling:
            self._begin("lift")

    def _turn(self, state: GraspState) -> float:
        return (self._yaw - yaw_of(state.tcp_quaternion) + np.pi / 2.0) % np.pi - np.pi / 2.0

    def _begin(self, phase: str) -> None:
        self._phase, self._steps = phase, 0
