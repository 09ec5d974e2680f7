"""Several teachers become one network (E11): windows, normalisers, losses, and what the student learns."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from grasp_control.config import DistillConfig
from grasp_control.distillation import (
    FORCE,
    Teacher,
    blurred,
    distill,
    imitation_loss,
    newest_pairs,
    student_actions,
)
from grasp_control.memory.window import ShortTermMemory, window_width
from grasp_control.networks import Normaliser, pooled_normaliser
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, OBSERVATION_NAMES

PAIR = OBSERVATION_DIM + ACTION_DIM
SEEN = 3
"""The observation by which the fake environments differ: object_dx."""


class Still(gymnasium.Env):
    """Ten steps in which nothing moves: a constant observation, `value` at one place."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.starts: list[int] = []
        self.steps = 0

    def _observation(self) -> np.ndarray:
        observation = np.zeros(OBSERVATION_DIM, np.float32)
        observation[SEEN] = self.value
        return observation

    def reset(self, *, seed=None, options=None):
        self.starts.append(seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        info = dict.fromkeys(("slip", "drop", "success", "sim_fault", "broken"), False)
        info |= {"contact_force": 0.0, "executed_action": np.clip(action, -1.0, 1.0)}
        return self._observation(), 0.0, False, self.steps >= 10, info


def normaliser(mean: float, std: float, context: int) -> Normaliser:
    width = window_width(context, OBSERVATION_DIM, ACTION_DIM)
    return Normaliser(np.full(width, mean), np.full(width, std))


def teacher(value: float, answer: np.ndarray, context: int, widest: int, seed: int = 0) -> Teacher:
    """Says `answer` to everything and keeps what it was asked."""
    asked: list[np.ndarray] = []

    def label(windows: np.ndarray) -> np.ndarray:
        asked.append(windows)
        return np.tile(answer.astype(np.float32), (len(windows), 1))

    env = Still(value)
    window = np.tile(np.concatenate([env._observation(), np.zeros(ACTION_DIM, np.float32)]), widest)
    rng = np.random.default_rng(seed)
    windows = (window + 0.01 * rng.normal(size=(64, len(window)))).astype(np.float32)
    made = Teacher(label, normaliser(0.0, 1.0, context), windows, env, seed)
    made.asked = asked  # type: ignore[attr-defined]
    return made


def distilled(teachers: list[Teacher], context: int, **settings: float):
    config = DistillConfig(**{"env_steps": 40, "updates": 300, "batch_size": 64} | settings)  # type: ignore
    return distill(
        config,
        teachers,
        context=context,
        rng=np.random.default_rng(0),
        torch_generator=torch.Generator().manual_seed(0),
        on_update=lambda: None,
    )


def test_one_teachers_normaliser_is_the_students_to_the_last_bit():
    rng = np.random.default_rng(0)
    own = Normaliser(np.tile(rng.normal(size=PAIR), 4), np.tile(rng.uniform(0.001, 30.0, PAIR), 4))
    pooled = pooled_normaliser([own], 4)
    assert torch.equal(pooled.mean, own.mean)
    assert torch.equal(pooled.std, own.std)


def test_two_normalisers_pool_as_their_samples_would():
    # Halves at 1 +- 2 and 5 +- 1: mean 3, variance (4 + 1) / 2 + 2^2 = 6.5.
    pooled = pooled_normaliser([normaliser(1.0, 2.0, 2), normaliser(5.0, 1.0, 4)], 4)
    assert pooled.mean.tolist() == [3.0] * 4 * PAIR
    np.testing.assert_allclose(pooled.std.numpy(), np.sqrt(6.5), rtol=1e-6)


def test_a_shorter_window_is_the_end_of_a_longer_one_from_the_first_step_on():
    short = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=2)
    long = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=6)
    rng = np.random.default_rng(0)
    for memory in (short, long):
        memory.reset(np.arange(OBSERVATION_DIM, dtype=np.float32))
    for _ in range(8):
        assert np.array_equal(newest_pairs(long.policy_input()[None], 2 * PAIR)[0], short.policy_input())
        action, observation = rng.normal(size=ACTION_DIM), rng.normal(size=OBSERVATION_DIM)
        for memory in (short, long):
            memory.append(action, observation)


def test_the_loss_is_least_squares_at_a_half_and_asymmetric_in_force_alone():
    wanted, predicted = torch.zeros(2, ACTION_DIM), torch.zeros(2, ACTION_DIM)
    predicted[0, FORCE], predicted[1, FORCE], predicted[0, 0] = 2.0, -1.0, 3.0
    assert float(imitation_loss(predicted, wanted, 0.5)) == pytest.approx((4 + 1 + 9) / 2)
    # Too much force counts 0.9 / 0.1 times as much as too little.
    assert float(imitation_loss(predicted, wanted, 0.1)) == pytest.approx((9 * 4 + 1 + 9) / 2)


def test_blurring_moves_measures_and_heights_and_nothing_that_a_grasp_depends_on():
    windows = np.arange(1000 * 3 * PAIR, dtype=np.float32).reshape(1000, -1) % 7.0
    assert blurred(windows, 0.0, np.random.default_rng(0)) is windows
    off = (blurred(windows, 0.005, np.random.default_rng(0)) - windows).reshape(1000, 3, PAIR)
    assert np.allclose(off, off[:, :1], atol=1e-5)  # the same in all pairs, so nothing seems to move
    moved = [OBSERVATION_NAMES[i] for i in np.flatnonzero(np.abs(off).max(axis=(0, 1)))]
    assert moved == ["tcp_height", "object_height", "object_size_x", "object_size_y", "object_size_z"]
    assert np.allclose(off[:, :, 0], off[:, :, 8], atol=1e-5)  # tool and object together
    assert off[:, 0, 9:12].std(axis=0) == pytest.approx([0.005] * 3, rel=0.1)


def test_the_student_does_what_each_teacher_says_where_it_can_tell_them_apart():
    left, right = np.full(ACTION_DIM, -0.5), np.full(ACTION_DIM, 0.5)
    teachers = [teacher(-1.0, left, 4, 4, seed=1), teacher(1.0, right, 2, 4, seed=2)]
    done = distilled(teachers, 4)
    for one, answer in zip(teachers, (left, right), strict=True):
        np.testing.assert_allclose(student_actions(done.student, one.windows), [answer] * 64, atol=0.1)
        # Each was asked in windows of its own width, and the student practised there for 40 steps.
        assert {windows.shape[1] for windows in one.asked} == {len(one.normaliser.mean)}  # type: ignore
        assert sum(episode.length for episode in one.episodes) == 40
    assert done.student.normaliser.mean.shape == (4 * PAIR,)
    assert teachers[0].env.starts != teachers[1].env.starts  # type: ignore[attr-defined]
    assert [e.seed for e in done.episodes] == [*teachers[0].env.starts, *teachers[1].env.starts]  # type: ignore


@pytest.mark.parametrize(("expectile", "force"), [(0.5, 0.0), (0.1, -0.4)])
def test_where_teachers_look_alike_the_force_is_their_mean_or_the_gentler(expectile, force):
    """At forces -0.5 and 0.5, expectile t solves t (0.5 - e) = (1 - t) (e + 0.5): e = t - 0.5."""
    gentle, firm = np.full(ACTION_DIM, -0.5), np.full(ACTION_DIM, 0.5)
    teachers = [teacher(0.0, gentle, 4, 4), teacher(0.0, firm, 4, 4)]
    done = distilled(teachers, 4, env_steps=0, updates=500, force_expectile=expectile)
    actions = student_actions(done.student, teachers[0].windows).mean(axis=0)
    assert actions[FORCE] == pytest.approx(force, abs=0.06)
    assert np.abs(actions[:FORCE]).max() < 0.06


def test_the_same_seeds_give_the_same_student():
    def weights() -> np.ndarray:
        made = [teacher(1.0, np.full(ACTION_DIM, 0.3), 4, 4), teacher(-1.0, np.full(ACTION_DIM, 0.1), 4, 4)]
        return distilled(made, 4, updates=20).student.network[0].weight.detach().numpy()

    assert np.array_equal(weights(), weights())


def test_an_episode_that_the_simulator_broke_teaches_nothing():
    broken = teacher(1.0, np.zeros(ACTION_DIM), 4, 4)
    step = broken.env.step

    def faulty_step(action: np.ndarray):
        *rest, info = step(action)
        return *rest, info | {"sim_fault": True}

    broken.env.step = faulty_step
    distilled([broken], 4, updates=20)
    assert [len(windows) for windows in broken.asked if len(windows)] == [64]  # type: ignore[attr-defined]
