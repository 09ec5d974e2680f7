"""Table, robot and object as PyBullet bodies. The physics and the picture of `PybulletScene` build on them.

PyBullet multiplies the friction coefficients of the two bodies in contact: table and pads have 1, so a pair's
coefficient is the object's own.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import pybullet

from grasp_sim import gripper, scene, ur5e
from grasp_sim.objects import ObjectSpec
from grasp_sim.pybullet_urdf import urdf_path

ARM = list(range(ur5e.DOF))
"""Joints of the arm, and the links that they move."""
FINGERS = [ur5e.DOF, ur5e.DOF + 1]
"""Joints of the fingers, and the links that they move."""
TABLE_THICKNESS = 0.05
"""m."""
SPINNING_FRICTION = 0.01
"""m, of the pads. Without it an object starts to slide at up to 1.2 times the force at which it should."""
ROLLING_FRICTION = 0.001
"""m, of the table; times the object's friction. Without it, a cylinder lying on it rolls off by itself."""
GEAR_FORCE = 1000.0
"""N, greatest force that keeps the fingers equally far from the TCP; above every grip force."""
GEAR_ERP = 0.4
"""Share of the difference between the fingers' positions that is corrected per physics step."""

_SHAPES = {
    "box": pybullet.GEOM_BOX,
    "sphere": pybullet.GEOM_SPHERE,
    "cylinder": pybullet.GEOM_CYLINDER,
    "capsule": pybullet.GEOM_CAPSULE,
}


@dataclass(frozen=True, slots=True)
class Pose:
    """A rigid transform."""

    position: np.ndarray
    """(3,) m."""
    quaternion: np.ndarray
    """(4,) xyzw."""

    def __matmul__(self, other: Pose) -> Pose:
        """The product of both transforms, in double precision (PyBullet's own function is in single)."""
        position, wxyz = np.empty(3), np.empty(4)
        mujoco.mju_mulPose(
            position,
            wxyz,
            self.position,
            self.quaternion[[3, 0, 1, 2]],
            other.position,
            other.quaternion[[3, 0, 1, 2]],
        )
        return Pose(position, wxyz[[1, 2, 3, 0]])

    def inverse(self) -> Pose:
        """The transform in the other direction."""
        position, wxyz = np.empty(3), np.empty(4)
        mujoco.mju_negPose(position, wxyz, self.position, self.quaternion[[3, 0, 1, 2]])
        return Pose(position, wxyz[[1, 2, 3, 0]])


def add_fixed_box(client: int, half_size: list[float], centre: list[float]) -> int:
    """A box that does not move, of half extents (3,) and centre (3,) in m; returns its body number."""
    shape = pybullet.createCollisionShape(pybullet.GEOM_BOX, halfExtents=half_size, physicsClientId=client)
    return pybullet.createMultiBody(0.0, shape, basePosition=centre, physicsClientId=client)


def add_table(client: int) -> int:
    """The top of the table of `grasp_sim.scene`; returns its body number."""
    half = TABLE_THICKNESS / 2.0
    centre = [*scene.TABLE_CENTRE, scene.TABLE_HEIGHT - half]
    table = add_fixed_box(client, [*scene.TABLE_HALF_SIZE, half], centre)
    pybullet.changeDynamics(
        table, -1, lateralFriction=1.0, rollingFriction=ROLLING_FRICTION, physicsClientId=client
    )
    return table


def add_robot(client: int, joint_positions: np.ndarray, link_inertia: np.ndarray) -> int:
    """Arm and gripper at rest with joints (6,) in rad, open, its motors off; returns its body number.

    `link_inertia` (6,) in kg m^2 is added about every axis of the arm's links. There is no joint friction:
    Bullet's is explicit, and on light wrists unstable from 0.5 N m s/rad.
    """
    robot = pybullet.loadURDF(
        str(urdf_path()),
        useFixedBase=True,
        flags=pybullet.URDF_USE_INERTIA_FROM_FILE,
        physicsClientId=client,
    )
    place_robot(client, robot, np.append(joint_positions, [gripper.STROKE / 2.0] * 2))
    for joint in ARM + FINGERS:
        # PyBullet begins with a motor on every joint, and damps every body.
        pybullet.setJointMotorControl2(
            robot, joint, pybullet.VELOCITY_CONTROL, force=0.0, physicsClientId=client
        )
        pybullet.changeDynamics(
            robot,
            joint,
            linearDamping=0.0,
            angularDamping=0.0,
            maxJointVelocity=float(ur5e.VELOCITY_MAX.max()),
            physicsClientId=client,
        )
    for link, more in zip(ARM, link_inertia.tolist(), strict=True):
        inertia = pybullet.getDynamicsInfo(robot, link, physicsClientId=client)[2]
        pybullet.changeDynamics(
            robot, link, localInertiaDiagonal=[value + more for value in inertia], physicsClientId=client
        )
    for finger in FINGERS:  # a call of its own: together with a damping it would change the base
        pybullet.changeDynamics(
            robot,
            finger,
            lateralFriction=1.0,
            spinningFriction=SPINNING_FRICTION,
            frictionAnchor=True,
            physicsClientId=client,
        )
    gear = pybullet.createConstraint(
        robot,
        FINGERS[0],
        robot,
        FINGERS[1],
        pybullet.JOINT_GEAR,
        [1, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
        physicsClientId=client,
    )
    # With a ratio of -1 both joints have the same position.
    pybullet.changeConstraint(gear, gearRatio=-1.0, erp=GEAR_ERP, maxForce=GEAR_FORCE, physicsClientId=client)
    return robot


def place_robot(client: int, robot: int, positions: np.ndarray) -> None:
    """Put all joints (8,), in rad and m, where they are told, at rest."""
    for joint, position in enumerate(positions.tolist()):
        pybullet.resetJointState(robot, joint, position, physicsClientId=client)


def add_object(client: int, spec: ObjectSpec) -> tuple[int, Pose]:
    """The object with its mass, inertia and friction, at the origin; returns its body number and
    `T_object_inertial`, its principal axes at its centre of mass.

    PyBullet's pose of a body is that of its inertial frame: see `place_object`.
    """
    parts = spec.parts
    shape = pybullet.createCollisionShapeArray(
        [_SHAPES[part.shape] for part in parts],
        # Each shape reads its own entries of these and ignores the others.
        halfExtents=[part.size if part.shape == "box" else (0.0, 0.0, 0.0) for part in parts],
        radii=[0.0 if part.shape == "box" else part.size[0] for part in parts],
        lengths=[2.0 * part.size[1] if len(part.size) == 2 else 0.0 for part in parts],
        collisionFramePositions=[part.position for part in parts],
        collisionFrameOrientations=[part.quaternion for part in parts],
        physicsClientId=client,
    )
    moments, quaternion = spec.principal_inertia
    frame = Pose(spec.centre_of_mass, quaternion)
    body = pybullet.createMultiBody(
        spec.mass,
        shape,
        baseInertialFramePosition=frame.position.tolist(),
        baseInertialFrameOrientation=frame.quaternion.tolist(),
        physicsClientId=client,
    )
    pybullet.changeDynamics(
        body,
        -1,
        linearDamping=0.0,
        angularDamping=0.0,
        localInertiaDiagonal=moments.tolist(),
        physicsClientId=client,
    )
    pybullet.changeDynamics(
        body, -1, lateralFriction=spec.friction, frictionAnchor=True, physicsClientId=client
    )
    return body, frame


def place_object(client: int, body: int, T_base_inertial: Pose) -> None:
    """Put the object's inertial frame at a pose, at rest."""
    pybullet.resetBasePositionAndOrientation(
        body,
        T_base_inertial.position.tolist(),
        T_base_inertial.quaternion.tolist(),
        physicsClientId=client,
    )
