"""The one object of robosuite's scene: the cube's body, whose geoms are edited in place for each episode.

Compiling a model takes 0.2 s, editing one 0.3 ms. Everything that the compiler derives from the geoms is
therefore set here too: bounds, inertia and what MuJoCo computes from them at the initial posture.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import xml.etree.ElementTree as ET

import mujoco
import numpy as np

from grasp_sim.objects import MAX_PARTS, ObjectError, ObjectSpec, Part

OBJECT_BODY = "cube_main"
OBJECT_GEOMS = ("cube_g0", *(f"object_part{number}" for number in range(1, MAX_PARTS)))
_TYPES = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
}
_ABSENT = Part("box", (0.001, 0.001, 0.001))  # so that nothing of an earlier object stays
_VISIBLE, _HIDDEN = 1, 3  # geom groups; pictures show the first three

CONDIM = {"box": 4, "cylinder": 6, "sphere": 6, "capsule": 6}
"""Dimensions of contacts: 4 has sliding and torsional friction, 6 also rolling, without which what is round
rolls for ever."""
TORSIONAL, ROLLING = 0.005, 0.0002
"""m, friction against turning about the contact normal and against rolling, per unit of sliding friction."""
SOLREF = (0.01, 1.0)
"""Time constant in s and damping ratio of contacts. In MuJoCo sliding pushes bodies apart: an object that
slides between the pads touches them off and on, the more so the harder the contacts."""
SOLIMP = (0.99, 0.999, 0.001, 0.5, 2.0)
"""Impedance of contacts. Near 1, so that an object held with little more than its weight needs creeps little
(0.5 mm/s at 1.05 times that force) and the pads hardly sink in."""
FRICTION_IMPEDANCE = 200.0
"""Impedance of friction over that of the normal force: what is held creeps by micrometres a second."""
TOLERANCE = 1e-10
"""Of MuJoCo's solver. It is relative to the scene's inertia, mostly the arm's: at MuJoCo's 1e-8 an object of
50 g held by 0.2 N falls."""


def prepare_xml(root: ET.Element, own_contacts: bool) -> None:
    """Give the cube's body room for every part of an object, in a scene's MJCF.

    With `own_contacts` its inertia may also lie off the body's origin, and contacts follow this module's
    constants instead of robosuite's.
    """
    body = next(body for body in root.iter("body") if body.get("name") == OBJECT_BODY)
    shown, visual = (
        next(geom for geom in body.findall("geom") if geom.get("name") == name)
        for name in ("cube_g0", "cube_g0_vis")
    )
    # robosuite looks its visual geom up by name, so that one stays, unseen.
    visual.set("group", str(_HIDDEN))
    material = visual.get("material", "")
    shown.set("material", material)
    shown.attrib.pop("rgba", None)  # it would tint the material
    for name in OBJECT_GEOMS[1:]:
        shape = {"type": "box", "size": "0.01 0.01 0.01", "mass": "0"}
        ET.SubElement(body, "geom", {"name": name, "material": material, **shape})
    if own_contacts:
        # A placeholder off the origin and turned: for an inertia along the body's axes the compiler would
        # choose a mass matrix without the terms that other objects need.
        inertial = {"pos": "0.001 0.002 0.003", "quat": "0.9 0.1 0.2 0.3", "mass": "0.1"}
        body.insert(0, ET.Element("inertial", inertial | {"diaginertia": "0.0001 0.00011 0.00012"}))


class ObjectBody:
    """Edits the object of one model; `fingers` are the geoms that grasp it."""

    def __init__(
        self, model: mujoco.MjModel, data: mujoco.MjData, own_contacts: bool, fingers: list[int]
    ) -> None:
        self._model, self._data = model, data
        self._own_contacts = own_contacts
        self._touched = [*fingers, model.geom("table_collision").id]
        self.body = model.body(OBJECT_BODY).id
        self.geoms = np.array([model.geom(name).id for name in OBJECT_GEOMS])
        self._spec: ObjectSpec | None = None
        model.geom_sameframe[self.geoms] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE
        # The compiled tree of bounding boxes knows the cube only. One that covers every object makes MuJoCo
        # go on to the geoms' own bounds, which are kept up to date.
        first, count = model.body_bvhadr[self.body], model.body_bvhnum[self.body]
        model.bvh_aabb[first : first + count] = (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
        if own_contacts:
            model.geom_solref[self.geoms] = SOLREF
            model.geom_solimp[self.geoms] = SOLIMP
            # MuJoCo takes the larger friction of two geoms, unless one has priority.
            model.geom_priority[self.geoms] = 1
            model.opt.tolerance = TOLERANCE
            model.opt.impratio = FRICTION_IMPEDANCE
            # Without it a cylinder has one point of contact on a table or pad, and totters.
            model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_MULTICCD)

    def apply(self, spec: ObjectSpec) -> None:
        """Make the body this object. The pose is not touched; `mj_forward` has to follow."""
        if spec == self._spec:
            return
        model = self._model
        if not self._own_contacts and len(spec.parts) > 1:
            raise ObjectError(f"the Robotiq 85 grasps objects of one part; {spec.name} has {len(spec.parts)}")
        self._spec = spec
        for number, geom in enumerate(self.geoms):
            present = number < len(spec.parts)
            model.geom_contype[geom] = model.geom_conaffinity[geom] = int(present)
            model.geom_group[geom] = _VISIBLE if present else _HIDDEN
            self._shape(geom, spec.parts[number] if present else _ABSENT)
        self._set_friction(spec.friction)
        self._set_inertia(spec)
        mujoco.mj_setConst(model, self._data)

    def _shape(self, geom: int, part: Part) -> None:
        model = self._model
        size = np.zeros(3)
        size[: len(part.size)] = part.size
        along_own_axes = Part(part.shape, part.size).half_extents
        if self._own_contacts:
            model.geom_condim[geom] = CONDIM[part.shape]
        model.geom_type[geom] = _TYPES[part.shape]
        model.geom_size[geom] = size
        model.geom_pos[geom] = part.position
        x, y, z, w = part.quaternion
        model.geom_quat[geom] = (w, x, y, z)
        model.geom_aabb[geom] = (0.0, 0.0, 0.0, *along_own_axes)
        model.geom_rbound[geom] = {
            "box": np.linalg.norm(size),
            "sphere": size[0],
            "cylinder": np.hypot(size[0], size[1]),
            "capsule": size[0] + size[1],
        }[part.shape]

    def _set_friction(self, friction: float) -> None:
        model = self._model
        if self._own_contacts:
            model.geom_friction[self.geoms] = (friction, TORSIONAL * friction, ROLLING * friction)
        else:
            # robosuite's contacts, in which the larger friction counts: give it to whatever is touched.
            model.geom_friction[[*self.geoms, *self._touched], 0] = friction

    def _set_inertia(self, spec: ObjectSpec) -> None:
        model, body = self._model, self.body
        moments, (x, y, z, w) = spec.principal_inertia
        model.body_mass[body] = model.body_subtreemass[body] = spec.mass
        model.body_inertia[body] = moments
        if self._own_contacts:
            model.body_ipos[body] = spec.centre_of_mass
            model.body_iquat[body] = (w, x, y, z)
