"""robosuite's UR5e with the project's gripper as a MuJoCo model of masses and joints, without meshes.

PyBullet's URDF is written from it, and the PyBullet scene takes gravity and OSC torques from it. robosuite's
description is read, never imported.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from grasp_sim import gripper, ur5e
from grasp_sim.errors import UserError

FINGER_NAMES = ("finger_1", "finger_2")
"""Bodies of the fingers, on the +x and the -x side of the TCP; their joints are named `<body>_joint`."""


class RobotModelMissing(UserError):
    """robosuite's description of the UR5e is not complete."""


def robot_xml() -> Path:
    """robosuite's MJCF of the UR5e. Raises RobotModelMissing."""
    spec = find_spec("robosuite")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise RobotModelMissing(
            "PyBullet's UR5e is made from robosuite's model, and robosuite is not installed;"
            " install it with: pip install robosuite==1.5.2"
        )
    return require(Path(folders[0]) / "models" / "assets" / "robots" / "ur5e" / "robot.xml")


def require(path: Path) -> Path:
    """The path of a file of robosuite's model. Raises RobotModelMissing if it is not there."""
    if not path.is_file():
        raise RobotModelMissing(
            f"PyBullet's UR5e is made from robosuite's model, in which {path} is missing;"
            " reinstall it with: pip install --force-reinstall --no-deps robosuite==1.5.2"
        )
    return path


def numbers(values: Iterable[float]) -> str:
    """Numbers as an XML attribute, in full precision."""
    return " ".join(repr(float(v)) for v in values)


def _bare_arm() -> ET.Element:
    """robosuite's arm reduced to bodies, joints and inertia."""
    root = ET.parse(robot_xml()).getroot()
    for section in root.findall("asset") + root.findall("actuator"):
        root.remove(section)
    for body in root.iter("body"):
        for kind in ("geom", "site", "camera"):
            for element in body.findall(kind):
                body.remove(element)
    return root


def _add_gripper(flange: ET.Element) -> None:
    """Palm, fingers and the site `tcp` below the flange's MJCF body."""
    # Where the TCP is from the flange follows from where both are when all joints are 0.
    model = mujoco.MjModel.from_xml_string(ET.tostring(_bare_arm(), encoding="unicode"))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    frame = data.body(flange.get("name"))
    turn = frame.xmat.reshape(3, 3)
    position, rotation = ur5e.Kinematics().pose(np.zeros(ur5e.DOF))
    offset, T_flange_tcp = turn.T @ (position - frame.xpos), Rotation.from_matrix(turn.T @ rotation)

    def add_body(name: str, about_z: float) -> ET.Element:
        quaternion = (T_flange_tcp * Rotation.from_euler("z", about_z)).as_quat()[[3, 0, 1, 2]]
        return ET.SubElement(flange, "body", name=name, pos=numbers(offset), quat=numbers(quaternion))

    def add_box(body: ET.Element, box: gripper.Box, mass: float) -> None:
        size, centre = numbers(box.half_size), numbers(box.centre)
        ET.SubElement(body, "geom", type="box", size=size, pos=centre, mass=repr(float(mass)))

    palm = add_body("palm", 0.0)
    add_box(palm, gripper.PALM, gripper.PALM_MASS)
    ET.SubElement(palm, "site", name="tcp")
    limits = {"limited": "true", "range": numbers((0.0, gripper.STROKE / 2.0))}
    for name, about_z in zip(FINGER_NAMES, (0.0, np.pi), strict=True):
        finger = add_body(name, about_z)
        ET.SubElement(finger, "joint", name=f"{name}_joint", type="slide", axis="1 0 0", attrib=limits)
        add_box(finger, gripper.PAD, gripper.PAD_MASS)
        add_box(finger, gripper.FINGER, gripper.REST_MASS)


@cache
def arm_model() -> mujoco.MjModel:
    """The model: 8 degrees of freedom, the arm's first, and the site `tcp`. Shared: do not modify.

    The frame of `finger_1` is turned like `tcp`, that of `finger_2` by 180 degrees about z; both have their
    origin at the TCP when the gripper is closed, so a finger joint's position is half of the opening in m.
    """
    root = _bare_arm()
    _add_gripper(next(body for body in root.iter("body") if body.get("name") == "right_hand"))
    return mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))
