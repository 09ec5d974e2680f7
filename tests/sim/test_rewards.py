"""Rewards by hand."""

import math

import numpy as np
import pytest

from grasp_sim.contract import GraspState
from grasp_sim.errors import UnknownName
from grasp_sim.rewards import REWARDS, WAITING, dense, make_reward, sparse


def state(distance: float) -> GraspState:
    return GraspState(
        joint_positions=np.zeros(6),
        joint_velocities=np.zeros(6),
        tcp_position=np.array([0.5, 0.0, 0.1]),
        tcp_quaternion=np.array([1.0, 0.0, 0.0, 0.0]),
        gripper_opening=0.085,
        gripper_force=0.0,
        object_position=np.array([0.5, distance, 0.1]),
        object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
        object_size=np.full(3, 0.04),
    )


def test_sparse_pays_for_success_only():
    assert sparse(True) == 1.0
    assert sparse(False) == 0.0


@pytest.mark.parametrize("distance", [0.0, 0.05, 1.0])
def test_dense_pays_in_the_proportions_of_robosuites_shaping(distance):
    reaching = 1.0 - math.tanh(10.0 * distance)
    assert dense(state(distance), False, False) == pytest.approx(WAITING * reaching / 1.25)
    assert dense(state(distance), False, True) == pytest.approx(WAITING * (reaching + 0.25) / 1.25)
    assert dense(state(distance), True, True) == 1.0


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_every_reward_describes_itself_in_one_line_and_is_best_at_success(name):
    reward = make_reward(name)
    assert reward.describe.startswith(f"{name}: ")
    assert "\n" not in reward.describe
    assert reward(state(0.0), True, True) == 1.0
    assert reward(state(0.0), False, True) < 1.0


def test_an_unknown_reward_lists_what_exists():
    with pytest.raises(UnknownName, match=r"'spase'.*sparse, dense"):
        make_reward("spase")


def test_under_the_dense_reward_lifting_is_worth_more_than_waiting_at_the_object():
    discount, held = 0.99, dense(state(0.0), False, True)
    assert held == WAITING
    assert held / (1.0 - discount) < dense(state(0.0), True, True)
