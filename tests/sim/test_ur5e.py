"""Forward kinematics: by hand, against robosuite, and the Jacobian against finite differences."""

import numpy as np
import pytest

from grasp_sim import ur5e
from grasp_sim.robosuite_scene import RobosuiteScene

POSTURES = np.random.default_rng(0).uniform(-np.pi, np.pi, size=(20, ur5e.DOF))


@pytest.fixture(scope="module")
def kinematics() -> ur5e.Kinematics:
    return ur5e.Kinematics()


def test_the_zero_posture_is_the_sum_of_the_link_offsets(kinematics):
    position, _ = kinematics.forward(np.zeros(ur5e.DOF))
    x = 0.425 + 0.392
    y = 0.138 - 0.131 + 0.127 + 0.098 + 0.145
    z = 0.163 - 0.100
    np.testing.assert_allclose(position, [x, y, z], atol=1e-12)


def test_the_tool_points_down_at_home(kinematics):
    _, rotation = kinematics.pose(ur5e.HOME)
    assert rotation[2, 2] < -0.99


def test_turning_the_first_joint_turns_the_tool_about_the_vertical(kinematics):
    turned = ur5e.HOME + np.array([0.3, 0, 0, 0, 0, 0])
    position, rotation = kinematics.pose(ur5e.HOME)
    cos, sin = np.cos(0.3), np.sin(0.3)
    about_z = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    turned_position, turned_rotation = kinematics.pose(turned)
    np.testing.assert_allclose(turned_position, about_z @ position, atol=1e-12)
    np.testing.assert_allclose(turned_rotation, about_z @ rotation, atol=1e-12)


def test_forward_kinematics_equals_robosuites_site(kinematics):
    scene = RobosuiteScene("servo")
    simulator = scene.suite.sim
    site = simulator.model.site_name2id("gripper0_right_grip_site")
    joints = [scene.model.joint(f"robot0_{name}").qposadr[0] for name in ur5e.JOINT_NAMES]
    for posture in POSTURES:
        simulator.data.qpos[joints] = posture
        simulator.forward()
        position, rotation = kinematics.pose(posture)
        np.testing.assert_allclose(position, simulator.data.site_xpos[site] - scene.base, atol=1e-6)
        np.testing.assert_allclose(rotation.reshape(9), simulator.data.site_xmat[site], atol=1e-6)


def test_the_quaternion_is_xyzw_of_the_rotation(kinematics):
    for posture in POSTURES:
        _, (x, y, z, w) = kinematics.forward(posture)
        _, rotation = kinematics.pose(posture)
        first_column = [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)]
        np.testing.assert_allclose(rotation[:, 0], first_column, atol=1e-9)


def test_the_jacobian_equals_finite_differences(kinematics):
    step = 1e-6
    for posture in POSTURES[:5]:
        jacobian = kinematics.jacobian(posture)
        for joint in range(ur5e.DOF):
            shift = np.eye(ur5e.DOF)[joint] * step
            ahead, rotation_ahead = kinematics.pose(posture + shift)
            behind, rotation_behind = kinematics.pose(posture - shift)
            np.testing.assert_allclose(jacobian[:3, joint], (ahead - behind) / (2 * step), atol=1e-7)
            spin = rotation_ahead @ rotation_behind.T
            angular = (
                np.array([spin[2, 1] - spin[1, 2], spin[0, 2] - spin[2, 0], spin[1, 0] - spin[0, 1]]) / 2
            )
            np.testing.assert_allclose(jacobian[3:, joint], angular / (2 * step), atol=1e-7)
