"""Slip labels on motions computed by hand. The tool points down, so its z axis is the base frame's -z."""

from dataclasses import replace

import numpy as np
import pytest

from grasp_sim.contract import GraspState
from grasp_sim.slip import SlipTracker, object_in_tcp

DOWN = np.array([1.0, 0.0, 0.0, 0.0])  # half a turn about x


def state(object_position=(0.5, 0.0, 0.02), tcp_position=(0.5, 0.0, 0.02), opening=0.04) -> GraspState:
    return GraspState(
        joint_positions=np.zeros(6),
        joint_velocities=np.zeros(6),
        tcp_position=np.array(tcp_position, dtype=float),
        tcp_quaternion=DOWN,
        gripper_opening=opening,
        gripper_force=10.0,
        object_position=np.array(object_position, dtype=float),
        object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
        object_size=np.full(3, 0.04),
    )


@pytest.fixture
def settled() -> SlipTracker:
    """A grasp whose fingers have stopped closing."""
    tracker = SlipTracker()
    for _ in range(2):
        assert not tracker.update(state(), grasped=True).slip
    return tracker


def test_the_object_in_the_fingers_frame():
    position = object_in_tcp(state(object_position=(0.51, 0.02, 0.0), tcp_position=(0.5, 0.0, 0.03)))
    np.testing.assert_allclose(position, [0.01, -0.02, 0.03], atol=1e-12)


def test_six_millimetres_along_the_pads_are_a_slip_and_four_are_not(settled):
    assert not settled.update(state(object_position=(0.5, 0.0, 0.016)), grasped=True).slip
    assert settled.update(state(object_position=(0.5, 0.0, 0.014)), grasped=True).slip


def test_each_further_slip_is_one_label(settled):
    heights = (0.014, 0.014, 0.0085, 0.004)  # 6, 0, 5.5 and 4.5 mm further down
    labels = [settled.update(state(object_position=(0.5, 0.0, z)), grasped=True).slip for z in heights]
    assert labels == [True, False, True, False]


def test_moving_with_the_hand_is_no_slip(settled):
    for z in np.linspace(0.02, 0.2, 10):
        labels = settled.update(state((0.5, 0.0, z), (0.5, 0.0, z)), grasped=True)
        assert not labels.slip
        assert not labels.drop


def test_being_pushed_by_closing_fingers_is_no_slip():
    tracker = SlipTracker()
    for opening, y in ((0.046, 0.0), (0.044, 0.007), (0.042, 0.014), (0.0419, 0.015)):
        assert not tracker.update(state((0.5, y, 0.02), opening=opening), grasped=True).slip
    assert tracker.update(state((0.5, 0.021, 0.02), opening=0.0419), grasped=True).slip


def test_motion_along_the_closing_direction_is_no_slip(settled):
    assert not settled.update(state(object_position=(0.508, 0.0, 0.02)), grasped=True).slip


@pytest.mark.parametrize(("lifted", "dropped"), [(0.009, False), (0.011, True)])
def test_losing_the_object_counts_as_a_drop_above_one_centimetre(settled, lifted, dropped):
    high = (0.5, 0.0, 0.02 + lifted)
    settled.update(state(high, high), grasped=True)
    assert settled.update(state(high, high, opening=0.037), grasped=False).drop is dropped
    assert not settled.update(state(high, high, opening=0.03), grasped=False).drop  # one label per drop


def test_pads_that_bounce_still_hold_for_two_steps(settled):
    high = (0.5, 0.0, 0.05)
    settled.update(state(high, high), grasped=True)
    for grasped in (False, True, False, False, True):
        labels = settled.update(state(high, high, opening=0.0405), grasped=grasped)
        assert not labels.slip
        assert not labels.drop
    slid = (0.5, 0.0, 0.044)
    assert not settled.update(state(slid, high), grasped=False).slip
    assert settled.update(state(slid, high), grasped=True).slip  # 6 mm, seen once they hold again
    fallen = (0.5, 0.0, 0.0)  # the height counts at which it was held last
    labels = [settled.update(state(fallen, high), grasped=False) for _ in range(4)]
    assert [label.drop for label in labels] == [False, False, True, False]


def test_nothing_held_gives_no_labels():
    tracker = SlipTracker()
    for z in (0.02, 0.08, 0.0):
        labels = tracker.update(state(object_position=(0.5, 0.0, z)), grasped=False)
        assert not labels.slip
        assert not labels.drop


def test_a_loaded_tracker_goes_on_as_the_saved_one(settled):
    other = SlipTracker()
    other.load(settled.save())
    slid = replace(state(), object_position=np.array([0.5, 0.0, 0.01]))
    assert settled.update(slid, grasped=True) == other.update(slid, grasped=True)
    np.testing.assert_array_equal(settled.save(), other.save())


def test_reset_forgets_the_grasp(settled):
    settled.reset()
    assert not settled.update(state(object_position=(0.5, 0.0, 0.2)), grasped=False).drop
