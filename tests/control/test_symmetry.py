"""Turning imitation batches about the vertical axis."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.memory.window import window_width
from grasp_control.symmetry import turned
from grasp_control.types import MemoryBatch
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, OBSERVATION_NAMES, rotate_about_vertical

CONTEXT, ROWS = 3, 200
W = window_width(CONTEXT, OBSERVATION_DIM, ACTION_DIM)
DX = OBSERVATION_NAMES.index("object_dx")


def batch(rows: int = ROWS) -> MemoryBatch:
    """Horizontal vectors short enough that no turn meets a bound."""
    rng = np.random.default_rng(0)

    def actions(*shape: int) -> np.ndarray:
        return rng.uniform(-0.7, 0.7, size=(*shape, ACTION_DIM)).astype(np.float32)

    observations = rng.normal(size=(rows, CONTEXT, OBSERVATION_DIM)).astype(np.float32)
    return MemoryBatch(
        ids=np.arange(rows),
        windows=np.concatenate([observations, actions(rows, CONTEXT)], axis=-1).reshape(rows, W),
        actions=actions(rows),
        intended_actions=actions(rows),
        n_step_rewards=rng.normal(size=rows).astype(np.float32),
        discounts=np.full(rows, 0.9, np.float32),
        bootstrap_windows=rng.normal(size=(rows, W)).astype(np.float32),
        returns_to_go=rng.normal(size=rows).astype(np.float32),
        peak_forces=np.zeros(rows, np.float32),
        successes=np.ones(rows, bool),
        sources=np.ones(rows, np.int8),
        weights=np.ones(rows, np.float32),
    )


def pairs(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, W) -> observations (B, C, O) and previous actions (B, C, A)."""
    split = windows.reshape(len(windows), CONTEXT, OBSERVATION_DIM + ACTION_DIM)
    return split[..., :OBSERVATION_DIM], split[..., OBSERVATION_DIM:]


def angle_between(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Angle in rad from one horizontal vector (..., 2) to another."""
    cross = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    return np.arctan2(cross, (before * after).sum(axis=-1))


def test_a_row_turns_as_a_whole_by_an_angle_of_its_own():
    before = batch()
    after = turned(before, 0.5, np.random.default_rng(1))
    (old_observations, old_previous), (observations, previous) = pairs(before.windows), pairs(after.windows)
    seen = angle_between(old_observations[..., DX : DX + 2], observations[..., DX : DX + 2])
    moved = angle_between(old_previous[..., :2], previous[..., :2])
    intended = angle_between(before.intended_actions[:, :2], after.intended_actions[:, :2])
    # Float32 vectors of a hundredth resolve their heading to about 1e-5 rad.
    np.testing.assert_allclose(seen, np.repeat(intended[:, None], CONTEXT, axis=1), atol=1e-4)
    np.testing.assert_allclose(moved, np.repeat(intended[:, None], CONTEXT, axis=1), atol=1e-4)
    assert np.abs(intended).max() <= 0.5 + 1e-4
    assert len(np.unique(np.round(intended, 4))) > 0.9 * ROWS
    # Uniform in +-0.5: mean 0, standard deviation 0.5 / sqrt 3 = 0.289.
    assert abs(intended.mean()) < 0.06
    assert intended.std() == pytest.approx(0.289, abs=0.03)


def test_each_row_equals_the_contracts_rotation():
    before = batch(4)
    angles = np.random.default_rng(2).uniform(-0.8, 0.8, 4)
    after = turned(before, 0.8, np.random.default_rng(2))
    old_observations, old_previous = pairs(before.windows)
    observations, previous = pairs(after.windows)
    for row, angle in enumerate(angles):
        seen, moved = rotate_about_vertical(old_observations[row], old_previous[row], angle)
        _, intended = rotate_about_vertical(old_observations[row], before.intended_actions[row], angle)
        np.testing.assert_allclose(observations[row], seen, atol=1e-6)
        np.testing.assert_allclose(previous[row], moved, atol=1e-6)
        np.testing.assert_allclose(after.intended_actions[row], intended, atol=1e-6)
        _, executed = rotate_about_vertical(old_observations[row], before.actions[row], angle)
        np.testing.assert_allclose(after.actions[row], executed, atol=1e-6)


def test_only_windows_and_actions_change_and_only_their_horizontal_parts():
    before = batch()
    kept = {name: value.copy() for name, value in before._asdict().items()}
    after = turned(before, 0.5, np.random.default_rng(1))
    for name, value in kept.items():
        np.testing.assert_array_equal(getattr(before, name), value)  # the memory's own rows stay
        result = getattr(after, name)
        assert result.dtype == value.dtype
        assert result.shape == value.shape
        if name not in ("windows", "actions", "intended_actions"):
            np.testing.assert_array_equal(result, value)
    (old_observations, old_previous), (observations, previous) = pairs(before.windows), pairs(after.windows)
    others = [i for i in range(OBSERVATION_DIM) if i not in (DX, DX + 1)]
    np.testing.assert_array_equal(observations[..., others], old_observations[..., others])
    np.testing.assert_array_equal(previous[..., 2:], old_previous[..., 2:])
    for name in ("actions", "intended_actions"):
        np.testing.assert_array_equal(getattr(after, name)[:, 2:], getattr(before, name)[:, 2:])


def test_zero_angle_is_the_batch_itself_and_draws_nothing():
    before = batch(3)
    rng = np.random.default_rng(4)
    assert turned(before, 0.0, rng) is before
    assert rng.random() == np.random.default_rng(4).random()


def test_the_same_generator_turns_the_same_way():
    before = batch()
    one = turned(before, 0.5, np.random.default_rng(1))
    two = turned(before, 0.5, np.random.default_rng(1))
    other = turned(before, 0.5, np.random.default_rng(2))
    np.testing.assert_array_equal(one.windows, two.windows)
    assert not np.array_equal(one.windows, other.windows)


def test_intended_actions_stay_within_their_bounds():
    corner = batch(50)
    corner.intended_actions[:, :2] = 1.0
    after = turned(corner, np.pi, np.random.default_rng(3))
    assert np.abs(after.intended_actions).max() <= 1.0
