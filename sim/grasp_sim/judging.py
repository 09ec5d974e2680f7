"""What a scene's true state is, and what counts as grasped, solved, slipped, dropped and broken.

The same for environments, which look once per control step, and for the simulated robot behind a driver.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import GraspState
from grasp_sim.scene import Scene, Start
from grasp_sim.slip import SlipTracker
from grasp_sim.tasks import Task

TOUCH = 0.1
"""N on each pad from which both fingers are taken to hold the object."""


class Judgement(NamedTuple):
    """What became of the object in one control step."""

    grasped: bool
    success: bool
    slip: bool
    drop: bool
    broken: bool


class Judge:
    """Reads the true state of a scene and judges it by the rules of its task."""

    def __init__(self, scene: Scene, task: Task, kinematics: ur5e.Kinematics) -> None:
        self._scene, self._task, self._kinematics = scene, task, kinematics
        self._slip = SlipTracker()
        self._start: Start | None = None
        self._object_size = np.zeros(3)

    def begin(self, start: Start) -> None:
        """An episode begins from `start`, or is restored by `load` afterwards."""
        self._start, self._object_size = start, start.object.size
        self._slip.reset()

    def read(self) -> tuple[GraspState, np.ndarray]:
        """The true state now, and the contact forces (2,) of left and right pad in N."""
        assert self._start is not None
        positions, velocities = self._scene.joints()
        tcp_position, rotation = self._kinematics.pose(positions)
        forces = self._scene.pad_forces(rotation[:, 0])
        object_position, object_quaternion = self._scene.object_pose()
        now = self._scene.time
        state = GraspState(
            joint_positions=positions,
            joint_velocities=velocities,
            tcp_position=tcp_position,
            tcp_quaternion=ur5e.quaternion_of(rotation),
            gripper_opening=self._scene.opening(),
            gripper_force=float(forces.mean()),
            object_position=object_position,
            object_quaternion=object_quaternion,
            object_size=self._object_size,
            object_symmetry=self._start.object.symmetry,
            joint_time=now,
            gripper_time=now,
            object_time=now,
            time=now,
        )
        return protected(state), forces

    def judge(self, state: GraspState, forces: np.ndarray) -> Judgement:
        """Judge what `read` returned; once per control step, since slips are labelled by the step."""
        assert self._start is not None
        grasped, broken = bool((forces > TOUCH).all()), bool((forces > self._task.breaking_force).any())
        labels = self._slip.update(state, grasped)
        solved = self._task.solved(self._start, float(state.object_position[2]), grasped)
        return Judgement(grasped, not broken and solved, labels.slip, labels.drop, broken)

    def save(self) -> np.ndarray:
        """Everything later judgements depend on besides the start."""
        return self._slip.save()

    def load(self, saved: np.ndarray) -> None:
        """Inverse of `save`, after `begin`."""
        self._slip.load(saved)


def protected(state: GraspState) -> GraspState:
    """The state, with arrays that nobody can write to: it is handed out, and later steps build on it."""
    for part in fields(GraspState):
        value = getattr(state, part.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return state
