"""The project's parallel gripper as a robosuite gripper, generated from the numbers of `grasp_sim.gripper`.

Importing this module registers it with robosuite under the name `ParallelGripper`; robosuite must have been
imported before (see `robosuite_scene`).

Each finger is a slide joint whose position is half the opening in m. The joints are coupled, so the fingers
stay centred between the pads whichever touches first; each has an actuator limited to the force of one pad.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from robosuite.models.grippers import register_gripper
from robosuite.models.grippers.gripper_model import GripperModel

from grasp_sim import gripper, ur5e
from grasp_sim.gripper import Box

FINGER_ARMATURE = 0.3
"""kg that the drive adds to each finger's inertia along its slide, as a geared motor does. It has no weight;
with it a stiff position loop is stable at a physics step of 2 ms. More would keep the pads from following a
sliding object closely."""
FINGER_FREQUENCY = 200.0
"""rad/s of the position loop of each finger."""

_AT_TCP = 'pos="{} {} {}" quat="{} {} {} {}"'.format(*ur5e.T_FLANGE_TCP[0], *ur5e.T_FLANGE_TCP[1])
_DARK, _GREY, _LIGHT = "0.15 0.15 0.15 1", "0.55 0.57 0.60 1", "0.85 0.85 0.85 1"


def finger_gains() -> tuple[float, float]:
    """Stiffness in N/m and damping in N s/m of each finger's position loop, critically damped."""
    mass = gripper.FINGER_MASS + FINGER_ARMATURE
    return mass * FINGER_FREQUENCY**2, 2.0 * mass * FINGER_FREQUENCY


def _geoms(name: str, box: Box, side: int, mass: float, rgba: str, touches: bool) -> str:
    """A box of the +x finger, mirrored for side -1: one geom to weigh and touch, one to see.

    robosuite takes masses from group 0 only and leaves that group out of pictures.
    """
    x, y, z = box.centre
    size = " ".join(str(v) for v in box.half_size)
    shape = f'type="box" size="{size}" pos="{side * x} {y} {z}" conaffinity="0"'
    return (
        f'<geom name="{name}_collision" {shape} contype="{int(touches)}" group="0" mass="{mass}"/>'
        f'<geom name="{name}_visual" {shape} contype="0" group="1" mass="0" rgba="{rgba}"/>'
    )


def _finger(name: str, side: int) -> str:
    """A finger that slides outwards from the closed gripper. Objects and the table touch its pad alone.

    The pads have no affinity of their own, so that they never touch each other: the joints' limits stop them.
    """
    return (
        f'<body name="{name}_finger" {_AT_TCP}>'
        f'<joint name="{name}_finger_joint" type="slide" axis="{side} 0 0" limited="true"'
        f' range="0 {gripper.STROKE / 2.0}" armature="{FINGER_ARMATURE}"/>'
        + _geoms(f"{name}_rest", gripper.FINGER, side, gripper.REST_MASS, _GREY, touches=False)
        + _geoms(f"{name}_pad", gripper.PAD, side, gripper.PAD_MASS, _LIGHT, touches=True)
        + "</body>"
    )


def _actuator(name: str) -> str:
    stiffness, damping = finger_gains()
    half, force = gripper.STROKE / 2.0, gripper.FORCE_MAX
    # Below 0 where a narrow object is to be held with all of the force, whatever randomisation makes of it.
    beyond = gripper.FORCE_SCALE_MAX * force / stiffness
    return (
        f'<general name="{name}_finger" joint="{name}_finger_joint" ctrllimited="true"'
        f' ctrlrange="{-beyond} {half}" forcelimited="true" forcerange="{-force} {force}"'
        f' gainprm="{stiffness}" biastype="affine" biasprm="0 {-stiffness} {-damping}"/>'
    )


def gripper_xml() -> str:
    """The MJCF of the gripper, with the bodies, sites and sensors that robosuite asks of one."""
    site = 'size="0.005" rgba="1 0 0 0" group="1"'
    sites = ("grip_site", "grip_site_cylinder", "ee_x", "ee_y", "ee_z")
    names = ("left", "right")
    palm = _geoms("palm", gripper.PALM, 1, gripper.PALM_MASS, _DARK, touches=False)
    return f"""
<mujoco model="parallel_gripper">
  <actuator>{"".join(_actuator(name) for name in names)}</actuator>
  <equality>
    <joint name="coupling" joint1="left_finger_joint" joint2="right_finger_joint" polycoef="0 1 0 0 0"
     solref="0.004 1" solimp="0.99 0.999 0.001"/>
  </equality>
  <worldbody>
    <body name="parallel_base" pos="0 0 0">
      <site name="ft_frame" pos="0 0 0" {site}/>
      <body name="eef" {_AT_TCP}>
        {"".join(f'<site name="{name}" pos="0 0 0" {site}/>' for name in sites)}
      </body>
      <body name="palm" {_AT_TCP}>
        {palm}
      </body>
      {_finger("left", 1)}
      {_finger("right", -1)}
    </body>
  </worldbody>
  <sensor>
    <force name="force_ee" site="ft_frame"/>
    <torque name="torque_ee" site="ft_frame"/>
  </sensor>
</mujoco>
"""


@register_gripper
class ParallelGripper(GripperModel):
    """Two fingers on slides; `left` is the one on the +x side of the TCP frame."""

    def __init__(self, idn: int = 0) -> None:
        # robosuite parses a file; nothing reads it again.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parallel_gripper.xml"
            path.write_text(gripper_xml(), encoding="utf-8")
            super().__init__(str(path), idn=idn)

    @property
    def init_qpos(self) -> np.ndarray:
        """(2,) m, fully open."""
        return np.full(2, gripper.STROKE / 2.0)

    @property
    def _important_geoms(self) -> dict[str, list[str]]:
        pads = {side: [f"{side}_pad_collision"] for side in ("left", "right")}
        return {f"{side}_{part}": pads[side] for side in pads for part in ("finger", "fingerpad")}
