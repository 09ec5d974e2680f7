"""Domain randomisation and the sensors it acts through."""

from dataclasses import asdict, fields

import numpy as np
import pytest

from grasp_sim import randomization, ur5e
from grasp_sim.contract import GraspState, encode, yaw_of
from grasp_sim.randomization import Drawn, RandomizationConfig, RandomizationError, draw
from grasp_sim.sensing import Sensors
from grasp_sim.tasks import TASKS, Difficulty

WIDE = {
    "mass": [0.5, 2.0],
    "friction": [0.8, 1.2],
    "damping": [0.5, 2.0],
    "actuator_gain": [0.9, 1.1],
    "gripper_speed": [0.7, 1.0],
    "gripper_force": [0.9, 1.1],
    "joint_latency": [0.0, 0.02],
    "gripper_latency": [0.01, 0.1],
    "object_latency": [0.05, 0.2],
    "action_delay": [0, 3],
    "object_position_offset": 0.01,
    "object_yaw_offset": 0.1,
    "joint_noise": 0.001,
}


def state(step: int) -> GraspState:
    """A made-up true state: everything moves at constant speed, 20 Hz."""
    joints = ur5e.HOME + 0.01 * step
    position, quaternion = ur5e.Kinematics().forward(joints)
    half = 0.02 * step / 2.0
    time = step / 20.0
    return GraspState(
        joint_positions=joints,
        joint_velocities=np.full(6, 0.2),
        tcp_position=position,
        tcp_quaternion=quaternion,
        gripper_opening=0.08 - 0.002 * step,
        gripper_force=1.0 * step,
        object_position=np.array([0.5 + 0.01 * step, 0.0, 0.0]),
        object_quaternion=np.array([0.0, 0.0, np.sin(half), np.cos(half)]),
        object_size=np.full(3, 0.04),
        joint_time=time,
        gripper_time=time,
        object_time=time,
        time=time,
    )


def measured(steps: int, seed: int = 0, **drawn) -> list[GraspState]:
    sensors = Sensors(ur5e.Kinematics())
    sensors.reset(Drawn(**drawn), noise_seed=seed)
    return [sensors.measure(state(i)) for i in range(steps)]


def test_draws_lie_in_their_ranges_and_depend_on_the_generator_alone() -> None:
    config = RandomizationConfig(**WIDE)
    drawn = [draw(config, np.random.default_rng(seed)) for seed in range(300)]
    assert drawn[7] == draw(config, np.random.default_rng(7))
    for name, given in WIDE.items():
        values = np.array([getattr(d, name) for d in drawn])
        if isinstance(given, list):
            assert given[0] <= values.min() < values.max() <= given[1]
        elif "offset" in name:
            assert -given <= values.min() < 0.0 < values.max() <= given
    assert {d.action_delay for d in drawn} == {0, 1, 2, 3}


def test_one_range_does_not_change_what_others_draw() -> None:
    first = draw(RandomizationConfig(**WIDE), np.random.default_rng(0))
    second = draw(RandomizationConfig(**{**WIDE, "mass": [1.0, 1.0]}), np.random.default_rng(0))
    assert asdict(first) | {"mass": 1.0} == asdict(second)


def test_a_range_may_be_a_tuple() -> None:
    tuples = {name: tuple(given) if isinstance(given, list) else given for name, given in WIDE.items()}
    assert draw(RandomizationConfig(**tuples), np.random.default_rng(0)) == draw(
        RandomizationConfig(**WIDE), np.random.default_rng(0)
    )


def test_the_defaults_change_nothing() -> None:
    assert draw(RandomizationConfig(), np.random.default_rng(0)) == Drawn()
    start = TASKS["objects"].sample(np.random.default_rng(0), Difficulty())
    assert randomization.apply(Drawn(), start).to_json() == start.to_json()
    for given, seen in zip((state(i) for i in range(4)), measured(4), strict=True):
        assert given == seen


def test_what_is_drawn_and_what_is_configured_have_the_same_names() -> None:
    assert {f.name for f in fields(Drawn)} == {f.name for f in fields(RandomizationConfig)}


def test_packing_a_draw_is_exact() -> None:
    drawn = draw(RandomizationConfig(**WIDE), np.random.default_rng(3))
    assert Drawn.unpack(drawn.pack()) == drawn


@pytest.mark.parametrize(
    "wrong",
    [
        {"mass": 1.0},
        {"mass": None},
        {"mass": ["a", "b"]},
        {"mass": np.array([0.5, 2.0])},
        {"mass": [0.5, float("nan")]},
        {"joint_noise": [0.0, 0.1]},
        {"joint_noise": None},
        {"action_delay": 2},
        {"action_delay": [0.5, 1.5]},
    ],
)
def test_a_setting_of_another_type_is_one_clear_line(wrong: dict) -> None:
    with pytest.raises(RandomizationError, match=rf"^randomization\.{next(iter(wrong))}=.* must be "):
        RandomizationConfig(**wrong)


def test_factors_must_leave_the_objects_within_what_can_exist() -> None:
    RandomizationConfig(mass=[0.05, 20.0]).check_objects((0.02, 0.5), (1.0, 1.0))  # 0.001 to 10 kg exactly
    with pytest.raises(RandomizationError, match=r"mass=\[1.0, 2.0\].* 1 to 6 is 1 to 12; .* 0.001 to 10"):
        RandomizationConfig(mass=[1.0, 2.0]).check_objects((1.0, 6.0), (1.0, 1.0))
    with pytest.raises(RandomizationError, match="friction"):
        RandomizationConfig(friction=[1.0, 5.0]).check_objects((0.1, 0.1), (0.2, 1.2))


def test_every_task_takes_its_extreme_factors() -> None:
    for task in TASKS.values():
        config = RandomizationConfig(
            mass=[0.05, 10.0 / task.mass[1]] if task.mass[1] > 0.5 else [0.05, 20.0],
            friction=[0.05, 5.0 / task.friction[1]] if task.friction[1] > 0.25 else [0.05, 20.0],
        )
        config.check_objects(task.mass, task.friction)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            randomization.apply(draw(config, rng), task.sample(rng, Difficulty()))


def test_physical_factors_reach_the_start() -> None:
    start = TASKS["objects"].sample(np.random.default_rng(0), Difficulty())
    drawn = Drawn(mass=2.0, friction=0.5, damping=3.0, gripper_speed=0.5, gripper_force=0.9)
    changed = randomization.apply(drawn, start)
    assert changed.object.mass == 2.0 * start.object.mass
    assert changed.object.friction == 0.5 * start.object.friction
    assert changed.physics.damping_scale == 3.0
    assert changed.physics.gripper_speed == pytest.approx(0.075)
    assert changed.physics.gripper_force_scale == 0.9


def test_latency_shows_the_past_with_its_time_stamp() -> None:
    seen = measured(6, object_latency=0.12, gripper_latency=0.05)[5]  # 2.4 steps and 1 step ago
    np.testing.assert_allclose(seen.object_position[0], 0.5 + 0.01 * 2.6)
    assert yaw_of(seen.object_quaternion) == pytest.approx(0.02 * 2.6, rel=1e-4)
    assert seen.gripper_opening == pytest.approx(0.08 - 0.002 * 4)
    assert seen.object_time == pytest.approx(0.25 - 0.12)
    assert encode(seen)[-1] == pytest.approx(0.12)
    np.testing.assert_array_equal(seen.joint_positions, state(5).joint_positions)  # not late


def test_before_the_first_state_everything_was_at_rest() -> None:
    seen = measured(2, object_latency=0.5)[1]
    np.testing.assert_array_equal(seen.object_position, state(0).object_position)


def test_the_tcp_follows_from_the_noisy_joints() -> None:
    seen = measured(1, joint_noise=0.01)[0]
    assert 0.001 < np.abs(seen.joint_positions - state(0).joint_positions).max() < 0.05
    np.testing.assert_array_equal(seen.tcp_position, ur5e.Kinematics().forward(seen.joint_positions)[0])


def test_noise_has_the_asked_deviation_and_the_offset_stays() -> None:
    seen = measured(400, object_position_noise=0.002, object_position_offset=(0.01, 0.0, 0.0))
    errors = np.array([s.object_position - state(i).object_position for i, s in enumerate(seen)])
    np.testing.assert_allclose(errors.mean(axis=0), [0.01, 0.0, 0.0], atol=4e-4)
    np.testing.assert_allclose(errors.std(axis=0), 0.002, rtol=0.1)


def test_noise_depends_on_its_seed_alone() -> None:
    assert measured(3, seed=5, force_noise=1.0) == measured(3, seed=5, force_noise=1.0)
    assert measured(3, seed=5, force_noise=1.0) != measured(3, seed=6, force_noise=1.0)


def test_saved_sensors_go_on_with_the_same_measurements() -> None:
    drawn = Drawn(object_latency=0.12, joint_noise=0.01)
    sensors = Sensors(ur5e.Kinematics())
    sensors.reset(drawn, noise_seed=4)
    for i in range(5):
        sensors.measure(state(i))
    saved = sensors.save()
    expected = [sensors.measure(state(i)) for i in range(5, 9)]
    other = Sensors(ur5e.Kinematics())
    other.load(saved)
    assert [other.measure(state(i)) for i in range(5, 9)] == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mass": [2.0, 1.0]}, r"randomization.mass=\[2.0, 1.0\].*low <= high"),
        ({"friction": [0.0, 1.0]}, "randomization.friction"),
        ({"friction": [1.0]}, "low, high"),
        ({"object_latency": [0.0, float("inf")]}, "object_latency"),
        ({"action_delay": [-1, 2]}, "action_delay"),
        ({"joint_noise": -0.1}, "joint_noise=-0.1"),
        ({"joint_noise": float("nan")}, "joint_noise=nan"),
    ],
)
def test_contradictory_ranges_are_refused(setting: dict, message: str) -> None:
    with pytest.raises(RandomizationError, match=message):
        RandomizationConfig(**setting)
