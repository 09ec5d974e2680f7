"""The newest of every source becomes one state, or it is said what is missing."""

import numpy as np
import pytest

from grasp_control.arm.assembler import NS, MaximumAges, NotReady, StateAssembler
from grasp_sim import registry, ur5e
from grasp_sim.contract import encode

CLOCK = 1_700_000_000 * NS
POSE = (0.5, 0.1, -0.09, 0.0, 0.0, 0.0, 1.0)


def joints(shift: float = 0.0, velocity: float = 0.0) -> np.ndarray:
    return np.concatenate([ur5e.HOME + shift, np.full(6, velocity)])


def filled(symmetry: int = 4) -> StateAssembler:
    assembler = StateAssembler(MaximumAges(), symmetry)
    assembler.joints(joints(), stamp=CLOCK, received=0.0)
    assembler.gripper((0.08, 3.0), stamp=CLOCK - 20_000_000, received=0.0)
    assembler.object_pose(POSE, stamp=CLOCK - 100_000_000, received=0.0)
    assembler.object_size((0.04, 0.05, 0.06))
    return assembler


def test_every_number_arrives_where_it_belongs():
    state = filled(symmetry=2).assemble(clock=CLOCK + 10_000_000, now=0.01)
    position, quaternion = ur5e.Kinematics().forward(ur5e.HOME)
    assert np.array_equal(state.joint_positions, ur5e.HOME)
    assert np.array_equal(state.tcp_position, position)
    assert np.array_equal(state.tcp_quaternion, quaternion)
    assert (state.gripper_opening, state.gripper_force) == (0.08, 3.0)
    assert np.array_equal(state.object_position, POSE[:3])
    assert np.array_equal(state.object_quaternion, POSE[3:])
    assert np.array_equal(state.object_size, (0.04, 0.05, 0.06))
    assert state.object_symmetry == 2
    times = (state.joint_time, state.gripper_time, state.object_time, state.time)
    assert times == (0.0, -0.02, -0.1, 0.01)
    assert encode(state)[-1] == pytest.approx(0.11)


@pytest.mark.parametrize("name", ["pybullet-lift", "robosuite-objects"])
def test_an_observation_of_the_simulators_numbers_is_the_simulators(name):
    env = registry.make(name, seed=3)
    env.reset(seed=3)
    assembler = None
    for step in range(25):
        observation, _, _, _, info = env.step(np.array([0.3, -0.2, -0.5, 0.1, 1.0, 0.0], np.float32))
        state = info["state"]
        assembler = assembler or StateAssembler(MaximumAges(), state.object_symmetry)
        clock = CLOCK + step * NS // 20
        assembler.joints(
            np.concatenate([state.joint_positions, state.joint_velocities]), stamp=clock, received=step / 20
        )
        assembler.gripper((state.gripper_opening, state.gripper_force), stamp=clock, received=step / 20)
        assembler.object_pose(
            (*state.object_position, *state.object_quaternion), stamp=clock, received=step / 20
        )
        assembler.object_size(state.object_size)
        assert np.array_equal(encode(assembler.assemble(clock=clock, now=step / 20)), observation)
    env.close()


def test_nothing_is_made_of_missing_sources():
    assembler = StateAssembler(MaximumAges())
    with pytest.raises(NotReady, match=r"no joints yet.*no gripper yet.*no object pose yet.*size"):
        assembler.assemble(clock=CLOCK, now=0.0)


@pytest.mark.parametrize(("source", "limit"), [("joints", 0.1), ("gripper", 0.2), ("object pose", 0.5)])
def test_a_source_that_stopped_is_named(source, limit):
    """Its stamps look young, since the sender's clock stands still with it."""
    assembler = filled()
    for now in (0.0, limit - 0.01, limit + 0.01):
        for name, take, values in (
            ("joints", assembler.joints, joints()),
            ("gripper", assembler.gripper, (0.08, 3.0)),
            ("object pose", assembler.object_pose, POSE),
        ):
            if name != source:
                take(values, stamp=CLOCK + 1, received=now)
        problems = assembler.problems(clock=CLOCK, now=now)
        assert [line.split(":")[0] for line in problems] == ([source] if now > limit else [])


def test_old_stamps_future_stamps_and_none_are_not_believed():
    assembler = filled()
    late = CLOCK + 300_000_000
    assembler.joints(joints(), stamp=late, received=0.3)
    assembler.gripper((0.08, 3.0), stamp=late - 250_000_000, received=0.3)
    assert assembler.problems(clock=late, now=0.3) == [
        "gripper: stamped 0.250 s ago, at most 0.2 s: are the computers' clocks the same?"
    ]
    assembler.gripper((0.08, 3.0), stamp=late + 60_000_000, received=0.3)
    assert "0.060 s in the future" in assembler.problems(clock=late, now=0.3)[0]

    unstamped = StateAssembler(MaximumAges())
    unstamped.joints(joints(), stamp=0, received=0.0)
    assert "no time stamp" in unstamped.problems(clock=CLOCK, now=0.0)[0]


def test_a_message_older_than_the_newest_is_refused_and_said():
    assembler = filled()
    assembler.joints(joints(shift=0.5), stamp=CLOCK - 40_000_000, received=0.01)
    assert np.array_equal(assembler.joint_positions(), ur5e.HOME)
    line = assembler.problems(clock=CLOCK + 1, now=0.2)[0]
    assert "go back by 0.040 s" in line


def test_a_driver_that_began_anew_is_believed_after_a_while():
    assembler = filled()
    assembler.joints(joints(shift=0.5), stamp=1, received=11.0)
    assert assembler.joint_positions()[0] == ur5e.HOME[0] + 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(bad):
    assembler = filled()
    values = joints()
    values[2] = bad
    assembler.joints(values, stamp=CLOCK + 1, received=0.01)
    assembler.gripper((bad, 3.0), stamp=CLOCK + 1, received=0.01)
    assert np.array_equal(assembler.assemble(clock=CLOCK + 1, now=0.01).joint_positions, ur5e.HOME)
    assert all("not finite" in line for line in assembler.problems(clock=CLOCK + 1, now=0.3)[:2])


def test_a_velocity_that_was_not_measured_follows_from_the_message_before():
    assembler = filled()
    values = joints(shift=0.01)
    values[6:] = np.nan
    values[7] = 9.0
    assembler.joints(values, stamp=CLOCK + 10_000_000, received=0.01)
    velocities = assembler.assemble(clock=CLOCK + 10_000_000, now=0.01).joint_velocities
    assert velocities == pytest.approx([1.0, 9.0, 1.0, 1.0, 1.0, 1.0])


def test_ages_are_checked():
    with pytest.raises(ValueError, match=r"max_age.joints=0"):
        MaximumAges(joints=0.0)
    with pytest.raises(ValueError, match=r"max_age.gripper=nan"):
        MaximumAges(gripper=float("nan"))
