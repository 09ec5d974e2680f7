"""The operational space law by hand, and its stepping against robosuite's own, bit by bit."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import zlib
from pathlib import Path

import mujoco
import numpy as np
import pytest

from grasp_sim import osc, robosuite_osc, ur5e
from grasp_sim.contract import Command
from grasp_sim.objects import box
from grasp_sim.robosuite_fingers import ROBOTIQ_SPEED, RobotiqRule
from grasp_sim.robosuite_osc import OscStepper
from grasp_sim.robosuite_scene import Lift, RobosuiteScene
from grasp_sim.scene import TABLE_HEIGHT, Start

SUBSTEPS = 25
TOOL = "gripper0_right_grip_site"
FINGERS = ("gripper0_right_finger_1", "gripper0_right_finger_2")
STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


def make_lift() -> Lift:
    """robosuite's Lift as it comes, but quick to reset."""
    return Lift(
        robots="UR5e",
        gripper_types="Robotiq85Gripper",
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        control_freq=20,
        ignore_done=True,
        hard_reset=False,
        seed=0,
    )


def scaled(action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What robosuite makes of the first six numbers of its action: a displacement in m, a turn in rad."""
    clipped = np.clip(action[:6], -1.0, 1.0)
    return clipped[:3] * 0.05, clipped[3:] * 0.5


class Ported:
    """The same scene stepped by the port; robosuite builds it and resets it."""

    def __init__(self) -> None:
        self.lift = make_lift()
        self.model, self.data = self.lift.sim.model._model, self.lift.sim.data._data
        self.stepper = OscStepper(self.model, self.data, tool_site=TOOL, gripper_actuators=FINGERS)

    def reset(self, seed: int) -> None:
        reset(self.lift, seed)
        self.start = np.array(self.lift.robots[0]._joint_positions)
        self.stepper.reset(self.start)
        self.rule = RobotiqRule(self.model.actuator(FINGERS[0]).ctrlrange)

    def step(self, action: np.ndarray) -> bool:
        fingers = np.full((SUBSTEPS, 2), self.rule.step(action[6]))
        return self.stepper.step(*scaled(action), fingers)

    def save(self) -> tuple:
        physics = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, self.data, physics, STATE)
        return physics, self.rule.command, self.start, self.stepper.save()

    def restore(self, saved: tuple) -> None:
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, saved[0], STATE)
        self.rule.command = saved[1]
        self.stepper.restore(*saved[2:])


def reset(lift: Lift, seed: int) -> None:
    lift.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    lift.reset()


def towards_cube(lift: Lift, rng: np.random.Generator) -> np.ndarray:
    """A random action (7,) that hits cube and table before long."""
    action = rng.uniform(-1.2, 1.2, size=7)
    cube = lift.sim.data.body_xpos[lift.cube_body_id]
    tool = lift.sim.data.get_site_xpos(TOOL)
    action[:3] += 10.0 * (cube - [0.0, 0.0, 0.03] - tool)
    return action


def touching(lift: Lift) -> set[str]:
    """What the gripper touches."""
    model, contact = lift.sim.model, lift.sim.data.contact
    pairs = [{model.geom_id2name(geom) or "" for geom in contact[i].geom} for i in range(lift.sim.data.ncon)]
    return {
        other
        for pair in pairs
        for other in pair & {"cube_g0", "table_collision"}
        if any(name.startswith("gripper0_") for name in pair)
    }


def state(data: mujoco.MjData) -> list[bytes]:
    return [np.array(part).tobytes() for part in (data.qpos, data.qvel, data.ctrl, data.qacc_warmstart)]


@pytest.fixture(scope="module")
def plain() -> Lift:
    return make_lift()


@pytest.fixture(scope="module")
def ported() -> Ported:
    return Ported()


def run(ported: Ported, seed: int, steps: int) -> list[bytes]:
    ported.reset(seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        assert ported.step(rng.uniform(-1.0, 1.0, size=7))
    return state(ported.data)


# ---- against robosuite


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_it_equals_robosuite_to_the_last_bit(plain, ported, seed):
    reset(plain, seed)
    ported.reset(seed)
    rng = np.random.default_rng(seed)
    touched = set()
    for step in range(200):
        action = towards_cube(plain, rng)
        plain.step(action)
        assert ported.step(action)
        assert state(plain.sim.data._data) == state(ported.data), f"step {step}"
        touched |= touching(plain)
    assert touched == {"cube_g0", "table_collision"}


def test_the_scene_equals_robosuite_to_the_last_bit():
    """The scene's own reset and commands, against robosuite's controllers on the same model."""
    start = Start(
        box((0.04, 0.04, 0.04), mass=0.1, friction=1.0),
        np.array([0.56, 0.02, TABLE_HEIGHT + 0.02]),
        0.3,
        1.0,
        joint_positions=ur5e.HOME + 0.05,
    )
    ours, theirs = RobosuiteScene("osc"), RobosuiteScene("osc")
    ours.reset(start)
    theirs.reset(start)
    begin = theirs.data.qpos.copy()
    theirs.suite.robots[0].init_qpos = start.joint_positions
    theirs.suite.reset()
    theirs.data.qpos[:] = begin
    theirs.data.qacc_warmstart[:] = 0.0
    mujoco.mj_forward(theirs.model, theirs.data)
    rng = np.random.default_rng(0)
    for step in range(60):
        action = rng.uniform(-1.0, 1.0, size=7)
        action[[2, 3, 4]] = -0.3, 0.0, 0.0
        action[6] = -1.0 if step % 20 < 10 else 1.0
        theirs.suite.step(action)
        opening = 0.085 if action[6] < 0.0 else 0.0
        move, turn = scaled(action)
        ours.advance_osc(Command(move, 0.0, opening, 20.0), turn)
        assert state(ours.data) == state(theirs.data), f"step {step}"
    assert not ours.faulty


def test_its_gains_and_scales_are_robosuites(plain):
    reset(plain, 0)
    controller = plain.robots[0].composite_controller.part_controllers["right"]
    np.testing.assert_array_equal(controller.kp, osc.STIFFNESS)
    np.testing.assert_array_equal(controller.kd, 2.0 * np.sqrt(osc.STIFFNESS) * osc.DAMPING_RATIO)
    np.testing.assert_array_equal(controller.output_max[:3], osc.POSITION_SCALE)
    np.testing.assert_array_equal(controller.output_max[3:], osc.ROTATION_SCALE)
    assert plain.robots[0].gripper["right"].speed == ROBOTIQ_SPEED
    assert int(plain.control_timestep / plain.model_timestep) == SUBSTEPS


def test_another_model_in_the_process_changes_nothing(ported):
    expected = run(ported, 5, 20)
    other = Ported()
    assert run(other, 5, 20) == expected
    assert run(ported, 5, 20) == expected
    del other
    assert run(ported, 5, 20) == expected


def run_in_child(connection) -> None:
    connection.send(run(Ported(), 7, 15))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_works_in_a_child_process(ported, method):
    expected = run(ported, 7, 15)
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=run_in_child, args=(sender,))
    child.start()
    sender.close()
    assert receiver.recv() == expected
    child.join()


# ---- saving


@pytest.mark.parametrize("before", [0, 1, 30])
def test_it_continues_from_a_saved_state(ported, before):
    run(ported, 4, before)
    saved = ported.save()
    actions = np.random.default_rng(9).uniform(-1.0, 1.0, size=(20, 7))
    for action in actions:
        ported.step(action)
    expected = state(ported.data)
    run(ported, 6, 3)
    ported.restore(saved)
    for action in actions:
        ported.step(action)
    assert state(ported.data) == expected


def test_what_it_saves_is_a_copy(ported):
    run(ported, 4, 1)
    saved = ported.stepper.save()
    ported.reset(5)
    np.testing.assert_array_equal(saved, [1.0])


# ---- faults


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> None:
    """MuJoCo writes its log into the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("index", [0, 5])
@pytest.mark.usefixtures("elsewhere")
def test_an_action_that_is_not_finite_is_a_fault(ported, index):
    ported.reset(0)
    action = np.zeros(6)
    action[index] = np.nan
    assert not ported.stepper.step(*scaled(action), np.zeros((SUBSTEPS, 2)))


@pytest.mark.usefixtures("elsewhere")
def test_a_gripper_control_that_is_not_finite_is_a_fault(ported):
    ported.reset(0)
    assert not ported.stepper.step(np.zeros(3), np.zeros(3), np.full((SUBSTEPS, 2), np.nan))


@pytest.mark.parametrize("part", ["qpos", "qvel"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e12])
@pytest.mark.usefixtures("elsewhere")
def test_a_bad_state_is_a_fault_until_the_reset(ported, part, value):
    ported.reset(0)
    getattr(ported.data, part)[2] = value
    assert not ported.step(np.zeros(7))
    assert not ported.step(np.zeros(7))
    assert len(run(ported, 0, 3)) == 4


def test_it_must_be_reset_first(ported):
    fresh = OscStepper(ported.model, ported.data, tool_site=TOOL, gripper_actuators=FINGERS)
    with pytest.raises(RuntimeError, match=r"before OscStepper\.reset"):
        fresh.step(np.zeros(3), np.zeros(3), np.zeros((SUBSTEPS, 2)))
    with pytest.raises(RuntimeError, match=r"before OscStepper\.reset"):
        fresh.save()


@pytest.mark.parametrize("joints", [np.zeros(5), np.full(6, np.nan)])
def test_it_starts_from_six_finite_joints(ported, joints):
    with pytest.raises(ValueError, match="6 finite joint positions"):
        ported.stepper.reset(joints)


def test_the_base_must_stand_still(ported):
    with pytest.raises(ValueError, match="moves"):
        OscStepper(ported.model, ported.data, tool_site=TOOL, gripper_actuators=FINGERS, base_site=TOOL)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", "0.1.2")
    with pytest.raises(RuntimeError, match=r"libmujoco\.so\.0\.1\.2"):
        robosuite_osc._load_library()


# ---- grippers


def test_any_arm_of_six_joints_takes_any_gripper():
    """Sliding fingers with position actuators, whose controls differ from substep to substep."""
    links = "".join(
        f"<body pos='0.2 0 0.1'><joint name='robot0_{name}' axis='{axis}'/><geom size='0.05'/>"
        for name, axis in zip(
            ur5e.JOINT_NAMES, ("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "0 0 1"), strict=True
        )
    )
    motors = "".join(
        f"<motor name='robot0_torq_j{i + 1}' joint='robot0_{name}' ctrlrange='-100 100'/>"
        for i, name in enumerate(ur5e.JOINT_NAMES)
    )
    fingers = "".join(
        f"<body pos='0 {sign}.1 0'><joint name='{name}' type='slide' axis='0 {sign}1 0'/>"
        "<geom size='0.02'/></body>"
        for name, sign in (("left", ""), ("right", "-"))
    )
    positions = "".join(
        f"<position name='{name}' joint='{name}' kp='100' ctrlrange='0 0.04'/>" for name in ("right", "left")
    )
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody><site name='base'/>{links}<site name='tool'/>{fingers}{'</body>' * 6}"
        f"</worldbody><actuator>{positions}{motors}</actuator></mujoco>"
    )
    data = mujoco.MjData(model)
    data.qpos[:6] = 0.5
    stepper = OscStepper(model, data, tool_site="tool", gripper_actuators=("left", "right"), base_site="base")
    stepper.reset(data.qpos[:6])
    mujoco.mj_kinematics(model, data)
    before = data.site("tool").xpos.copy()
    for _ in range(4):
        assert stepper.step(np.array([0.0, 0.0, 1.0]), np.zeros(3), np.linspace((0, 0.01), (0.03, 0.05), 25))
    assert data.ctrl[:2].tolist() == [0.04, 0.03]
    assert data.site("tool").xpos[2] > before[2] + 0.01
    assert data.time == pytest.approx(4 * 25 * model.opt.timestep)


def test_the_gripper_command_moves_by_a_fifth_and_stops_at_its_ends():
    rule = RobotiqRule(np.array([0.0, 0.8]))
    assert rule.step(0.3) == pytest.approx(0.48)
    assert rule.step(0.0) == pytest.approx(0.48)
    assert [rule.step(-1.0) for _ in range(10)][-1] == 0.0
    assert rule.command == -1.0


# ---- the law by hand


def law(**changes) -> np.ndarray:
    """Torques of an arm of six sliders and hinges along the axes, at rest at its goal, but for `changes`."""
    arguments = {
        "goal_position": np.zeros(3),
        "goal_rotation": np.eye(3),
        "position": np.zeros(3),
        "rotation": np.eye(3),
        "linear_velocity": np.zeros(3),
        "angular_velocity": np.zeros(3),
        "jacobian": np.eye(6),
        "mass_matrix": np.eye(6),
        "bias": np.zeros(6),
        "joint_positions": np.zeros(6),
        "joint_velocities": np.zeros(6),
        "posture": np.zeros(6),
        "stiffness": osc.STIFFNESS,
        "damping_ratio": osc.DAMPING_RATIO,
    }
    return osc.joint_torques(*(arguments | changes).values())


MASSES = np.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.3])


def test_at_the_goal_only_the_bias_is_compensated():
    bias = np.arange(6.0)
    np.testing.assert_allclose(law(bias=bias), bias, atol=1e-12)


def test_the_error_accelerates_the_tool_by_the_stiffness():
    torques = law(goal_position=np.array([0.01, 0.0, -0.02]), mass_matrix=np.diag(MASSES))
    np.testing.assert_allclose(torques, [1.5, 0.0, -9.0, 0.0, 0.0, 0.0], atol=1e-12)


def test_the_orientation_error_is_the_sine_about_the_axis():
    turned = np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    torques = law(goal_rotation=turned, mass_matrix=np.diag(MASSES))
    np.testing.assert_allclose(torques, [0.0, 0.0, 0.0, 0.0, 0.0, 0.3 * 150.0 * 0.6], atol=1e-12)


def test_motion_is_damped_critically():
    torques = law(linear_velocity=np.array([0.0, 1.0, 0.0]), angular_velocity=np.array([0.5, 0.0, 0.0]))
    np.testing.assert_allclose(torques, [0.0, -2.0 * 150**0.5, 0.0, -(150**0.5), 0.0, 0.0], atol=1e-12)


def test_stiffness_and_damping_ratio_are_what_they_say():
    torques = law(
        goal_position=np.array([1.0, 0.0, 0.0]),
        linear_velocity=np.array([1.0, 0.0, 0.0]),
        stiffness=25.0,
        damping_ratio=0.5,
    )
    np.testing.assert_allclose(torques[0], 25.0 - 2.0 * 5.0 * 0.5, atol=1e-12)


def test_the_posture_moves_only_joints_that_leave_the_tool_alone():
    jacobian = np.eye(6)
    jacobian[5, 5] = 0.0
    torques = law(
        jacobian=jacobian,
        mass_matrix=np.diag(MASSES),
        posture=np.full(6, 0.1),
        joint_velocities=np.full(6, 1.0),
    )
    np.testing.assert_allclose(torques, [0.0] * 5 + [0.3 * (1.0 - 2.0 * 10**0.5)], atol=1e-12)


def test_position_and_orientation_are_uncoupled():
    """A force needs the inertia seen along it alone, so the torque it causes about the tool is left to be."""
    mass = np.eye(6)
    mass[0, 3] = mass[3, 0] = 0.5
    torques = law(goal_position=np.array([0.01, 0.0, 0.0]), mass_matrix=mass)
    np.testing.assert_allclose(torques, [1.5 * 0.75, 0.0, 0.0, 0.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"mass_matrix": np.zeros((6, 6))},
        {"mass_matrix": np.full((6, 6), np.nan)},
        {"mass_matrix": 1e-200 * np.eye(6), "jacobian": 1e200 * np.eye(6)},
        {"jacobian": np.full((6, 6), np.inf)},
        {"goal_position": np.array([np.nan, 0.0, 0.0])},
        {"goal_rotation": np.full((3, 3), np.nan)},
        {"bias": np.full(6, np.inf)},
        {"posture": np.full(6, np.nan)},
    ],
)
def test_the_law_gives_nan_where_it_has_no_answer(changes):
    assert np.isnan(law(**changes)).all()


def test_the_goal_moves_along_the_axes_of_the_base():
    """The base stands at (1, 2, 3), its x axis along y: forwards is along y, and turns are about its axes."""
    base = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    position, rotation = osc.goal_pose(
        np.array([5.0, 5.0, 5.0]),
        np.eye(3),
        np.array([0.1, 0.0, 0.2]),
        osc.quaternion_of(np.array([np.pi / 2.0, 0.0, 0.0])),
        np.array([1.0, 2.0, 3.0]),
        base,
    )
    np.testing.assert_allclose(position, [5.0, 5.1, 5.2], atol=1e-12)
    np.testing.assert_allclose(rotation, [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], atol=1e-6)


def test_rotations_of_vectors():
    np.testing.assert_array_equal(osc.quaternion_of(np.zeros(3)), [0.0, 0.0, 0.0, 1.0])
    half = np.sqrt(0.5)
    quaternion = osc.quaternion_of(np.array([0.0, 0.0, np.pi / 2.0]))
    np.testing.assert_allclose(quaternion, [0.0, 0.0, half, half])
    np.testing.assert_allclose(osc.rotation_of(quaternion), [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-6)
    np.testing.assert_array_equal(osc.rotation_of(np.zeros(4)), np.eye(3))


# ---- compiled code on disk

NOT_WRITABLE = """
from numba.core import caching
caching.CacheImpl._locator_classes = []
import numpy as np
from grasp_sim import osc
print(osc.rotation_of(np.array([0.0, 0.0, 0.0, 1.0])).tolist())
"""


def test_it_compiles_without_a_folder_to_keep_the_result():
    done = subprocess.run([sys.executable, "-c", NOT_WRITABLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]"


def test_a_changed_law_is_compiled_anew():
    """numba looks at the date of one file and at the closure, but a step holds the law's code too."""
    held = [cell.cell_contents for cell in robosuite_osc._advance.py_func.__closure__]
    assert held == [robosuite_osc._LAW_VERSION]
    assert zlib.crc32(Path(osc.__file__).read_bytes()) + 1 == robosuite_osc._LAW_VERSION
