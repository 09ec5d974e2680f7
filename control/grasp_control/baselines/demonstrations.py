"""The two parts of RLPD that Stable-Baselines3's SAC lacks: mixed batches and layer-normalised critics.

Ball et al. 2023, "Efficient Online Reinforcement Learning with Offline Data" (arXiv:2302.02948).

Shapes: T steps, W policy input, A action dimension, H hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, create_mlp
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.sac.policies import SACPolicy
from torch import nn

from grasp_control.types import Trajectory


class MixedReplayBuffer(NStepReplayBuffer):
    """Half of every batch comes from the demonstrations, the other half from the agent's own steps."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *args: Any,
        demonstrations: Sequence[Trajectory],
        **settings: Any,
    ) -> None:
        """Take the library's own arguments, and the demonstrations, which are never overwritten."""
        super().__init__(buffer_size, observation_space, action_space, *args, **settings)
        rows = sum(len(trajectory.actions) for trajectory in demonstrations)
        self.demonstrations = NStepReplayBuffer(rows, observation_space, action_space, *args, **settings)
        for trajectory in demonstrations:
            _store(self.demonstrations, trajectory)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """`batch_size` rows, own steps first; of an odd number the agent's own get the larger half."""
        demonstrated = batch_size // 2
        own = super().sample(batch_size - demonstrated, env)
        demos = self.demonstrations.sample(demonstrated, env)
        assert own.discounts is not None
        assert demos.discounts is not None
        return ReplayBufferSamples(
            torch.cat([own.observations, demos.observations]),
            torch.cat([own.actions, demos.actions]),
            torch.cat([own.next_observations, demos.next_observations]),
            torch.cat([own.dones, demos.dones]),
            torch.cat([own.rewards, demos.rewards]),
            torch.cat([own.discounts, demos.discounts]),
        )


def _store(buffer: NStepReplayBuffer, trajectory: Trajectory) -> None:
    """Add a whole episode; one that did not terminate ends as at a time-out, which is bootstrapped."""
    last = len(trajectory.actions) - 1
    for step, action in enumerate(trajectory.actions):
        ends = step == last
        buffer.add(
            trajectory.windows[step],
            trajectory.windows[step + 1],
            action,
            trajectory.rewards[step],
            np.array(ends),
            [{"TimeLimit.truncated": ends and not trajectory.terminated}],
        )


class LayerNormCritic(ContinuousCritic):
    """Q networks with a LayerNorm after each hidden linear layer: values stay bounded off the data."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        **settings: Any,
    ) -> None:
        """Take the library's own arguments; `net_arch` holds the hidden widths H."""
        super().__init__(
            observation_space,
            action_space,
            net_arch,
            features_extractor,
            features_dim,
            activation_fn,
            **settings,
        )
        assert action_space.shape is not None
        inputs = features_dim + action_space.shape[0]
        for index in range(self.n_critics):
            layers = create_mlp(inputs, 1, net_arch, activation_fn, post_linear_modules=[nn.LayerNorm])
            self.q_networks[index] = nn.Sequential(*layers)
            self.add_module(f"qf{index}", self.q_networks[index])


class LayerNormPolicy(SACPolicy):
    """SAC's usual actor with layer-normalised critics."""

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> LayerNormCritic:
        """The critic, or its target."""
        settings = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return LayerNormCritic(**settings).to(self.device)
