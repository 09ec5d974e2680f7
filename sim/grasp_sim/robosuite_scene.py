"""robosuite's Lift scene with its model edited in place: actuators, cube size, contacts, state.

`LiftScene` hides robosuite from the environment: it resets, advances by one control step in either control
mode, reads measurements and saves or restores the simulator. World frame inside, base frame outside.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import logging
import os
import xml.etree.ElementTree as ET
from typing import Any

import mujoco
import numpy as np

from grasp_sim import servo, ur5e

# robosuite reports optional parts that are not installed each time it is imported, and sets MUJOCO_GL for the
# whole process: keep errors only, and put the variable back.
logging.getLogger("robosuite_logs").addFilter(lambda record: record.levelno >= logging.ERROR)
_GL_BEFORE = os.environ.get("MUJOCO_GL")
import robosuite  # noqa: E402, F401 (its package must be loaded first)
from robosuite.environments.manipulation.lift import Lift  # noqa: E402

if _GL_BEFORE is None:
    os.environ.pop("MUJOCO_GL", None)
else:
    os.environ["MUJOCO_GL"] = _GL_BEFORE

CHUNKS = 5
"""Times per control step that the interpolated joint target is written."""
NATURAL_FREQUENCY = 80.0
"""rad/s of the position actuators in servo mode."""
ARMATURE = 0.1
"""kg m^2 of every arm joint in servo mode, as in MuJoCo Menagerie's UR5e. robosuite's 0.8 to 5 make the
wrist's 28 N m saturate whenever the heading reverses, so the arm swings past its target."""
CUBE_HALF_SIZE = (0.020, 0.022)
"""m, range of the cube's half extents, as in robosuite."""
GRIPPER_SPEED = 0.2
"""Change of the normalised gripper command per control step, robosuite's own limit: 0.5 s for all of it."""

_BAD_STATE = [
    int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC", "CTRL")
]

_FULL_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# What robosuite's OSC keeps between control steps; the first step after a reset even uses stale matrices.
_OSC_FIELDS = (
    *("goal_pos", "goal_ori", "initial_joint", "joint_pos", "joint_vel", "mass_matrix"),
    *("ref_pos", "ref_ori_mat", "ref_pos_vel", "ref_ori_vel", "J_pos", "J_ori", "J_full"),
)

# The actuator command (rad) that settles at a pad distance (m) in free air, measured in the model, midway
# between opening and closing: the linkage's friction makes 4 mm of difference either way, twice that after
# small reversals. robosuite's fingers open to 0.108 m; the contract, like the real gripper, ends at 0.085 m.
_GAP = np.array([0.0, 0.0135, 0.0210, 0.0323, 0.0466, 0.0608, 0.0744, 0.085])
_COMMAND_OF_GAP = np.array([0.8, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.17])


def gripper_command(opening: float) -> float:
    """robosuite's normalised gripper command (-1 open, 1 closed) for an opening in m."""
    return float(np.interp(opening, _GAP, _COMMAND_OF_GAP)) / 0.4 - 1.0


def gripper_opening(finger_joints: np.ndarray) -> float:
    """m between the pads from the joints (2, 2) in rad: outer knuckle and inner finger, per side.

    Both joints are needed: under load the linkage of this model gives, and the driven joint alone would read
    2 cm too little.
    """
    outer, tilt = finger_joints[:, 0], finger_joints.sum(axis=1)
    reach = 0.0306011 + 0.0376 * np.cos(outer) - 0.043 * np.sin(outer)
    pad = 0.0255203 * np.cos(tilt) + 0.03242 * np.sin(tilt)
    return float(np.clip((reach - pad).sum(), 0.0, ur5e.GRIPPER_STROKE))


class _ServoLift(Lift):
    """Lift whose arm and gripper are weightless to their joints, as UR's controller compensates gravity."""

    def edit_model_xml(self, xml_str: str) -> str:
        root = ET.fromstring(super().edit_model_xml(xml_str))
        for body in root.iter("body"):
            if body.get("name", "").startswith(("robot0_", "gripper0_")):
                body.set("gravcomp", "1")
        return ET.tostring(root, encoding="unicode")


class LiftScene:
    """The simulator behind `RobosuiteLift`; `model` and `data` are MuJoCo's."""

    def __init__(self, control_mode: str) -> None:
        kind = _ServoLift if control_mode == "servo" else Lift
        self.suite: Any = kind(
            robots="UR5e",
            gripper_types="Robotiq85Gripper",
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            use_object_obs=False,
            control_freq=20,
            ignore_done=True,
            hard_reset=False,  # a hard reset would drop the edits below and costs 0.2 s
            renderer="mujoco",
            seed=0,  # only until the first reset, which reseeds
        )
        self.suite._observables.clear()  # nobody reads them, and they cost half of robosuite's step
        self.control_mode = control_mode
        self.model: mujoco.MjModel = self.suite.sim.model._model
        self.data: mujoco.MjData = self.suite.sim.data._data
        self.substeps = round(self.suite.control_timestep / self.suite.model_timestep)
        self._look_up()
        self.gripper_action = gripper_command(ur5e.GRIPPER_STROKE)
        if control_mode == "servo":
            self._make_position_actuators()

    def _look_up(self) -> None:
        model = self.model
        joints = [model.joint(f"robot0_{name}") for name in ur5e.JOINT_NAMES]
        self._arm_q = np.array([j.qposadr[0] for j in joints])
        self._arm_v = np.array([j.dofadr[0] for j in joints])
        fingers = (
            ("finger_joint", "left_inner_finger_joint"),
            ("right_outer_knuckle_joint", "right_inner_finger_joint"),
        )
        self._finger_q = np.array(
            [[model.joint(f"gripper0_right_{name}").qposadr[0] for name in side] for side in fingers]
        )
        self._arm_ctrl = np.array([model.actuator(f"robot0_torq_j{i + 1}").id for i in range(ur5e.DOF)])
        self._finger_ctrl = np.array([model.actuator(f"gripper0_right_finger_{i}").id for i in (1, 2)])
        self._cube_q = int(model.joint("cube_joint0").qposadr[0])
        self._cube_body = model.body("cube_main").id
        self._cube_geoms = [model.geom(name).id for name in ("cube_g0", "cube_g0_vis")]
        self._finger_of_geom = np.zeros(model.ngeom, dtype=np.int8)  # 1 left, 2 right, 0 anything else
        for number, side in ((1, "left"), (2, "right")):
            for name in self.suite.robots[0].gripper["right"].important_geoms[f"{side}_finger"]:
                self._finger_of_geom[model.geom(name).id] = number
        mujoco.mj_kinematics(model, self.data)
        base = self.data.body("robot0_base")
        if not np.allclose(base.xmat.reshape(3, 3), np.eye(3), atol=1e-9):
            raise RuntimeError(
                "the robot's base is turned in robosuite's scene; the base frame must be world-aligned"
            )
        self.base = base.xpos.copy()
        self.table_height = float(self.suite.table_offset[2])

    def _make_position_actuators(self) -> None:
        """Turn the arm's torque motors into position actuators of one natural frequency.

        The gains come from the inertia at the home pose, so every episode has the same ones.
        """
        self.model.dof_armature[self._arm_v] = ARMATURE
        self.data.qpos[self._arm_q] = ur5e.HOME
        mujoco.mj_forward(self.model, self.data)
        inertia = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, inertia, self.data.qM)
        diagonal = np.diag(inertia)[self._arm_v]
        stiffness = diagonal * NATURAL_FREQUENCY**2
        arm = self._arm_ctrl
        self.model.actuator_gainprm[arm, 0] = stiffness
        self.model.actuator_biastype[arm] = mujoco.mjtBias.mjBIAS_AFFINE
        self.model.actuator_biasprm[arm, 1] = -stiffness
        self.model.actuator_biasprm[arm, 2] = -1.8 * NATURAL_FREQUENCY * diagonal
        self.model.actuator_ctrlrange[arm] = np.stack([ur5e.POSITION_MIN, ur5e.POSITION_MAX], axis=1)
        self.model.actuator_forcelimited[arm] = 1
        self.model.actuator_forcerange[arm] = np.stack([-ur5e.TORQUE_MAX, ur5e.TORQUE_MAX], axis=1)

    # ---- resetting

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode that depends on `rng` alone."""
        seed = int(rng.integers(2**63))
        half = rng.uniform(*CUBE_HALF_SIZE, size=3)
        self.set_cube(half)
        # The placement sampler and the arm's initial noise share this generator object.
        self.suite.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        self.suite.reset()
        self.gripper_action = gripper_command(ur5e.GRIPPER_STROKE)

    def set_cube(self, half_size: np.ndarray) -> None:
        """Give the cube other half extents (3,) in m, at its density of 1000 kg/m^3."""
        half = np.asarray(half_size, dtype=np.float64)
        model = self.model
        mass = 8.0 * float(half.prod()) * 1000.0
        square = half**2
        for geom in self._cube_geoms:
            model.geom_size[geom] = half
            model.geom_rbound[geom] = np.linalg.norm(half)
            model.geom_aabb[geom, 3:] = half
        model.body_mass[self._cube_body] = mass
        model.body_inertia[self._cube_body] = mass / 3.0 * (square.sum() - square)
        model.body_subtreemass[self._cube_body] = mass
        self.suite.cube.size = half.tolist()  # the placement sampler puts the cube's underside on the table
        mujoco.mj_setConst(model, self.data)

    # ---- stepping

    def advance_servo(self, start: np.ndarray, goal: np.ndarray, opening: float) -> None:
        """One control step: joint targets from `start` to `goal` (6,), the gripper towards `opening` m."""
        wanted = gripper_command(opening)
        change = float(np.clip(wanted - self.gripper_action, -GRIPPER_SPEED, GRIPPER_SPEED))
        gripper_start, self.gripper_action = self.gripper_action, self.gripper_action + change
        for number, target in enumerate(servo.interpolate(start, goal, CHUNKS), start=1):
            self.data.ctrl[self._arm_ctrl] = target
            self.data.ctrl[self._finger_ctrl] = 0.4 + 0.4 * (gripper_start + change * number / CHUNKS)
            mujoco.mj_step(self.model, self.data, self.substeps // CHUNKS)

    def advance_osc(self, action: np.ndarray) -> None:
        """One control step of robosuite's OSC_POSE; `action` (7,) is robosuite's."""
        self.suite.step(action)

    # ---- measuring

    @property
    def faulty(self) -> bool:
        """The state is not finite, or MuJoCo found it bad during the step and reset it."""
        if self.data.warning.number[_BAD_STATE].any():
            return True
        return not (np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all())

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Arm positions (6,) in rad and velocities (6,) in rad/s."""
        return self.data.qpos[self._arm_q].copy(), self.data.qvel[self._arm_v].copy()

    def opening(self) -> float:
        """m between the fingertips."""
        return gripper_opening(self.data.qpos[self._finger_q])

    def cube(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Position (3,) in m and quaternion (4,) xyzw in the base frame, full extents (3,) in m."""
        pose = self.data.qpos[self._cube_q : self._cube_q + 7]
        size = 2.0 * self.model.geom_size[self._cube_geoms[0]]
        return pose[:3] - self.base, pose[[4, 5, 6, 3]], size

    def cube_height(self) -> float:
        """m of the cube's centre above the table."""
        return float(self.data.qpos[self._cube_q + 2]) - self.table_height

    def finger_forces(self, closing_axis: np.ndarray) -> np.ndarray:
        """(2,) N that the left and the right finger press on the cube along `closing_axis` (3,), base frame.

        Pads and fingertips overlap in this model and both touch, so all of a finger's contacts are summed.
        """
        forces = [0.0, 0.0, 0.0]
        contact = self.data.contact
        cube = self._cube_geoms[0]
        geoms, addresses = contact.geom, contact.efc_address
        for index in np.flatnonzero((geoms == cube).any(axis=1) & (addresses >= 0)):
            first, second = geoms[index]
            finger = self._finger_of_geom[first if second == cube else second]
            along = abs(float(contact.frame[index, :3] @ closing_axis))
            forces[finger] += along * float(self.data.efc_force[addresses[index]])
        return np.array(forces[1:])

    # ---- saving

    def save(self) -> dict[str, np.ndarray]:
        """Everything the simulator's future depends on."""
        saved = {
            "physics": np.empty(mujoco.mj_stateSize(self.model, _FULL_STATE)),
            "cube_half_size": self.model.geom_size[self._cube_geoms[0]].copy(),
            "gripper_action": np.array([self.gripper_action]),
        }
        mujoco.mj_getState(self.model, self.data, saved["physics"], _FULL_STATE)
        if self.control_mode == "osc":
            controller = self._osc()
            saved["osc_gripper_action"] = np.array(self._osc_gripper().current_action, dtype=np.float64)
            saved["osc_fresh"] = np.array([float(controller.new_update)])
            for name in _OSC_FIELDS:
                saved[f"osc_{name}"] = np.array(getattr(controller, name), dtype=np.float64)
        return saved

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save`, for a scene of the same control mode."""
        self.set_cube(saved["cube_half_size"])
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, saved["physics"], _FULL_STATE)
        mujoco.mj_forward(self.model, self.data)
        # The forward pass refreshed what robosuite reads, and changed the solver's warm start: set it again.
        mujoco.mj_setState(self.model, self.data, saved["physics"], _FULL_STATE)
        self.gripper_action = float(saved["gripper_action"][0])
        if self.control_mode == "osc":
            controller = self._osc()
            self._osc_gripper().current_action = saved["osc_gripper_action"].copy()
            controller.new_update = bool(saved["osc_fresh"][0])
            for name in _OSC_FIELDS:
                setattr(controller, name, saved[f"osc_{name}"].copy())

    def _osc(self) -> Any:
        return self.suite.robots[0].composite_controller.part_controllers["right"]

    def _osc_gripper(self) -> Any:
        return self.suite.robots[0].gripper["right"]
