"""The arm behind a driver: cycles of 2 and 8 ms instead of control steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from grasp_sim import gripper, registry
from grasp_sim.contract import POLICY_RATE_HZ, ActionScale, Command, decode, pack_state
from grasp_sim.driven import RATES, DrivenSimulation, Outcome
from grasp_sim.errors import UserError
from grasp_sim.expert import ScriptedExpert
from grasp_sim.servo import Servo, interpolate

STEP = 1.0 / POLICY_RATE_HZ
HORIZON = 100


def grasp(simulation: DrivenSimulation, seed: int):
    """One episode of the scripted expert through the servo, interpolated to the driver's rate; yields the
    state after every cycle."""
    expert = ScriptedExpert(ActionScale(), "servo", simulation.task.grip_force)
    servo, state = Servo(), simulation.reset(seed)
    servo.reset(state.joint_positions)
    for step in range(HORIZON):
        command = decode(expert.act(state), ActionScale())
        begin = servo.joint_target
        goal = servo.step(state.joint_positions, command)
        while state.time < (step + 1) * STEP - 1e-9:
            share = min((state.time + simulation.period - step * STEP) / STEP, 1.0)
            target = begin + share * (goal - begin)
            state = simulation.cycle(target, command.opening, command.force_limit)
            yield state
            if simulation.outcome.over:
                return


@pytest.fixture
def make():
    made = []

    def simulation(name: str, rate: int) -> DrivenSimulation:
        made.append(DrivenSimulation(name, rate))
        return made[-1]

    yield simulation
    for one in made:
        one.close()


BOTH = ("pybullet", "robosuite")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    "name", [f"{simulator}-{task}" for simulator in BOTH for task in ("lift", "slippery")]
)
def test_the_expert_grasps_through_the_driver_as_in_the_environment(name, rate, make):
    simulation = make(name, rate)
    for seed in range(2):
        states = list(grasp(simulation, seed))
        assert simulation.outcome.success
        assert (simulation.outcome.broken, simulation.outcome.drops) == (False, 0)
        assert len(states) / rate < 3.0
        if name != "robosuite-lift":  # whose Robotiq 85 knows no force
            assert states[-1].gripper_force == pytest.approx(simulation.task.grip_force, rel=0.1)


@pytest.mark.parametrize("simulator", BOTH)
def test_a_seed_and_the_targets_fix_an_episode_to_the_last_bit(simulator, make):
    name = f"{simulator}-objects"
    one, other = make(name, 125), make(name, 125)
    first = [pack_state(state) for state in grasp(one, 3)]
    for _ in range(2):  # the second time after another episode
        np.testing.assert_array_equal([pack_state(state) for state in grasp(other, 3)], first)
        other.reset(4)
        other.cycle(other.state.joint_positions, 0.0, 60.0)


@pytest.mark.parametrize("name", registry.names())
def test_a_seed_is_the_environments_episode(name, make):
    simulation, env = make(name, 125), registry.make(name)
    state = simulation.reset(5)
    _, info = env.reset(seed=5)
    env.close()
    assert simulation.start == info["start"]
    assert state == info["true_state"]
    assert simulation.outcome.object_symmetry == state.object_symmetry


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("simulator", BOTH)
def test_the_arm_moves_as_by_control_steps(simulator, rate, make):
    """Joint targets on a line for half a second, then still: the arm is where `advance_servo` has it, which
    changes its targets every 10 or 12.5 ms. Its lag behind them is 13 mrad here."""
    name, way = f"{simulator}-objects", np.array([0.2, -0.1, 0.1, 0.1, -0.2, 0.3])
    env, simulation = registry.make(name), make(name, rate)
    env.reset(seed=0)
    scene, begin = env._scene, simulation.reset(0).joint_positions
    line = [begin + min(step / 10, 1.0) * way for step in range(21)]
    for step, atol in ((10, 6e-3), (20, 6e-4)):  # Bullet leaves up to 0.5 mrad at rest
        for before, after in itertools.pairwise(line[step - 10 : step + 1]):
            scene.advance_servo(before, after, Command(np.zeros(3), 0.0, gripper.STROKE, 60.0))
        state = simulation.state
        while state.time < step * STEP - simulation.period / 2:
            share = min((state.time + simulation.period) / 0.5, 1.0)
            state = simulation.cycle(begin + share * way, gripper.STROKE, 60.0)
        expected, _ = scene.joints()
        np.testing.assert_allclose(state.joint_positions, expected, atol=atol)
    env.close()


def test_held_targets_in_mujoco_are_control_steps_to_the_last_bit(make):
    """`advance_servo` holds each of its 5 targets for 10 ms, which are 5 cycles of 2 ms."""
    env, simulation = registry.make("robosuite-objects"), make("robosuite-objects", 500)
    env.reset(seed=0)
    begin = simulation.reset(0).joint_positions
    goal = begin + 0.02
    env._scene.advance_servo(begin, goal, Command(np.zeros(3), 0.0, gripper.STROKE, 60.0))
    for target in interpolate(begin, goal, 5):
        for _ in range(5):
            state = simulation.cycle(target, gripper.STROKE, 60.0)
    np.testing.assert_array_equal(state.joint_positions, env._scene.joints()[0])
    env.close()


@pytest.mark.parametrize("simulator", BOTH)
@pytest.mark.parametrize("rate", RATES)
def test_the_grip_has_the_commanded_force_at_both_ends_of_its_range(simulator, rate, make):
    simulation = make(f"{simulator}-objects", rate)
    for _ in grasp(simulation, 1):
        pass
    assert simulation.outcome.success
    target = simulation.state.joint_positions
    for force in (gripper.FORCE_MIN, gripper.FORCE_MAX):
        held = [simulation.cycle(target, 0.0, force).gripper_force for _ in range(rate)]
        assert np.mean(held[rate // 2 :]) == pytest.approx(force, rel=0.05)
    assert simulation.state.object_position[2] > simulation.start.goal_height - 0.01


@pytest.mark.parametrize("simulator", BOTH)
def test_what_breaks_ends_the_episode(simulator, make):
    simulation = make(f"{simulator}-fragile", 125)
    for state in grasp(simulation, 0):
        if state.gripper_force > 5.0:
            break
    for _ in range(40):
        simulation.cycle(state.joint_positions, 0.0, 235.0)
    outcome = simulation.outcome
    assert (outcome.broken, outcome.over, outcome.success) == (True, True, False)
    simulation.cycle(state.joint_positions, 0.085, 20.0)
    assert simulation.outcome == outcome
    simulation.reset(0)
    assert simulation.outcome == Outcome(0, object_symmetry=simulation.state.object_symmetry)


@pytest.mark.parametrize("simulator", BOTH)
def test_a_fault_of_the_simulator_keeps_the_last_good_state(simulator, make):
    simulation = make(f"{simulator}-lift", 125)
    state = simulation.reset(0)
    for _ in range(3):
        assert simulation.cycle(np.full(6, np.nan), 0.085, 20.0) is state
    assert simulation.outcome.sim_fault
    simulation.reset(0)
    assert not simulation.outcome.sim_fault
    assert simulation.cycle(state.joint_positions, 0.085, 20.0).time == 0.008


def test_a_driven_episode_of_pybullet_is_not_saved(make):
    simulation = make("pybullet-lift", 125)
    simulation.reset(0)
    simulation.cycle(simulation.state.joint_positions, 0.085, 20.0)
    with pytest.raises(RuntimeError, match="an episode with driven cycles cannot be saved"):
        simulation._scene.save()


def test_an_unknown_rate_or_environment_is_refused():
    with pytest.raises(UserError, match=r"a driver's rate of 100 Hz is not known; there are: 125, 500"):
        DrivenSimulation("pybullet-lift", 100)
    with pytest.raises(UserError, match="there is no environment 'pybullet-lifts'; there are: "):
        DrivenSimulation("pybullet-lifts", 125)
    with pytest.raises(RuntimeError, match="before its first reset"):
        DrivenSimulation("pybullet-lift", 125).cycle(np.zeros(6), 0.0, 20.0)
