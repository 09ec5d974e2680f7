"""What a three-dimensional view draws: triangle meshes of arm, gripper, table and object, and their poses.

All of it follows from a `GraspState`, so a real arm and a recording are shown as a simulator is. The gripper
is the project's own, whatever the simulator's looks like. Frames: base. Units: m. Quaternions: wxyz, as
viewers take them.

Shapes: V vertices, F triangles.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import mujoco
import numpy as np

from grasp_sim import gripper, scene, ur5e
from grasp_sim.contract import GraspState
from grasp_sim.objects import ObjectSpec, Part
from grasp_sim.ur5e_model import robot_xml

_GREY, _BLUE, _DARK = (200, 202, 205), (125, 173, 204), (70, 74, 80)
_LINK_COLOURS = {"shoulder_link": _BLUE, "forearm_link": _BLUE, "wrist_1_link": _DARK, "wrist_2_link": _DARK}
_TABLE, _PAD, _OBJECT = (204, 173, 133), (40, 42, 46), (205, 60, 50)
_TABLE_THICKNESS = 0.05
_COLLISION_GROUP = 0
"""The arm's coarse meshes: 7,600 triangles instead of 120,000."""


class Mesh(NamedTuple):
    """One rigid body's triangles."""

    vertices: np.ndarray
    """(V, 3) m, in the body's frame."""
    faces: np.ndarray
    """(F, 3) rows of `vertices`."""
    colour: tuple[int, int, int]
    """RGB, 0 to 255."""


class Pose(NamedTuple):
    """Of a body's frame in the base frame."""

    position: np.ndarray
    """(3,) m."""
    quaternion: np.ndarray
    """(4,) wxyz."""


NOWHERE = Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
"""The base frame itself."""


class RobotVisuals:
    """Arm and gripper. Holds scratch memory: one instance per thread."""

    def __init__(self) -> None:
        """Raises RobotModelMissing where robosuite's model is not installed."""
        self._model = mujoco.MjModel.from_xml_path(str(robot_xml()))
        self._data = mujoco.MjData(self._model)
        self._kinematics = ur5e.Kinematics()
        self._geoms = [
            index
            for index in range(self._model.ngeom)
            if self._model.geom_group[index] == _COLLISION_GROUP and self._model.geom_dataid[index] >= 0
        ]

    def meshes(self) -> dict[str, Mesh]:
        """Every body's mesh by its name; `poses` says where they are."""
        model, found = self._model, {}
        for geom in self._geoms:
            mesh = model.geom_dataid[geom]
            first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
            face, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
            name = self._name(geom)
            found[name] = Mesh(
                model.mesh_vert[first : first + count].copy(),
                model.mesh_face[face : face + faces].copy(),
                _LINK_COLOURS.get(name, _GREY),
            )
        found["palm"] = box_mesh(gripper.PALM.half_size, _DARK, gripper.PALM.centre)
        for finger in ("finger_1", "finger_2"):
            found[finger] = merged(
                box_mesh(gripper.FINGER.half_size, _DARK, gripper.FINGER.centre),
                box_mesh(gripper.PAD.half_size, _PAD, gripper.PAD.centre),
            )
        return found

    def poses(self, state: GraspState) -> dict[str, Pose]:
        """Where each of `meshes` is."""
        self._data.qpos[: ur5e.DOF] = state.joint_positions
        mujoco.mj_kinematics(self._model, self._data)
        found = {}
        for geom in self._geoms:
            quaternion = np.empty(4)
            mujoco.mju_mat2Quat(quaternion, self._data.geom_xmat[geom])
            found[self._name(geom)] = Pose(self._data.geom_xpos[geom].copy(), quaternion)
        position, rotation = self._kinematics.pose(state.joint_positions)
        turn = ur5e.quaternion_of(rotation)[[3, 0, 1, 2]]
        found["palm"] = Pose(position, turn)
        half = state.gripper_opening / 2.0
        about_z = np.empty(4)
        mujoco.mju_mulQuat(about_z, turn, np.array([0.0, 0.0, 0.0, 1.0]))
        found["finger_1"] = Pose(position + half * rotation[:, 0], turn)
        found["finger_2"] = Pose(position - half * rotation[:, 0], about_z)
        return found

    def _name(self, geom: int) -> str:
        return self._model.body(self._model.geom_bodyid[geom]).name


def table_mesh() -> Mesh:
    """The table, in the base frame."""
    half = (*scene.TABLE_HALF_SIZE, _TABLE_THICKNESS / 2.0)
    return box_mesh(half, _TABLE, (*scene.TABLE_CENTRE, scene.TABLE_HEIGHT - _TABLE_THICKNESS / 2.0))


def object_mesh(spec: ObjectSpec) -> Mesh:
    """An object, in its own frame."""
    return merged(*(_part_mesh(part) for part in spec.parts))


def object_box(size: np.ndarray) -> Mesh:
    """An object of which only the size (3,) is known, as on a real arm."""
    return box_mesh(size / 2.0, _OBJECT)


def object_pose(state: GraspState) -> Pose:
    """Where the object is."""
    return Pose(state.object_position, state.object_quaternion[[3, 0, 1, 2]])


def box_mesh(
    half_size: np.ndarray | tuple[float, ...],
    colour: tuple[int, int, int],
    centre: tuple[float, ...] = (0.0, 0.0, 0.0),
) -> Mesh:
    """A box of half extents (3,) about `centre` (3,)."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    faces = [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1)]
    faces += [(2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3)]
    return Mesh(corners * np.asarray(half_size) + np.asarray(centre), np.array(faces), colour)


def merged(*meshes: Mesh) -> Mesh:
    """One mesh of several, in the first one's colour."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes[:-1])])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=True)]),
        meshes[0].colour,
    )


def _part_mesh(part: Part) -> Mesh:
    """One primitive. What is round is a surface of revolution about z, then turned to the part's axis."""
    if part.shape == "box":
        return box_mesh(part.size, _OBJECT, part.position)
    radius, half = part.size[0], part.size[1] if len(part.size) > 1 else 0.0
    angles = np.linspace(0.0, np.pi / 2.0, 7)
    if part.shape == "cylinder":
        profile = [(0.0, half), (radius, half), (radius, -half), (0.0, -half)]
    else:  # a sphere is a capsule without length
        cap = [(radius * np.sin(a), half + radius * np.cos(a)) for a in angles]
        profile = cap + [(r, -z) for r, z in reversed(cap)]
    mesh = _revolved(np.array(profile))
    order = {"x": [2, 0, 1], "y": [1, 2, 0], "z": [0, 1, 2]}[part.axis]
    return Mesh(mesh.vertices[:, order] + np.asarray(part.position), mesh.faces, mesh.colour)


def _revolved(profile: np.ndarray, sides: int = 24) -> Mesh:
    """The surface that a profile (N, 2) of radius and height, from top to bottom, sweeps about z."""
    around = np.linspace(0.0, 2.0 * np.pi, sides, endpoint=False)
    rings = [
        np.stack([r * np.cos(around), r * np.sin(around), np.full(sides, z)], axis=1) for r, z in profile
    ]
    faces = []
    for ring in range(len(profile) - 1):
        a = ring * sides + np.arange(sides)
        b = ring * sides + (np.arange(sides) + 1) % sides
        faces += [np.stack([a, a + sides, b], axis=1), np.stack([b, a + sides, b + sides], axis=1)]
    return Mesh(np.concatenate(rings), np.concatenate(faces), _OBJECT)


def start_object(snapshot: Mapping[str, np.ndarray]) -> ObjectSpec | None:
    """The object of an episode's snapshot; None for a real arm's, which has none."""
    if "start" not in snapshot:
        return None
    return scene.Start.from_json(np.asarray(snapshot["start"], np.uint8).tobytes().decode()).object
