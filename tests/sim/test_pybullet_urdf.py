"""The generated UR5e in PyBullet against robosuite's model compiled by MuJoCo; what it says without it."""

import multiprocessing
import subprocess
import sys

import mujoco
import numpy as np
import pybullet
import pytest

from grasp_sim import gripper, pybullet_urdf, ur5e, ur5e_model

LINKS = ("shoulder", "upper_arm", "forearm", "wrist_1", "wrist_2", "wrist_3")
POSTURES = np.random.default_rng(0).uniform(-np.pi, np.pi, size=(1000, ur5e.DOF))
OPEN = [gripper.STROKE / 2] * 2


@pytest.fixture(scope="module")
def reference() -> mujoco.MjModel:
    """robosuite's arm with the gripper's boxes added, written independently of the code under test."""
    spec = mujoco.MjSpec.from_file(str(ur5e_model.robot_xml()))
    hand = spec.body("right_hand")
    tcp = {"pos": [0, 0, 0.145], "quat": [1, 0, 0, -1]}
    palm = hand.add_body(name="palm", **tcp)
    palm.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.06, 0.03, 0.035], pos=[0, 0, -0.095], mass=0.7)
    volumes = np.array([0.004 * 0.011 * 0.016, 0.005 * 0.010 * 0.030])
    pad, finger = 0.1 * volumes / volumes.sum()
    for side in (1, -1):
        body = hand.add_body(name=f"finger {side}", **tcp)
        body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[side, 0, 0], name=f"slide {side}")
        box = {"type": mujoco.mjtGeom.mjGEOM_BOX}
        body.add_geom(size=[0.004, 0.011, 0.016], pos=[side * 0.004, 0, -0.005], mass=pad, **box)
        body.add_geom(size=[0.005, 0.010, 0.030], pos=[side * 0.013, 0, -0.030], mass=finger, **box)
    return spec.compile()


@pytest.fixture
def client():
    number = pybullet.connect(pybullet.DIRECT)
    yield number
    pybullet.disconnect(number)


@pytest.fixture
def robot(client) -> int:
    pybullet.setGravity(0, 0, -9.81, physicsClientId=client)
    return pybullet.loadURDF(
        str(pybullet_urdf.urdf_path()),
        useFixedBase=True,
        flags=pybullet.URDF_USE_INERTIA_FROM_FILE,
        physicsClientId=client,
    )


def link_frames(client, robot, posture) -> list[tuple[np.ndarray, np.ndarray]]:
    for joint, position in enumerate([*posture, *OPEN]):
        pybullet.resetJointState(robot, joint, position, physicsClientId=client)
    states = pybullet.getLinkStates(robot, range(8), computeForwardKinematics=True, physicsClientId=client)
    return [
        (np.array(state[4]), np.reshape(pybullet.getMatrixFromQuaternion(state[5]), (3, 3)))
        for state in states
    ]


def angle(first: np.ndarray, second: np.ndarray) -> float:
    """rad between two rotation matrices, accurate for small angles."""
    return float(np.linalg.norm(first - second) / np.sqrt(2.0))


def test_link_frames_equal_robosuites_on_1000_postures(client, robot, reference):
    data = mujoco.MjData(reference)
    worst = np.zeros(2)
    for posture in POSTURES:
        data.qpos[:] = [*posture, *OPEN]
        mujoco.mj_kinematics(reference, data)
        for name, (position, rotation) in zip(LINKS, link_frames(client, robot, posture), strict=False):
            body = data.body(f"{name}_link")
            error = [np.abs(position - body.xpos).max(), angle(rotation, body.xmat.reshape(3, 3))]
            worst = np.maximum(worst, error)
    assert worst[0] < 1e-6
    assert worst[1] < 1e-5


def test_the_fingers_meet_at_the_tcp_along_its_x_axis_on_1000_postures(client, robot):
    kinematics = ur5e.Kinematics()
    for posture in POSTURES:
        position, rotation = kinematics.pose(posture)
        (first, first_turn), (second, second_turn) = link_frames(client, robot, posture)[6:]
        np.testing.assert_allclose((first + second) / 2, position, atol=1e-6)
        np.testing.assert_allclose(first - second, gripper.STROKE * rotation[:, 0], atol=1e-6)
        assert angle(first_turn, rotation) < 1e-5
        assert angle(second_turn, rotation @ np.diag([-1.0, -1.0, 1.0])) < 1e-5


def test_mass_matrix_and_gravity_torques_equal_robosuites_on_1000_postures(client, robot, reference):
    data = mujoco.MjData(reference)
    for posture in POSTURES:
        positions = [*posture, *OPEN]
        data.qpos[:] = positions
        mujoco.mj_forward(reference, data)
        expected = np.zeros((8, 8))
        mujoco.mj_fullM(reference, expected, data.qM)
        mass_matrix = pybullet.calculateMassMatrix(robot, positions, physicsClientId=client)
        np.testing.assert_allclose(mass_matrix, expected, atol=1e-5)
        torques = pybullet.calculateInverseDynamics(
            robot, positions, [0.0] * 8, [0.0] * 8, physicsClientId=client
        )
        np.testing.assert_allclose(torques, data.qfrc_bias, atol=1e-5)


def test_the_dynamics_model_is_the_same(reference):
    model = ur5e_model.arm_model()
    ours, data = mujoco.MjData(model), mujoco.MjData(reference)
    for posture in POSTURES[:20]:
        ours.qpos[:] = data.qpos[:] = [*posture, *OPEN]
        ours.qvel[:6] = data.qvel[:6] = posture
        mujoco.mj_forward(model, ours)
        mujoco.mj_forward(reference, data)
        np.testing.assert_allclose(ours.qfrc_bias, data.qfrc_bias, atol=1e-9)


def test_limits_and_names_are_the_arms(client, robot):
    information = [pybullet.getJointInfo(robot, joint, physicsClientId=client) for joint in range(8)]
    assert tuple(joint[1].decode() for joint in information[:6]) == ur5e.JOINT_NAMES
    lower, upper, effort, velocity = np.array([joint[8:12] for joint in information]).T
    np.testing.assert_array_equal(lower, [*ur5e.POSITION_MIN, 0, 0])
    np.testing.assert_array_equal(upper, [*ur5e.POSITION_MAX, *OPEN])
    np.testing.assert_array_equal(effort[:6], ur5e.TORQUE_MAX)
    np.testing.assert_array_equal(velocity, [*ur5e.VELOCITY_MAX, *[gripper.SPEED / 2] * 2])


def test_the_masses_are_those_of_arm_and_gripper(client, robot):
    masses = [pybullet.getDynamicsInfo(robot, link, physicsClientId=client)[0] for link in range(8)]
    assert sum(masses) == pytest.approx(3.7 + 8.393 + 2.275 + 1.219 + 1.219 + 0.1889 + 0.7 + 2 * 0.1)
    assert masses[6:] == [gripper.FINGER_MASS] * 2


def test_collision_hulls_are_small_and_lie_on_the_mesh():
    folder = pybullet_urdf.urdf_path().parent
    mesh = ur5e_model.robot_xml().parent / "meshes" / "forearm.stl"
    points = pybullet_urdf._read_stl(mesh)
    lines = (folder / "forearm_link.obj").read_text().splitlines()
    corners = np.array([line.split()[1:] for line in lines if line.startswith("v")], dtype=np.float64)
    assert 12 <= len(corners) <= pybullet_urdf.HULL_DIRECTIONS
    distances = np.linalg.norm(points[:, None] - corners, axis=2)
    assert distances.min(axis=0).max() < 1e-9
    np.testing.assert_allclose(np.ptp(corners, axis=0), np.ptp(points, axis=0), atol=0.01)


def test_a_missing_mesh_is_named(tmp_path, monkeypatch):
    description = tmp_path / "robot.xml"
    description.write_text(ur5e_model.robot_xml().read_text())
    monkeypatch.setattr(pybullet_urdf, "robot_xml", lambda: description)
    monkeypatch.setattr(pybullet_urdf, "_FOLDERS", {})
    with pytest.raises(ur5e_model.RobotModelMissing, match=r"base\.stl is missing; reinstall"):
        pybullet_urdf.urdf_path()


def test_a_missing_robosuite_is_named(monkeypatch):
    monkeypatch.setattr(ur5e_model, "find_spec", lambda name: None)
    with pytest.raises(ur5e_model.RobotModelMissing, match="robosuite is not installed"):
        ur5e_model.robot_xml()


LOAD = """
import pybullet
from grasp_sim import pybullet_urdf
pybullet.connect(pybullet.DIRECT)
assert pybullet.getNumJoints(pybullet.loadURDF(str(pybullet_urdf.urdf_path()), useFixedBase=True)) == 8
print(pybullet_urdf.urdf_path())
"""


def test_processes_that_begin_at_once_have_files_of_their_own():
    commands = [
        subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    paths = [command.communicate(timeout=60)[0].splitlines()[-1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0]
    assert paths[0] != paths[1]


def _path(queue):
    queue.put(str(pybullet_urdf.urdf_path()))


def test_a_forked_process_leaves_its_parents_files_alone():
    path = pybullet_urdf.urdf_path()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_path, args=(queue,))
    child.start()
    assert queue.get(timeout=30) != str(path)
    child.join()
    assert path.exists()


@pytest.mark.parametrize("visible", [False, True])
def test_no_line_is_cut_by_pybullet_which_reads_8_kb_at_a_time(visible, tmp_path):
    lines = pybullet_urdf.urdf_path(visible=visible).read_text().splitlines()
    assert max(map(len, lines)) < 4096
    assert sum("<mesh" in line for line in lines) >= 7
