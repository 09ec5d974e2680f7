"""The baselines' settings and where they come from.

Zoo: "RL Baselines3 Zoo", hyperparams/{ppo,sac}.yml, entry `pybullet-defaults`, tuned for Raffin et al. 2021,
"Smooth Exploration for Robotic Reinforcement Learning" (gSDE, arXiv:2005.05719).
RLPD: Ball et al. 2023 (arXiv:2302.02948), table of hyperparameters.

An action of 1 moves the tool by 12.5 mm a step, so noise drawn anew each step hardly moves it: 50 steps of
independent noise of deviation 1 end about 9 cm away, ten times less than a steady action. gSDE draws noise as
a function of the state, which stays the same for many steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from grasp_control.baselines.demonstrations import LayerNormPolicy, MixedReplayBuffer
from grasp_control.types import Trajectory

RANDOM_STEPS = 1000
"""Steps of uniformly random actions before SAC learns, but at most a tenth of the run. The Zoo's 10,000 would
be the whole of a short run; 1,000 are ten episodes."""

TEMPERATURE = "auto_0.01"
"""SAC's entropy coefficient is learned, from 0.01 instead of 1. A sparse return is at most 1; the bonus for
being random, 4 nats a step over 50 to 100 steps, would outweigh it until the coefficient has fallen to about
0.005, which from 1 takes 18,000 updates at a step size of 3e-4 and from 0.1 still 10,000."""


def make_ppo(env: VecNormalize, seed: int) -> PPO:
    """PPO as in the Zoo, but from one environment: a rollout of 2048 steps instead of 16 times 512, and so a
    larger step size (3e-4, that of Schulman et al. 2017) for fewer updates."""
    return PPO(
        "MlpPolicy",
        env,
        seed=seed,
        device="cpu",
        n_steps=2048,
        batch_size=128,
        n_epochs=10,
        learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        max_grad_norm=0.5,
        vf_coef=0.5,
        use_sde=True,
        sde_sample_freq=4,
        policy_kwargs={
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    )


def make_sac(env: VecNormalize, seed: int, env_steps: int) -> SAC:
    """SAC as in the Zoo, except for `RANDOM_STEPS` and `TEMPERATURE`."""
    return SAC(
        "MlpPolicy",
        env,
        seed=seed,
        device="cpu",
        learning_rate=7.3e-4,
        buffer_size=300_000,
        batch_size=256,
        learning_starts=min(RANDOM_STEPS, env_steps // 10),
        ent_coef=TEMPERATURE,
        gamma=0.98,
        tau=0.02,
        train_freq=8,
        gradient_steps=8,
        use_sde=True,
        policy_kwargs={"log_std_init": -3, "net_arch": [400, 300]},
    )


def make_sac_demos(env: VecNormalize, seed: int, env_steps: int, demonstrations: Sequence[Trajectory]) -> SAC:
    """SAC with demonstrations as in RLPD: mixed batches, layer-normalised critics, its rates and widths.

    Otherwise than in RLPD: 2 critics and 2 updates a step instead of 10 and 20, which a core does not manage;
    and returns of 5 steps, as EMPO2's memory sums, since the only reward comes at the end.
    """
    return SAC(
        LayerNormPolicy,
        env,
        seed=seed,
        device="cpu",
        learning_rate=3e-4,
        buffer_size=300_000,
        batch_size=256,
        learning_starts=min(RANDOM_STEPS, env_steps // 10),
        ent_coef=TEMPERATURE,
        gamma=0.99,
        tau=0.005,
        train_freq=1,
        gradient_steps=2,
        replay_buffer_class=MixedReplayBuffer,
        replay_buffer_kwargs={"demonstrations": demonstrations, "n_steps": 5, "gamma": 0.99},
        policy_kwargs={"net_arch": [256, 256]},
    )


def make(
    method: str, env: VecNormalize, *, seed: int, env_steps: int, demonstrations: Sequence[Trajectory]
) -> BaseAlgorithm:
    """A fresh learner: `ppo`, `sac` or `sac-demos`."""
    if method == "ppo":
        return make_ppo(env, seed)
    if method == "sac":
        return make_sac(env, seed, env_steps)
    return make_sac_demos(env, seed, env_steps, demonstrations)
