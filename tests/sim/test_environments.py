"""The contract that every registered environment keeps, in every control mode, on its real simulator."""

import copy
import gc
import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
import pybullet
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO

from grasp_sim import contract, gripper, registry, ur5e
from grasp_sim.contract import ContractError, encode, pack_state
from grasp_sim.env import GraspEnv
from grasp_sim.errors import UserError
from grasp_sim.expert import ScriptedExpert, perform
from grasp_sim.objects import box
from grasp_sim.randomization import RandomizationConfig
from grasp_sim.scene import Physics
from grasp_sim.tasks import TASKS, Difficulty, ObjectsConfig

OPEN = np.array([0, 0, 0, 0, 1, 0], dtype=np.float32)
WIDE = {
    "mass": [0.7, 1.4],
    "friction": [0.8, 1.2],
    "damping": [0.5, 3.0],
    "actuator_gain": [0.8, 1.2],
    "gripper_speed": [0.6, 1.0],
    "gripper_force": [0.9, 1.1],
    "object_latency": [0.03, 0.12],
    "action_delay": [1, 2],
    "object_position_offset": 0.003,
    "joint_noise": 0.0005,
    "force_noise": 0.5,
}
ALL = [(name, mode) for name in registry.names() for mode in registry.CONTROL_MODES]
IDS = [f"{name}-{mode}" for name, mode in ALL]
EACH_SIMULATOR = [(name, mode) for name, mode in ALL if name.endswith("-objects")]


@lru_cache
def build(name: str, mode: str) -> GraspEnv:
    """One environment of each sort for all tests: what came before must not matter anyway."""
    return registry.make(name, control_mode=mode, seed=0)


@pytest.fixture(params=ALL, ids=IDS)
def env(request: pytest.FixtureRequest) -> GraspEnv:
    return build(*request.param)


@pytest.fixture(params=EACH_SIMULATOR, ids=lambda p: "-".join(p))
def objects_env(request: pytest.FixtureRequest) -> GraspEnv:
    """One task in each simulator and control mode, for what does not depend on the task."""
    return build(*request.param)


def twin(env: GraspEnv, **settings) -> GraspEnv:
    name = f"{env.simulator}-{env.task.name}"
    return registry.make(name, control_mode=env.control_mode, **settings)


def actions(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.2, 1.2, size=(count, 6)).astype(np.float32)


def rows(env: GraspEnv, sequence: np.ndarray) -> np.ndarray:
    """The packed true states that a sequence of actions leads through."""
    return np.stack([pack_state(env.step(action)[4]["true_state"]) for action in sequence])


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_accepts_it(env: GraspEnv) -> None:
    check_env(env, skip_render_check=True)


def test_spaces_types_and_start(env: GraspEnv) -> None:
    observation, info = env.reset(seed=3)
    state = info["state"]
    assert observation.shape == env.observation_space.shape == (contract.OBSERVATION_DIM,)
    assert observation.dtype == env.observation_space.dtype == np.float32
    assert env.action_space.shape == (contract.ACTION_DIM,)
    np.testing.assert_array_equal(observation, encode(state))
    np.testing.assert_allclose(state.joint_positions, info["start"].joint_positions, atol=1e-6)
    np.testing.assert_allclose(state.object_position, info["start"].object_position, atol=1e-6)
    assert contract.yaw_of(state.object_quaternion) == pytest.approx(info["start"].object_yaw, abs=1e-6)
    np.testing.assert_allclose(state.object_size, info["start"].object.size)
    assert state.gripper_opening == pytest.approx(0.085, abs=0.002)
    assert state.gripper_force == 0.0
    assert state.time == 0.0
    assert set(env.versions()) >= {"pybullet"} or set(env.versions()) >= {"mujoco", "robosuite"}
    observation, reward, terminated, truncated, info = env.step(OPEN)
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert observation.dtype == np.float32
    assert all(type(info[k]) is bool for k in ("success", "grasped", "slip", "drop", "broken", "sim_fault"))
    assert info["true_state"].time == pytest.approx(0.05)


def test_the_tcp_is_where_the_contracts_kinematics_puts_it(env: GraspEnv) -> None:
    env.reset(seed=0)
    kinematics = ur5e.Kinematics()
    for action in actions(5):
        state = env.step(action)[4]["state"]
        position, quaternion = kinematics.forward(state.joint_positions)
        np.testing.assert_array_equal(state.tcp_position, position)
        np.testing.assert_array_equal(state.tcp_quaternion, quaternion)


def test_a_seed_fixes_the_episode_whatever_came_before(env: GraspEnv) -> None:
    env.reset(seed=11)
    first = rows(env, actions(8))
    np.random.seed(5)  # noqa: NPY002 (global state must not matter)
    random.seed(5)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    env.reset(seed=12)
    other = rows(env, actions(5))
    assert (other[0] != first[0]).any()
    env.reset(seed=11)
    np.testing.assert_array_equal(rows(env, actions(8)), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_every_simulator_starts_the_same_problem_from_a_seed() -> None:
    for task in TASKS:
        names = [name for name in registry.names() if name.split("-", 1)[1] == task]
        starts = {build(name, "servo").reset(seed=5)[1]["start"].to_json() for name in names}
        assert len(names) == 2
        assert len(starts) == 1


def test_a_time_out_truncates_and_shows_the_true_last_observation(env: GraspEnv) -> None:
    env = twin(env, horizon=3)
    env.reset(seed=0)
    steps = [env.step(action) for action in actions(3)]
    assert [step[2:4] for step in steps] == [(False, False), (False, False), (False, True)]
    np.testing.assert_array_equal(steps[-1][0], encode(steps[-1][4]["state"]))
    assert (steps[-1][0] != steps[-2][0]).any()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(OPEN)
    env.close()


def test_a_bad_action_is_refused_and_changes_nothing(env: GraspEnv) -> None:
    env.reset(seed=0)
    before = env.snapshot()
    with pytest.raises(ContractError, match="finite"):
        env.step(np.full(6, np.nan, dtype=np.float32))
    with pytest.raises(ContractError, match="shape"):
        env.step(np.zeros(7, dtype=np.float32))
    for wrong in ("abcdef", ["a"] * 6, [[1], [2, 3]], [1e300] * 6, None):
        with pytest.raises(ContractError, match="an action"):
            env.step(wrong)  # type: ignore[arg-type]
    after = env.snapshot()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


def test_requested_and_executed_actions_are_both_reported(env: GraspEnv) -> None:
    env.reset(seed=0)
    requested = np.array([2.0, -3.0, 0.5, 0.0, 1.0, 0.0], dtype=np.float32)
    info = env.step(requested)[4]
    np.testing.assert_array_equal(info["requested_action"], requested)
    np.testing.assert_array_equal(info["executed_action"], np.clip(requested, -1, 1))


@pytest.mark.parametrize("where", ["positions", "velocities"])
def test_a_state_that_is_not_finite_is_a_fault_and_the_next_episode_is_well(
    env: GraspEnv, where: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    env.reset(seed=0)
    last = env.step(OPEN)[0]
    poison(env, where)
    observation, reward, terminated, truncated, info = env.step(OPEN)
    assert (terminated, truncated) == (False, True)
    assert info["sim_fault"]
    assert not info["success"]
    assert reward == 0.0
    np.testing.assert_array_equal(observation, last)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(OPEN)[0], last)


def poison(env: GraspEnv, where: str) -> None:
    """Make the simulator's state not finite."""
    scene: Any = env._scene
    if env.simulator == "robosuite":
        (scene.data.qpos if where == "positions" else scene.data.qvel)[2] = np.nan
    else:
        values = (np.nan, 0.0) if where == "positions" else (-1.0, np.nan)
        pybullet.resetJointState(scene.robot, 2, *values, physicsClientId=scene.client)


def test_environments_in_one_process_do_not_touch_each_other(env: GraspEnv) -> None:
    env.reset(seed=4)
    alone = rows(env, actions(6))
    other, third = twin(env), twin(env)
    other.reset(seed=4)
    third.reset(seed=9)
    mixed = []
    for number, action in enumerate(actions(6)):
        mixed.append(pack_state(other.step(action)[4]["true_state"]))
        if number < 3:
            third.step(-action)
        elif number == 3:
            third.close()
    np.testing.assert_array_equal(np.stack(mixed), alone)
    other.close()


@pytest.mark.parametrize("warm_up", [0, 7])
def test_a_snapshot_restores_bit_exactly_in_another_environment(env: GraspEnv, warm_up: int) -> None:
    env.reset(seed=4)
    for action in actions(warm_up, seed=1):
        env.step(action)
    saved = env.snapshot()
    assert all(isinstance(value, np.ndarray) for value in saved.values())
    expected = rows(env, actions(6))
    env.reset(seed=6)
    rows(env, actions(3))
    observation, info = env.restore(saved)
    np.testing.assert_array_equal(observation, encode(info["state"]))
    np.testing.assert_array_equal(rows(env, actions(6)), expected)


def test_a_snapshot_in_the_middle_of_a_grasp_restores_into_another_environment(
    env: GraspEnv,
) -> None:
    # robosuite's own gripper has no force to scale.
    other = twin(env, randomization=RandomizationConfig(**{**WIDE, "gripper_force": [1.0, 1.0]}))
    expert = ScriptedExpert(env.action_scale, env.control_mode, env.task.grip_force)
    _, info = env.reset(seed=2)
    for _ in range(90):
        if expert.phase == "lift":
            break
        info = env.step(expert.act(info["state"]))[4]
    assert expert.phase == "lift"
    saved = env.snapshot()
    lift = np.tile(np.array([0, 0, 0.3, 0, -1, expert.force], dtype=np.float32), (5, 1))
    expected = rows(env, lift)
    other.reset(seed=1)
    other.restore(saved)
    np.testing.assert_array_equal(rows(other, lift), expected)
    other.close()


def test_a_moment_is_shown_from_its_dynamic_state(env: GraspEnv) -> None:
    _, info = env.reset(seed=5)
    snapshot, moments = env.snapshot(), [(env.dynamic_state(), info["true_state"])]
    expert = ScriptedExpert(env.action_scale, env.control_mode, env.task.grip_force)
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act(info["state"]))
        moments.append((env.dynamic_state(), info["true_state"]))
        over = terminated or truncated
    other = twin(env)
    for moving, state in moments[::7]:
        shown = other.show(snapshot, moving)
        for name in ("joint_positions", "joint_velocities", "tcp_position", "object_position", "time"):
            np.testing.assert_allclose(getattr(shown, name), getattr(state, name), atol=1e-9, err_msg=name)
        assert shown.gripper_opening == pytest.approx(state.gripper_opening, abs=1e-9)
        with pytest.raises(gymnasium.error.ResetNeeded):
            other.step(OPEN)
    with pytest.raises(ContractError, match="not taken in"):
        other.show(snapshot, moments[0][0][:-1])
    with pytest.raises(ContractError, match="start cannot be read"):
        other.show({}, moments[0][0])


_TRACE = """
import hashlib, sys
import numpy as np
from grasp_sim import registry
trace = hashlib.sha256()
for name, mode in (("pybullet-lift", "servo"), ("pybullet-lift", "osc"), ("robosuite-lift", "osc")):
    env = registry.make(name, control_mode=mode)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(25):
        env.step(rng.uniform(-1, 1, 6).astype(np.float32))
    trace.update(env.unwrapped.dynamic_state().tobytes())
print(trace.hexdigest())
"""


def test_an_episode_does_not_depend_on_the_number_of_threads() -> None:
    said = []
    for threads in ("1", "2", "3"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        command = [sys.executable, "-c", _TRACE]
        said.append(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert said[0] == said[1] == said[2]


def test_a_snapshot_of_another_mode_is_refused() -> None:
    servo, osc = build("robosuite-lift", "servo"), build("robosuite-lift", "osc")
    servo.reset(seed=0)
    osc.reset(seed=0)
    with pytest.raises(ContractError, match=r"servo_joint_target.*'servo'"):
        servo.restore(osc.snapshot())


def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing(objects_env: GraspEnv) -> None:
    objects_env.reset(seed=1)
    objects_env.step(OPEN)
    before = objects_env.snapshot()
    lift = build("robosuite-lift", objects_env.control_mode)
    lift.reset(seed=0)
    garbled = {**before, "start": np.frombuffer(b'{"object": 3}', dtype=np.uint8)}
    for wrong in (
        lift.snapshot(),
        {**before, "slip": np.zeros(3)},
        {**before, "sensors_drawn": np.zeros((20, 1))},
        garbled,
        {},
    ):
        with pytest.raises(ContractError, match="snapshot"):
            objects_env.restore(wrong)
        for name, value in objects_env.snapshot().items():
            np.testing.assert_array_equal(value, before[name])


def test_restoring_leaves_a_new_environments_own_episodes_alone(objects_env: GraspEnv) -> None:
    objects_env.reset(seed=1)
    env, other = twin(objects_env, seed=5), twin(objects_env, seed=5)
    env.restore(objects_env.snapshot())
    assert env.reset()[1]["start"] == other.reset()[1]["start"]
    env.close()
    other.close()


def test_it_refuses_to_be_copied_and_pickled(objects_env: GraspEnv) -> None:
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"make another one.*snapshot\(\)"):
            attempt(objects_env)


def test_closed_it_wants_a_reset(objects_env: GraspEnv) -> None:
    env = twin(objects_env)
    with pytest.raises(gymnasium.error.ResetNeeded, match="nothing to see"):
        env.render_frame()
    first = env.reset(seed=1)[0]
    env.close()
    env.close()
    for attempt in (lambda: env.step(OPEN), env.snapshot, env.render_frame):
        with pytest.raises(gymnasium.error.ResetNeeded):
            attempt()
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    env.close()


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (1.5, 10), (10, 5000)])
def test_a_picture_of_no_size_is_refused(objects_env: GraspEnv, size: Any) -> None:
    objects_env.reset(seed=0)
    with pytest.raises(UserError, match=r"picture's (width|height) is .* from 1 to 4096 pixels"):
        objects_env.render_frame(*size)


def test_a_process_without_an_error_stream_can_build_one(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    registry.make("pybullet-objects").close()


def test_scenes_that_are_dropped_give_their_client_back() -> None:
    env = registry.make("pybullet-objects")
    env.reset(seed=0)
    client = env._scene.client  # type: ignore[attr-defined]
    assert pybullet.isConnected(physicsClientId=client)
    del env
    gc.collect()
    assert not pybullet.isConnected(physicsClientId=client)


def test_the_expert_grasps_and_success_ends_with_reward_one(env: GraspEnv) -> None:
    for seed in (0, 1):
        rewards, infos = zip(*perform(env, seed), strict=True)
        info = infos[-1]
        assert info["success"], (seed, info)
        assert list(rewards) == [0.0] * (len(rewards) - 1) + [1.0]


def test_randomisation_acts_is_reported_and_fixed_by_the_seed(objects_env: GraspEnv) -> None:
    env = twin(objects_env, randomization=RandomizationConfig(**WIDE))
    first_observation, info = env.reset(seed=3)
    drawn = info["randomization"]
    assert 0.7 <= drawn["mass"] <= 1.4
    assert drawn["action_delay"] in (1, 2)
    assert info["state"].time - info["state"].object_time == pytest.approx(drawn["object_latency"])
    plain = objects_env.reset(seed=3)[1]["start"]
    assert info["start"].object.mass == pytest.approx(plain.object.mass * drawn["mass"])
    up = np.array([0, 0, 1, 0, 1, 0], dtype=np.float32)
    heights = [info["true_state"].tcp_position[2]]
    heights += [env.step(up)[4]["true_state"].tcp_position[2] for _ in range(4)]
    rises = np.diff(heights)
    assert (np.abs(rises[: drawn["action_delay"]]) < 1e-3).all()  # held until the first action arrives
    assert rises[drawn["action_delay"]] > 1e-3
    again, info = env.reset(seed=3)
    np.testing.assert_array_equal(again, first_observation)
    assert info["randomization"] == drawn
    env.close()


def test_a_randomised_episode_restores_bit_exactly_measurements_included(objects_env: GraspEnv) -> None:
    env = twin(objects_env, randomization=RandomizationConfig(**WIDE))
    env.reset(seed=3)
    for action in actions(5):
        env.step(action)
    saved = env.snapshot()
    expected = [env.step(action)[0] for action in actions(5, seed=1)]
    objects_env.reset(seed=0)
    objects_env.restore(saved)  # an environment without randomisation takes the episode's from the snapshot
    found = [objects_env.step(action)[0] for action in actions(5, seed=1)]
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))
    env.close()


@pytest.mark.parametrize("simulator", ["robosuite", "pybullet"])
def test_osc_follows_the_randomised_gain(simulator: str) -> None:
    """Critically damped: a share of 1 - (1 + w t) exp(-w t) of the way is done at t, w^2 the stiffness."""
    moved = []
    for gain in (1.0, 0.25):
        env = registry.make(
            f"{simulator}-objects",
            control_mode="osc",
            randomization=RandomizationConfig(actuator_gain=[gain, gain]),
        )
        before = env.reset(seed=0)[1]["true_state"].tcp_position[2]
        up = env.step(np.array([0, 0, 1, 0, 1, 0]))[4]["true_state"].tcp_position[2] - before
        moved.append(up / env.action_scale.position)
        env.close()
    assert moved[1] / moved[0] == pytest.approx(0.038 / 0.126, rel=0.1)


def test_an_episode_in_which_the_arm_strikes_the_table_depends_on_nothing_before_it() -> None:
    """PyBullet's own reset is not enough for that."""
    stiff = RandomizationConfig(actuator_gain=[20.0, 20.0])
    env = registry.make("pybullet-objects", control_mode="osc", randomization=stiff)
    expert = ScriptedExpert(env.action_scale, "osc", 60.0)
    _, info = env.reset(seed=1)
    taken, seen = [], []
    for _ in range(40):
        taken.append(expert.act(info["state"]))
        info = env.step(taken[-1])[4]
        seen.append(pack_state(info["true_state"]))
    for other in (99, 106):
        env.reset(seed=other)
        env.reset(seed=1)
        np.testing.assert_array_equal(rows(env, np.stack(taken)), np.stack(seen))
    env.close()


def test_what_is_handed_out_cannot_change_the_simulation(objects_env: GraspEnv) -> None:
    env = twin(objects_env, randomization=RandomizationConfig(**WIDE))
    env.reset(seed=3)
    expected = rows(env, actions(6))
    observation, info = env.reset(seed=3)
    for action in actions(6):
        observation[:] = 7.0
        for state in (info["state"], info["true_state"], info["start"]):
            for array in (state.object_position, state.joint_positions):
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 7.0
        with pytest.raises(ValueError, match="read-only"):
            info["state"].object_size[:] = 7.0
        for name in {"requested_action", "executed_action"} & set(info):
            info[name][:] = -1.0
        observation, _, _, _, info = env.step(action)
        np.testing.assert_array_equal(pack_state(info["true_state"]), expected[0])
        expected = expected[1:]
    env.close()


def test_a_given_start_stays_the_callers(objects_env: GraspEnv) -> None:
    place = np.array([0.5, 0.1, -0.05])
    start = replace(objects_env.reset(seed=0)[1]["start"], object_position=place)
    place[:] = 9.0
    info = objects_env.reset(seed=0, options={"start": start})[1]
    np.testing.assert_allclose(info["state"].object_position, [0.5, 0.1, -0.05], atol=1e-9)


def test_the_difficulty_holds_from_the_next_episode(objects_env: GraspEnv) -> None:
    env = twin(objects_env)
    env.difficulty = Difficulty(distance=0.0, height=0.0)
    start = env.reset(seed=2)[1]["start"]
    assert start.object_yaw == 0.0
    assert start.goal_height - start.object_position[2] < 0.011
    env.close()


def test_a_given_start_is_used() -> None:
    env = build("robosuite-objects", "servo")
    start = env.reset(seed=8)[1]["start"]
    given = env.reset(seed=9, options={"start": start})[1]["start"]
    assert given.to_json() == start.to_json()
    free = registry.make("robosuite-objects", randomization=RandomizationConfig(**WIDE))
    changed = replace(start, physics=Physics(damping_scale=2.0))
    info = free.reset(seed=9, options={"start": changed})[1]
    assert info["start"] == changed  # nothing of it is drawn again
    assert info["randomization"]["mass"] == 1.0
    assert info["randomization"]["action_delay"] in (1, 2)
    free.close()
    with pytest.raises(UserError, match="no reset option 'stat'"):
        env.reset(options={"stat": start})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": None}, "start is None.*scene.Start"),
        ({"start": {}}, r"start is \{\}"),
        ({1: 2, "a": 3}, "no reset option"),
        ("start", "a dictionary"),
        ([], "a dictionary"),
    ],
)
def test_wrong_reset_options_are_refused_and_change_nothing(
    objects_env: GraspEnv, options: Any, message: str
) -> None:
    objects_env.reset(seed=0)
    expected = objects_env.snapshot()
    with pytest.raises(UserError, match=message):
        objects_env.reset(options=options)
    for name, value in objects_env.snapshot().items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"object_position": np.array([np.nan, 0.0, 0.0])}, "object_position is .*finite"),
        ({"joint_positions": np.zeros(5)}, r"joint_positions has shape \(5,\).*\(6,\)"),
        ({"joint_positions": np.full(6, 50.0)}, "shoulder_pan_joint is 50 rad.*6.28"),
        ({"object_yaw": np.inf}, "object_yaw is inf"),
        ({"goal_height": np.nan}, "goal_height is nan"),
    ],
)
def test_a_start_that_no_simulator_can_begin_from_is_refused(change: dict, message: str) -> None:
    start = build("pybullet-objects", "servo").reset(seed=0)[1]["start"]
    with pytest.raises(UserError, match=message):
        replace(start, **change)


@pytest.mark.parametrize("force", [30.0, 150.0])
def test_opening_and_force_mean_the_same_in_both_simulators(force: float) -> None:
    held = []
    for simulator in ("robosuite", "pybullet"):
        env = build(f"{simulator}-objects", "servo")
        expert = ScriptedExpert(env.action_scale, "servo", force)
        start = env.reset(seed=3)[1]["start"]
        boxed = replace(start, object=box((0.05, 0.06, 0.06), mass=0.3, friction=0.8))
        _, info = env.reset(seed=3, options={"start": boxed})
        openings = []
        for _ in range(80):
            info = env.step(expert.act(info["state"]))[4]
            openings.append(info["true_state"].gripper_opening)
            if expert.phase == "lift":
                break
        for _ in range(3):
            info = env.step(expert.act(info["state"]))[4]
        state = info["true_state"]
        assert info["grasped"]
        assert state.gripper_opening == pytest.approx(0.05, abs=1e-3)
        assert state.gripper_force == pytest.approx(force, rel=0.03)
        held.append(openings)
    shorter = min(map(len, held))
    # Both close at the same speed, at the same time give or take the step on which the tool is low enough.
    falls = [np.diff(openings[:shorter]).min() for openings in held]
    assert falls[0] == pytest.approx(falls[1], rel=0.05)
    assert falls[0] == pytest.approx(-gripper.SPEED * 0.05, rel=0.05)


def test_a_scaled_force_is_refused_where_the_gripper_ignores_force() -> None:
    scaled = RandomizationConfig(gripper_force=[0.9, 1.1])
    with pytest.raises(UserError, match=r"gripper_force=\[0\.9, 1\.1\].*Robotiq 85.*pybullet-lift"):
        registry.make("robosuite-lift", randomization=scaled)
    for name in ("pybullet-lift", "robosuite-objects"):
        registry.make(name, randomization=scaled).close()


@pytest.mark.parametrize("gain", [0.25, 1.0, 4.0])
def test_the_actuator_gain_means_the_same_in_both_simulators(gain: float) -> None:
    """A loop of 80 rad/s whose stiffness is scaled answers sqrt(gain) times as fast, as damped as before."""
    errors = []
    for simulator in ("robosuite", "pybullet"):
        env = build(f"{simulator}-objects", "servo")
        start = env.reset(seed=3)[1]["start"]
        env.reset(options={"start": replace(start, physics=Physics(actuator_gain_scale=gain))})
        scene: Any = env._scene
        joints = scene.joints()[0]
        goal = joints + np.array([0.1, 0, 0, 0, 0, 0])
        command = contract.decode(OPEN, env.action_scale)
        lags = []
        for _ in range(4):
            scene.advance_servo(goal, goal, command)
            lags.append(goal[0] - scene.joints()[0][0])
        errors.append(lags)
    np.testing.assert_allclose(errors[0], errors[1], atol=0.012)
    assert min(errors[0] + errors[1]) > -0.01  # neither rings


def test_a_fragile_object_breaks_under_force(objects_env: GraspEnv) -> None:
    env = build(f"{objects_env.simulator}-fragile", objects_env.control_mode)
    reward, info = list(perform(env, 0, grip_force=90.0))[-1]
    assert info["broken"]
    assert not info["success"]
    assert reward == 0.0


def test_a_weak_grip_loses_a_slippery_object(objects_env: GraspEnv) -> None:
    env = build(f"{objects_env.simulator}-slippery", objects_env.control_mode)
    for seed in range(3):
        infos = [info for _, info in perform(env, seed, grip_force=20.0)]
        assert any(info["slip"] for info in infos)
        assert not infos[-1]["success"]


@pytest.mark.filterwarnings("ignore")
def test_stable_baselines_trains_on_it(env: GraspEnv) -> None:
    model = PPO("MlpPolicy", env, n_steps=250, batch_size=50, n_epochs=1, seed=0, device="cpu")
    model.learn(1000)
    assert model.num_timesteps == 1000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "robosuite-lfit"}, "no environment 'robosuite-lfit'.*robosuite-lift"),
        ({"name": "gazebo-lift"}, "no environment 'gazebo-lift'.*pybullet-lift"),
        ({"control_mode": "torque"}, "no control mode 'torque'.*servo, osc"),
        ({"reward": "shaped"}, "no reward 'shaped'.*sparse"),
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": float("nan")}, "horizon is nan; it must be a whole number"),
        ({"horizon": "9"}, "horizon is 9; it must be a whole number"),
        ({"objects": {"mass": [1, 2]}}, r"objects is \{.*ObjectsConfig"),
        ({"randomization": {"mass": [1, 2]}}, r"randomization is \{.*RandomizationConfig"),
        (
            {"randomization": RandomizationConfig(friction=[1.0, 20.0])},
            r"friction=\[1.0, 20.0\] times the objects' friction from 1 to 1 is 1 to 20; .* 0 to 5",
        ),
        ({"objects": ObjectsConfig(mass=[0.1, 0.2])}, "its own cube"),
    ],
)
def test_wrong_settings_are_one_clear_line(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        registry.make(**{"name": "robosuite-lift", **settings})
    assert "\n" not in str(caught.value)


def test_gymnasium_knows_every_environment() -> None:
    for name in registry.names():
        assert registry.gymnasium_id(name) in gymnasium.registry
    registry.register_gymnasium()  # a second time is harmless
    assert "grasp/PybulletObjects-v0" in gymnasium.registry


@pytest.mark.parametrize("name", registry.names())
def test_the_easiest_episode_needs_but_closing_and_lifting(name):
    env = registry.make(name).unwrapped
    env.difficulty = Difficulty(distance=0.0, height=0.0, friction=0.0, size=0.0, reach=0.0)
    share = (env.task.grip_force - env.action_scale.force_min) / (
        env.action_scale.force_max - env.action_scale.force_min
    )
    won = 0
    for seed in range(5):
        _, info = env.reset(seed=seed)
        before, over = info["true_state"].object_position, False
        for step in range(60):
            up = 0.4 if step >= 15 else 0.0
            action = np.array([0.0, 0.0, up, 0.0, -1.0, 2.0 * share - 1.0], np.float32)
            _, _, terminated, truncated, info = env.step(action)
            if step == 0:
                assert np.linalg.norm(info["true_state"].object_position - before) < 0.002
            over = terminated or truncated
            if over:
                break
        won += info["success"]
    env.close()
    assert won >= 4
