"""The servo's laws, with an arm that is wherever its target is unless a test says otherwise."""

import numpy as np
import pytest

from grasp_sim import servo as servo_module
from grasp_sim import ur5e
from grasp_sim.contract import Command
from grasp_sim.servo import (
    Servo,
    ServoConfig,
    ServoStatus,
    down_rotation,
    joints_at,
    rotation_error,
    rotation_of,
)


def command(x=0.0, y=0.0, z=0.0, yaw=0.0) -> Command:
    return Command(delta_position=np.array([x, y, z]), delta_yaw=yaw, opening=0.085, force_limit=20.0)


def down_posture() -> np.ndarray:
    """Joints near home with the tool exactly down."""
    servo = started(ur5e.HOME)
    joints = ur5e.HOME
    for _ in range(10):
        joints = servo.step(joints, command())
    return joints


def started(joints, config=None) -> Servo:
    servo = Servo(config)
    servo.reset(joints)
    return servo


def test_deltas_accumulate_exactly():
    joints = down_posture()
    servo = started(joints)
    start, _ = servo.kinematics.pose(joints)
    for _ in range(10):
        joints = servo.step(joints, command(x=0.01, y=-0.005, z=0.002))
        assert servo.status is ServoStatus.OK
    end, rotation = servo.kinematics.pose(joints)
    np.testing.assert_allclose(end - start, [0.1, -0.05, 0.02], atol=2e-4)
    np.testing.assert_allclose(rotation[:, 2], [0, 0, -1], atol=2e-3)


def test_a_positive_yaw_turns_the_tool_counterclockwise_seen_from_above():
    joints = down_posture()
    servo = started(joints)
    before = servo.target_yaw
    for _ in range(5):
        joints = servo.step(joints, command(yaw=0.1))
    position, rotation = servo.kinematics.pose(joints)
    assert servo_module.wrap(servo_module.heading(rotation) - before) == pytest.approx(0.5, abs=2e-3)
    np.testing.assert_allclose(position, servo.target_position, atol=2e-4)


def test_a_tilted_tool_is_brought_back_down():
    tilted = ur5e.HOME + np.array([0, 0, 0, 0.4, 0, 0])
    servo = started(tilted)
    joints, tilts = tilted, []
    for _ in range(12):
        joints = servo.step(joints, command())
        tilts.append(np.arccos(-servo.kinematics.pose(joints)[1][2, 2]))
    assert tilts[-1] < 1e-3
    assert np.diff(tilts).max() < 1e-6  # never tilts further


def test_the_target_stays_near_an_arm_that_does_not_move():
    joints = down_posture()
    servo = started(joints)
    for _ in range(20):
        target = servo.step(joints, command(x=0.0125, yaw=0.1))
    here, _ = servo.kinematics.pose(joints)
    assert np.linalg.norm(servo.target_position - here) == pytest.approx(0.04)
    assert np.abs(target - joints).max() < servo.config.max_joint_lead


def test_no_joint_moves_faster_than_its_limit():
    joints = down_posture()
    config = ServoConfig(velocity_max=np.full(6, 0.2))
    servo = started(joints, config)
    for _ in range(6):
        target = servo.step(joints, command(x=0.0125, yaw=0.1))
        assert np.abs(target - joints).max() <= 0.2 * 0.05 + 1e-12
        joints = target
    assert servo.status is ServoStatus.LIMITED
    assert servo.reason == "joint velocity"


def test_it_holds_at_a_joint_limit_and_names_the_joint():
    joints = down_posture()
    config = ServoConfig(position_max=np.array([7, 7, 7, 7, 7, joints[5] + 0.15]))
    servo = started(joints, config)
    for _ in range(6):
        joints = servo.step(joints, command(yaw=-0.1))  # a tool pointing down turns against its last joint
    assert servo.status is ServoStatus.HOLD
    assert "wrist_3_joint" in servo.reason
    assert joints[5] <= config.position_max[5]
    joints = servo.step(joints, command(yaw=0.1))  # and the way back is open at once
    assert servo.status is ServoStatus.OK


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_it_holds_on_input_that_is_not_finite(bad):
    joints = down_posture()
    servo = started(joints)
    target = servo.step(joints, command(x=0.01))
    broken = joints.copy()
    broken[2] = bad
    np.testing.assert_array_equal(servo.step(broken, command(x=0.01)), target)
    assert servo.status is ServoStatus.HOLD
    assert "finite" in servo.reason
    np.testing.assert_array_equal(servo.step(joints, command(x=bad)), target)
    assert servo.status is ServoStatus.HOLD


def test_an_arm_far_from_its_target_restarts_where_it_is():
    joints = down_posture()
    servo = started(joints)
    moved = joints + np.array([0.5, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(servo.step(moved, command(x=0.01)), moved)
    assert servo.status is ServoStatus.HOLD
    assert "shoulder_pan_joint" in servo.reason


def test_it_must_be_reset_first_and_with_finite_joints():
    with pytest.raises(RuntimeError, match="reset"):
        Servo().step(ur5e.HOME, command())
    with pytest.raises(ValueError, match="finite"):
        Servo().reset(np.full(6, np.nan))


def test_a_loaded_servo_goes_on_as_the_saved_one():
    joints = down_posture()
    servo, other = started(joints), started(ur5e.HOME)
    servo.step(joints, command(x=0.01))
    other.load(servo.save())
    np.testing.assert_array_equal(servo.step(joints, command(y=0.01)), other.step(joints, command(y=0.01)))


def test_interpolation_ends_at_the_goal():
    points = servo_module.interpolate(np.zeros(6), np.full(6, 0.4), 4)
    np.testing.assert_allclose(points[:, 0], [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("angle", [1e-12, 0.3, 2.0])
def test_rotation_error_undoes_a_rotation(angle):
    vector = angle * np.array([2.0, -1.0, 2.0]) / 3.0
    start = down_rotation(0.7)
    np.testing.assert_allclose(rotation_error(rotation_of(vector) @ start, start), vector, atol=1e-9)


def test_the_joints_of_a_tool_pose_reach_it():
    rng, kinematics = np.random.default_rng(0), ur5e.Kinematics()
    home, rotation = kinematics.pose(ur5e.HOME)
    for _ in range(20):
        position = home + rng.uniform((-0.15, -0.2, -0.15), (0.1, 0.2, 0.05))
        yaw = servo_module.heading(rotation) + rng.uniform(-0.8, 0.8)
        joints = joints_at(position, yaw, ur5e.HOME)
        reached, turned = kinematics.pose(joints)
        np.testing.assert_allclose(reached, position, atol=2e-6)
        assert np.linalg.norm(rotation_error(down_rotation(yaw), turned)) < 2e-6


def test_a_tool_pose_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="does not reach"):
        joints_at(np.array([2.0, 0.0, 0.2]), 0.0, ur5e.HOME)
