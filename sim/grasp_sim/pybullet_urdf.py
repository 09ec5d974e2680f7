"""The UR5e with the project's gripper for PyBullet: a URDF written from `grasp_sim.ur5e_model`.

PyBullet has no UR5e. With its links, masses and limits taken from the compiled MuJoCo model, both simulators
share kinematics and inertia. What is fixed to a link (flange and palm to wrist 3) is merged into it, so the
root is `base` and every other link has the number of the joint that moves it. Collision shapes are hulls of
robosuite's meshes with few corners, and the pads; nothing touches the rest of the gripper, as in MuJoCo.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import tempfile
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import mujoco
import numpy as np
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from grasp_sim import gripper, ur5e
from grasp_sim.ur5e_model import (
    FINGER_NAMES,
    RobotModelMissing,
    arm_model,
    numbers,
    require,
    robot_xml,
)

HULL_DIRECTIONS = 48
"""Directions in which a collision hull touches its mesh; more corners than these it does not have."""
_PALM_COLOUR = "0.13 0.13 0.14 1"
_FINGER_COLOUR = "0.24 0.25 0.27 1"
_PAD_COLOUR = "0.08 0.08 0.08 1"


def _meshes(visible: bool) -> dict[str, list[tuple[Path, str]]]:
    """Mesh file and colour (rgba) of each geom that is seen, or else of each that collides, per link.

    None of robosuite's geoms is moved in its body, so a mesh's frame is that of the link.
    """
    path = robot_xml()
    root = ET.parse(path).getroot()
    files = {mesh.get("name"): path.parent / mesh.get("file", "") for mesh in root.iter("mesh")}
    colours = {material.get("name"): material.get("rgba", "") for material in root.iter("material")}
    found: dict[str, list[tuple[Path, str]]] = {}
    for body in root.iter("body"):
        link = "base" if body.get("name") == "fixed_base_link" else body.get("name", "")
        for geom in body.findall("geom"):
            if geom.get("type") == "mesh" and (geom.get("contype") == "0") == visible:
                colour = colours.get(geom.get("material"), geom.get("rgba", ""))
                found.setdefault(link, []).append((require(files[geom.get("mesh")]), colour))
    return found


def _read_stl(path: Path) -> np.ndarray:
    """(points, 3) m, vertices of a binary STL file."""
    content = path.read_bytes()
    count = int.from_bytes(content[80:84], "little")
    if len(content) != 84 + 50 * count:
        raise RobotModelMissing(f"{path} is no binary STL file; reinstall robosuite==1.5.2")
    facet = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    return np.frombuffer(content, facet, count, 84)["corners"].reshape(-1, 3).astype(np.float64)


def _decimated_hull(points: np.ndarray) -> str:
    """A convex hull of few of the points (points, 3) as an OBJ file's text.

    It takes the farthest point in each of `HULL_DIRECTIONS` directions spread evenly on a sphere (a Fibonacci
    lattice), so it lies inside the true hull and touches it in those directions.
    """
    number = np.arange(HULL_DIRECTIONS) + 0.5
    height, turn = 1.0 - 2.0 * number / HULL_DIRECTIONS, np.pi * (1.0 + 5.0**0.5) * number
    radius = np.sqrt(1.0 - height**2)
    directions = np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)
    corners = points[np.unique((points @ directions.T).argmax(axis=0))]
    corners = corners[ConvexHull(corners).vertices]
    hull = ConvexHull(corners)
    lines = [f"v {numbers(corner)}" for corner in corners]
    for face, equation in zip(hull.simplices, hull.equations, strict=True):
        a, b, c = corners[face]
        outward = np.cross(b - a, c - a) @ equation[:3] > 0
        lines.append("f {} {} {}".format(*(1 + (face if outward else face[::-1]))))
    return "\n".join(lines) + "\n"


def _add_origin(parent: ET.Element, position: np.ndarray, rotation: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of angles that are not unique; any of them will do
        rpy = Rotation.from_matrix(rotation).as_euler("xyz")
    ET.SubElement(parent, "origin", xyz=numbers(position), rpy=numbers(rpy))


def _add_shape(link: ET.Element, kind: str, colour: str) -> ET.Element:
    """A `visual` or `collision` element; returns its geometry, to be filled in."""
    shape = ET.SubElement(link, kind)
    if kind == "visual":
        material = ET.SubElement(shape, "material", name=f"colour_{colour.replace(' ', '_')}")
        ET.SubElement(material, "color", rgba=colour)
    return ET.SubElement(shape, "geometry")


class _Writer:
    """Writes one URDF. Links are the bodies that a joint moves, each with all that is fixed to it."""

    def __init__(self, folder: Path, visible: bool) -> None:
        self.folder = folder
        self.kind = "visual" if visible else "collision"
        self.meshes = _meshes(visible)
        self.model = arm_model()
        self.data = mujoco.MjData(self.model)
        mujoco.mj_kinematics(self.model, self.data)  # all joints at 0, where the URDF's origins are told

    def text(self) -> str:
        """The URDF; collision hulls are written beside it."""
        robot = ET.Element("robot", name="ur5e")
        moving = [body for body in range(1, self.model.nbody) if self.model.body_weldid[body] == body]
        for body in [0, *moving]:
            link = ET.SubElement(robot, "link", name=self._name(body))
            self._add_inertial(link, body)
            self._add_meshes(link, self._name(body))
            self._add_boxes(link, body)
        for body in moving:
            self._add_joint(robot, body)
        # A line for each element: PyBullet reads 8 kB at a time and puts a line's end where it was cut.
        ET.indent(robot)
        return ET.tostring(robot, encoding="unicode") + "\n"

    def _name(self, body: int) -> str:
        return self.model.body(body).name if body else "base"

    def _relative(
        self, link: int, position: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """A pose, given in the base frame as (3,) and (9,), in a link's frame as (3,) and (3, 3)."""
        turn = self.data.xmat[link].reshape(3, 3)
        return turn.T @ (position - self.data.xpos[link]), turn.T @ rotation.reshape(3, 3)

    def _add_inertial(self, link: ET.Element, body: int) -> None:
        """Mass, centre of mass and inertia of all that is fixed to the body, by the parallel axis theorem."""
        inertial = ET.SubElement(link, "inertial")
        # Without an inertial, PyBullet would give the base 1 kg. What is fixed to the world needs no mass.
        parts = np.flatnonzero(self.model.body_weldid == body) if body else np.array([], dtype=int)
        masses = self.model.body_mass[parts]
        poses = [self._relative(body, self.data.xipos[part], self.data.ximat[part]) for part in parts]
        mass = float(masses.sum())
        centre = sum((m * p for m, (p, _) in zip(masses, poses, strict=True)), np.zeros(3)) / max(mass, 1e-9)
        inertia = np.zeros((3, 3))
        for part, m, (position, turn) in zip(parts, masses, poses, strict=True):
            offset = position - centre
            inertia += turn @ np.diag(self.model.body_inertia[part]) @ turn.T
            inertia += m * (offset @ offset * np.eye(3) - np.outer(offset, offset))
        principal, axes = np.linalg.eigh(inertia)
        axes[:, 2] *= np.linalg.det(axes)  # a right-handed frame
        _add_origin(inertial, centre, axes)
        ET.SubElement(inertial, "mass", value=repr(mass))
        xx, yy, zz = (repr(float(v)) for v in principal)
        ET.SubElement(inertial, "inertia", ixx=xx, iyy=yy, izz=zz, ixy="0", ixz="0", iyz="0")

    def _add_meshes(self, link: ET.Element, name: str) -> None:
        meshes = self.meshes.get(name, [])
        if meshes and self.kind == "collision":
            hull = self.folder / f"{name}.obj"
            hull.write_text(_decimated_hull(np.concatenate([_read_stl(file) for file, _ in meshes])))
            meshes = [(hull, "")]
        for file, colour in meshes:
            ET.SubElement(_add_shape(link, self.kind, colour), "mesh", filename=str(file))

    def _add_boxes(self, link: ET.Element, body: int) -> None:
        """The palm, or the two boxes of a finger, of which the first is its pad."""
        geoms = np.flatnonzero(self.model.body_weldid[self.model.geom_bodyid] == body)
        is_finger = self._name(body) in FINGER_NAMES
        for number, geom in enumerate(geoms):
            is_pad = is_finger and number == 0
            if self.kind == "collision" and not is_pad:
                continue
            colour = _PAD_COLOUR if is_pad else _FINGER_COLOUR if is_finger else _PALM_COLOUR
            geometry = _add_shape(link, self.kind, colour)
            ET.SubElement(geometry, "box", size=numbers(2.0 * self.model.geom_size[geom]))
            _add_origin(link[-1], *self._relative(body, self.data.geom_xpos[geom], self.data.geom_xmat[geom]))

    def _add_joint(self, robot: ET.Element, body: int) -> None:
        model = self.model
        number = int(model.body_jntadr[body])
        slides = model.jnt_type[number] == mujoco.mjtJoint.mjJNT_SLIDE
        kind = "prismatic" if slides else "revolute"
        joint = ET.SubElement(robot, "joint", name=model.joint(number).name, type=kind)
        parent = int(model.body_weldid[model.body_parentid[body]])
        ET.SubElement(joint, "parent", link=self._name(parent))
        ET.SubElement(joint, "child", link=self._name(body))
        _add_origin(joint, *self._relative(parent, self.data.xpos[body], self.data.xmat[body]))
        ET.SubElement(joint, "axis", xyz=numbers(model.jnt_axis[number]))
        if slides:
            limits = 0.0, gripper.STROKE / 2.0, gripper.FORCE_MAX, gripper.SPEED / 2.0
        else:
            position = ur5e.POSITION_MIN[number], ur5e.POSITION_MAX[number]
            limits = *position, ur5e.TORQUE_MAX[number], ur5e.VELOCITY_MAX[number]
        # For people: PyBullet enforces none of them by itself, but those of position.
        lower, upper, effort, velocity = (repr(float(v)) for v in limits)
        ET.SubElement(joint, "limit", lower=lower, upper=upper, effort=effort, velocity=velocity)


_FOLDERS: dict[int, tempfile.TemporaryDirectory[str]] = {}


def urdf_path(*, visible: bool = False) -> Path:
    """The URDF of arm and gripper, written when first asked for, into a temporary folder of this process.

    It has collision shapes, or with `visible` robosuite's coloured meshes instead. Each process has its own
    files, so processes neither wait for each other nor read half-written ones; the folder goes at exit.
    """
    # A forked process must not use the folder of its parent, which may end first.
    folder = _FOLDERS.get(os.getpid())
    if folder is None:
        folder = _FOLDERS[os.getpid()] = tempfile.TemporaryDirectory(prefix="grasp-urdf-")
    path = Path(folder.name) / ("arm_visible.urdf" if visible else "arm.urdf")
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        path.write_text(_Writer(path.parent, visible).text())
    return path
