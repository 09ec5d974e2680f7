"""A grasp from its beginning to its end, with a policy of known actions."""

from dataclasses import replace

import numpy as np
import pytest

from grasp_control.arm.runner import GraspConfig, GraspRunner, Outcome, lift_of
from grasp_sim import ur5e
from grasp_sim.contract import ContractError, GraspState

POSITION, QUATERNION = ur5e.Kinematics().forward(ur5e.HOME)
STATE = GraspState(
    joint_positions=ur5e.HOME,
    joint_velocities=np.zeros(6),
    tcp_position=POSITION,
    tcp_quaternion=QUATERNION,
    gripper_opening=0.08,
    gripper_force=0.0,
    object_position=np.array([0.5, 0.0, -0.09]),
    object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
    object_size=np.full(3, 0.04),
)
OPEN = np.array([0, 0, -0.5, 0, 1, 0], np.float32)


class Policy:
    """Notes what it is told; acts as it is told."""

    class manifest:
        task = "pybullet-objects"

    def __init__(self):
        self.action, self.told = OPEN, []

    def reset(self, observation):
        self.told.append("reset")

    def observe(self, executed, observation):
        self.told.append(("observe", executed.tolist()))

    def act(self, observation):
        self.told.append("act")
        return self.action


def at(height: float, force: float = 20.0) -> GraspState:
    return replace(STATE, object_position=np.array([0.5, 0.0, -0.09 + height]), gripper_force=force)


def test_the_policy_is_told_the_executed_action_before_it_acts_again():
    policy = Policy()
    runner = GraspRunner(policy, GraspConfig())
    assert runner.begin(STATE) is OPEN
    executed = np.array([0, 0, -0.25, 0, 1, 0], np.float32)
    assert runner.step(STATE, executed) is OPEN
    assert policy.told == ["reset", "act", ("observe", executed.tolist()), "act"]
    assert runner.progress.running
    assert (runner.progress.step, runner.progress.phase) == (2, "approach")


def test_it_is_lifted_when_held_and_high_enough():
    runner = GraspRunner(Policy(), GraspConfig())
    runner.begin(STATE)
    assert runner.step(at(0.049), OPEN) is not None
    assert runner.progress.phase == "lift"
    assert runner.step(at(0.06, force=0.0), OPEN) is not None  # thrown up, not held
    assert runner.step(at(0.0501), OPEN) is None
    progress = runner.progress
    assert (progress.running, progress.outcome, progress.phase) == (False, Outcome.LIFTED, "idle")
    assert "0.050 m" in progress.message


def test_it_is_given_up_after_the_timeout():
    runner = GraspRunner(Policy(), GraspConfig(timeout=0.2))
    runner.begin(STATE)
    given = 1
    while runner.step(STATE, OPEN) is not None:
        given += 1
    assert given == 4
    assert runner.progress.outcome is Outcome.TIMED_OUT


def test_closing_shows():
    policy = Policy()
    runner = GraspRunner(policy, GraspConfig())
    runner.begin(STATE)
    policy.action = np.array([0, 0, 0, 0, -1, 0], np.float32)
    runner.step(STATE, OPEN)
    assert runner.progress.phase == "close"


def test_a_stop_is_said_once():
    runner = GraspRunner(Policy(), GraspConfig())
    runner.stop(Outcome.STOPPED, "nothing runs")
    assert runner.progress.outcome is Outcome.NONE
    runner.begin(STATE)
    runner.stop(Outcome.STOPPED, "the camera is silent")
    runner.stop(Outcome.CANCELLED, "again")
    assert (runner.progress.outcome, runner.progress.message) == (Outcome.STOPPED, "the camera is silent")


def test_a_state_that_is_not_finite_is_refused():
    runner = GraspRunner(Policy(), GraspConfig())
    with pytest.raises(ContractError, match="gripper_force"):
        runner.begin(replace(STATE, gripper_force=float("nan")))
    assert not runner.progress.running


def test_the_height_is_the_tasks():
    assert lift_of("pybullet-objects") == 0.05
    assert lift_of("robosuite-lift") == pytest.approx(0.02)  # a cube of 4 cm, its centre to 4 cm
    assert lift_of("something-else") == 0.05


def test_settings_are_checked():
    for wrong in ({"timeout": 0.0}, {"lift_height": -1.0}, {"hold_force": float("nan")}):
        with pytest.raises(ValueError, match=r"grasp\."):
            GraspConfig(**wrong)
