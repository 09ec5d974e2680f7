"""The agent of the grid world: an actor-critic and, where there is one, a memory that acts and is imitated.

Shapes: T steps, B batch, S cells, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from grasp_sim.grid import CELLS, MOVES


@dataclass
class AgentConfig:
    """Settings of the agent, the same in all arms."""

    hidden: int = 64
    """Width of the one hidden layer of policy and critic."""
    learning_rate: float = 3e-3
    """Of Adam."""
    discount: float = 0.98
    """Per step."""
    trace: float = 0.95
    """Decay of the traces (lambda)."""
    entropy: float = 0.01
    """Weight of the policy's entropy."""
    episodes: int = 4
    """Latest episodes of a batch; there is one update after each episode."""
    retrieved_share: float = 0.5
    """Share of the actions that are retrieved where something is near, with the memory in full."""
    imitated: int = 64
    """Rows of the memory that an update imitates."""
    imitation: float = 0.5
    """Weight of imitation, with the memory in full."""
    capacity: int = 2000
    """Rows of the memory."""


class Walk(NamedTuple):
    """One episode as it was acted."""

    cells: np.ndarray
    """(T,) where each step began."""
    actions: np.ndarray
    """(T,)."""
    probabilities: np.ndarray
    """(T,) with which the agent took them, the memory included."""
    rewards: np.ndarray
    """(T,) as they were paid."""
    last: int
    """The cell in which it ended."""
    terminated: bool
    success: bool
    retrieved: np.ndarray
    """(T,) bool: the memory chose the action."""
    distances: np.ndarray
    """(T,) cells to the row it was retrieved from; NaN elsewhere."""


class Agent:
    """Policy, critic and their update. V-trace (Espeholt et al. 2018) accounts for retrieved actions and for
    episodes that are a few updates old; what was remembered is imitated where it went better than the critic
    expects (self-imitation, Oh et al. 2018)."""

    def __init__(self, config: AgentConfig, generator: torch.Generator) -> None:
        self.config = config
        self.policy = _network(config.hidden, len(MOVES), generator)
        self.critic = _network(config.hidden, 1, generator)
        parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self._optimizer = torch.optim.Adam(parameters, config.learning_rate)
        self._table: np.ndarray | None = None

    def probabilities(self) -> np.ndarray:
        """(S, A) of the policy, in every cell; kept until the next update."""
        table = self._table
        if table is None:
            with torch.no_grad():
                table = self._table = self.policy(torch.eye(CELLS)).softmax(dim=-1).double().numpy()
        return table

    def update(
        self,
        walks: list[Walk],
        remembered: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
        participation: float,
    ) -> None:
        """One step on the latest `walks` and on `remembered` rows: cells, actions and returns-to-go (B,)."""
        losses = [self._walk_loss(walk) for walk in walks]
        loss = torch.stack(losses).sum() / sum(len(walk.actions) for walk in walks)
        if remembered is not None and participation > 0.0:
            loss = loss + participation * self.config.imitation * self._imitation_loss(*remembered)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([*self.policy.parameters(), *self.critic.parameters()], 1.0)
        self._optimizer.step()
        self._table = None

    def _walk_loss(self, walk: Walk) -> torch.Tensor:
        config = self.config
        states = functional.one_hot(torch.from_numpy(np.append(walk.cells, walk.last)), CELLS).float()
        actions = torch.from_numpy(walk.actions)[:, None]
        log_policy = self.policy(states[:-1]).log_softmax(dim=-1)
        taken = log_policy.gather(1, actions)[:, 0]
        values = self.critic(states)[:, 0]
        with torch.no_grad():
            ratios = (taken.exp().double().numpy() / walk.probabilities).clip(max=1.0)
            bounds = values.double().numpy().copy()
            if walk.terminated:
                bounds[-1] = 0.0
            targets, advantages = v_trace(
                walk.rewards, bounds, ratios, discount=config.discount, trace=config.trace
            )
        chosen = torch.from_numpy(advantages).float() * taken
        errors = 0.5 * (torch.from_numpy(targets).float() - values[:-1]).square()
        entropy = -(log_policy.exp() * log_policy).sum(dim=-1)
        return (errors - chosen - config.entropy * entropy).sum()

    def _imitation_loss(self, cells: np.ndarray, actions: np.ndarray, returns: np.ndarray) -> torch.Tensor:
        states = functional.one_hot(torch.from_numpy(cells), CELLS).float()
        taken = self.policy(states).log_softmax(dim=-1).gather(1, torch.from_numpy(actions)[:, None])[:, 0]
        better = (torch.from_numpy(returns).float() - self.critic(states)[:, 0]).clamp(min=0.0)
        return (0.5 * better.square() - better.detach() * taken).mean()


def v_trace(
    rewards: np.ndarray, values: np.ndarray, ratios: np.ndarray, *, discount: float, trace: float
) -> tuple[np.ndarray, np.ndarray]:
    """Targets of the critic and advantages of the actions, each (T,).

    Args:
        rewards: (T,).
        values: (T + 1,) of the critic; the last is 0 where the episode terminated.
        ratios: (T,) probability under the policy over that with which the action was taken, at most 1.
        discount: per step.
        trace: decay of the traces (lambda).
    """
    targets = values.copy()
    for t in range(len(rewards) - 1, -1, -1):
        error = ratios[t] * (rewards[t] + discount * values[t + 1] - values[t])
        targets[t] = values[t] + error + discount * trace * ratios[t] * (targets[t + 1] - values[t + 1])
    advantages = ratios * (rewards + discount * targets[1:] - values[:-1])
    return targets[:-1], advantages


def _network(hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """Orthogonal weights, the last small: the policy begins nearly uniform."""
    network = nn.Sequential(nn.Linear(CELLS, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    for layer, gain in ((network[0], 1.0), (network[2], 0.01)):
        assert isinstance(layer, nn.Linear)
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
    return network
