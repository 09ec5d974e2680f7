"""The UR5e with a Robotiq 2F-85: joint names and order, limits, home pose and kinematics.

The link offsets are those of robosuite's UR5e model, so forward kinematics here equals the simulator's, and
the ROS 2 nodes can use it without robosuite. Frames: `base` is the robot's mounting frame, z up; `tcp` sits
between the fingertips, z along the approach direction, x along the direction in which the fingers close.
"""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np

from grasp_sim.without_gl import without_gl

with without_gl():  # the first module of the package to import it
    import mujoco

JOINT_NAMES: tuple[str, ...] = (
    "shoulder_pan_joint",
    "shoulder_lift_joint",
    "elbow_joint",
    "wrist_1_joint",
    "wrist_2_joint",
    "wrist_3_joint",
)
"""The one joint order used everywhere. Messages from a robot are mapped to it by name."""

DOF = len(JOINT_NAMES)

POSITION_MIN = np.array([-2 * np.pi, -2 * np.pi, -np.pi, -2 * np.pi, -2 * np.pi, -2 * np.pi])
"""(6,) rad."""
POSITION_MAX = -POSITION_MIN
"""(6,) rad."""
VELOCITY_MAX = np.full(DOF, np.pi)
"""(6,) rad/s, the data sheet's 180 degrees per second."""
ACCELERATION_MAX = np.full(DOF, 40.0)
"""(6,) rad/s^2. The controller faults well above this; normal motion stays far below."""
TORQUE_MAX = np.array([150.0, 150.0, 150.0, 28.0, 28.0, 28.0])
"""(6,) N m."""

HOME = np.array([-0.470, -1.735, 2.480, -2.275, -1.590, -1.991])
"""(6,) rad, the tool pointing down in front of the base; episodes start near it."""

GRIPPER_STROKE = 0.085
"""m between the fingertips of the fully open gripper."""

T_FLANGE_TCP = ((0.0, 0.0, 0.145), (1.0, 0.0, 0.0, -1.0))
"""Position (3,) in m and turn (4,) wxyz, not normalised, of the TCP in the flange's frame."""

_QUARTER_Y = (1.0, 0.0, 1.0, 0.0)
_NO_TURN = (1.0, 0.0, 0.0, 0.0)
LINKS: tuple[tuple[str, tuple[float, ...], tuple[float, ...], tuple[float, ...]], ...] = (
    ("shoulder", (0.0, 0.0, 0.163), _NO_TURN, (0, 0, 1)),
    ("upper_arm", (0.0, 0.138, 0.0), _QUARTER_Y, (0, 1, 0)),
    ("forearm", (0.0, -0.131, 0.425), _NO_TURN, (0, 1, 0)),
    ("wrist_1", (0.0, 0.0, 0.392), _QUARTER_Y, (0, 1, 0)),
    ("wrist_2", (0.0, 0.127, 0.0), _NO_TURN, (0, 0, 1)),
    ("wrist_3", (0.0, 0.0, 0.1), _NO_TURN, (0, 1, 0)),
)
"""Name, offset from the parent (m), turn from the parent (wxyz, not normalised), joint axis."""
FLANGE = ((0.0, 0.098, 0.0), (1.0, -1.0, 0.0, 0.0))
"""Position (3,) in m and turn (4,) wxyz, not normalised, of the flange in wrist 3's frame."""


def _text(values: tuple[float, ...]) -> str:
    return " ".join(str(v) for v in values)


def _model_xml() -> str:
    """A chain without meshes; masses are placeholders, since only kinematics is asked of it."""
    opening, closing = "", ""
    for name, offset, turn, axis in LINKS:
        opening += (
            f'<body name="{name}" pos="{_text(offset)}" quat="{_text(turn)}">'
            '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
            f'<joint name="{name}" axis="{_text(axis)}"/>'
        )
        closing += "</body>"
    tool = (
        f'<body name="flange" pos="{_text(FLANGE[0])}" quat="{_text(FLANGE[1])}">'
        f'<site name="tcp" pos="{_text(T_FLANGE_TCP[0])}" quat="{_text(T_FLANGE_TCP[1])}"/></body>'
    )
    return f"<mujoco><worldbody>{opening}{tool}{closing}</worldbody></mujoco>"


def quaternion_of(rotation: np.ndarray) -> np.ndarray:
    """(4,) xyzw of a rotation matrix (3, 3)."""
    wxyz = np.empty(4)
    mujoco.mju_mat2Quat(wxyz, rotation.reshape(9))
    return wxyz[[1, 2, 3, 0]]


class Kinematics:
    """Forward kinematics and Jacobian of the TCP, in the base frame.

    Holds scratch memory: one instance per thread.
    """

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_string(_model_xml())
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site("tcp").id
        self._jacobian = np.zeros((6, DOF))
        # Views that follow the simulation; looking them up anew takes as long as the kinematics.
        self._joints = self._data.qpos
        self._position = self._data.site_xpos[self._site]
        self._rotation = self._data.site_xmat[self._site].reshape(3, 3)

    def _place(self, joint_positions: np.ndarray) -> None:
        self._joints[:] = joint_positions
        mujoco.mj_kinematics(self._model, self._data)

    def forward(self, joint_positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """TCP position (3,) in m and quaternion (4,) xyzw, both in the base frame, of joints (6,) in rad."""
        position, rotation = self.pose(joint_positions)
        return position, quaternion_of(rotation)

    def pose(self, joint_positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """TCP position (3,) in m and rotation matrix (3, 3), base from tcp, of joints (6,) in rad."""
        self._place(joint_positions)
        return self._position.copy(), self._rotation.copy()

    def jacobian(self, joint_positions: np.ndarray) -> np.ndarray:
        """(6, 6): rows are linear (m) then angular (rad) velocity of the TCP in the base frame, per joint."""
        self._place(joint_positions)
        return self._current_jacobian()

    def pose_and_jacobian(self, joint_positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`pose` and `jacobian` in one pass, for the servo's iterations."""
        position, rotation = self.pose(joint_positions)
        return position, rotation, self._current_jacobian()

    def _current_jacobian(self) -> np.ndarray:
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._jacobian[:3], self._jacobian[3:], self._site)
        return self._jacobian.copy()
