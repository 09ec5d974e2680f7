"""What programs of robosuite's family read of a scene: its model as MJCF, and robosuite's observations.

The scene edits its compiled model in place, so the XML that robosuite built is of another cube and, in servo
mode, of other actuators: the same edits are made to the XML here.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import posixpath
import xml.etree.ElementTree as ET

import mujoco
import numpy as np

from grasp_sim.robosuite_object import OBJECT_BODY, OBJECT_GEOMS
from grasp_sim.robosuite_scene import RobosuiteScene

_TYPE_NAMES = {
    mujoco.mjtGeom.mjGEOM_BOX: "box",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    mujoco.mjtGeom.mjGEOM_SPHERE: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "capsule",
}


def base_xml(scene: RobosuiteScene) -> str:
    """The MJCF that robosuite built the scene from, the same for all episodes; takes a second."""
    return scene.suite.edit_model_xml(scene.suite.model.get_xml())


def model_xml(scene: RobosuiteScene, base: str) -> str:
    """MJCF of the model as it is now, with the episode's object and physics; `base` is `base_xml(scene)`.

    Files of robosuite's assets are named from the folder `robosuite` on: robosuite's `edit_model_xml` puts
    its own installation before that, and MuJoCo loads the result.
    """
    model = scene.model
    root = ET.fromstring(base)
    for element in root.iter():
        file = element.get("file")
        if file is not None:
            element.set("file", posixpath.normpath("robosuite/" + file.rpartition("/robosuite/")[2]))
    _write_options(root, model)
    for element in root.iter("geom"):
        name = element.get("name", "")
        geom = model.geom(name) if name else None
        if geom is not None and (geom.contype[0] or geom.conaffinity[0]):
            element.set("friction", _text(geom.friction))
        if geom is not None and name in OBJECT_GEOMS:
            _write_object_geom(element, geom)
    for element in root.iter("body"):
        if element.get("name") == OBJECT_BODY:
            _write_inertia(element, model.body(OBJECT_BODY))
    for element in root.iter("joint"):
        if element.get("name", "").startswith("robot0_"):
            joint = model.joint(element.get("name"))
            element.set("armature", _text(joint.armature))
            element.set("damping", _text(joint.damping))
    for section in root.iter("actuator"):
        for element in section:
            actuator = model.actuator(element.get("name"))
            if actuator.name.startswith("robot0_") and actuator.biastype[0] == mujoco.mjtBias.mjBIAS_AFFINE:
                _write_position_actuator(element, actuator)
    return ET.tostring(root, encoding="unicode")


def observe(scene: RobosuiteScene) -> dict[str, np.ndarray]:
    """What robosuite observes of the scene as it is now, by robosuite's names; world frame, quaternions xyzw.

    `object` is robomimic's: position (3,) and quaternion (4,) of the object, and its position less that of
    the gripper (3,). `robot0_eef_quat` is, as in robosuite, that of the hand's body, not of the TCP.
    """
    data, robot = scene.data, scene.suite.robots[0]
    gripper = robot.gripper["right"]
    joints, velocities = scene.joints()
    tool = data.site(gripper.important_sites["grip_site"]).xpos.copy()
    hand = data.body(robot.robot_model.eef_name["right"]).xquat
    cube = data.body(OBJECT_BODY)
    qpos = [scene.model.joint(name).qposadr[0] for name in gripper.joints]
    qvel = [scene.model.joint(name).dofadr[0] for name in gripper.joints]
    return {
        "robot0_joint_pos": joints.copy(),
        "robot0_joint_vel": velocities.copy(),
        "robot0_eef_pos": tool,
        "robot0_eef_quat": hand[[1, 2, 3, 0]],
        "robot0_gripper_qpos": data.qpos[qpos],
        "robot0_gripper_qvel": data.qvel[qvel],
        "object": np.concatenate([cube.xpos, cube.xquat[[1, 2, 3, 0]], cube.xpos - tool]),
    }


def _text(values: np.ndarray) -> str:
    return " ".join(repr(float(v)) for v in np.atleast_1d(values))


def _write_options(root: ET.Element, model: mujoco.MjModel) -> None:
    option = root.find("option")
    assert option is not None  # robosuite writes one
    option.set("impratio", _text(model.opt.impratio))
    option.set("tolerance", _text(model.opt.tolerance))
    if model.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_MULTICCD):
        ET.SubElement(option, "flag", {"multiccd": "enable"})


def _write_object_geom(element: ET.Element, geom: mujoco._structs._MjModelGeomViews) -> None:
    for name in ("size", "pos", "quat", "friction", "solref", "solimp"):
        element.set(name, _text(getattr(geom, name)))
    for name in ("contype", "conaffinity", "condim", "group", "priority"):
        element.set(name, str(int(getattr(geom, name)[0])))
    element.set("type", _TYPE_NAMES[mujoco.mjtGeom(int(geom.type[0]))])


def _write_inertia(element: ET.Element, body: mujoco._structs._MjModelBodyViews) -> None:
    for old in element.findall("inertial"):
        element.remove(old)
    numbers = {"pos": body.ipos, "quat": body.iquat, "mass": body.mass, "diaginertia": body.inertia}
    element.insert(0, ET.Element("inertial", {name: _text(value) for name, value in numbers.items()}))


def _write_position_actuator(element: ET.Element, actuator: mujoco._structs._MjModelActuatorViews) -> None:
    """Servo mode's: a position loop in place of robosuite's torque motor."""
    element.tag = "general"
    element.set("biastype", "affine")
    for name in ("gainprm", "biasprm", "ctrlrange", "forcerange"):
        element.set(name, _text(getattr(actuator, name)))
    element.set("ctrllimited", "true")
    element.set("forcelimited", "true")
