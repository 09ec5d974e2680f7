"""The UR5e with the project's gripper for PyBullet: a URDF made from robosuite's own model of the arm.

PyBullet has no UR5e. robosuite's MJCF is compiled together with the gripper of `grasp_sim.gripper` by MuJoCo,
and a URDF is written from the result, so both simulators share kinematics, inertia and limits. Links fixed to
another one (base, flange, palm) are merged into it. The same compiled model serves OSC as its dynamics model.

Frames: the URDF's root is `base`. A finger's link frame has its origin at the TCP when the gripper is closed.
The frame of `finger_1` is turned like `tcp`, that of `finger_2` by 180 degrees about z. A finger joint's
position is its pad's distance from the TCP in m, half of the opening.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from grasp_sim import gripper, ur5e
from grasp_sim.errors import UserError

FINGER_NAMES = ("finger_1", "finger_2")
"""Links of the fingers, on the +x and the -x side of the TCP; their joints are named `<link>_joint`."""
HULL_DIRECTIONS = 48
"""Directions in which a collision hull touches its mesh; more vertices than these it does not have."""
FINGER_EFFORT = 2.0 * gripper.FORCE_MAX
"""N in the URDF; PyBullet enforces no limit of a URDF, only those passed with each command."""
_PALM_COLOUR = "0.13 0.13 0.14 1"
_FINGER_COLOUR = "0.24 0.25 0.27 1"
_PAD_COLOUR = "0.08 0.08 0.08 1"


class RobotModelMissing(UserError):
    """robosuite's description of the UR5e is not complete."""


def robot_xml() -> Path:
    """robosuite's MJCF of the UR5e; found without importing robosuite. Raises RobotModelMissing."""
    spec = find_spec("robosuite")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise RobotModelMissing(
            "PyBullet's UR5e is made from robosuite's model, and robosuite is not installed;"
            " install it with: pip install robosuite==1.5.2"
        )
    return Path(folders[0]) / "models" / "assets" / "robots" / "ur5e" / "robot.xml"


def _require(path: Path) -> Path:
    if not path.is_file():
        raise RobotModelMissing(
            f"PyBullet's UR5e is made from robosuite's model, in which {path} is missing;"
            " reinstall it with: pip install --force-reinstall --no-deps robosuite==1.5.2"
        )
    return path


def _numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(v)) for v in values)


def _gripper_bodies() -> list[ET.Element]:
    """Palm and fingers as MJCF bodies below the flange."""
    # Where the TCP is from the flange follows from where both are when all joints are 0.
    model = mujoco.MjModel.from_xml_string(ET.tostring(_bare_arm(), encoding="unicode"))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    flange = data.body("right_hand")
    turn = flange.xmat.reshape(3, 3)
    position, rotation = ur5e.Kinematics().pose(np.zeros(ur5e.DOF))
    offset = turn.T @ (position - flange.xpos)
    T_flange_tcp = Rotation.from_matrix(turn.T @ rotation)

    def body(name: str, about_z: float) -> ET.Element:
        quaternion = (T_flange_tcp * Rotation.from_euler("z", about_z)).as_quat()[[3, 0, 1, 2]]
        return ET.Element("body", name=name, pos=_numbers(offset), quat=_numbers(quaternion))

    def add(parent: ET.Element, box: gripper.Box, mass: float) -> None:
        size, centre = _numbers(box.half_size), _numbers(box.centre)
        ET.SubElement(parent, "geom", type="box", size=size, pos=centre, mass=repr(mass))

    palm = body("palm", 0.0)
    add(palm, gripper.PALM, gripper.PALM_MASS)
    ET.SubElement(palm, "site", name="tcp")
    bodies = [palm]
    boxes = (gripper.PAD, gripper.FINGER)
    volumes = np.array([np.prod(box.half_size) for box in boxes])
    for name, about_z in zip(FINGER_NAMES, (0.0, np.pi), strict=True):
        finger = body(name, about_z)
        ET.SubElement(
            finger,
            "joint",
            name=f"{name}_joint",
            type="slide",
            axis="1 0 0",
            limited="true",
            range=_numbers((0.0, gripper.STROKE / 2.0)),
        )
        for box, share in zip(boxes, volumes / volumes.sum(), strict=True):
            add(finger, box, gripper.FINGER_MASS * float(share))
        bodies.append(finger)
    return bodies


def _bare_arm() -> ET.Element:
    """robosuite's arm reduced to bodies, joints and inertia."""
    root = ET.parse(_require(robot_xml())).getroot()
    for section in root.findall("asset") + root.findall("actuator"):
        root.remove(section)
    for body in root.iter("body"):
        for kind in ("geom", "site", "camera"):
            for element in body.findall(kind):
                body.remove(element)
    return root


@cache
def arm_model() -> mujoco.MjModel:
    """The arm with the gripper, compiled: bodies `shoulder_link` to `wrist_3_link` and the two fingers.

    8 degrees of freedom, the arm's first, and the site `tcp`. Flange and palm are part of `wrist_3_link`.
    Shared: do not modify.
    """
    root = _bare_arm()
    compiler = root.find("compiler")
    hand = next(body for body in root.iter("body") if body.get("name") == "right_hand")
    assert compiler is not None
    compiler.set("fusestatic", "true")
    hand.extend(_gripper_bodies())
    return mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))


def _meshes(visible: bool) -> dict[str, list[tuple[Path, str]]]:
    """Mesh file and colour (rgba) of each geom that is seen, or else of each that collides, per link."""
    folder = robot_xml().parent
    root = ET.parse(_require(robot_xml())).getroot()
    files = {mesh.get("name"): folder / mesh.get("file", "") for mesh in root.iter("mesh")}
    colours = {material.get("name"): material.get("rgba", "") for material in root.iter("material")}
    found: dict[str, list[tuple[Path, str]]] = {}
    for body in root.iter("body"):
        link = "base" if body.get("name") == "fixed_base_link" else body.get("name", "")
        for geom in body.findall("geom"):
            if geom.get("type") == "mesh" and (geom.get("contype") == "0") == visible:
                colour = colours.get(geom.get("material"), geom.get("rgba", ""))
                found.setdefault(link, []).append((_require(files[geom.get("mesh")]), colour))
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
    lines = [f"v {_numbers(corner)}" for corner in corners]
    for face, equation in zip(hull.simplices, hull.equations, strict=True):
        a, b, c = corners[face]
        outward = np.cross(b - a, c - a) @ equation[:3] > 0
        lines.append("f {} {} {}".format(*(1 + (face if outward else face[::-1]))))
    return "\n".join(lines) + "\n"


def _origin(parent: ET.Element, position: np.ndarray, wxyz: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of angles that are not unique; any of them will do
        rpy = Rotation.from_quat(np.asarray(wxyz)[[1, 2, 3, 0]]).as_euler("xyz")
    ET.SubElement(parent, "origin", xyz=_numbers(position), rpy=_numbers(rpy))


def _add_inertial(link: ET.Element, model: mujoco.MjModel, body: int) -> None:
    inertial = ET.SubElement(link, "inertial")
    _origin(inertial, model.body_ipos[body], model.body_iquat[body])
    ET.SubElement(inertial, "mass", value=repr(float(model.body_mass[body])))
    xx, yy, zz = (repr(float(v)) for v in model.body_inertia[body])
    ET.SubElement(inertial, "inertia", ixx=xx, iyy=yy, izz=zz, ixy="0", ixz="0", iyz="0")


def _add_shape(link: ET.Element, kind: str, colour: str) -> ET.Element:
    """A `visual` or `collision` element; returns its geometry, to be filled in."""
    shape = ET.SubElement(link, kind)
    geometry = ET.SubElement(shape, "geometry")
    if kind == "visual":
        material = ET.SubElement(shape, "material", name=f"colour_{colour.replace(' ', '_')}")
        ET.SubElement(material, "color", rgba=colour)
    return geometry


def _add_box(
    link: ET.Element, kind: str, half_size: np.ndarray, position: np.ndarray, wxyz: np.ndarray, colour: str
) -> None:
    geometry = _add_shape(link, kind, colour)
    ET.SubElement(geometry, "box", size=_numbers(2.0 * half_size))
    _origin(link[-1], position, wxyz)


def _add_joint(robot: ET.Element, model: mujoco.MjModel, body: int, parent: str, name: str) -> None:
    number = int(model.body_jntadr[body])
    slides = model.jnt_type[number] == mujoco.mjtJoint.mjJNT_SLIDE
    joint = ET.SubElement(
        robot, "joint", name=model.joint(number).name, type="prismatic" if slides else "revolute"
    )
    ET.SubElement(joint, "parent", link=parent)
    ET.SubElement(joint, "child", link=name)
    _origin(joint, model.body_pos[body], model.body_quat[body])
    ET.SubElement(joint, "axis", xyz=_numbers(model.jnt_axis[number]))
    if slides:
        lower, upper, effort, velocity = 0.0, gripper.STROKE / 2.0, FINGER_EFFORT, gripper.SPEED / 2.0
    else:
        lower, upper = ur5e.POSITION_MIN[number], ur5e.POSITION_MAX[number]
        effort, velocity = ur5e.TORQUE_MAX[number], ur5e.VELOCITY_MAX[number]
    ET.SubElement(
        joint,
        "limit",
        lower=repr(float(lower)),
        upper=repr(float(upper)),
        effort=repr(float(effort)),
        velocity=repr(float(velocity)),
    )


def _write(folder: Path, visible: bool) -> None:
    """`arm.urdf` with collision shapes and their hulls, or `arm_visible.urdf` with what is seen instead."""
    model = arm_model()
    kind = "visual" if visible else "collision"
    meshes = _meshes(visible)
    robot = ET.Element("robot", name="ur5e")
    for body in range(model.nbody):
        name = model.body(body).name if body else "base"
        link = ET.SubElement(robot, "link", name=name)
        if body:
            _add_inertial(link, model, body)
            parent = int(model.body_parentid[body])
            _add_joint(robot, model, body, model.body(parent).name if parent else "base", name)
        else:
            inertial = ET.SubElement(link, "inertial")  # left out, PyBullet would assume 1 kg
            ET.SubElement(inertial, "mass", value="0")
            ET.SubElement(inertial, "inertia", ixx="0", iyy="0", izz="0", ixy="0", ixz="0", iyz="0")
        files = [(str(file), colour) for file, colour in meshes.get(name, [])]
        if files and not visible:
            points = np.concatenate([_read_stl(file) for file, _ in meshes[name]])
            (folder / f"{name}.obj").write_text(_decimated_hull(points))
            files = [(str(folder / f"{name}.obj"), "")]
        for file, colour in files:
            ET.SubElement(_add_shape(link, kind, colour), "mesh", filename=file)
        # Fused into its parent, MuJoCo keeps the boxes of the palm and of the fingers as geoms of that body.
        first = int(model.body_geomadr[body])
        for number, geom in enumerate(range(first, first + int(model.body_geomnum[body]))):
            in_finger = _PAD_COLOUR if number == 0 else _FINGER_COLOUR
            colour = in_finger if name in FINGER_NAMES else _PALM_COLOUR
            position, turn = model.geom_pos[geom], model.geom_quat[geom]
            _add_box(link, kind, model.geom_size[geom], position, turn, colour)
    # PyBullet wants all links before the joints between them.
    robot[:] = sorted(robot, key=lambda element: element.tag == "joint")
    text = ET.tostring(robot, encoding="unicode")
    (folder / ("arm_visible.urdf" if visible else "arm.urdf")).write_text(text)


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
        _write(path.parent, visible)
    return path
