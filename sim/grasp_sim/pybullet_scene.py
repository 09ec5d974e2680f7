"""PyBullet's side of `grasp_sim.scene.Scene`: the generated UR5e, the project's gripper, a table, an object.

World and base frame are one. Every call names this scene's client, so scenes do not see each other.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import mujoco
import numpy as np
import pybullet

from grasp_sim import gripper, scene, servo, ur5e
from grasp_sim.contract import Command
from grasp_sim.objects import GRAVITY
from grasp_sim.pybullet_bodies import (
    ARM,
    FINGERS,
    Pose,
    add_object,
    add_robot,
    add_table,
    inertial_frame,
    place_object,
)
from grasp_sim.pybullet_urdf import arm_model
from grasp_sim.scene import Start
from grasp_sim.tasks import Task

CHUNKS = 4
"""Times per control step that interpolated targets are written."""
FREE_RESOLUTION = (8, 15)
"""Physics steps per control step and solver iterations per physics step while the gripper touches nothing."""
GRASP_RESOLUTION = (16, 16)
"""The same while the gripper closes or the robot touches the object. Bullet finds contact forces from nothing
in every physics step; with less, 235 N on 0.1 kg come out wrong and the object is squeezed out."""
INNER_ITERATIONS = 2
"""Solver iterations over motors and gear per iteration over contacts."""
NATURAL_FREQUENCY = 80.0
"""rad/s of the arm's position control, as in the MuJoCo scene."""
DAMPING_RATIO = 0.9
"""Of the arm's position control, as in the MuJoCo scene."""
LEAD_ITERATIONS = 2
"""Solver iterations within which the fingers' motors reach their force."""

_TORQUE_MAX = ur5e.TORQUE_MAX.tolist()


class PybulletScene:
    """The simulator behind PyBullet environments: a client of its own, rebuilt for every episode.

    Rebuilding takes 3 ms and leaves nothing of the last episode behind, so that a start decides all of it.
    """

    def __init__(self) -> None:
        self.client: int = pybullet.connect(pybullet.DIRECT)
        self.robot, self.object = -1, -1
        """Body numbers in the client; -1 before the first reset."""
        self._start: Start | None = None
        self._model = arm_model()
        self._data = mujoco.MjData(self._model)
        self._bias = np.zeros(self._model.nv)
        self._T_inertial_object: Pose | None = None
        self._steps = 0
        self._finger_target = gripper.STROKE / 2.0
        self._broken = False

    # ---- resetting

    def reset(self, start: Start) -> None:
        """Begin an episode: the arm at rest, the gripper open, the object where `start` puts it."""
        client = self.client
        pybullet.resetSimulation(physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -GRAVITY, physicsClientId=client)
        pybullet.setPhysicsEngineParameter(
            solverResidualThreshold=0.0,
            numNonContactInnerIterations=INNER_ITERATIONS,
            deterministicOverlappingPairs=1,
            physicsClientId=client,
        )
        add_table(client)
        self.robot = add_robot(client, start.joint_positions, start.physics.damping_scale)
        self.object = add_object(client, start.object)
        frame, _ = inertial_frame(start.object)
        half_yaw = start.object_yaw / 2.0
        quaternion = np.array([0.0, 0.0, math.sin(half_yaw), math.cos(half_yaw)])
        T_base_object = Pose(np.asarray(start.object_position, dtype=np.float64), quaternion)
        place_object(client, self.object, T_base_object @ frame)
        self._T_inertial_object = frame.inverse()
        self._start = start
        self._steps = 0
        self._finger_target = gripper.STROKE / 2.0
        self._broken = False

    # ---- stepping

    def advance_servo(self, start: np.ndarray, goal: np.ndarray, command: Command) -> None:
        """Simulate one control step: joint targets run from `start` to `goal` (6,), the gripper follows
        `command.opening` with at most `command.force_limit`.

        Each joint is a spring and damper of one natural frequency on a weightless arm, as UR's controller
        compensates gravity. Bullet's motors scale both by the inertia that they move.
        """
        if not self._can_advance(command, start, goal):
            return
        joints = self._joint_positions()
        steps, period = self._set_resolution(command, joints)
        rate = NATURAL_FREQUENCY * period
        stiffness = [rate**2 * self._started.physics.actuator_gain_scale] * ur5e.DOF
        damping = [2.0 * DAMPING_RATIO * rate] * ur5e.DOF
        gravity = self._gravity_torques(joints)
        targets = servo.interpolate(start, goal, CHUNKS).tolist()
        for target, finger in zip(targets, self._finger_targets(command, joints, period), strict=True):
            pybullet.setJointMotorControlArray(
                self.robot,
                ARM,
                pybullet.POSITION_CONTROL,
                targetPositions=target,
                forces=_TORQUE_MAX,
                positionGains=stiffness,
                velocityGains=damping,
                physicsClientId=self.client,
            )
            self._drive_fingers(finger, command)
            for _ in range(steps // CHUNKS):
                self._apply_torques(gravity)
                pybullet.stepSimulation(physicsClientId=self.client)
        self._steps += 1

    def _can_advance(self, command: Command, *targets: np.ndarray) -> bool:
        """Whether state, command and targets are finite; if not, nothing moves until the next reset."""
        numbers = [command.opening, command.force_limit]
        for target in targets:
            numbers.extend(target.tolist())
        self._broken = self.faulty or not math.isfinite(sum(numbers))
        return not self._broken

    def _set_resolution(self, command: Command, joints: list[float]) -> tuple[int, float]:
        """Choose physics steps and solver iterations; returns the number of steps and the s of each."""
        closing = command.opening < sum(joints[ur5e.DOF :]) - 1e-3
        grasping = closing or pybullet.getContactPoints(self.robot, self.object, physicsClientId=self.client)
        steps, iterations = GRASP_RESOLUTION if grasping else FREE_RESOLUTION
        period = scene.CONTROL_PERIOD / steps
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=period, numSolverIterations=iterations, physicsClientId=self.client
        )
        return steps, period

    def _gravity_torques(self, joints: list[float]) -> list[float]:
        """(6,) N m that hold the arm with its gripper, without an object, at joints (8,)."""
        self._data.qpos[:] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_rne(self._model, self._data, 0, self._bias)  # velocities stay 0
        return self._bias[: ur5e.DOF].tolist()

    def _finger_force(self, command: Command) -> float:
        """N of each finger's motor."""
        return command.force_limit * self._started.physics.gripper_force_scale

    def _finger_targets(self, command: Command, joints: list[float], period: float) -> list[float]:
        """(CHUNKS,) m, the finger joints' targets: they move at the gripper's speed towards the opening.

        Where an object stops the fingers, the target runs ahead of them. Bullet's solver needs this: per
        iteration a motor gains only what it takes to move the finger's mass to its target within the step, so
        with the target close by, a large force would not be reached. The lead is what the force moves a free
        finger by in one physics step, divided by `LEAD_ITERATIONS`.
        """
        present = sum(joints[ur5e.DOF :]) / 2.0
        lead = self._finger_force(command) * period**2 / (gripper.FINGER_MASS * LEAD_ITERATIONS)
        target = min(max(self._finger_target, present - lead), present + lead)
        goal = min(max(command.opening, 0.0), gripper.STROKE) / 2.0
        change = self._started.physics.gripper_speed / 2.0 * scene.CONTROL_PERIOD / CHUNKS
        targets = []
        for _ in range(CHUNKS):
            target += min(max(goal - target, -change), change)
            targets.append(target)
        self._finger_target = target
        return targets

    def _drive_fingers(self, target: float, command: Command) -> None:
        force = self._finger_force(command)
        pybullet.setJointMotorControlArray(
            self.robot,
            FINGERS,
            pybullet.POSITION_CONTROL,
            targetPositions=[target, target],
            forces=[force, force],
            positionGains=[1.0, 1.0],
            velocityGains=[1.0, 1.0],
            physicsClientId=self.client,
        )

    def _apply_torques(self, torques: list[float]) -> None:
        """For the next physics step alone, (6,) N m on the arm's joints on top of the motors."""
        pybullet.setJointMotorControlArray(
            self.robot, ARM, pybullet.TORQUE_CONTROL, forces=torques, physicsClientId=self.client
        )

    # ---- measuring

    @property
    def _started(self) -> Start:
        if self._start is None:
            raise RuntimeError("PybulletScene was used before its first reset.")
        return self._start

    @property
    def time(self) -> float:
        """s since the episode began."""
        return self._steps * scene.CONTROL_PERIOD

    @property
    def faulty(self) -> bool:
        """The state is not finite or the simulator broke down; stays so until the next reset."""
        if not self._broken:
            states = pybullet.getJointStates(self.robot, ARM + FINGERS, physicsClientId=self.client)
            numbers = [value for state in states for value in state[:2]]
            for part in pybullet.getBasePositionAndOrientation(self.object, physicsClientId=self.client):
                numbers.extend(part)
            # One sum instead of twenty tests: anything that is not finite makes it not finite.
            self._broken = not math.isfinite(sum(numbers))
        return self._broken

    def _joint_positions(self) -> list[float]:
        """(8,) rad of the arm and m of the fingers."""
        states = pybullet.getJointStates(self.robot, ARM + FINGERS, physicsClientId=self.client)
        return [state[0] for state in states]

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Arm positions (6,) in rad and velocities (6,) in rad/s."""
        states = pybullet.getJointStates(self.robot, ARM, physicsClientId=self.client)
        return np.array([state[0] for state in states]), np.array([state[1] for state in states])

    def opening(self) -> float:
        """m between the pads."""
        states = pybullet.getJointStates(self.robot, FINGERS, physicsClientId=self.client)
        return states[0][0] + states[1][0]

    def object_pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) of the object frame's origin and quaternion (4,) xyzw."""
        position, quaternion = pybullet.getBasePositionAndOrientation(
            self.object, physicsClientId=self.client
        )
        assert self._T_inertial_object is not None
        pose = Pose(np.array(position), np.array(quaternion)) @ self._T_inertial_object
        return pose.position, pose.quaternion

    def pad_forces(self, closing_axis: np.ndarray) -> np.ndarray:
        """(2,) N that each finger presses on the object along `closing_axis` (3,), a unit vector.

        The mean over the last physics step, from the normal forces of all of a finger's contacts.
        """
        x, y, z = closing_axis.tolist()
        forces = [0.0, 0.0]
        for contact in pybullet.getContactPoints(self.robot, self.object, physicsClientId=self.client):
            link, normal = contact[3], contact[7]
            if link >= FINGERS[0]:
                along = abs(normal[0] * x + normal[1] * y + normal[2] * z)
                forces[link - FINGERS[0]] += along * contact[9]
        return np.array(forces)

    # ---- saving

    def save(self) -> dict[str, np.ndarray]:
        """Everything the simulator's future depends on besides the episode's `Start`.

        `bullet` (bytes,) is Bullet's own file of bodies and contacts; it fits only bodies built alike.
        """
        with tempfile.TemporaryDirectory(prefix="grasp-state-") as folder:
            file = Path(folder) / "state.bullet"
            pybullet.saveBullet(str(file), physicsClientId=self.client)
            content = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        return {
            "bullet": content,
            "steps": np.array([self._steps]),
            "finger_target": np.array([self._finger_target]),
            "broken": np.array([self._broken]),
        }

    def restore(self, start: Start, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save`, bit-exact."""
        self.reset(start)
        with tempfile.TemporaryDirectory(prefix="grasp-state-") as folder:
            file = Path(folder) / "state.bullet"
            file.write_bytes(saved["bullet"].tobytes())
            pybullet.restoreState(fileName=str(file), physicsClientId=self.client)
        self._steps = int(saved["steps"][0])
        self._finger_target = float(saved["finger_target"][0])
        self._broken = bool(saved["broken"][0])

    # ---- the rest

    def close(self) -> None:
        """Free what the simulator holds; a second time is harmless."""
        if self.client >= 0:
            pybullet.disconnect(physicsClientId=self.client)
            self.client = -1


def make_scene(control_mode: str, task: Task) -> PybulletScene:
    """The scene of any task: they all use the project's gripper here."""
    return PybulletScene()
