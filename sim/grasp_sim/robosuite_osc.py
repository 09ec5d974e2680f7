"""One control step of robosuite's OSC_POSE on a MuJoCo model that robosuite built, without robosuite.

`env.step` of robosuite spends most of its time in Python between MuJoCo's calls. Here all substeps of a
control step run in one compiled function that calls MuJoCo's library, so the same motion, equal to the last
bit, takes a fraction of the time. What belongs to the equality and is not obvious:

- The goal is set once per control step, after the first `mj_step1`, from the pose measured there.
- The first substep after a reset uses what the controller measured when robosuite built it during the reset,
  with the arm in place but the fingers still at the model's reference position. Only the bias torques are of
  the present.
- Torques are limited by the actuators' control range alone.

Shapes: 6 joints, V degrees of freedom of the model, S substeps, G gripper actuators. World frame, SI units.
"""

# MuJoCo's functions and structures live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import ctypes
import inspect
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from grasp_sim import osc, ur5e

BAD_STATE = tuple(
    int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC", "CTRL")
)
"""MuJoCo's warnings that it found the state bad and replaced it."""


class _Library(NamedTuple):
    """Addresses of MuJoCo's functions."""

    step1: int
    step2: int
    jac_site: int
    full_mass: int


def _load_library() -> _Library:
    """The library that the `mujoco` package itself uses: others may lie beside it or on the search path."""
    path = Path(mujoco.__file__).parent / f"libmujoco.so.{mujoco.__version__}"
    if not path.exists():
        raise RuntimeError(
            f"MuJoCo {mujoco.__version__} has no {path}, which robosuite's controller needs: reinstall mujoco"
        )
    library = ctypes.CDLL(str(path))
    names = ("mj_step1", "mj_step2", "mj_jacSite", "mj_fullM")
    addresses = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names)
    return _Library(*(address or 0 for address in addresses))


def _call_c(typingctx: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at an address with a tuple of pointers and ints, ignoring what it returns.

    numba cannot keep functions on disk that refer to ctypes objects: an address may change with each process.
    """
    signature = types.void(types.intp, arguments)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, packed = values
        passed = [builder.extract_value(packed, i) for i in range(len(signature.args[1]))]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in passed])
        builder.call(builder.inttoptr(address, kind.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, generate


_call: Any = intrinsic(_call_c)


class _Physics(NamedTuple):
    """Addresses of a model and its data, and views of what is read and written in them."""

    model: int
    data: int
    site: int
    joints_q: np.ndarray
    joints_v: np.ndarray
    arm: np.ndarray
    gripper: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    mass: np.ndarray
    bias: np.ndarray
    site_position: np.ndarray
    site_rotation: np.ndarray
    control: np.ndarray
    control_range: np.ndarray
    warnings: np.ndarray


class _Measured(NamedTuple):
    """What the law needs to know of the arm, as `osc.joint_torques` describes it."""

    position: np.ndarray
    rotation: np.ndarray
    linear_velocity: np.ndarray
    angular_velocity: np.ndarray
    jacobian: np.ndarray
    mass_matrix: np.ndarray
    joint_positions: np.ndarray
    joint_velocities: np.ndarray


@osc.jit
def _measure(library: _Library, physics: _Physics, into: _Measured) -> None:
    """Read the arm's state, of a simulation whose positions and velocities have been propagated."""
    dofs = physics.velocities.size
    jacobian = np.empty((6, dofs))
    linear, angular = jacobian[:3], jacobian[3:]
    _call(
        library.jac_site,
        (physics.model, physics.data, linear.ctypes.data, angular.ctypes.data, np.int32(physics.site)),
    )
    mass = np.empty((dofs, dofs))
    _call(library.full_mass, (physics.model, mass.ctypes.data, physics.mass.ctypes.data))
    into.position[:] = physics.site_position
    into.rotation[:] = physics.site_rotation.reshape((3, 3))
    into.linear_velocity[:] = np.dot(linear, physics.velocities)
    into.angular_velocity[:] = np.dot(angular, physics.velocities)
    for i in range(6):
        into.joint_positions[i] = physics.positions[physics.joints_q[i]]
        into.joint_velocities[i] = physics.velocities[physics.joints_v[i]]
        for j in range(6):
            into.jacobian[i, j] = jacobian[i, physics.joints_v[j]]
            into.mass_matrix[i, j] = mass[physics.joints_v[i], physics.joints_v[j]]


def _make_advance(law_version: int) -> Callable[..., bool]:
    """The function that simulates a control step; `law_version` must change with the source of `osc`.

    numba keeps compiled code until the file it is written in changes, although it holds the law of another
    file. What a function finds in its closure it tells apart.
    """

    @osc.jit
    def advance(
        library: _Library,
        physics: _Physics,
        measured: _Measured,
        fresh: bool,
        delta_position: np.ndarray,
        delta_quaternion: np.ndarray,
        base_position: np.ndarray,
        base_rotation: np.ndarray,
        posture: np.ndarray,
        stiffness: float,
        gripper: np.ndarray,
    ) -> bool:
        """Simulate S substeps with the gripper's controls (S, G); False when the simulation broke down.

        With `fresh` the first substep measures the arm, else it takes `measured` as it is.
        """
        if law_version == 0:  # never, but what is not used does not belong to the closure
            return False
        goal_position, goal_rotation = measured.position, measured.rotation
        for substep in range(gripper.shape[0]):
            _call(library.step1, (physics.model, physics.data))
            if fresh or substep > 0:
                _measure(library, physics, measured)
            if substep == 0:
                goal_position, goal_rotation = osc.goal_pose(
                    measured.position,
                    measured.rotation,
                    delta_position,
                    delta_quaternion,
                    base_position,
                    base_rotation,
                )
            torques = osc.joint_torques(
                goal_position,
                goal_rotation,
                measured.position,
                measured.rotation,
                measured.linear_velocity,
                measured.angular_velocity,
                measured.jacobian,
                measured.mass_matrix,
                physics.bias[physics.joints_v],
                measured.joint_positions,
                measured.joint_velocities,
                posture,
                stiffness,
                osc.DAMPING_RATIO,
            )
            if not osc.is_finite(torques):
                return False
            for i in range(6):
                low, high = physics.control_range[physics.arm[i]]
                physics.control[physics.arm[i]] = min(max(torques[i], low), high)
            for i in range(gripper.shape[1]):
                low, high = physics.control_range[physics.gripper[i]]
                physics.control[physics.gripper[i]] = min(max(gripper[substep, i], low), high)
            _call(library.step2, (physics.model, physics.data))
            # MuJoCo replaces a bad state by the model's reference state: the rest would be something else.
            for kind in BAD_STATE:
                if physics.warnings[kind] > 0:
                    return False
        return True

    return advance


_LAW_VERSION = zlib.crc32(inspect.getsource(osc).encode()) + 1
_advance = _make_advance(_LAW_VERSION)


class OscStepper:
    """Steps a UR5e in a MuJoCo model from robosuite by OSC_POSE, one control step at a time.

    Holds on to `model` and `data`; make another one when robosuite builds a new model (a hard reset). Edits
    of the model in place take effect. The constructor compiles, which takes some seconds the first time on a
    machine: construct one before forking.

    What ends the process instead of returning a fault is MuJoCo running out of the memory reserved for `data`
    on its stack: only calls from Python turn that into an exception.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        *,
        tool_site: str,
        gripper_actuators: Sequence[str],
        base_site: str = "robot0_right_center",
    ) -> None:
        """`tool_site` is what the goal is for, `base_site` gives the axes of actions and must not move."""
        self._model, self._data = model, data
        base = model.site(base_site).id
        if model.body_weldid[model.site_bodyid[base]] != 0:
            raise ValueError(f"the site {base_site!r} moves; actions are along the axes of a base at rest")
        self._library = _load_library()
        names = (tool_site, gripper_actuators)
        self._physics = _views(model, data, *names)
        # robosuite measures in the middle of its reset, in a state that nobody else sees.
        self._scratch = mujoco.MjData(model)
        self._scratch_physics = _views(model, self._scratch, *names)
        self._measured = _Measured(
            position=np.zeros(3),
            rotation=np.eye(3),
            linear_velocity=np.zeros(3),
            angular_velocity=np.zeros(3),
            jacobian=np.zeros((6, ur5e.DOF)),
            mass_matrix=np.eye(ur5e.DOF),
            joint_positions=np.zeros(ur5e.DOF),
            joint_velocities=np.zeros(ur5e.DOF),
        )
        self._posture = np.zeros(ur5e.DOF)
        self.stiffness = osc.STIFFNESS
        """1/s^2 of the law; the damping follows it to stay critical."""
        self._fresh = False
        self._started = False
        mujoco.mj_kinematics(model, self._scratch)
        self._base_position = self._scratch.site_xpos[base].copy()
        self._base_rotation = self._scratch.site_xmat[base].reshape(3, 3).copy()
        self._run(
            np.zeros(3), np.zeros(3), np.zeros((0, len(gripper_actuators)))
        )  # compiles; simulates nothing

    def reset(self, joint_positions: np.ndarray) -> None:
        """Begin an episode in which the arm starts from these joints (6,) in rad, at rest.

        They are the posture of the null space, and what the first substep takes for measured. `data` is left
        alone.
        """
        joints = np.asarray(joint_positions, dtype=np.float64)
        if joints.shape != (ur5e.DOF,) or not np.isfinite(joints).all():
            raise ValueError(
                f"an episode starts from 6 finite joint positions; it was given {joints.tolist()}"
            )
        self._posture[:] = joints
        mujoco.mj_resetData(self._model, self._scratch)
        self._scratch.qpos[self._physics.joints_q] = self._posture
        mujoco.mj_forward(self._model, self._scratch)
        _measure(self._library, self._scratch_physics, self._measured)
        self._fresh = False
        self._started = True

    def step(self, move: np.ndarray, turn: np.ndarray, gripper: np.ndarray) -> bool:
        """Simulate one control step; False when the simulation broke down, until `data` is reset.

        `move` (3,) in m and `turn` (3,), a rotation vector in rad, both along the base's axes, are what the
        goal is away from where the tool is; each number is limited to POSITION_SCALE and ROTATION_SCALE.
        `gripper` (S, G) are the controls of the gripper's actuators at each of the S substeps, limited to
        their control range.
        """
        if not self._started:
            raise RuntimeError("OscStepper.step before OscStepper.reset: the posture is not known yet.")
        return self._run(move, turn, gripper)

    def _run(self, move: np.ndarray, turn: np.ndarray, gripper: np.ndarray) -> bool:
        healthy = _advance(
            self._library,
            self._physics,
            self._measured,
            self._fresh,
            osc.limited(move, osc.POSITION_SCALE),
            osc.quaternion_of(osc.limited(turn, osc.ROTATION_SCALE)),
            self._base_position,
            self._base_rotation,
            self._posture,
            self.stiffness,
            np.ascontiguousarray(gripper, dtype=np.float64),
        )
        self._fresh = True
        return healthy

    def save(self) -> np.ndarray:
        """(1,), what the next steps depend on besides `data` and the joints of `reset`: if one was taken."""
        if not self._started:
            raise RuntimeError("OscStepper.save before OscStepper.reset: there is nothing to save yet.")
        return np.array([float(self._fresh)])

    def restore(self, joint_positions: np.ndarray, saved: np.ndarray) -> None:
        """Inverse of `save` for an episode begun by `reset` from these joints (6,), bit-exact, for the same
        model. `data` is restored by its owner."""
        self.reset(joint_positions)
        self._fresh = bool(saved[0])


class ArmIndices(NamedTuple):
    """Where the arm's joints are in a model, (6,) int64 each."""

    positions: np.ndarray
    """In `qpos`."""
    velocities: np.ndarray
    """In `qvel`."""
    motors: np.ndarray
    """In `ctrl`."""


def arm_indices(model: mujoco.MjModel) -> ArmIndices:
    """The arm's joints in a model from robosuite, in the order of `ur5e.JOINT_NAMES`."""
    joints = [model.joint(f"robot0_{name}") for name in ur5e.JOINT_NAMES]
    motors = [model.actuator(f"robot0_torq_j{i + 1}").id for i in range(ur5e.DOF)]
    positions, velocities = [joint.qposadr[0] for joint in joints], [joint.dofadr[0] for joint in joints]
    return ArmIndices(*(np.array(numbers, dtype=np.int64) for numbers in (positions, velocities, motors)))


def _views(
    model: mujoco.MjModel, data: mujoco.MjData, tool_site: str, gripper_actuators: Sequence[str]
) -> _Physics:
    arm = arm_indices(model)
    site = model.site(tool_site).id
    return _Physics(
        model=model._address,
        data=data._address,
        site=site,
        joints_q=arm.positions,
        joints_v=arm.velocities,
        arm=arm.motors,
        gripper=np.array([model.actuator(name).id for name in gripper_actuators], dtype=np.int64),
        positions=data.qpos,
        velocities=data.qvel,
        mass=data.qM,
        bias=data.qfrc_bias,
        site_position=data.site_xpos[site],
        site_rotation=data.site_xmat[site],
        control=data.ctrl,
        control_range=model.actuator_ctrlrange,
        warnings=data.warning.number,
    )
