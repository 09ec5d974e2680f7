"""The dynamics of the simulated arm with its gripper: gravity compensation and operational space control.

Computed by MuJoCo on the model that the URDF was written from, which takes a few microseconds.
Joints (8,) are those of `ur5e_model.arm_model`: 6 of the arm in rad, 2 of the fingers in m.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy

import mujoco
import numpy as np

from grasp_sim import ur5e
from grasp_sim.ur5e_model import arm_model

_ROTORS = 5.0 / np.arange(1, ur5e.DOF + 1)  # kg m^2, robosuite's armature of each joint of the arm
LINK_INERTIA = _ROTORS - np.append(_ROTORS[1:], 0.0)
"""(6,) kg m^2 that each link of the arm has about every axis more than its mass gives it, in OSC.

Bullet knows no rotor inertia, without which OSC tilts the tool by 25 degrees during a lift and the arm is
pushed about by its own grip. A joint turns all links after it, so these add up to robosuite's armature on
the mass matrix's diagonal where axes are parallel. Free motions are within 8 % of robosuite's.
"""

_TORQUE_MAX = ur5e.TORQUE_MAX.tolist()


class ArmDynamics:
    """Torques for the arm. Holds scratch memory: one instance per scene."""

    def __init__(self, link_inertia: np.ndarray) -> None:
        """`link_inertia` (6,) in kg m^2 is added about every axis of the arm's links."""
        self._model = copy.copy(arm_model())
        links = [self._model.joint(name).bodyid[0] for name in ur5e.JOINT_NAMES]
        self._model.body_inertia[links] += link_inertia[:, None]
        self._data = mujoco.MjData(self._model)
        self._tcp = self._model.site("tcp").id
        self._bias = np.zeros(self._model.nv)
        self._mass_matrix = np.zeros((self._model.nv, self._model.nv))
        jacobian = np.zeros((6, self._model.nv))
        # Views that follow the model; looking them up anew takes as long as what is computed.
        self._joints, self._velocities = self._data.qpos, self._data.qvel
        self._tcp_position = self._data.site_xpos[self._tcp]
        self._tcp_rotation = self._data.site_xmat[self._tcp].reshape(3, 3)
        self._linear, self._angular = jacobian[:3], jacobian[3:]
        arm = slice(0, ur5e.DOF)
        self._arm_joints, self._arm_velocities = self._joints[arm], self._velocities[arm]
        self._arm_bias, self._arm_mass_matrix = self._bias[arm], self._mass_matrix[arm, arm]
        self._arm_jacobian = jacobian[:, arm]

    def inertia(self, arm_joints: np.ndarray) -> np.ndarray:
        """(6,) kg m^2 that each joint of the arm moves alone, at joints (6,) and with the gripper closed."""
        self._place([*arm_joints.tolist(), 0.0, 0.0], [0.0] * self._model.nv)
        return self._mass().diagonal()[: ur5e.DOF].copy()

    def _mass(self) -> np.ndarray:
        """(8, 8) kg m^2, the mass matrix where the model was placed last."""
        mujoco.mj_makeM(self._model, self._data)
        mujoco.mj_fullM(self._model, self._mass_matrix, self._data.qM)
        return self._mass_matrix

    def gravity_torques(self, joints: list[float]) -> np.ndarray:
        """(6,) N m that hold the arm, without an object, at joints (8,)."""
        self._place(joints, [0.0] * len(joints))
        return self._arm_bias

    def _place(self, joints: list[float], velocities: list[float]) -> None:
        """Put the model there and compute its bias torques."""
        self._joints[:], self._velocities[:] = joints, velocities
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_comVel(self._model, self._data)
        mujoco.mj_rne(self._model, self._data, 0, self._bias)

    def tcp(self, joints: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) in m and rotation (3, 3) of the TCP in the base frame, at joints (8,)."""
        self._joints[:] = joints
        mujoco.mj_kinematics(self._model, self._data)
        return self._tcp_position.copy(), self._tcp_rotation.copy()

    def osc_goal(
        self, joints: list[float], move: np.ndarray, turn: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The TCP's goal, (3,) in m and (3, 3), `move` and `turn` (`Scene.advance_osc`) from joints (8,)."""
        from grasp_sim import osc  # in servo mode numba is never loaded

        position, rotation = self.tcp(joints)
        delta = osc.limited(move, osc.POSITION_SCALE)
        quaternion = osc.quaternion_of(osc.limited(turn, osc.ROTATION_SCALE))
        return osc.goal_pose(position, rotation, delta, quaternion, np.zeros(3), np.eye(3))

    def osc_torques(
        self,
        goal: tuple[np.ndarray, np.ndarray],
        joints: list[float],
        velocities: list[float],
        posture: np.ndarray,
        gain_scale: float,
        friction: float,
    ) -> list[float]:
        """(6,) N m on the joints: OSC_POSE within the motors' limits, less friction; NaN without an answer.

        goal: from `osc_goal`. joints, velocities: (8,). posture: (6,) rad, the null space's. gain_scale:
        factor on the stiffness; the damping follows it to stay critical. friction: N m s/rad of each joint.
        """
        from grasp_sim import osc

        self._place(joints, velocities)
        mujoco.mj_jacSite(self._model, self._data, self._linear, self._angular, self._tcp)
        self._mass()
        jacobian = self._arm_jacobian.copy()
        twist = jacobian @ self._arm_velocities
        torques = osc.joint_torques(
            goal[0],
            goal[1],
            self._tcp_position,
            self._tcp_rotation,
            twist[:3],
            twist[3:],
            jacobian,
            self._arm_mass_matrix,
            self._arm_bias,
            self._arm_joints,
            self._arm_velocities,
            posture,
            osc.STIFFNESS * gain_scale,
            osc.DAMPING_RATIO,
        )
        return [
            min(max(torque, -most), most) - friction * velocity
            for torque, most, velocity in zip(
                torques.tolist(), _TORQUE_MAX, velocities[: ur5e.DOF], strict=True
            )
        ]
