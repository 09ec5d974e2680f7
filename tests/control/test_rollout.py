"""Rollouts: what is stored, how episodes end, and the seeds they start from."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import EpisodeResult, episode_seeds, evaluate, rollout
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, ContractError, executed_action

CONTEXT = 3


class FakeEnv(gymnasium.Env):
    """An environment as `grasp_sim` specifies it: terminated on success, truncated at the horizon or a fault.

    The observation holds the seed, the step and the sum of what was executed, so any mix-up shows.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's attribute)

    def __init__(self, *, horizon: int = 6, success_at: int = 0, fault_at: int = 0) -> None:
        self.horizon, self.success_at, self.fault_at = horizon, success_at, fault_at
        self.slip_at: tuple[int, ...] = ()
        self.drop_at: tuple[int, ...] = ()
        self.requested: list[np.ndarray] = []
        self.steps = 0
        self.over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.state = np.zeros(OBSERVATION_DIM, np.float32)
        self.state[0] = float(seed or 0)
        self.steps, self.over = 0, False
        return self.state.copy(), {}

    def step(self, action: np.ndarray):
        assert not self.over, "stepped after the episode's end"
        executed = executed_action(action)
        self.requested.append(np.array(action))
        self.steps += 1
        fault = self.steps == self.fault_at
        if not fault:  # a fault hands out the last good observation
            self.state[1] = self.steps
            self.state[2] += executed.sum()
        success = self.steps == self.success_at and not fault
        truncated = not success and (fault or self.steps >= self.horizon)
        self.over = success or truncated
        info = {
            "requested_action": self.requested[-1],
            "executed_action": executed,
            "success": success,
            "slip": self.steps in self.slip_at,
            "drop": self.steps in self.drop_at,
            "broken": False,
            "contact_force": 0.5 * self.steps,
            "sim_fault": fault,
        }
        return self.state.copy(), 0.0 if fault else self.steps / 10.0, success, truncated, info


class Policy:
    """Varied actions, some outside [-1, 1]; keeps the windows it saw."""

    def __init__(self) -> None:
        self.windows: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []

    def __call__(self, window: np.ndarray) -> tuple[np.ndarray, bool]:
        step = len(self.windows)
        self.windows.append(window.copy())
        self.actions.append(np.linspace(-0.9, 0.2 + 0.4 * step, ACTION_DIM, dtype=np.float32))
        return self.actions[-1], step % 2 == 1


def short_term() -> ShortTermMemory:
    return ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=CONTEXT, length=10)


def test_success_terminates_and_is_no_time_out():
    done = rollout(FakeEnv(success_at=4), Policy(), short_term(), seed=7)
    assert done.trajectory.terminated is True
    assert done.trajectory.success
    assert done.result == EpisodeResult(7, True, pytest.approx(1.0), 4, 0, 0, 2)
    assert not done.faulty
    np.testing.assert_allclose(done.trajectory.rewards, [0.1, 0.2, 0.3, 0.4])


def test_the_horizon_is_a_time_out_and_no_terminal_state():
    done = rollout(FakeEnv(horizon=5), Policy(), short_term(), seed=7)
    assert done.trajectory.terminated is False
    assert not done.trajectory.success
    assert done.result.length == 5


@pytest.mark.parametrize(
    ("max_steps", "length", "terminated"),
    [(1, 1, False), (3, 3, False), (4, 4, True), (5, 4, True), (None, 4, True)],
)
def test_a_cut_is_a_time_out_unless_the_episode_ended_by_itself(max_steps, length, terminated):
    env = FakeEnv(success_at=4)
    done = rollout(env, Policy(), short_term(), seed=0, max_steps=max_steps)
    assert (done.result.length, env.steps) == (length, length)
    assert done.trajectory.terminated is terminated
    assert done.result.success is terminated
    assert len(done.trajectory.windows) == length + 1  # the true final observation is kept


def test_executed_and_intended_actions_are_both_stored():
    policy = Policy()
    done = rollout(FakeEnv(), policy, short_term(), seed=0)
    np.testing.assert_array_equal(done.trajectory.intended_actions, np.stack(policy.actions))
    np.testing.assert_array_equal(done.trajectory.actions, np.clip(np.stack(policy.actions), -1, 1))
    assert np.abs(done.trajectory.intended_actions).max() > 1.0  # the clip had something to do


def test_noise_changes_what_is_sent_and_leaves_the_intention():
    def run(seed: int, scale: float):
        env, policy = FakeEnv(horizon=200), Policy()
        noise = scale * np.random.default_rng(seed).standard_normal((200, ACTION_DIM)).astype(np.float32)

        def still(window: np.ndarray) -> tuple[np.ndarray, bool]:
            policy(window)
            return np.full(ACTION_DIM, 0.1, np.float32), False

        return env, rollout(env, still, short_term(), seed=0, noise=noise).trajectory

    env, noisy = run(1, 0.2)
    np.testing.assert_array_equal(noisy.intended_actions, np.full((200, ACTION_DIM), 0.1, np.float32))
    np.testing.assert_array_equal(noisy.actions, np.clip(np.stack(env.requested), -1, 1))
    difference = noisy.actions - noisy.intended_actions
    assert difference.std() == pytest.approx(0.2, abs=0.015)
    assert abs(difference.mean()) < 0.02
    assert noisy.actions.dtype == np.float32
    np.testing.assert_array_equal(noisy.actions, run(1, 0.2)[1].actions)
    assert not np.array_equal(noisy.actions, run(2, 0.2)[1].actions)
    np.testing.assert_array_equal(run(1, 0.0)[1].actions, noisy.intended_actions)


@pytest.mark.parametrize("steps", [1, 2, 6, 15])
def test_stored_windows_equal_what_the_policy_saw(steps):
    policy, memory = Policy(), short_term()
    windows = rollout(FakeEnv(horizon=steps), policy, memory, seed=3).trajectory.windows
    assert windows.shape == (steps + 1, CONTEXT * (OBSERVATION_DIM + ACTION_DIM))
    np.testing.assert_array_equal(windows[:-1], np.stack(policy.windows))
    np.testing.assert_array_equal(windows[-1], memory.policy_input())  # at the true final observation
    newest = windows.reshape(steps + 1, CONTEXT, -1)[:, -1]
    np.testing.assert_array_equal(newest[:, :2], [[3.0, step] for step in range(steps + 1)])
    np.testing.assert_array_equal(newest[1:, OBSERVATION_DIM:], np.clip(np.stack(policy.actions), -1, 1))


def test_a_second_episode_begins_with_a_window_of_its_own():
    memory, env = short_term(), FakeEnv()
    rollout(env, Policy(), memory, seed=1)
    policy = Policy()
    rollout(env, policy, memory, seed=2)
    pairs = policy.windows[0].reshape(CONTEXT, -1)
    np.testing.assert_array_equal(pairs, np.stack([np.eye(1, pairs.shape[1])[0] * 2.0] * CONTEXT))


def test_slips_and_drops_are_counted_apart_and_labelled_together():
    env = FakeEnv()
    env.slip_at, env.drop_at = (2, 3), (3, 5)
    done = rollout(env, Policy(), short_term(), seed=0)
    assert (done.result.slips, done.result.drops) == (2, 2)
    np.testing.assert_array_equal(done.trajectory.slips, [False, True, True, False, True, False])
    assert done.trajectory.slips.dtype == bool
    np.testing.assert_array_equal(done.trajectory.gated, [False, True] * 3)
    assert not done.trajectory.demonstration


def test_a_simulator_fault_is_flagged_ends_the_episode_and_leaves_no_nan():
    done = rollout(FakeEnv(fault_at=3), Policy(), short_term(), seed=0)
    assert done.faulty
    assert done.result.length == 3
    assert done.trajectory.terminated is False
    assert not done.result.success
    assert np.isfinite(done.trajectory.windows).all()
    assert np.isfinite(done.trajectory.rewards).all()
    assert not rollout(FakeEnv(), Policy(), short_term(), seed=0).faulty


def test_an_action_that_is_not_finite_is_refused_and_never_sent():
    env = FakeEnv()
    with pytest.raises(ContractError, match="not finite"):
        rollout(env, lambda _: (np.full(ACTION_DIM, np.nan), False), short_term(), seed=0)
    assert env.requested == []


def test_on_step_is_called_after_every_step():
    env, seen = FakeEnv(), []
    rollout(env, Policy(), short_term(), seed=0, on_step=lambda: seen.append(env.steps))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_evaluation_runs_each_seed_once_and_without_noise():
    reported: list[EpisodeResult] = []
    env, policy = FakeEnv(horizon=2), Policy()
    results = evaluate(env, policy, short_term(), [5, 3, 9], reported.append)
    assert [r.seed for r in results] == [5, 3, 9]
    assert results == reported
    np.testing.assert_array_equal(np.stack(env.requested), np.stack(policy.actions))


# ---- seeds


def test_a_longer_list_of_seeds_begins_with_the_shorter_one():
    longest = episode_seeds(3, "train", 1000)
    for count in (0, 1, 2, 3, 99, 1000):
        assert episode_seeds(3, "train", count) == longest[:count]
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in longest)


def test_streams_and_runs_have_seeds_of_their_own():
    streams = ("train", "evaluate", "distill", "demonstrations")
    lists = [episode_seeds(run, stream, 1000) for run in range(3) for stream in streams]
    assert len({seed for seeds in lists for seed in seeds}) == sum(len(seeds) for seeds in lists)
