"""Interquartile means, their intervals and comparisons of runs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.bootstrap import Estimate, difference, improvement, intervals


def test_the_interquartile_mean_leaves_out_the_outer_quarters():
    """Of 0, 0.5, 0.7, 1 the inner two are averaged; the interval holds the mean and stays within the data."""
    mean, low, high = intervals(np.array([0.0, 0.5, 0.7, 1.0])[:, None, None])
    assert mean == pytest.approx([0.6])
    assert 0.0 <= low[0] < 0.6 < high[0] <= 1.0


def test_intervals_are_the_same_whatever_was_drawn_before():
    scores = np.random.default_rng(0).random((6, 2, 3))
    first = intervals(scores)
    np.random.rand(7)  # noqa: NPY002 (global state must not matter)
    assert all(np.array_equal(a, b) for a, b in zip(first, intervals(scores), strict=True))


def test_runs_are_drawn_anew_within_each_task():
    """Every run of a task is the same: whatever is drawn, the mean of the two tasks stays."""
    mean, low, high = intervals(np.tile([[0.2], [0.6]], (5, 1, 1)))
    assert mean == low == high == pytest.approx([0.4])


def test_the_probability_of_improvement_counts_pairs_and_half_of_the_equal_ones():
    found = improvement(np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0]))
    assert found.value == pytest.approx((0.5 + 1.0 + 1.0 + 1.0 + 1.0 + 0.0) / 6)
    assert found.low <= found.value <= found.high
    assert improvement(np.ones(4), np.zeros(4)) == Estimate(1.0, 1.0, 1.0)


def test_the_difference_is_that_of_the_interquartile_means():
    found = difference(np.array([0.0, 0.5, 0.7, 9.0]), np.array([0.1, 0.2, 0.2, 0.3]))
    assert found.value == pytest.approx(0.6 - 0.2)
    assert difference(np.full(5, 0.8), np.full(5, 0.5)) == pytest.approx((0.3, 0.3, 0.3))


def test_an_estimate_is_written_with_its_interval():
    assert Estimate(0.5, 0.25, 0.75).written(".2f") == "0.50 (0.25 to 0.75)"
