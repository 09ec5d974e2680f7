"""The EMPO2 agent: act with policy, memory and critics; learn from prioritised batches.

From the training command to the MPO loss: `train.main` -> `Trainer.run` -> `Agent.update` -> `mpo_loss`.

Shapes: B batch, S improvement states, N samples, K retrieved, M members, W policy input, A action dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from grasp_control.empo2 import critics, mpo
from grasp_control.empo2.config import EMPO2Config
from grasp_control.empo2.exploration import choose
from grasp_control.empo2.schedules import cosine, linear
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.networks import GaussianPolicy, Normaliser, QEnsemble, track
from grasp_control.types import MemoryBatch, Retrieved

Stats = dict[str, float]


class Decision(NamedTuple):
    """What the agent wants to do, for B policy inputs."""

    actions: np.ndarray
    """(B, A), in [-1, 1]: the intended actions, without exploration noise."""
    gated: np.ndarray
    """(B,) bool: the action was retrieved from memory."""
    deviated: np.ndarray
    """(B,) bool: the critics chose something other than the policy's mean."""


@dataclass
class _Networks:
    policy: GaussianPolicy
    target_policy: GaussianPolicy
    average_policy: GaussianPolicy
    conservative: QEnsemble
    target_conservative: QEnsemble
    exploratory: QEnsemble
    target_exploratory: QEnsemble


class Agent:
    """Actor, dual critics and the rule by which memory takes part in acting."""

    def __init__(
        self,
        config: EMPO2Config,
        normaliser: Normaliser,
        action_dim: int,
        *,
        generator: torch.Generator,
        total_updates: int,
    ) -> None:
        """Build fresh networks from `generator`, which also draws every later sample.

        Args:
            config: the algorithm's settings.
            normaliser: statistics of the raw policy input (W,).
            action_dim: A.
            generator: the agent's only source of randomness.
            total_updates: number of `update` calls in the whole run, the end of every schedule.
        """
        self.config = config
        self.normaliser = normaliser
        self.generator = generator
        self.total_updates = max(total_updates, 1)
        self.updates = 0
        width, hidden = normaliser.mean.shape[0], (config.hidden_width, config.hidden_width)

        def policy() -> GaussianPolicy:
            return GaussianPolicy(width, action_dim, generator, hidden)

        def ensemble() -> QEnsemble:
            return QEnsemble(width, action_dim, config.critics, generator, hidden)

        self.networks = _Networks(
            policy(), policy(), policy(), ensemble(), ensemble(), ensemble(), ensemble()
        )
        n = self.networks
        for target, online in (
            (n.target_policy, n.policy),
            (n.average_policy, n.policy),
            (n.target_conservative, n.conservative),
            (n.target_exploratory, n.exploratory),
        ):
            target.load_state_dict(online.state_dict())
            target.requires_grad_(False)
        self.policy_optimizer = torch.optim.AdamW(
            n.policy.parameters(), config.learning_rate, weight_decay=1e-4
        )
        self.critic_optimizer = torch.optim.AdamW(
            [*n.conservative.parameters(), *n.exploratory.parameters()],
            config.learning_rate,
            weight_decay=1e-4,
        )

    # --- schedules -------------------------------------------------------------------------------

    @property
    def progress(self) -> float:
        """Share of the run's updates already done, in [0, 1]."""
        return min(self.updates / self.total_updates, 1.0)

    @property
    def eta(self) -> float:
        """Weight of the conservative critic in Q (E7)."""
        return linear(self.config.eta_start, self.config.eta_end, self.progress)

    @property
    def kl_lambda(self) -> float:
        """Coefficient of the KL penalty to the target policy (E8)."""
        return cosine(self.config.lambda_start, self.config.lambda_end, self.progress)

    # --- acting ----------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, windows: np.ndarray, memory: LongTermMemory, *, explore: bool) -> Decision:
        """Choose among the policy's mean, draws from it and retrieved actions (E10).

        Args:
            windows: (B, W) raw policy inputs.
            memory: where neighbours are retrieved from.
            explore: also offer draws from the policy as candidates.
        """
        states = self.normaliser(torch.from_numpy(windows))
        mean, std = self.networks.average_policy(states)
        if self.updates < self.config.choice_after_updates:
            nothing = np.zeros(len(windows), dtype=bool)
            return Decision(mean.numpy(), nothing, nothing)
        draws = self.config.acting_samples if explore else 0
        noise = torch.randn((draws, *mean.shape), generator=self.generator)
        found = memory.retrieve(windows, self.config.neighbours)
        retrieved = torch.from_numpy(found.actions).transpose(0, 1)
        candidates = torch.cat([mean[None], (mean + std * noise).clamp(-1.0, 1.0), retrieved])
        valid = torch.ones(candidates.shape[:2], dtype=torch.bool)
        valid[1 + draws :] = torch.from_numpy(found.valid).T
        conservative = self.networks.conservative(states, candidates)
        exploratory = self.networks.exploratory(states, candidates)
        blended = critics.blend(conservative, exploratory, self.eta)
        index = choose(conservative, blended, valid, margin=self.config.advantage_margin)
        chosen = candidates[index, torch.arange(len(windows))]
        return Decision(chosen.numpy(), (index > draws).numpy(), (index != 0).numpy())

    @torch.no_grad()
    def mean_action(self, windows: np.ndarray) -> np.ndarray:
        """The averaged policy's mean, raw windows (B, W) -> (B, A)."""
        return self.networks.average_policy(self.normaliser(torch.from_numpy(windows)))[0].numpy()

    # --- learning --------------------------------------------------------------------------------

    def clone(self, windows: np.ndarray, actions: np.ndarray) -> float:
        """One step of behaviour cloning on raw windows (B, W) and actions (B, A); returns the loss."""
        mean, _ = self.networks.policy(self.normaliser(torch.from_numpy(windows)))
        loss = self._imitation_loss(mean, torch.from_numpy(actions))
        self._step_policy(loss)
        track(self.networks.average_policy.parameters(), self.networks.policy.parameters(), 0.01)
        self.networks.target_policy.load_state_dict(self.networks.policy.state_dict())
        return float(loss.detach())

    def update(self, batch: MemoryBatch, successes: MemoryBatch, memory: LongTermMemory) -> Stats:
        """One learner step: critics, policy, targets, priorities.

        Args:
            batch: prioritised sample; the critics and the E-step learn from it.
            successes: uniform sample of successful episodes, imitated as the memory stratum (E9).
            memory: retrieved from, and given the new TD errors.
        """
        self._set_learning_rate()
        stats, td_errors = self._update_critics(batch, memory)
        memory.update_scores(batch.ids, td_errors)
        stats |= self._update_policy(batch, successes, memory)
        n, rate = self.networks, self.config.target_rate
        for target, online, speed in (
            (n.target_conservative, n.conservative, rate),
            (n.target_exploratory, n.exploratory, rate),
            (n.target_policy, n.policy, rate),
            (n.average_policy, n.policy, self.config.average_rate),
        ):
            track(target.parameters(), online.parameters(), speed)
        self.updates += 1
        return stats | {"eta": self.eta, "kl_lambda": self.kl_lambda}

    def _update_critics(self, batch: MemoryBatch, memory: LongTermMemory) -> tuple[Stats, np.ndarray]:
        n = self.networks
        states = self.normaliser(torch.from_numpy(batch.windows))
        actions = torch.from_numpy(batch.actions)
        rewards, discounts = torch.from_numpy(batch.n_step_rewards), torch.from_numpy(batch.discounts)
        returns, weights = torch.from_numpy(batch.returns_to_go), torch.from_numpy(batch.weights)
        with torch.no_grad():
            next_states = self.normaliser(torch.from_numpy(batch.bootstrap_windows))
            candidates, valid, _ = self._candidates(
                next_states,
                memory.retrieve(batch.bootstrap_windows, self.config.target_neighbours),
                self.config.target_samples,
            )
            conservative = critics.conservative_targets(
                rewards, discounts, n.target_conservative(next_states, candidates[0]), returns
            )
            exploratory = critics.exploratory_targets(
                rewards, discounts, n.target_exploratory(next_states, candidates), valid, returns
            )
        loss_c, td_errors, stats = critics.critic_loss(n.conservative(states, actions), conservative, weights)
        loss_e, _, stats_e = critics.critic_loss(n.exploratory(states, actions), exploratory, weights)
        self.critic_optimizer.zero_grad(set_to_none=True)
        (loss_c + loss_e).backward()
        self.critic_optimizer.step()
        return stats | {"q_exploratory": stats_e["q_mean"]}, td_errors.numpy()

    def _update_policy(self, batch: MemoryBatch, successes: MemoryBatch, memory: LongTermMemory) -> Stats:
        n, config = self.networks, self.config
        rows = slice(0, config.improvement_batch)
        raw = batch.windows[rows]
        states = self.normaliser(torch.from_numpy(raw))
        with torch.no_grad():
            target = mpo.Gaussian(*n.target_policy(states))
            candidates, valid, samples = self._candidates(
                states, memory.retrieve(raw, config.neighbours), config.improvement_samples
            )
            log_weights = mpo.retrieval_log_weights(
                candidates, valid, target, samples, config.retrieval_bandwidth
            )
            q = critics.blend(
                n.target_conservative(states, candidates), n.target_exploratory(states, candidates), self.eta
            )
            temperature = mpo.solve_temperature(q, log_weights, config.epsilon)
            weights = mpo.improvement_weights(q, log_weights, temperature)
        loss, stats = mpo.mpo_loss(
            mpo.Gaussian(*n.policy(states)),
            target,
            candidates,
            weights,
            kl_mean=self.kl_lambda,
            kl_std=self.kl_lambda * config.std_penalty_ratio,
        )
        mean, _ = n.policy(self.normaliser(torch.from_numpy(successes.windows)))
        imitation = self._imitation_loss(mean, torch.from_numpy(successes.intended_actions))
        share = linear(config.memory_share_start, config.memory_share_end, self.progress)
        self._step_policy((1.0 - share) * loss + share * imitation)
        retrieved_mass = float(weights[samples:].sum(dim=0).mean())
        return stats | {
            "imitation_loss": float(imitation.detach()),
            "temperature": float(temperature),
            "retrieved_mass": retrieved_mass,
            "memory_share": share,
        }

    def _candidates(
        self, states: torch.Tensor, found: Retrieved, samples: int
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Samples of the target policy, then retrieved actions: (N + K, B, A), valid (N + K, B), N."""
        drawn = self.networks.target_policy.sample(states, self.generator, samples)
        retrieved = torch.from_numpy(found.actions).transpose(0, 1)
        exists = torch.from_numpy(found.valid).transpose(0, 1)
        valid = torch.cat([torch.ones(drawn.shape[:2], dtype=torch.bool), exists])
        return torch.cat([drawn, retrieved]), valid, samples

    def _imitation_loss(self, mean: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        # Likelihood under a fixed width: fitting the width too would end all exploration, since the agent's
        # own intended actions have no spread.
        return 0.5 * ((actions - mean) / self.config.imitation_std).square().sum(dim=1).mean()

    def _step_policy(self, loss: torch.Tensor) -> None:
        self.policy_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.networks.policy.parameters(), self.config.gradient_norm)
        self.policy_optimizer.step()

    def _set_learning_rate(self) -> None:
        rate = cosine(self.config.learning_rate, self.config.final_learning_rate, self.progress)
        for optimizer in (self.policy_optimizer, self.critic_optimizer):
            for group in optimizer.param_groups:
                group["lr"] = rate

    # --- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs, generator included."""
        return {
            "networks": {name: net.state_dict() for name, net in vars(self.networks).items()},
            "normaliser": self.normaliser.state_dict(),
            "policy_optimizer": self.policy_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "total_updates": self.total_updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an agent built with the same configuration."""
        for name, net in vars(self.networks).items():
            net.load_state_dict(state["networks"][name])
        self.normaliser.load_state_dict(state["normaliser"])
        self.policy_optimizer.load_state_dict(state["policy_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.generator.set_state(state["generator"])
        self.updates = int(state["updates"])
        self.total_updates = int(state["total_updates"])
