"""The baselines: what they see, what they learn from, and that they are what they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

from grasp_control.baselines import methods
from grasp_control.baselines.demonstrations import MixedReplayBuffer
from grasp_control.baselines.train import train_baseline
from grasp_control.baselines.window import WindowEnv
from grasp_control.config import TrainConfig
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import episode_seeds, rollout
from grasp_control.types import Trajectory
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM

WIDTH = 4 * (OBSERVATION_DIM + ACTION_DIM)


def window_env(horizon: int = 100) -> WindowEnv:
    env = registry.make("pybullet-lift", horizon=horizon, seed=0)
    return WindowEnv(env, ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=4))


def trajectory(steps: int, value: float, *, terminated: bool = True) -> Trajectory:
    """A made-up episode that is `value` everywhere, with reward 1 at its end."""
    rewards = np.zeros(steps, np.float32)
    rewards[-1] = 1.0
    actions = np.full((steps, ACTION_DIM), value, np.float32)
    return Trajectory(
        windows=np.full((steps + 1, WIDTH), value, np.float32),
        actions=actions,
        intended_actions=actions,
        rewards=rewards,
        slips=np.zeros(steps, np.bool_),
        forces=np.zeros(steps, np.float32),
        terminated=terminated,
        success=terminated,
        demonstration=True,
        gated=np.zeros(steps, np.bool_),
    )


def test_a_baseline_sees_bit_for_bit_what_empo2_sees():
    actions = np.random.default_rng(3).uniform(-1.5, 1.5, (30, ACTION_DIM)).astype(np.float32)
    env = window_env(horizon=30)
    first, _ = env.reset(seed=5)
    seen = [first, *(env.step(action)[0] for action in actions)]

    shown: list[np.ndarray] = []

    def act(window: np.ndarray) -> tuple[np.ndarray, bool]:
        shown.append(window)
        return actions[len(shown) - 1], False

    plain = registry.make("pybullet-lift", horizon=30, seed=0)
    done = rollout(plain, act, ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=4), seed=5)
    np.testing.assert_array_equal(np.stack(seen[:-1]), np.stack(shown))
    np.testing.assert_array_equal(np.stack(seen), done.trajectory.windows)
    assert env.observation_space.shape == (WIDTH,)
    assert seen[0].dtype == np.float32


def test_at_a_time_out_the_true_last_window_is_bootstrapped_from():
    """What follows is not the next episode's first window, and the step is not terminal."""
    vec = DummyVecEnv([lambda: window_env(horizon=12)])
    model = methods.make_sac(VecNormalize(vec, norm_obs=False, norm_reward=False), seed=0, env_steps=12)
    model.learning_starts = 100
    model.learn(12)
    buffer = model.replay_buffer
    assert buffer is not None
    assert buffer.dones[11, 0] == 1.0
    assert buffer.timeouts[11, 0] == 1.0
    assert buffer.timeouts[:11].sum() == 0
    # The next window ends with the last step's action; that of a fresh episode holds zero actions.
    np.testing.assert_array_equal(buffer.next_observations[11, 0, -ACTION_DIM:], buffer.actions[11, 0])
    assert float(buffer._get_samples(np.array([11])).dones[0]) == 0.0


def mixed(demonstrations: list[Trajectory], n_steps: int = 1) -> MixedReplayBuffer:
    return MixedReplayBuffer(
        1000,
        spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32),
        spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32),
        device="cpu",
        demonstrations=demonstrations,
        n_steps=n_steps,
        gamma=0.5,
    )


def test_half_of_each_batch_is_demonstrated():
    buffer = mixed([trajectory(7, 0.5), trajectory(5, 0.25)])
    zeros, action = np.zeros(WIDTH, np.float32), np.zeros(ACTION_DIM, np.float32)
    for _ in range(3):
        buffer.add(zeros, zeros, action, np.zeros(1), np.zeros(1), [{}])
    assert buffer.demonstrations.size() == 12
    for size in (64, 65):
        batch = buffer.sample(size)
        demonstrated = batch.observations[:, 0] != 0
        assert len(batch.observations) == size
        assert int(demonstrated.sum()) == size // 2
        assert set(batch.actions[demonstrated, 0].tolist()) == {0.5, 0.25}
        assert batch.discounts is not None
        assert len(batch.discounts) == size


@pytest.mark.parametrize(("terminated", "done"), [(True, 1.0), (False, 0.0)])
def test_a_demonstration_ends_where_it_ended(terminated, done):
    """3-step returns with discount 0.5: from two steps before the end 0 + 0 + 0.25, and nothing beyond."""
    buffer = mixed([trajectory(6, 0.5, terminated=terminated), trajectory(6, 0.25)], n_steps=3)
    demos = buffer.demonstrations
    assert isinstance(demos, NStepReplayBuffer)
    batch = demos._get_samples(np.array([2, 3, 4, 5]))
    assert batch.rewards.flatten().tolist() == [0.0, 0.25, 0.5, 1.0]
    assert batch.dones.flatten().tolist() == [0.0, done, done, done]
    assert batch.discounts is not None
    assert batch.discounts.flatten().tolist() == [0.125, 0.125, 0.25, 0.5]


def test_critics_of_sac_with_demonstrations_are_layer_normalised():
    vec = VecNormalize(DummyVecEnv([window_env]))
    model = methods.make_sac_demos(vec, seed=0, env_steps=100, demonstrations=[trajectory(6, 0.5)])
    assert isinstance(model.replay_buffer, MixedReplayBuffer)
    for critic in (model.critic, model.critic_target):
        for network in critic.q_networks:
            kinds = [type(layer) for layer in network]
            assert kinds == [nn.Linear, nn.LayerNorm, nn.ReLU] * 2 + [nn.Linear]
        assert {f"qf{i}.1.weight" for i in range(2)} <= set(critic.state_dict())
    trained = {id(p) for group in model.critic.optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in model.critic.parameters()}
    assert not any(isinstance(layer, nn.LayerNorm) for layer in model.actor.modules())
    for name, value in model.critic.state_dict().items():
        torch.testing.assert_close(value, model.critic_target.state_dict()[name])


def test_a_baseline_is_evaluated_at_each_point_and_stops_at_the_last():
    config = TrainConfig(env=EnvConfig(name="pybullet-lift", horizon=10), evaluation_episodes=2)
    evaluated, steps = [], []
    train_baseline(
        "ppo", config, [], [15, 30], lambda step, results: evaluated.append((step, results)), steps.append
    )
    assert steps == list(range(1, 31))
    assert [step for step, _ in evaluated] == [15, 30]
    seeds = episode_seeds(config.seed, "evaluate", 2)
    assert [[result.seed for result in results] for _, results in evaluated] == [seeds, seeds]
