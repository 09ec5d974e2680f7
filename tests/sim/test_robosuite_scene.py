"""robosuite's scene with any object in it: shapes, inertia, saving, independence of the past."""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import pytest

from grasp_sim import scene as world
from grasp_sim import ur5e
from grasp_sim.contract import Command, yaw_of
from grasp_sim.objects import ObjectError, ObjectSpec, Part, box
from grasp_sim.robosuite_scene import RobosuiteScene
from grasp_sim.scene import Physics, Start

HAMMER = ObjectSpec(
    "hammer",
    (Part("box", (0.012, 0.05, 0.012)), Part("box", (0.02, 0.015, 0.012), (0.0, 0.035, 0.0))),
    mass=0.3,
    friction=0.6,
    symmetry=2,
)
SKEW = ObjectSpec(
    "skew",
    (
        Part("box", (0.02, 0.02, 0.01), (-0.01, -0.02, -0.01)),
        Part("cylinder", (0.01, 0.02), (0.02, 0.01, 0.0)),
        Part("sphere", (0.01,), (-0.02, 0.03, 0.01)),
    ),
    mass=0.4,
    friction=0.5,
    symmetry=2,
)
OBJECTS = {
    "box": box((0.03, 0.06, 0.05), mass=0.1, friction=0.4),
    "slippery": box((0.04, 0.04, 0.04), mass=1.0, friction=0.2),
    "sphere": ObjectSpec("sphere", (Part("sphere", (0.02,)),), 0.05, 0.6, 0),
    "standing cylinder": ObjectSpec("cylinder", (Part("cylinder", (0.02, 0.04)),), 0.2, 0.6, 0),
    "lying cylinder": ObjectSpec("cylinder", (Part("cylinder", (0.02, 0.04), axis="y"),), 0.2, 0.6, 2),
    "capsule": ObjectSpec("capsule", (Part("capsule", (0.015, 0.03), axis="y"),), 0.2, 0.6, 2),
    "hammer": HAMMER,
}
ALL = pytest.mark.parametrize("name", OBJECTS)


def on_the_table(spec: ObjectSpec, *, yaw: float = 0.4, joints: np.ndarray = ur5e.HOME, **physics) -> Start:
    height = world.TABLE_HEIGHT + spec.size[2] / 2.0 + 0.0005
    return Start(spec, np.array([0.56, 0.02, height]), yaw, 1.0, joints, Physics(**physics))


def move(scene: RobosuiteScene, seed: int, steps: int = 6) -> np.ndarray:
    """(steps, width) everything that a random motion leads through. The arm begins near its home posture."""
    rng = np.random.default_rng(seed)
    rows, goal = [], ur5e.HOME
    for _ in range(steps):
        begin, goal = goal, ur5e.HOME + rng.uniform(-0.1, 0.1, size=6)
        command = Command(np.zeros(3), 0.0, rng.uniform(0.0, 0.085), rng.uniform(20.0, 235.0))
        scene.advance_servo(begin, goal, command)
        rows.append(np.concatenate([scene.data.qpos, scene.data.qvel, scene.pad_forces(np.eye(3)[0])]))
    return np.array(rows)


@pytest.fixture(scope="module")
def scene() -> RobosuiteScene:
    return RobosuiteScene("servo", own_gripper=True)


@pytest.fixture(scope="module")
def other() -> RobosuiteScene:
    return RobosuiteScene("servo", own_gripper=True)


# ---- the object


@ALL
def test_an_object_rests_where_it_was_put(scene, name):
    spec = OBJECTS[name]
    begin = on_the_table(spec)
    scene.reset(begin)
    np.testing.assert_allclose(scene.object_pose()[0], begin.object_position, atol=1e-12)
    for _ in range(40):
        scene.advance_servo(ur5e.HOME, ur5e.HOME, Command(np.zeros(3), 0.0, 0.085, 20.0))
    position, quaternion = scene.object_pose()
    np.testing.assert_allclose(position[:2], begin.object_position[:2], atol=0.001)
    assert position[2] == pytest.approx(world.TABLE_HEIGHT + spec.size[2] / 2.0, abs=2e-4)
    assert yaw_of(quaternion) == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("spec", [HAMMER, SKEW, OBJECTS["capsule"]], ids=lambda spec: spec.name)
def test_mass_and_inertia_are_the_objects(scene, spec):
    scene.reset(on_the_table(spec, yaw=0.0))
    model, data = scene.model, scene.data
    body = model.body("cube_main").id
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, model.body_iquat[body])
    turn = turn.reshape(3, 3)
    inertia = turn @ np.diag(model.body_inertia[body]) @ turn.T
    np.testing.assert_allclose(inertia, spec.inertia, atol=1e-12)
    # The mass matrix that the simulation really uses, about the body's origin.
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, full, data.qM)
    offset = spec.centre_of_mass
    lever = np.cross(np.eye(3), offset)
    about_origin = spec.inertia + spec.mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    np.testing.assert_allclose(full[-6:-3, -6:-3], spec.mass * np.eye(3), atol=1e-12)
    np.testing.assert_allclose(full[-3:, -3:], about_origin, atol=1e-12)
    np.testing.assert_allclose(np.abs(full[-6:-3, -3:]), np.abs(spec.mass * lever), atol=1e-12)


@ALL
def test_contacts_have_the_objects_friction(scene, name):
    scene.reset(on_the_table(OBJECTS[name]))
    scene.advance_servo(ur5e.HOME, ur5e.HOME, Command(np.zeros(3), 0.0, 0.085, 20.0))
    assert scene.data.ncon > 0
    np.testing.assert_array_equal(scene.data.contact.friction[:, 0], OBJECTS[name].friction)


def test_an_end_far_from_the_middle_is_touched_too(scene):
    """The compiled model knows a cube of 4 cm; what sticks out of it must still collide."""
    bar = box((0.02, 0.3, 0.02), mass=0.5, friction=0.5)
    position, rotation = ur5e.Kinematics().pose(ur5e.HOME)
    yaw = float(np.arctan2(rotation[1, 0], rotation[0, 0]))
    along = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
    scene.model.opt.gravity[2] = 0.0  # it stays in the air until the fingers are there
    scene.reset(Start(bar, position + 0.13 * along, yaw, 1.0, ur5e.HOME))
    for _ in range(14):
        scene.advance_servo(ur5e.HOME, ur5e.HOME, Command(np.zeros(3), 0.0, 0.0, 40.0))
    scene.model.opt.gravity[2] = -9.81
    assert scene.opening() == pytest.approx(0.02, abs=0.001)
    np.testing.assert_allclose(scene.pad_forces(rotation[:, 0]), 40.0, rtol=0.03)


def test_robosuites_gripper_takes_one_part():
    scene = RobosuiteScene("servo")
    with pytest.raises(ObjectError, match="one part"):
        scene.reset(on_the_table(HAMMER))
    scene.reset(on_the_table(OBJECTS["box"]))


# ---- physics


def test_scaled_physics_do_not_add_up(scene):
    model = scene.model

    def parameters() -> list[np.ndarray]:
        return [array.copy() for array in (model.dof_damping, model.actuator_gainprm, model.actuator_biasprm)]

    scene.reset(on_the_table(HAMMER))
    plain = parameters()
    for _ in range(2):
        scene.reset(on_the_table(HAMMER, damping_scale=3.0, actuator_gain_scale=0.5))
    scaled = parameters()
    arm = scene._arm_v
    np.testing.assert_allclose(scaled[0][arm], 3.0 * plain[0][arm])
    np.testing.assert_allclose(scaled[1][scene._arm_ctrl], 0.5 * plain[1][scene._arm_ctrl])
    stiffness, damping = (slice(None), 1), (slice(None), 2)
    before, after = plain[2][scene._arm_ctrl], scaled[2][scene._arm_ctrl]
    np.testing.assert_allclose(after[stiffness], 0.5 * before[stiffness])
    # A softer arm stays as damped as it was: the damping ratio is kd / (2 sqrt(kp)) for the same inertia.
    np.testing.assert_allclose(after[damping], 0.5**0.5 * before[damping])
    scene.reset(on_the_table(HAMMER))
    for before, after in zip(plain, parameters(), strict=True):
        np.testing.assert_array_equal(before, after)


# ---- independence of the past


@pytest.mark.parametrize("spec", [HAMMER, SKEW, OBJECTS["sphere"]], ids=lambda spec: spec.name)
def test_a_start_alone_decides_an_episode(scene, other, spec):
    begin = on_the_table(spec, joints=ur5e.HOME + 0.01, gripper_force_scale=0.9)
    scene.reset(begin)
    first = move(scene, seed=1)
    for name in ("slippery", "capsule"):
        other.reset(on_the_table(OBJECTS[name], damping_scale=2.0, gripper_speed=0.05))
        move(other, seed=2, steps=3)
    other.reset(begin)
    np.testing.assert_array_equal(move(other, seed=1), first)


@pytest.mark.parametrize("spec", [HAMMER, OBJECTS["standing cylinder"]], ids=lambda spec: spec.name)
def test_restoring_is_bit_exact_after_other_objects(scene, other, spec):
    begin = on_the_table(spec, actuator_gain_scale=1.2)
    scene.reset(begin)
    move(scene, seed=1)
    saved = scene.save()
    assert all(isinstance(value, np.ndarray) for value in saved.values())
    first = move(scene, seed=3)
    scene.reset(on_the_table(OBJECTS["sphere"]))
    move(scene, seed=4)
    for anyone in (scene, other):
        anyone.restore(begin, saved)
        np.testing.assert_array_equal(move(anyone, seed=3), first)


def test_two_scenes_do_not_see_each_other(scene, other):
    scene.reset(on_the_table(HAMMER))
    alone = move(scene, seed=5)
    scene.reset(on_the_table(HAMMER))
    other.reset(on_the_table(SKEW))
    rng_state = np.random.default_rng(5)
    rows, goal = [], ur5e.HOME
    for _ in range(6):
        begin, goal = goal, ur5e.HOME + rng_state.uniform(-0.1, 0.1, size=6)
        command = Command(np.zeros(3), 0.0, rng_state.uniform(0.0, 0.085), rng_state.uniform(20.0, 235.0))
        scene.advance_servo(begin, goal, command)
        other.advance_servo(goal, begin, command)
        rows.append(np.concatenate([scene.data.qpos, scene.data.qvel, scene.pad_forces(np.eye(3)[0])]))
    np.testing.assert_array_equal(np.array(rows), alone)


def test_a_broken_state_is_a_fault_until_the_next_reset(scene, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    scene.reset(on_the_table(HAMMER))
    assert not scene.faulty
    scene.data.qvel[2] = np.nan
    move(scene, seed=6, steps=2)
    assert scene.faulty
    scene.reset(on_the_table(HAMMER))
    assert not scene.faulty
    assert scene.time == 0.0
