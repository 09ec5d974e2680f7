"""A scripted grasper that sees only what the policy may see."""

from __future__ import annotations

import numpy as np

from grasp_sim.contract import ActionScale, GraspState, yaw_error

HOVER = 0.06
"""m between object centre and TCP at which the tool aligns before it descends."""
GRASP_OFFSET = -0.003
"""m from the object's centre to the TCP while closing."""
ALIGNED = (0.008, 0.15)
"""m and rad within which the tool may descend."""
LOST = (0.02, 0.25)
"""m and rad beyond which a descent is broken off."""


class ScriptedExpert:
    """Approach, descend, close, lift; regrasp when the object is lost. Feedback on every step."""

    def __init__(self, action_scale: ActionScale, control_mode: str) -> None:
        self.scale = action_scale
        # OSC_POSE follows a delta from where it is and undershoots; the servo's target accumulates.
        self.gain = 1.0 if control_mode == "osc" else 0.7
        self.reset()

    def reset(self) -> None:
        """Start of an episode."""
        self.phase = "approach"
        self._closing_steps = 0
        self._openings: list[float] = []

    def act(self, state: GraspState) -> np.ndarray:
        """The action (6,) float32 in [-1, 1] for this state."""
        relative = state.object_position - state.tcp_position
        sideways = float(np.linalg.norm(relative[:2]))
        yaw = yaw_error(state)
        self._choose_phase(state, relative, sideways, yaw)

        wanted = relative.copy()
        opening = 1.0
        if self.phase == "approach":
            # Stay high while far to the side, so the fingers never sweep the object away.
            wanted[2] += HOVER
        elif self.phase == "descend":
            wanted[2] += GRASP_OFFSET
        elif self.phase == "close":
            wanted, yaw, opening = np.zeros(3), 0.0, -1.0
        else:
            wanted, yaw, opening = np.array([0.0, 0.0, 0.4 * self.scale.position]), 0.0, -1.0
        if self.phase in ("approach", "descend"):
            wanted = wanted * self.gain
            yaw *= self.gain
        action = np.array([*(wanted / self.scale.position), yaw / self.scale.yaw, opening, 0.0])
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _choose_phase(self, state: GraspState, relative: np.ndarray, sideways: float, yaw: float) -> None:
        if self.phase == "approach":
            above = abs(relative[2] + HOVER) < 0.03
            if sideways < ALIGNED[0] and abs(yaw) < ALIGNED[1] and above:
                self.phase = "descend"
        elif self.phase == "descend":
            if sideways > LOST[0] or abs(yaw) > LOST[1]:
                self.phase = "approach"
            elif abs(relative[2] + GRASP_OFFSET) < 0.006:
                self.phase, self._closing_steps, self._openings = "close", 0, []
        elif self.phase == "close":
            self._closing_steps += 1
            self._openings.append(state.gripper_opening)
            if self._holding(state):
                self.phase = "lift"
            elif self._closing_steps > 16:
                self.phase = "approach"
        elif self._missing(state, relative):
            self.phase = "approach"

    def _holding(self, state: GraspState) -> bool:
        """The fingers stopped on something, and it is thick enough to be the object."""
        if self._closing_steps < 4:
            return False
        stopped = abs(self._openings[-1] - self._openings[-3]) < 0.0015
        return stopped and state.gripper_force > 2.0

    def _missing(self, state: GraspState, relative: np.ndarray) -> bool:
        return float(np.linalg.norm(relative)) > 0.035 or state.gripper_opening < 0.5 * float(
            state.object_size[:2].min()
        )
