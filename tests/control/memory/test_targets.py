"""n-step targets against numbers worked out by hand."""

import numpy as np
import pytest

from grasp_control.memory.targets import label_sources, n_step_targets, peaks_within, returns_to_go
from grasp_control.types import Source, Trajectory

REWARDS = np.array([1.0, 2.0, 4.0, 8.0])


def test_n_step_at_a_termination():
    sums, discounts, ends = n_step_targets(REWARDS, True, 2, 0.5)
    np.testing.assert_allclose(sums, [1 + 1, 2 + 2, 4 + 4, 8])
    # Steps 2 and 3 reach the terminal state: no bootstrap.
    np.testing.assert_allclose(discounts, [0.25, 0.25, 0.0, 0.0])
    np.testing.assert_array_equal(ends, [2, 3, 4, 4])


def test_n_step_at_a_time_out_bootstraps_from_the_true_last_window():
    sums, discounts, ends = n_step_targets(REWARDS, False, 2, 0.5)
    np.testing.assert_allclose(sums, [2, 4, 8, 8])
    np.testing.assert_allclose(discounts, [0.25, 0.25, 0.25, 0.5])
    np.testing.assert_array_equal(ends, [2, 3, 4, 4])


def test_n_longer_than_the_episode():
    sums, discounts, ends = n_step_targets(REWARDS[:2], False, 5, 0.5)
    np.testing.assert_allclose(sums, [2, 2])
    np.testing.assert_allclose(discounts, [0.25, 0.5])
    np.testing.assert_array_equal(ends, [2, 2])


def test_returns_to_go():
    for terminated in (True, False):
        found = returns_to_go(REWARDS, terminated, 0.5)
        np.testing.assert_allclose(found, [1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8])


def test_costs_cut_off_by_a_time_out_bound_nothing():
    costs = REWARDS - 3.0
    np.testing.assert_allclose(
        returns_to_go(costs, True, 0.5), [-2 - 0.5 + 0.25 + 0.625, -1 + 0.5 + 1.25, 3.5, 5]
    )
    assert (returns_to_go(costs, False, 0.5) == -np.inf).all()


def test_peaks_within_the_next_steps():
    values = np.array([1.0, 9.0, 2.0, 3.0, 0.0], np.float32)
    np.testing.assert_array_equal(peaks_within(values, 1), values)
    np.testing.assert_array_equal(peaks_within(values, 3), [9.0, 9.0, 3.0, 3.0, 0.0])
    np.testing.assert_array_equal(peaks_within(values, 9), [9.0, 9.0, 3.0, 3.0, 0.0])


@pytest.mark.parametrize(
    ("success", "demonstration", "rest"),
    [
        (True, True, Source.DEMO),
        (True, False, Source.SUCCESS),
        (False, False, Source.ONLINE),
        (False, True, Source.ONLINE),
    ],
)
def test_labels(success, demonstration, rest):
    slips = np.zeros(8, np.bool_)
    slips[[1, 6]] = True
    trajectory = Trajectory(
        windows=np.zeros((9, 3), np.float32),
        actions=np.zeros((8, 1), np.float32),
        intended_actions=np.zeros((8, 1), np.float32),
        rewards=np.zeros(8, np.float32),
        slips=slips,
        forces=np.zeros(8, np.float32),
        terminated=False,
        success=success,
        demonstration=demonstration,
        gated=np.zeros(8, np.bool_),
    )
    slip = Source.SLIP
    assert label_sources(trajectory, 2).tolist() == [slip, slip, rest, rest, slip, slip, slip, rest]
