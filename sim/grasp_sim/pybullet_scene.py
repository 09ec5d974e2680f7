"""PyBullet's side of `grasp_sim.scene.Scene`: the generated UR5e, the project's gripper, a table, an object.

World and base frame are one. Every call names this scene's client, so scenes do not see each other.
"""

from __future__ import annotations

import math
import weakref

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
    place_object,
)
from grasp_sim.pybullet_dynamics import LINK_INERTIA, ArmDynamics
from grasp_sim.pybullet_picture import PybulletPicture
from grasp_sim.scene import Start
from grasp_sim.tasks import Task

CHUNKS = 4
"""Times per control step that interpolated targets are written."""
FREE_RESOLUTION = (8, 15)
"""Physics steps per control step and solver iterations per physics step while the gripper touches nothing."""
GRASP_RESOLUTIONS = (
    (3_500.0, (12, 30)),
    (12_500.0, (24, 30)),
    (50_000.0, (48, 30)),
    (math.inf, (48, 120)),
)
"""The same while the gripper closes or the robot touches the object, by the most N of grip per kg of object
that each is for. Bullet finds contact forces from nothing in every physics step; with less, they come out
wrong and the object is squeezed out, as 20 g by 235 N with the first."""
INNER_ITERATIONS = 2
"""Solver iterations over motors and gear per iteration over contacts."""
NATURAL_FREQUENCY = 80.0
"""rad/s of the arm's position control, as in the MuJoCo scene."""
DAMPING_RATIO = 0.9
"""Of the arm's position control, as in the MuJoCo scene."""
VISCOUS_FRICTION = 0.1
"""N m s/rad of every arm joint, robosuite's."""
ARMATURE = 0.1
"""kg m^2 that this friction brakes in servo mode besides the arm's own inertia, as in the MuJoCo scene."""
LEAD_ITERATIONS = 2
"""Solver iterations within which the fingers' motors reach their force."""

_ASKED_WIDTH = 15  # numbers that describe a control step, see `save`
_ROUNDING = 1e-6  # of a step, how far a whole number of them may be missed
_SAME_OPENING = 1e-3  # m between commanded and present opening up to which the gripper is not closing
_TORQUE_MAX = ur5e.TORQUE_MAX.tolist()


class PybulletScene:
    """The simulator behind PyBullet environments: a client of its own, a new one for every episode.

    That takes 5 ms and leaves nothing of the last episode behind, so that a start decides all of it. After
    `resetSimulation`, contacts between arm and table can still depend on what was simulated before.
    """

    def __init__(self, control_mode: str) -> None:
        """`control_mode` "osc" gives the arm's links the inertia of rotors, which "servo" has no need of."""
        self.client = -1
        """PyBullet's number of it; -1 before the first reset and after `close`."""
        self._disconnect: weakref.finalize[..., PybulletScene] | None = None
        self.robot, self.object = -1, -1
        """Body numbers in the client; -1 before the first reset."""
        self._start: Start | None = None
        self._link_inertia = LINK_INERTIA if control_mode == "osc" else np.zeros(ur5e.DOF)
        self._dynamics = ArmDynamics(self._link_inertia)
        self._inertia = (self._dynamics.inertia(ur5e.HOME) + ARMATURE).tolist()
        self._T_inertial_object: Pose | None = None
        self._steps = 0  # control steps
        self._driven = 0.0  # s of driven cycles besides
        self._finger_target = gripper.STROKE / 2.0
        self._asked: list[list[float]] = []
        self._broken = False
        self._picture: PybulletPicture | None = None

    # ---- resetting

    def reset(self, start: Start) -> None:
        """Begin an episode: the arm at rest, the gripper open, the object where `start` puts it."""
        if self._disconnect is not None:
            self._disconnect()
        client = self.client = pybullet.connect(pybullet.DIRECT)
        # There are 1024 clients at most: a scene that is dropped without `close` gives its own back too.
        self._disconnect = weakref.finalize(self, pybullet.disconnect, physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -GRAVITY, physicsClientId=client)
        pybullet.setPhysicsEngineParameter(
            solverResidualThreshold=0.0,
            numNonContactInnerIterations=INNER_ITERATIONS,
            deterministicOverlappingPairs=1,
            physicsClientId=client,
        )
        add_table(client)
        self.robot = add_robot(client, start.joint_positions, self._link_inertia)
        self.object, frame = add_object(client, start.object)
        T_base_object = Pose(start.object_position, start.object_quaternion)
        place_object(client, self.object, T_base_object @ frame)
        self._T_inertial_object = frame.inverse()
        self._set_resolution(scene.CONTROL_PERIOD / FREE_RESOLUTION[0], FREE_RESOLUTION[1])
        self._start = start
        self._steps, self._driven = 0, 0.0
        self._finger_target = gripper.STROKE / 2.0
        self._asked = []
        self._broken = False

    # ---- stepping

    def advance_servo(self, start: np.ndarray, goal: np.ndarray, command: Command) -> None:
        """Simulate one control step: joint targets run from `start` to `goal` (6,), the gripper follows
        `command.opening` with at most `command.force_limit`.

        Each joint is a spring and damper of one natural frequency on a weightless arm, as UR's controller
        compensates gravity. Bullet's motors scale both by the inertia that they move. They reach the velocity
        that follows from spring and damper whatever else acts on the joint, so viscous friction has to be
        part of the damper.
        """
        self._asked.append([0.0, *start.tolist(), *goal.tolist(), command.opening, command.force_limit])
        self._follow(servo.interpolate(start, goal, CHUNKS), command, scene.CONTROL_PERIOD)
        if not self._broken:
            self._steps += 1

    def drive(self, target: np.ndarray, command: Command, period: float) -> None:
        """Simulate `period` s, one cycle of a robot's driver, with joint targets (6,) that hold."""
        self._follow(target[None], command, period)
        if not self._broken:
            self._driven += period

    def _follow(self, targets: np.ndarray, command: Command, duration: float) -> None:
        """Hold each of the joint targets (N, 6) for an equal part of `duration` s; see `advance_servo`."""
        joints, _ = self._begin_step([*targets.flat, command.opening, command.force_limit])
        if self._broken:
            return
        steps, period = self._choose_resolution(command, joints, duration)
        rate = NATURAL_FREQUENCY * period
        scale, friction = self._started.physics.actuator_gain_scale, self._friction * period
        stiffness = [rate**2 * scale] * ur5e.DOF
        damping = [2.0 * DAMPING_RATIO * rate * scale**0.5 + friction / j for j in self._inertia]
        gravity = self._dynamics.gravity_torques(joints).tolist()
        fingers = self._finger_targets(command, joints, period, len(targets), duration)
        for target, finger in zip(targets.tolist(), fingers, strict=True):
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
            for _ in range(steps // len(targets)):
                self._step(gravity)

    def advance_osc(self, command: Command, turn: np.ndarray) -> None:
        """Simulate one control step of robosuite's OSC_POSE law; the gripper as in `advance_servo`.

        The law runs in every physics step. The posture of its null space is the one the episode began with.
        """
        move = [*command.delta_position.tolist(), *turn.tolist()]
        asked = [1.0, *move, *[0.0] * 6, command.opening, command.force_limit]
        self._asked.append(asked)
        joints, velocities = self._begin_step(asked)
        if self._broken:
            return
        steps, period = self._choose_resolution(command, joints, scene.CONTROL_PERIOD)
        goal = self._dynamics.osc_goal(joints, command.delta_position, turn)
        pybullet.setJointMotorControlArray(
            self.robot,
            ARM,
            pybullet.VELOCITY_CONTROL,
            forces=[0.0] * ur5e.DOF,
            physicsClientId=self.client,
        )
        posture = self._started.joint_positions
        gain_scale, friction = self._started.physics.actuator_gain_scale, self._friction
        for finger in self._finger_targets(command, joints, period, CHUNKS, scene.CONTROL_PERIOD):
            self._drive_fingers(finger, command)
            for _ in range(steps // CHUNKS):
                torques = self._dynamics.osc_torques(goal, joints, velocities, posture, gain_scale, friction)
                if not math.isfinite(sum(torques)):
                    self._broken = True
                    return
                self._step(torques)
                joints, velocities = self._joint_states()
        self._steps += 1

    def _begin_step(self, asked: list[float]) -> tuple[list[float], list[float]]:
        """The joints (8,) and their velocities (8,), as `_joint_states`.

        Where any of these or of what is asked is not finite the scene is broken, and nothing moves any more.
        The object's pose is left to `faulty`, which environments ask after every step.
        """
        joints, velocities = self._joint_states()
        self._broken = self._broken or not math.isfinite(sum((*asked, *joints, *velocities)))
        return joints, velocities

    def _choose_resolution(self, command: Command, joints: list[float], duration: float) -> tuple[int, float]:
        """Set physics steps and solver iterations for the next `duration` s; returns how many steps these
        are and the s of each. Where they do not divide the duration they are shorter, never longer."""
        closing = command.opening < sum(joints[ur5e.DOF :]) - _SAME_OPENING
        grasping = closing or pybullet.getContactPoints(self.robot, self.object, physicsClientId=self.client)
        per_control_step, iterations = self._grasp_resolution(command) if grasping else FREE_RESOLUTION
        steps = math.ceil(per_control_step * duration / scene.CONTROL_PERIOD - _ROUNDING)
        period = duration / steps
        self._set_resolution(period, iterations)
        return steps, period

    def _grasp_resolution(self, command: Command) -> tuple[int, int]:
        pull = self._finger_force(command) / self._started.object.mass
        return next(resolution for most, resolution in GRASP_RESOLUTIONS if pull <= most)

    def _set_resolution(self, period: float, iterations: int) -> None:
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=period,
            numSolverIterations=iterations,
            physicsClientId=self.client,
        )

    def _finger_force(self, command: Command) -> float:
        """N of each finger's motor."""
        return command.force_limit * self._started.physics.gripper_force_scale

    def _finger_targets(
        self, command: Command, joints: list[float], period: float, parts: int, duration: float
    ) -> list[float]:
        """(parts,) m, the finger joints' targets for equal parts of the next `duration` s: they move at the
        gripper's speed towards the opening.

        Where an object stops the fingers, the target runs ahead of them. Bullet's solver needs this: per
        iteration a motor gains only what it takes to move the finger's mass to its target within the step, so
        with the target close by, a large force would not be reached. The lead is what the force moves a free
        finger by in one physics step of `period` s, divided by `LEAD_ITERATIONS`.
        """
        present = sum(joints[ur5e.DOF :]) / 2.0
        lead = self._finger_force(command) * period**2 / (gripper.FINGER_MASS * LEAD_ITERATIONS)
        target = min(max(self._finger_target, present - lead), present + lead)
        goal = min(max(command.opening, 0.0), gripper.STROKE) / 2.0
        change = self._started.physics.gripper_speed / 2.0 * duration / parts
        targets = []
        for _ in range(parts):
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

    def _step(self, torques: list[float]) -> None:
        """One physics step with torques (6,) in N m on the arm's joints, beside those of its motors."""
        pybullet.setJointMotorControlArray(
            self.robot, ARM, pybullet.TORQUE_CONTROL, forces=torques, physicsClientId=self.client
        )
        pybullet.stepSimulation(physicsClientId=self.client)

    # ---- measuring

    @property
    def _started(self) -> Start:
        if self._start is None:
            raise RuntimeError("PybulletScene was used before its first reset.")
        return self._start

    @property
    def _friction(self) -> float:
        """N m s/rad of every arm joint."""
        return VISCOUS_FRICTION * self._started.physics.damping_scale

    @property
    def time(self) -> float:
        """s since the episode began."""
        return self._steps * scene.CONTROL_PERIOD + self._driven

    @property
    def faulty(self) -> bool:
        """The state is not finite or the simulator broke down; stays so until the next reset."""
        if not self._broken:
            joints, velocities = self._joint_states()
            position, quaternion = self._inertial_pose()
            # Anything that is not finite makes the sum not finite.
            self._broken = not math.isfinite(sum((*joints, *velocities, *position, *quaternion)))
        return self._broken

    def _joint_states(self) -> tuple[list[float], list[float]]:
        """(8,) positions and (8,) velocities, in rad and rad/s of the arm, in m and m/s of the fingers."""
        states = pybullet.getJointStates(self.robot, ARM + FINGERS, physicsClientId=self.client)
        return [state[0] for state in states], [state[1] for state in states]

    def _inertial_pose(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Position (3,) and quaternion (4,) xyzw of the object's inertial frame, as PyBullet has it."""
        return pybullet.getBasePositionAndOrientation(self.object, physicsClientId=self.client)

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Arm positions (6,) in rad and velocities (6,) in rad/s."""
        positions, velocities = self._joint_states()
        return np.array(positions[: ur5e.DOF]), np.array(velocities[: ur5e.DOF])

    def opening(self) -> float:
        """m between the pads."""
        positions, _ = self._joint_states()
        return sum(positions[ur5e.DOF :])

    def object_pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) of the object frame's origin and quaternion (4,) xyzw."""
        assert self._T_inertial_object is not None
        position, quaternion = self._inertial_pose()
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

    def dynamic_state(self) -> np.ndarray:
        """(30,): time; joints (8,) as of `_joint_states` and their velocities (8,); position (3,), quaternion
        (4,) xyzw, velocity (3,) and angular velocity (3,) of the object's inertial frame."""
        velocities = pybullet.getBaseVelocity(self.object, physicsClientId=self.client)
        parts = (*self._joint_states(), *self._inertial_pose(), *velocities)
        return np.concatenate([[self.time], *parts])

    def show(self, start: Start, dynamic_state: np.ndarray) -> None:
        """Put everything where a `dynamic_state` has it."""
        time, joints, velocities, position, quaternion, *moving = np.split(
            dynamic_state, np.cumsum([1, 8, 8, 3, 4, 3])
        )
        self.reset(start)
        for joint, value, velocity in zip(ARM + FINGERS, joints, velocities, strict=True):
            pybullet.resetJointState(self.robot, joint, value, velocity, physicsClientId=self.client)
        pybullet.resetBasePositionAndOrientation(
            self.object, position, quaternion, physicsClientId=self.client
        )
        pybullet.resetBaseVelocity(self.object, *moving, physicsClientId=self.client)
        pybullet.performCollisionDetection(physicsClientId=self.client)
        self._steps = round(float(time[0]) / scene.CONTROL_PERIOD)

    def save(self) -> dict[str, np.ndarray]:
        """Everything the simulator's future depends on besides the episode's `Start`: what was asked so far.

        `asked` (steps, 15): 0, joint targets from (6,) and to (6,) for a step of `advance_servo`; 1, the
        command's move (3,), the turn (3,) and zeros (6,) for one of `advance_osc`; then opening and
        force limit. Bullet's own files do not hold all of its state: between curved shapes it begins the
        search for contacts where it last ended, so a restored file goes on differently in the last digits.
        Driven cycles are not written down: hundreds a second, for hours where a driver is simulated.
        """
        if self._driven:
            raise RuntimeError("an episode with driven cycles cannot be saved, only one of control steps.")
        return {"asked": np.array(self._asked, dtype=np.float64).reshape(-1, _ASKED_WIDTH)}

    def restore(self, start: Start, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save` for an episode begun from `start`, bit-exact; simulates the episode again."""
        self.reset(start)
        for row in saved["asked"]:
            opening, force_limit = row[13:].tolist()
            if row[0] == 0.0:
                self.advance_servo(row[1:7], row[7:13], Command(np.zeros(3), 0.0, opening, force_limit))
            else:
                self.advance_osc(Command(row[1:4], 0.0, opening, force_limit), row[4:7])

    # ---- the rest

    def render(self, width: int, height: int) -> np.ndarray:
        """(height, width, 3) uint8, seen from `scene.CAMERA`, drawn in software."""
        if self._picture is None:
            self._picture = PybulletPicture()
        joints, _ = self._joint_states()
        position, quaternion = self._inertial_pose()
        return self._picture.render(self._started.object, joints, position, quaternion, width, height)

    def close(self) -> None:
        """Free what the simulator holds; a second time is harmless."""
        if self._picture is not None:
            self._picture.close()
            self._picture = None
        if self._disconnect is not None:
            self._disconnect()
            self.client = -1


def make_scene(control_mode: str, task: Task) -> PybulletScene:
    """The scene of any task: all use the project's gripper here."""
    return PybulletScene(control_mode)
