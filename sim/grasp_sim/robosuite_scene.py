"""robosuite's Lift as a `Scene`: its UR5e, table and cube, with the model edited in place.

The gripper is robosuite's Robotiq 85 or the project's own; the cube's body becomes whatever object an episode
is about. World frame inside, base frame outside.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import logging
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from grasp_sim import osc, scene, servo, ur5e
from grasp_sim.contract import Command
from grasp_sim.scene import Start
from grasp_sim.tasks import Task
from grasp_sim.without_gl import without_gl

# robosuite reports optional parts that are not installed each time it is imported: keep errors only.
logging.getLogger("robosuite_logs").addFilter(lambda record: record.levelno >= logging.ERROR)
with without_gl():
    import robosuite  # noqa: F401 (its package must be loaded first)
    from robosuite.environments.manipulation.lift import Lift

import grasp_sim.robosuite_gripper  # noqa: E402, F401 (registers the parallel gripper)
from grasp_sim.robosuite_fingers import ParallelFingers, RobotiqFingers  # noqa: E402
from grasp_sim.robosuite_object import ObjectBody, prepare_xml  # noqa: E402
from grasp_sim.robosuite_osc import BAD_STATE, OscStepper, arm_indices  # noqa: E402

if TYPE_CHECKING:
    from grasp_sim.rendering import FrameRenderer

CHUNKS = 5
"""Times per control step that the interpolated joint target is written."""
NATURAL_FREQUENCY = 80.0
"""rad/s of the position actuators in servo mode."""
ARMATURE = 0.1
"""kg m^2 of every arm joint in servo mode, as in MuJoCo Menagerie's UR5e. robosuite's 0.8 to 5 make the
wrist's 28 N m saturate whenever the heading reverses, so the arm swings past its target."""

_OBJECT = 4  # in `_touch_code`; with the finger's 1 or 2 it makes 5 or 6
_FULL_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


class _Lift(Lift):
    """Lift with this project's edits of its MJCF. It builds the model and steps nothing."""

    def __init__(self, own_contacts: bool, gravity_compensated: bool, **settings: Any) -> None:
        self._own_contacts = own_contacts
        self._gravity_compensated = gravity_compensated
        super().__init__(**settings)

    def edit_model_xml(self, xml_str: str) -> str:
        root = ET.fromstring(super().edit_model_xml(xml_str))
        prepare_xml(root, self._own_contacts)
        if self._gravity_compensated:  # weightless to its joints, as UR's controller compensates gravity
            for body in root.iter("body"):
                if body.get("name", "").startswith(("robot0_", "gripper0_")):
                    body.set("gravcomp", "1")
        return ET.tostring(root, encoding="unicode")


class RobosuiteScene:
    """The simulator behind an environment; `model` and `data` are MuJoCo's."""

    def __init__(self, control_mode: str, own_gripper: bool = False) -> None:
        """`own_gripper`: the project's gripper and contacts instead of robosuite's."""
        kind = ParallelFingers if own_gripper else RobotiqFingers
        self.suite: Any = _Lift(
            own_gripper,
            gravity_compensated=control_mode == "servo",
            robots="UR5e",
            gripper_types=kind.model_name,
            initialization_noise=None,  # the arm starts where `Start` says
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            use_object_obs=False,
            control_freq=round(1.0 / scene.CONTROL_PERIOD),
            ignore_done=True,
            hard_reset=False,  # a hard reset would drop the edits below and costs 0.2 s
            renderer="mujoco",
            seed=0,
        )
        self.control_mode = control_mode
        self.model: mujoco.MjModel = self.suite.sim.model._model
        self.data: mujoco.MjData = self.suite.sim.data._data
        self.substeps = round(self.suite.control_timestep / self.suite.model_timestep)
        self.model.site_rgba[:, 3] = 0.0  # robosuite draws a line through the gripper
        self._look_up()
        described = self.suite.robots[0].gripper["right"]
        self._fingers = kind(self.model, self.data, described)
        left, right = self._fingers.geoms
        self._object = ObjectBody(self.model, self.data, own_gripper, [*left, *right])
        self._touch_code = np.zeros(self.model.ngeom, dtype=np.int64)
        self._touch_code[self._object.geoms] = _OBJECT
        for number, geoms in enumerate(self._fingers.geoms, start=1):
            self._touch_code[geoms] = number
        self._warnings = [self.data.warning[kind] for kind in BAD_STATE]
        # Nobody reads robosuite's force sensor here.
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self._osc: OscStepper | None = None
        if control_mode == "servo":
            self._make_position_actuators()
        else:
            self._osc = OscStepper(
                self.model,
                self.data,
                tool_site=described.important_sites["grip_site"],
                gripper_actuators=described.actuators,
            )
        arm = self._arm_ctrl
        self._nominal = (
            self.model.dof_damping[self._arm_v].copy(),
            self.model.actuator_gainprm[arm].copy(),
            self.model.actuator_biasprm[arm].copy(),
        )
        self._broken = False
        self._renderer: FrameRenderer | None = None

    def _look_up(self) -> None:
        model = self.model
        self._arm_q, self._arm_v, self._arm_ctrl = arm_indices(model)
        self._cube_q = int(model.joint("cube_joint0").qposadr[0])
        mujoco.mj_kinematics(model, self.data)
        base = self.data.body("robot0_base")
        if not np.allclose(base.xmat.reshape(3, 3), np.eye(3), atol=1e-9):
            raise RuntimeError(
                "the robot's base is turned in robosuite's scene; the base frame must be world-aligned"
            )
        self.base = base.xpos.copy()
        table = self.suite.table_offset - self.base
        if not np.allclose(table, (*scene.TABLE_CENTRE, scene.TABLE_HEIGHT), atol=1e-9):
            raise RuntimeError(
                f"robosuite's table is at {table.tolist()} m, not where `grasp_sim.scene` says"
            )

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

    def reset(self, start: Start) -> None:
        """Begin an episode that depends on `start` alone."""
        self._apply(start)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[self._arm_q] = start.joint_positions
        if self._osc:
            self._osc.reset(start.joint_positions)
        else:
            self.data.ctrl[self._arm_ctrl] = start.joint_positions
        self._fingers.open()
        pose = self.data.qpos[self._cube_q : self._cube_q + 7]
        pose[:3] = self.base + start.object_position
        pose[3:] = start.object_quaternion[[3, 0, 1, 2]]
        mujoco.mj_forward(self.model, self.data)

    def _apply(self, start: Start) -> None:
        """Edit the model for an episode's object and physics."""
        self._broken = False
        self._object.apply(start.object)
        damping, gain, bias = self._nominal
        scale = start.physics.actuator_gain_scale
        self.model.dof_damping[self._arm_v] = damping * start.physics.damping_scale
        if self._osc is None:
            # The damping follows the stiffness by its root, so that the loop stays as damped as it was.
            self.model.actuator_gainprm[self._arm_ctrl, 0] = gain[:, 0] * scale
            self.model.actuator_biasprm[self._arm_ctrl, 1:3] = bias[:, 1:3] * (scale, scale**0.5)
        else:
            self._osc.stiffness = osc.STIFFNESS * scale
        self._fingers.set_physics(start.physics)

    # ---- stepping

    def advance_servo(self, start: np.ndarray, goal: np.ndarray, command: Command) -> None:
        """One control step: joint targets from `start` to `goal` (6,), the gripper as `command` says."""
        self._follow(servo.interpolate(start, goal, CHUNKS), command, scene.CONTROL_PERIOD)

    def drive(self, target: np.ndarray, command: Command, period: float) -> None:
        """Simulate `period` s, one cycle of a robot's driver, with joint targets (6,) that hold."""
        self._follow(target[None], command, period)

    def _follow(self, targets: np.ndarray, command: Command, period: float) -> None:
        """Hold each of the joint targets (N, 6) for an equal part of `period` s, in servo mode."""
        steps = round(period / self.suite.model_timestep) // len(targets)
        fingers = self._fingers.targets(command, len(targets), period)
        for target, finger in zip(targets, fingers, strict=True):
            self.data.ctrl[self._arm_ctrl] = target
            self.data.ctrl[self._fingers.ctrl] = finger
            mujoco.mj_step(self.model, self.data, steps)

    def advance_osc(self, command: Command, turn: np.ndarray) -> None:
        """One control step of robosuite's OSC_POSE. It knows the Robotiq 85 only as opening or closing."""
        assert self._osc is not None
        fingers = np.array(self._fingers.osc_targets(command, self.substeps))
        both = np.stack([fingers, fingers], axis=1)
        if not self._osc.step(command.delta_position, turn, both):
            self._broken = True

    # ---- measuring

    @property
    def time(self) -> float:
        """s since the episode began."""
        return float(self.data.time)

    @property
    def faulty(self) -> bool:
        """The state is not finite, or MuJoCo found it bad during the step and reset it."""
        if self._broken or any(warning.number for warning in self._warnings):
            return True
        return not (np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all())

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Arm positions (6,) in rad and velocities (6,) in rad/s."""
        return self.data.qpos[self._arm_q], self.data.qvel[self._arm_v]

    def opening(self) -> float:
        """m between the pads."""
        return self._fingers.opening()

    def object_pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) in m of the object frame's origin and quaternion (4,) xyzw, base frame."""
        pose = self.data.qpos[self._cube_q : self._cube_q + 7]
        return pose[:3] - self.base, pose[[4, 5, 6, 3]]

    def pad_forces(self, closing_axis: np.ndarray) -> np.ndarray:
        """(2,) N that the left and the right finger press on the object along `closing_axis` (3,).

        Pads and fingertips of the Robotiq 85 overlap and both touch, so all contacts of a finger are summed.
        """
        forces = np.zeros(2)
        contact = self.data.contact
        pairs = self._touch_code[contact.geom].sum(axis=1)
        for index in np.flatnonzero(pairs > _OBJECT):
            one = contact[int(index)]
            if one.efc_address >= 0:
                along = abs(float(one.frame[:3] @ closing_axis))
                forces[pairs[index] - _OBJECT - 1] += along * float(self.data.efc_force[one.efc_address])
        return forces

    # ---- saving

    def dynamic_state(self) -> np.ndarray:
        """(1 + nq + nv,): time, qpos, qvel, the layout of robosuite's own data sets."""
        return np.concatenate([[self.data.time], self.data.qpos, self.data.qvel])

    def show(self, start: Start, dynamic_state: np.ndarray) -> None:
        """Put everything where a `dynamic_state` has it."""
        self._apply(start)
        mujoco.mj_resetData(self.model, self.data)
        self.data.time = dynamic_state[0]
        self.data.qpos[:] = dynamic_state[1 : 1 + self.model.nq]
        self.data.qvel[:] = dynamic_state[1 + self.model.nq :]
        mujoco.mj_forward(self.model, self.data)

    def save(self) -> dict[str, np.ndarray]:
        """Everything the simulator's future depends on besides the episode's `Start`."""
        saved = {
            "simulator": np.empty(mujoco.mj_stateSize(self.model, _FULL_STATE)),
            "gripper": self._fingers.save(),
        }
        mujoco.mj_getState(self.model, self.data, saved["simulator"], _FULL_STATE)
        if self._osc:
            saved["osc_fresh"] = self._osc.save()
        return saved

    def restore(self, start: Start, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save`, for a scene of the same control mode and gripper."""
        self._apply(start)
        self._fingers.load(saved["gripper"])
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, saved["simulator"], _FULL_STATE)
        mujoco.mj_forward(self.model, self.data)
        # The forward pass found the contacts, and changed the solver's warm start: set it again.
        mujoco.mj_setState(self.model, self.data, saved["simulator"], _FULL_STATE)
        if self._osc:
            self._osc.restore(start.joint_positions, saved["osc_fresh"])

    # ---- pictures

    def render(self, width: int, height: int) -> np.ndarray:
        """(height, width, 3) uint8, seen from `scene.CAMERA`. Raises RenderUnavailable."""
        from grasp_sim.rendering import FrameRenderer  # state-only use never loads it

        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self.close()
            self._renderer = FrameRenderer(self.model, width, height)
        return self._renderer.render(self.data.qpos, self.base)

    def close(self) -> None:
        """Free the renderer, if one was made."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def make_scene(control_mode: str, task: Task) -> RobosuiteScene:
    """The scene of a task: robosuite's own gripper for its standard lift, else the project's."""
    return RobosuiteScene(control_mode, own_gripper=not task.standard_lift)
