"""A scripted grasper that sees only what the policy may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from grasp_sim import gripper
from grasp_sim.contract import ActionScale, GraspState, yaw_error

if TYPE_CHECKING:
    from grasp_sim.env import GraspEnv

HOVER = 0.06
"""m from the object's centre up to the TCP while the tool aligns before it descends, at least."""
GRASP_OFFSET = -0.003
"""m from the object's centre up to the TCP while closing, if the table allows."""
TIP_CLEARANCE = 0.003
"""m kept between the fingertips and the table, and five times that above the object before the descent."""
ALIGNED = (0.008, 0.15)
"""m and rad within which the tool may descend."""
LOST = (0.02, 0.25)
"""m and rad beyond which a descent is broken off."""
TOUCH_FORCE = 1.0
"""N from which the fingers are taken to touch the object."""
HOLD_FORCE = 2.0
"""N from which they are taken to hold it."""
CLOSING_STEPS = (4, 16)
"""Steps before which a grasp is not believed, and after which it is tried again."""
LIFT_SPEED = 0.4
"""Share of the largest upward step."""


class ScriptedExpert:
    """Approach, descend, close, lift; regrasp when the object is lost. Feedback on every step."""

    def __init__(self, action_scale: ActionScale, control_mode: str, grip_force: float) -> None:
        """`grip_force`: N commanded throughout; enough to hold the task's objects (`Task.grip_force`)."""
        self.scale = action_scale
        share = (grip_force - action_scale.force_min) / (action_scale.force_max - action_scale.force_min)
        self.force = 2.0 * share - 1.0
        # OSC_POSE follows a delta from where it is and undershoots; the servo's target accumulates.
        self.gain = 1.0 if control_mode == "osc" else 0.7
        self.reset()

    def reset(self) -> None:
        """Start of an episode."""
        self.phase = "approach"
        self._openings: list[float] = []
        self._hover, self._grasp = HOVER, GRASP_OFFSET

    def act(self, state: GraspState) -> np.ndarray:
        """The action (6,) float32 in [-1, 1] for this state."""
        relative = state.object_position - state.tcp_position
        yaw = yaw_error(state)
        half_height = float(state.object_size[2]) / 2.0  # also the centre's height above the table
        self._hover = max(HOVER, half_height + gripper.TIP + 5 * TIP_CLEARANCE)
        self._grasp = max(GRASP_OFFSET, gripper.TIP + TIP_CLEARANCE - half_height)
        self._choose_phase(state, relative, yaw)

        move, opening = relative * self.gain, 1.0
        yaw *= self.gain
        if self.phase == "approach":
            move[2] = (relative[2] + self._hover) * self.gain
            if relative[2] > 0.02 - self._hover:
                move[:2] *= 0.3  # rise first, so the fingers do not sweep the object away
        elif self.phase == "descend":
            # A wide object leaves the open fingers little room: wait above it for the tool to be in line.
            in_line = float(np.linalg.norm(relative[:2])) < 0.5 * self._room(state)
            move[2] = (relative[2] + self._grasp) * self.gain if in_line else 0.0
        elif self.phase == "close":
            opening = -1.0
            move[2] = (relative[2] + self._grasp) * self.gain
            # Fingers that touch centre the object by themselves; correcting then would drag it.
            share = 0.0 if state.gripper_force > TOUCH_FORCE else 0.5
            move, yaw = share * move, share * yaw
        else:
            opening, yaw = -1.0, 0.0
            move = np.array([0.0, 0.0, LIFT_SPEED * self.scale.position])
        action = np.array([*(move / self.scale.position), yaw / self.scale.yaw, opening, self.force])
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _choose_phase(self, state: GraspState, relative: np.ndarray, yaw: float) -> None:
        sideways = float(np.linalg.norm(relative[:2]))
        if self.phase == "approach":
            at_height = abs(relative[2] + self._hover) < 0.03
            near = min(ALIGNED[0], 0.5 * self._room(state))
            if sideways < near and abs(yaw) < ALIGNED[1] and at_height:
                self.phase = "descend"
        elif self.phase == "descend":
            if sideways > LOST[0] or abs(yaw) > LOST[1]:
                self.phase = "approach"
            elif abs(relative[2] + self._grasp) < 0.006:
                self.phase, self._openings = "close", []
        elif self.phase == "close":
            self._openings.append(state.gripper_opening)
            if self._holding(state):
                self.phase = "lift"
            elif len(self._openings) > CLOSING_STEPS[1]:
                self.phase = "approach"
        elif self._missing(state, relative):
            self.phase = "approach"

    def _room(self, state: GraspState) -> float:
        """m between each open finger and an object in the middle, 4 mm at least."""
        return max(0.004, (self.scale.opening - float(state.object_size[0])) / 2.0)

    def _holding(self, state: GraspState) -> bool:
        """The fingers press on something and have stopped closing."""
        if len(self._openings) < CLOSING_STEPS[0]:
            return False
        stopped = abs(self._openings[-1] - self._openings[-3]) < 0.0015
        return stopped and state.gripper_force > HOLD_FORCE

    def _missing(self, state: GraspState, relative: np.ndarray) -> bool:
        """The object is not between the fingers, or they are closed further than it can be wide there."""
        away = float(np.linalg.norm(relative)) > 0.035
        return away or state.gripper_opening < 0.3 * float(state.object_size[:2].min())


def perform(
    env: GraspEnv, seed: int | None = None, grip_force: float | None = None
) -> Iterator[tuple[float, dict[str, Any]]]:
    """One episode of the expert: reward and `info` of every step.

    `grip_force` in N replaces the task's own.
    """
    force = env.task.grip_force if grip_force is None else grip_force
    expert = ScriptedExpert(env.action_scale, env.control_mode, force)
    _, info = env.reset(seed=seed)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(expert.act(info["state"]))
        over = terminated or truncated
        yield reward, info
