"""robosuite's Lift under the contract, on the real simulator."""

import gymnasium
import numpy as np
import pytest

from grasp_sim import contract, ur5e
from grasp_sim.contract import ContractError, encode, pack_state
from grasp_sim.expert import ScriptedExpert
from grasp_sim.registry import make
from grasp_sim.robosuite_env import RobosuiteLift

OPEN = np.array([0, 0, 0, 0, 1, 0], dtype=np.float32)


@pytest.fixture(scope="module")
def servo() -> RobosuiteLift:
    env = make("robosuite-lift")
    assert isinstance(env, RobosuiteLift)
    return env


@pytest.fixture(scope="module")
def osc() -> RobosuiteLift:
    env = make("robosuite-lift", control_mode="osc")
    assert isinstance(env, RobosuiteLift)
    return env


def actions(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.2, 1.2, size=(count, 6)).astype(np.float32)


def rows(env: RobosuiteLift, sequence: np.ndarray) -> np.ndarray:
    """The packed states that a sequence of actions leads through."""
    return np.stack([pack_state(env.step(action)[4]["state"]) for action in sequence])


def drive_until(env: RobosuiteLift, expert: ScriptedExpert, state, phase: str):
    """Let the expert act until it enters a phase; the state then."""
    expert.reset()
    for _ in range(80):
        action = expert.act(state)
        if expert.phase == phase:
            return state
        state = env.step(action)[4]["state"]
    raise AssertionError(f"the expert never reached {phase!r}")


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_accepts_it(servo):
    from gymnasium.utils.env_checker import check_env

    check_env(servo, skip_render_check=True)


def test_it_starts_as_specified(servo, osc):
    for env in (servo, osc):
        observation, info = env.reset(seed=3)
        state = info["state"]
        assert observation.shape == (contract.OBSERVATION_DIM,)
        assert observation.dtype == np.float32
        np.testing.assert_array_equal(observation, encode(state))
        assert np.abs(state.joint_positions - ur5e.HOME).max() < 0.1
        assert np.all((state.object_size >= 0.040) & (state.object_size <= 0.044))
        assert state.gripper_opening == pytest.approx(0.085, abs=0.002)
        assert state.time == 0.0
    assert env.versions().keys() == {"mujoco", "robosuite"}
    assert env.action_space.shape == (6,)


def test_the_tcp_pose_is_bit_equal_to_the_contracts_kinematics(servo):
    servo.reset(seed=0)
    kinematics = ur5e.Kinematics()
    for action in actions(5):
        state = servo.step(action)[4]["state"]
        position, quaternion = kinematics.forward(state.joint_positions)
        np.testing.assert_array_equal(state.tcp_position, position)
        np.testing.assert_array_equal(state.tcp_quaternion, quaternion)


def test_time_and_horizon(servo):
    env = make("robosuite-lift", horizon=3)
    env.reset(seed=0)
    ends = [env.step(OPEN)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(OPEN)
    servo.reset(seed=0)
    state = servo.step(OPEN)[4]["state"]
    assert state.time == pytest.approx(0.05)


# ---- actions


@pytest.mark.parametrize("mode", ["servo", "osc"])
@pytest.mark.parametrize(("axis", "sign"), [(0, 1), (1, -1), (2, 1)])
def test_a_translation_moves_the_tcp_along_the_base_axes(mode, axis, sign, servo, osc):
    env = servo if mode == "servo" else osc
    _, info = env.reset(seed=1)
    action = OPEN.copy()
    action[axis] = sign
    first = info["state"].tcp_position
    for _ in range(6):
        info = env.step(action)[4]
    moved = info["state"].tcp_position - first
    assert sign * moved[axis] > 0.04
    assert np.abs(np.delete(moved, axis)).max() < 0.25 * abs(moved[axis])


def test_the_servo_moves_as_far_as_the_action_says(servo):
    _, info = servo.reset(seed=1)
    first = info["state"]
    action = np.array([0.8, 0.0, 0.0, 0.5, 1.0, 0.0], dtype=np.float32)
    for _ in range(8):
        servo.step(action)
    for _ in range(3):
        last = servo.step(OPEN)[4]["state"]
    moved = last.tcp_position - first.tcp_position
    np.testing.assert_allclose(moved, [8 * 0.8 * 0.0125, 0.0, 0.0], atol=1e-3)
    turned = contract.yaw_of(last.tcp_quaternion) - contract.yaw_of(first.tcp_quaternion)
    assert turned == pytest.approx(8 * 0.5 * 0.1, abs=0.01)


def test_an_oscillating_heading_is_followed_within_a_step(servo):
    """With robosuite's armature the wrist saturates and swings 0.2 rad past its target."""
    servo.reset(seed=18)
    for turn in [1.0] * 6 + [-1.0] * 6 + [0.0] * 2:
        action = OPEN.copy()
        action[3] = turn
        state = servo.step(action)[4]["state"]
        assert abs(servo._servo.target_yaw - contract.yaw_of(state.tcp_quaternion)) < 0.05


def test_osc_scale_is_the_controllers_output_range(osc):
    osc.reset(seed=0)
    controller = osc._scene._osc()
    np.testing.assert_allclose(
        controller.output_max, [osc.action_scale.position] * 3 + [osc.action_scale.yaw] * 3
    )


def test_requested_and_executed_actions_are_both_reported(servo):
    servo.reset(seed=0)
    requested = np.array([2.0, -3.0, 0.5, 0.0, 1.0, 0.0], dtype=np.float32)
    info = servo.step(requested)[4]
    np.testing.assert_array_equal(info["requested_action"], requested)
    np.testing.assert_array_equal(info["executed_action"], np.clip(requested, -1, 1))


def test_a_bad_action_is_refused_and_changes_nothing(servo):
    servo.reset(seed=0)
    before = servo.snapshot()
    with pytest.raises(ContractError, match="finite"):
        servo.step(np.full(6, np.nan, dtype=np.float32))
    with pytest.raises(ContractError, match="shape"):
        servo.step(np.zeros(7, dtype=np.float32))
    after = servo.snapshot()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


# ---- gripper


def test_the_gripper_in_free_air_reaches_the_commanded_width(servo):
    """Also guards against MuJoCo 3.8 and later, where this linkage collapses at 0.41 rad."""
    servo.reset(seed=0)
    for opening, share in ((1.0, 1.0), (0.25, 0.75), (0.0, 0.5), (-0.2, 0.3), (0.5, 1.0)):
        action = np.array([0, 0, 0, 0, opening, 0], dtype=np.float32)
        for _ in range(12):
            state = servo.step(action)[4]["state"]
        assert state.gripper_opening == pytest.approx(share * 0.085, abs=0.006)
        assert state.gripper_force == 0.0
    for _ in range(10):
        state = servo.step(np.array([0, 0, 0, 0, -1, 0], dtype=np.float32))[4]["state"]
    assert state.gripper_opening < 0.015


def test_the_gripper_takes_half_a_second_to_close(servo):
    servo.reset(seed=0)
    close = np.array([0, 0, 0, 0, -1, 0], dtype=np.float32)
    openings = [servo.step(close)[4]["state"].gripper_opening for _ in range(10)]
    assert openings[2] > 0.05
    assert openings[9] < 0.02


@pytest.mark.parametrize("mode", ["servo", "osc"])
def test_the_gripper_stops_on_the_cube_and_holds_it(mode, servo, osc):
    env = servo if mode == "servo" else osc
    expert = ScriptedExpert(env.action_scale, mode)
    _, info = env.reset(seed=5)
    state = drive_until(env, expert, info["state"], "lift")
    width = state.object_size[:2]
    assert width.min() - 0.004 < state.gripper_opening < width.max() + 0.004
    assert 5.0 < state.gripper_force < 100.0
    action = np.array([0, 0, 0.1, 0, -1, 0], dtype=np.float32)
    for _ in range(20):
        _, _, _, truncated, info = env.step(action)
        assert info["grasped"]
        assert not any(info[name] for name in ("slip", "drop"))
        assert not truncated
        if info["success"]:
            break


def test_letting_go_in_the_air_is_a_drop(servo):
    expert = ScriptedExpert(servo.action_scale, "servo")
    _, info = servo.reset(seed=5)
    state = drive_until(servo, expert, info["state"], "lift")
    for _ in range(4):  # 4 steps at 40 % are 2 cm, still below success
        info = servo.step(expert.act(state))[4]
        state = info["state"]
    assert not info["success"]
    drops = [servo.step(OPEN)[4]["drop"] for _ in range(8)]
    assert sum(drops) == 1


def test_success_terminates_with_reward_one(servo):
    expert = ScriptedExpert(servo.action_scale, "servo")
    _, info = servo.reset(seed=0)
    expert.reset()
    rewards = []
    terminated = False
    while not terminated:
        _, reward, terminated, truncated, info = servo.step(expert.act(info["state"]))
        rewards.append(reward)
        assert not truncated
    assert info["success"]
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert 30 <= len(rewards) <= 60


# ---- faults


@pytest.mark.parametrize("mode", ["servo", "osc"])
@pytest.mark.parametrize("where", ["qpos", "qvel"])
def test_a_state_that_is_not_finite_ends_the_episode(mode, where, servo, osc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    env = servo if mode == "servo" else osc
    env.reset(seed=0)
    last = env.step(OPEN)[0]
    getattr(env._scene.data, where)[2] = np.nan
    observation, reward, terminated, truncated, info = env.step(OPEN)
    assert (terminated, truncated) == (False, True)
    assert info["sim_fault"]
    assert not info["success"]
    assert reward == 0.0
    np.testing.assert_array_equal(observation, last)
    env.reset(seed=0)
    assert not env.step(OPEN)[4]["sim_fault"]


# ---- snapshots


@pytest.mark.parametrize("mode", ["servo", "osc"])
@pytest.mark.parametrize("warm_up", [0, 7])
def test_replaying_from_a_snapshot_is_bit_equal(mode, warm_up, servo, osc):
    env = servo if mode == "servo" else osc
    env.reset(seed=4)
    for action in actions(warm_up, seed=1):
        env.step(action)
    snapshot = env.snapshot()
    assert all(isinstance(value, np.ndarray) for value in snapshot.values())
    first = rows(env, actions(10))
    env.reset(seed=99)
    rows(env, actions(3, seed=2))
    observation, info = env.restore(snapshot)
    np.testing.assert_array_equal(observation, encode(info["state"]))
    np.testing.assert_array_equal(rows(env, actions(10)), first)


def test_a_snapshot_in_the_middle_of_a_grasp_restores_into_another_environment(servo):
    expert = ScriptedExpert(servo.action_scale, "servo")
    _, info = servo.reset(seed=8)
    drive_until(servo, expert, info["state"], "lift")
    snapshot = servo.snapshot()
    lift = np.array([[0, 0, 0.2, 0, -1, 0]] * 6, dtype=np.float32)
    first = rows(servo, lift)
    other = make("robosuite-lift", seed=77)
    assert isinstance(other, RobosuiteLift)
    other.restore(snapshot)
    np.testing.assert_array_equal(rows(other, lift), first)


def test_a_snapshot_of_the_other_mode_is_refused(servo, osc):
    servo.reset(seed=0)
    osc.reset(seed=0)
    with pytest.raises(ContractError, match=r"servo_joint_target.*'servo'"):
        servo.restore(osc.snapshot())
