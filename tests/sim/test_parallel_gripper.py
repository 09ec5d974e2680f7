"""The project's gripper in MuJoCo: what its commands mean, and Coulomb's law between its pads."""

import numpy as np
import pytest

from grasp_sim import gripper, servo, ur5e
from grasp_sim.contract import Command
from grasp_sim.objects import ObjectSpec, Part, box
from grasp_sim.robosuite_scene import RobosuiteScene
from grasp_sim.scene import TABLE_HEIGHT, Physics, Start
from grasp_sim.slip import SlipLabels, SlipTracker

KINEMATICS = ur5e.Kinematics()
PLACE = np.array([0.5, 0.05, 0.15])
CLOSING = np.array([1.0, 0.0, 0.0])


def joints_at(place: np.ndarray) -> np.ndarray:
    """(6,) joints with the tool straight down at a place (3,), closing along x."""
    joints = ur5e.HOME.copy()
    for _ in range(100):
        position, rotation, jacobian = KINEMATICS.pose_and_jacobian(joints)
        turn = servo.rotation_error(servo.down_rotation(0.0), rotation)
        error = np.concatenate([np.clip(place - position, -0.05, 0.05), turn])
        joints = joints + servo.damped_step(jacobian, error, 0.02)
    return joints


JOINTS = joints_at(PLACE)


def command(opening: float, force: float) -> Command:
    return Command(np.zeros(3), 0.0, opening, force)


def wait(scene: RobosuiteScene, steps: int, opening: float, force: float) -> None:
    for _ in range(steps):
        scene.advance_servo(JOINTS, JOINTS, command(opening, force))


def block(mass: float = 0.2, friction: float = 0.8) -> ObjectSpec:
    return box((0.04, 0.04, 0.04), mass=mass, friction=friction)


def start(spec: ObjectSpec, **physics: float) -> Start:
    """The object between the open pads."""
    return Start(spec, PLACE, 0.0, 1.0, JOINTS, Physics(**physics))


def free_air(scene: RobosuiteScene, **physics: float) -> None:
    """The gripper closes on nothing."""
    aside = PLACE + np.array([0.0, 0.3, 0.0])
    scene.reset(Start(block(), aside, 0.0, 1.0, JOINTS, Physics(**physics)))


def hold(scene: RobosuiteScene, spec: ObjectSpec, force: float, **physics: float) -> None:
    """Close on the object without gravity, then let it have its weight."""
    scene.model.opt.gravity[2] = 0.0
    scene.reset(start(spec, **physics))
    wait(scene, 12, 0.0, max(force, gripper.FORCE_MIN))
    for share in np.linspace(0.1, 1.0, 10):
        scene.model.opt.gravity[2] = -9.81 * share
        wait(scene, 1, 0.0, force)


def in_hand(scene: RobosuiteScene) -> np.ndarray:
    """(3,) mm, the object relative to the TCP."""
    return 1000.0 * (scene.object_pose()[0] - KINEMATICS.pose(scene.joints()[0])[0])


@pytest.fixture(scope="module")
def built() -> RobosuiteScene:
    return RobosuiteScene("servo", own_gripper=True)


@pytest.fixture
def scene(built: RobosuiteScene):
    yield built
    built.model.opt.gravity[2] = -9.81


def test_masses_and_frame_are_those_of_the_description(scene):
    model = scene.model
    masses = {name: model.body(f"gripper0_right_{name}").mass[0] for name in ("palm", "left_finger")}
    assert masses == pytest.approx({"palm": gripper.PALM_MASS, "left_finger": gripper.FINGER_MASS})
    bodies = [i for i in range(model.nbody) if model.body(i).name.startswith("gripper0_")]
    assert model.body_mass[bodies].sum() == pytest.approx(0.9)
    scene.reset(start(block()))
    position, rotation = KINEMATICS.pose(JOINTS)
    site = scene.data.site("gripper0_right_grip_site")
    np.testing.assert_allclose(site.xpos - scene.base, position, atol=1e-9)
    np.testing.assert_allclose(site.xmat.reshape(3, 3), rotation, atol=1e-9)
    for side, name in ((1, "left"), (-1, "right")):
        centre = scene.data.geom(f"gripper0_right_{name}_pad_collision").xpos - scene.base
        x, y, z = gripper.PAD.centre
        expected = position + rotation @ np.array([side * (x + gripper.STROKE / 2), y, z])
        np.testing.assert_allclose(centre, expected, atol=1e-9)


# ---- opening


@pytest.mark.parametrize("force", [20.0, 235.0])
def test_the_opening_is_reached_and_kept(scene, force):
    free_air(scene)
    assert scene.opening() == pytest.approx(gripper.STROKE, abs=1e-6)
    for opening in (0.05, 0.0, 0.02, 0.085):
        wait(scene, 14, opening, force)
        for _ in range(10):
            wait(scene, 1, opening, force)
            assert scene.opening() == pytest.approx(opening, abs=1e-5)


@pytest.mark.parametrize("speed", [0.15, 0.05])
def test_the_fingers_keep_the_gripper_speed(scene, speed):
    free_air(scene, gripper_speed=speed)
    wait(scene, 3, 0.0, 60.0)
    before = scene.opening()
    wait(scene, 4, 0.0, 60.0)
    assert (before - scene.opening()) / 0.2 == pytest.approx(speed, rel=1e-3)


# ---- force


@pytest.mark.parametrize("force", [20.0, 60.0, 120.0, 235.0])
def test_each_pad_presses_with_the_force_limit_and_does_not_vibrate(scene, force):
    hold(scene, block(mass=0.1), force)
    measured = []
    for _ in range(20):
        wait(scene, 1, 0.0, force)
        measured.append(scene.pad_forces(CLOSING))
    np.testing.assert_allclose(np.array(measured), force, rtol=0.01)
    assert np.abs(scene.data.qvel).max() < 0.01


def test_the_real_force_may_differ_from_the_commanded_one(scene):
    hold(scene, block(), 100.0, gripper_force_scale=0.8)
    wait(scene, 5, 0.0, 100.0)
    np.testing.assert_allclose(scene.pad_forces(CLOSING), 80.0, rtol=0.01)


def test_a_round_object_is_held_with_the_same_force(scene):
    for spec in (SPHERE, CYLINDER):
        hold(scene, spec, 50.0)
        np.testing.assert_allclose(scene.pad_forces(CLOSING), 50.0, rtol=0.01)


def test_a_change_of_the_opening_on_the_near_side_does_not_let_go(scene):
    hold(scene, block(), 40.0)
    for opening in (0.01, 0.0, 0.02, 0.005):
        wait(scene, 1, opening, 40.0)
        np.testing.assert_allclose(scene.pad_forces(CLOSING), 40.0, rtol=0.05)


def test_opening_lets_go_at_once(scene):
    hold(scene, block(), 235.0)
    wait(scene, 20, 0.0, 235.0)
    wait(scene, 1, gripper.STROKE, 235.0)
    assert scene.pad_forces(CLOSING).max() == 0.0
    assert scene.opening() > 0.042


# ---- friction

SPHERE = ObjectSpec("sphere", (Part("sphere", (0.02,)),), 0.2, 0.8, 0)
CYLINDER = ObjectSpec("cylinder", (Part("cylinder", (0.02, 0.03)),), 0.2, 0.8, 0)


@pytest.mark.parametrize(("mass", "friction", "force"), [(0.05, 0.4, 20.0), (1.0, 0.6, 40.0)])
def test_a_held_block_stays_for_ten_seconds(scene, mass, friction, force):
    hold(scene, block(mass, friction), force)
    before = in_hand(scene)
    wait(scene, 200, 0.0, force)
    assert np.abs(in_hand(scene) - before).max() < 0.05


@pytest.mark.parametrize("friction", [0.2, 0.6, 1.2])
@pytest.mark.parametrize("mass", [0.05, 0.2, 1.0])
def test_slip_begins_where_coulomb_says(scene, mass, friction):
    spec = block(mass, friction)
    hold(scene, spec, 2.0 * spec.holding_force)
    slid = {}
    for share in (1.03, 0.98):
        before = in_hand(scene)
        wait(scene, 10, 0.0, share * spec.holding_force)
        slid[share] = before[2] - in_hand(scene)[2]
    assert slid[1.03] < 0.6  # mm in half a second
    assert slid[0.98] > 10.0


def test_a_sliding_block_falls_as_fast_as_friction_lets_it(scene):
    for mass, friction, share in ((1.0, 0.2, 0.5), (1.0, 0.3, 0.8), (0.5, 0.2, 0.9)):
        spec = block(mass, friction)
        hold(scene, spec, 1.5 * spec.holding_force)
        before = in_hand(scene)[2]
        wait(scene, 3, 0.0, share * spec.holding_force)
        fallen = (before - in_hand(scene)[2]) / 1000.0
        assert 2.0 * fallen / 0.15**2 == pytest.approx(9.81 * (1.0 - share), rel=0.25)


def test_fingers_drawn_off_a_block_too_heavy_to_lift_slide_at_the_speed_of_the_arm(scene, read):
    """10 kg on the table, held with 2 * 0.4 * 20 N. A slip is labelled once per 5 mm."""
    spec = block(mass=10.0, friction=0.4)
    low = PLACE.copy()
    low[2] = TABLE_HEIGHT + 0.02
    begin = joints_at(low)
    scene.reset(Start(spec, low, 0.0, 1.0, begin))
    for _ in range(14):
        scene.advance_servo(begin, begin, command(0.0, 20.0))
    before, grasp = in_hand(scene), begin
    placed = scene.object_pose()[0]
    tracker, at_slips = SlipTracker(), [before[2]]
    for _ in range(2):  # held, then settled
        tracker.update(*read(scene))
    for step in range(1, 13):
        goal = joints_at(low + np.array([0.0, 0.0, 0.0025 * min(step, 8)]))
        scene.advance_servo(grasp, goal, command(0.0, 20.0))
        grasp = goal
        if tracker.update(*read(scene)).slip:
            at_slips.append(in_hand(scene)[2])
    assert len(at_slips) in (3, 4)
    assert (-np.diff(at_slips) > 5.0).all()
    assert (-np.diff([*at_slips, in_hand(scene)[2]]) < 10.1).all()  # 2.5 mm to a step, one without contact
    slid = before[2] - in_hand(scene)[2]
    assert slid == pytest.approx(20.0, rel=0.02)
    np.testing.assert_allclose(scene.object_pose()[0], placed, atol=2e-4)
    assert scene.pad_forces(CLOSING).mean() == pytest.approx(20.0, rel=0.03)


def test_a_lifted_block_that_slides_out_of_the_pads_is_labelled_as_slips_and_one_drop(scene, read):
    spec = block(mass=1.0, friction=0.2)
    hold(scene, spec, 2.0 * spec.holding_force)
    tracker, joints = SlipTracker(), JOINTS

    def move(height: float, force: float) -> SlipLabels:
        nonlocal joints
        goal = joints_at(PLACE + np.array([0.0, 0.0, height]))
        scene.advance_servo(joints, goal, command(0.0, force))
        joints = goal
        return tracker.update(*read(scene))

    lifting = [move(min(0.005 * step, 0.06), 2.0 * spec.holding_force) for step in range(18)]
    assert lifting == [SlipLabels(slip=False, drop=False)] * 18
    at_slips, at_drops = [in_hand(scene)[2]], []
    for _ in range(20):
        label = move(0.06, 0.95 * spec.holding_force)
        if label.slip:
            assert not at_drops
            at_slips.append(in_hand(scene)[2])
        if label.drop:
            at_drops.append(in_hand(scene)[2])
    assert len(at_slips) >= 4
    assert (-np.diff(at_slips) > 5.0).all()
    assert len(at_drops) == 1
    assert at_drops[0] < -1000.0 * (0.02 + gripper.TIP)  # its upper edge has left the pads' tips


@pytest.mark.parametrize("width", [0.01, 0.02, 0.05])
def test_the_whole_force_reaches_objects_of_any_width(scene, width: float):
    scene.model.opt.gravity[2] = 0.0
    scene.reset(start(box((width, 0.04, 0.04), mass=0.2, friction=0.8)))
    wait(scene, 20, 0.0, gripper.FORCE_MAX)
    np.testing.assert_allclose(scene.pad_forces(CLOSING), gripper.FORCE_MAX, rtol=0.03)
    wait(scene, 10, 0.0, 60.0)
    np.testing.assert_allclose(scene.pad_forces(CLOSING), 60.0, rtol=0.03)
    wait(scene, 1, gripper.STROKE, 60.0)  # opens at once
    assert scene.opening() > width + 0.004


# ---- osc


def test_the_gripper_is_the_same_in_osc_mode():
    scene = RobosuiteScene("osc", own_gripper=True)
    free_air(scene)
    for _ in range(8):
        scene.advance_osc(command(0.04, 40.0), np.zeros(3))
    assert scene.opening() == pytest.approx(0.04, abs=1e-4)
    scene.model.opt.gravity[2] = 0.0
    scene.reset(start(block()))
    for _ in range(10):
        scene.advance_osc(command(0.0, 40.0), np.zeros(3))
    np.testing.assert_allclose(scene.pad_forces(CLOSING), 40.0, rtol=0.03)
