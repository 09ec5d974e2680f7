"""How the two grippers of robosuite's scene are commanded and measured.

Each class offers `ctrl` (indices of its actuators), `geoms` (of the left and of the right finger), `open`,
`set_physics`, `targets` (and `osc_targets` for osc mode), `opening`, `save` and `load`.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.contract import Command
from grasp_sim.objects import MIN_WIDTH
from grasp_sim.scene import CONTROL_PERIOD, Physics

ROBOTIQ_SPEED = 0.2
"""Change of robosuite's normalised gripper command per control step, its own limit: 0.5 s for all of it."""

# The actuator command (rad) that settles at a pad distance (m) in free air, measured in the model, midway
# between opening and closing: the linkage's friction makes 4 mm of difference either way, twice that after
# small reversals. robosuite's fingers open to 0.108 m; the contract, like the real gripper, ends at 0.085 m.
_GAP = np.array([0.0, 0.0135, 0.0210, 0.0323, 0.0466, 0.0608, 0.0744, 0.085])
_COMMAND_OF_GAP = np.array([0.8, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.17])


def _geoms_of_sides(model: mujoco.MjModel, described: Any) -> tuple[list[int], list[int]]:
    left, right = (
        [model.geom(name).id for name in described.important_geoms[f"{side}_finger"]]
        for side in ("left", "right")
    )
    return left, right


def robotiq_command(opening: float) -> float:
    """robosuite's normalised gripper command (-1 open, 1 closed) for an opening in m."""
    return float(np.interp(opening, _GAP, _COMMAND_OF_GAP)) / 0.4 - 1.0


def robotiq_opening(finger_joints: np.ndarray) -> float:
    """m between the pads from the joints (2, 2) in rad: outer knuckle and inner finger, per side.

    Both joints are needed: under load the linkage of this model gives, and the driven joint alone would read
    2 cm too little.
    """
    outer, tilt = finger_joints[:, 0], finger_joints.sum(axis=1)
    reach = 0.0306011 + 0.0376 * np.cos(outer) - 0.043 * np.sin(outer)
    pad = 0.0255203 * np.cos(tilt) + 0.03242 * np.sin(tilt)
    return min(max(float((reach - pad).sum()), 0.0), ur5e.GRIPPER_STROKE)


class RobotiqRule:
    """robosuite's rule for its Robotiq 85: the command moves by a fixed amount in the direction asked for."""

    def __init__(self, control_range: np.ndarray) -> None:
        """`control_range` (2,) in rad, of the finger actuators when open and when closed."""
        low, high = (float(value) for value in control_range)
        self._centre, self._half_range = 0.5 * (high + low), 0.5 * (high - low)
        self.command = 0.0
        """Normalised, -1 open and 1 closed; 0 after a reset."""

    def step(self, direction: float) -> float:
        """Move towards open (negative), closed (positive) or not (0); the control in rad for this step."""
        self.command = float(np.clip(self.command + ROBOTIQ_SPEED * np.sign(direction), -1.0, 1.0))
        return self._centre + self._half_range * self.command


class RobotiqFingers:
    """robosuite's Robotiq 85. Its linkage has no usable force limit, so the command's has no effect.

    `described` is robosuite's own description of the gripper.
    """

    model_name = "Robotiq85Gripper"

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, described: Any) -> None:
        self._data = data
        joints = (
            ("finger_joint", "left_inner_finger_joint"),
            ("right_outer_knuckle_joint", "right_inner_finger_joint"),
        )
        self._q = np.array(
            [[model.joint(f"gripper0_right_{name}").qposadr[0] for name in side] for side in joints]
        )
        self._all_q = np.array([model.joint(name).qposadr[0] for name in described.joints])
        self._open_q = described.init_qpos
        self.ctrl = np.array([model.actuator(name).id for name in described.actuators])
        self.geoms = _geoms_of_sides(model, described)
        self._speed = ROBOTIQ_SPEED
        self._action = robotiq_command(ur5e.GRIPPER_STROKE)
        self._rule = RobotiqRule(model.actuator_ctrlrange[self.ctrl[0]])

    def open(self) -> None:
        """Place the fingers fully open."""
        self._data.qpos[self._all_q] = self._open_q
        self._action = robotiq_command(ur5e.GRIPPER_STROKE)
        self._rule.command = 0.0

    def set_physics(self, physics: Physics) -> None:
        """Follow an episode's speed; what scales the force has no effect."""
        self._speed = ROBOTIQ_SPEED * (physics.gripper_speed / gripper.SPEED)

    def targets(self, command: Command, steps: int, period: float = CONTROL_PERIOD) -> list[float]:
        """(steps,) actuator commands in rad for equal parts of the next `period` s."""
        wanted = robotiq_command(command.opening)
        most = self._speed * (period / CONTROL_PERIOD)
        change = min(max(wanted - self._action, -most), most)
        start, self._action = self._action, self._action + change
        return [0.4 + 0.4 * (start + change * number / steps) for number in range(1, steps + 1)]

    def osc_targets(self, command: Command, steps: int) -> list[float]:
        """`targets` as robosuite has them: it knows only opening and closing, at its own speed."""
        closing = command.opening < ur5e.GRIPPER_STROKE / 2.0
        return [self._rule.step(1.0 if closing else -1.0)] * steps

    def opening(self) -> float:
        """m between the fingertips."""
        return robotiq_opening(self._data.qpos[self._q])

    def save(self) -> np.ndarray:
        """Everything `load` needs."""
        return np.array([self._action, self._rule.command])

    def load(self, saved: np.ndarray) -> None:
        """Inverse of `save`."""
        self._action = float(saved[0])
        self._rule.command = float(saved[1])


class ParallelFingers:
    """The project's gripper: exact opening, exact force on each pad.

    Each finger's actuator pulls towards half the opening's target with at most the force limit. The target
    runs ahead at the gripper's speed, from where the fingers are when it turns round.
    """

    model_name = "ParallelGripper"

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, described: Any) -> None:
        self._model, self._data = model, data
        self._q = np.array([model.joint(name).qposadr[0] for name in described.joints])
        self.ctrl = np.array([model.actuator(name).id for name in described.actuators])
        self.geoms = _geoms_of_sides(model, described)
        self._stiffness = float(model.actuator_gainprm[self.ctrl[0], 0])
        self._target = gripper.STROKE
        self._force = gripper.FORCE_MAX
        self._physics = Physics()

    def open(self) -> None:
        """Place the fingers fully open and tell them to stay so."""
        self._target = gripper.STROKE
        self._set_force(gripper.FORCE_MAX)
        self._data.qpos[self._q] = gripper.STROKE / 2.0
        self._data.ctrl[self.ctrl] = gripper.STROKE / 2.0

    def set_physics(self, physics: Physics) -> None:
        """Follow an episode's speed and force scale."""
        self._physics = physics

    def targets(self, command: Command, steps: int, period: float = CONTROL_PERIOD) -> list[float]:
        """(steps,) finger positions in m for equal parts of the next `period` s. Sets the force limit."""
        self._set_force(command.force_limit)
        wanted = min(max(command.opening, 0.0), gripper.STROKE)
        measured = self.opening()
        # Blocked fingers stay behind their target. Only a command beyond where they are moves them, and then
        # at once; a change on the near side must not let go for a moment.
        start = max(self._target, measured) if wanted > measured else min(self._target, measured)
        most = self._physics.gripper_speed * period
        if wanted == 0.0 and measured > MIN_WIDTH / 2.0:
            # A target of 0 pulls at a narrow object with less than the force limit: go on beyond it.
            wanted = min(0.0, measured - 2.0 * self._limit / self._stiffness)
        change = min(max(wanted - start, -most), most)
        self._target = start + change
        return [(start + change * number / steps) / 2.0 for number in range(1, steps + 1)]

    osc_targets = targets

    def _set_force(self, force: float) -> None:
        self._force = force
        self._model.actuator_forcerange[self.ctrl] = (-self._limit, self._limit)

    @property
    def _limit(self) -> float:
        """N of each finger's actuator."""
        return self._force * self._physics.gripper_force_scale

    def opening(self) -> float:
        """m between the pads."""
        return float(self._data.qpos[self._q].sum())

    def save(self) -> np.ndarray:
        """Everything `load` needs."""
        return np.array([self._target, self._force])

    def load(self, saved: np.ndarray) -> None:
        """Inverse of `save`."""
        self._target = float(saved[0])
        self._set_force(float(saved[1]))
