"""The EMPO2 agent: act with policy, memory and critics; learn from prioritised batches.

From the training loop to the MPO loss: `train.learn` -> `LocalTrainer.learn` -> `Agent.update` ->
`Agent._update_policy` -> `mpo.mpo_loss`.

Shapes: B batch, S improvement states, N samples, K retrieved, M members, W policy input, A action dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from grasp_control.checkpoint import Restorable
from grasp_control.empo2 import critics, mpo
from grasp_control.empo2.config import EMPO2Config
from grasp_control.empo2.exploration import choose
from grasp_control.empo2.members import Networks
from grasp_control.empo2.schedules import cosine, linear
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.networks import Normaliser, draw, track
from grasp_control.types import MemoryBatch, Retrieved, Source

Stats = dict[str, float]


class Decision(NamedTuple):
    """What the agent wants to do, for B policy inputs."""

    actions: np.ndarray
    """(B, A), in [-1, 1]: the intended actions, without exploration noise."""
    gated: np.ndarray
    """(B,) bool: the action was retrieved from memory."""


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
        force_limit: float = math.inf,
    ) -> None:
        """Build fresh networks from `generator`, which also draws every later sample.

        Args:
            config: the algorithm's settings.
            normaliser: statistics of the raw policy input (W,).
            action_dim: A.
            generator: the agent's only source of randomness.
            total_updates: number of `update` calls in the whole run, the end of every schedule.
            force_limit: N, contact force from which the policy is constrained (E15).
        """
        self.config = config
        self.normaliser = normaliser
        self.generator = generator
        self.total_updates = max(total_updates, 1)
        self.updates = 0
        self.lambda_factor = 1.0
        """Factor on the KL coefficient, raised while the policy is to stay close to where it is (E13)."""
        self.participation = 1.0
        """Of the memory in acting and learning, 0 to 1 (E10)."""
        self.very_sparse = 0.0
        """How much the means for very sparse rewards are used, 0 to 1 (E14)."""
        n = self.networks = Networks.create(
            config, normaliser.mean.shape[0], action_dim, generator, force_limit=force_limit
        )

        def optimizer(*networks: torch.nn.Module) -> torch.optim.Optimizer:
            parameters = [parameter for network in networks for parameter in network.parameters()]
            return torch.optim.AdamW(parameters, config.learning_rate, weight_decay=1e-4, fused=True)

        self.policy_optimizer = optimizer(n.policy)
        self.critic_optimizer = optimizer(n.conservative, n.exploratory)
        self.risk_optimizer = optimizer(n.risk)
        self.rnd_optimizer = optimizer(n.rnd.predictor)

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
        scheduled = cosine(self.config.lambda_start, self.config.lambda_end, self.progress)
        return self.lambda_factor * scheduled

    # --- acting ----------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, windows: np.ndarray, memory: LongTermMemory, *, member: int | None) -> Decision:
        """Choose among the actors' means and retrieved actions (E10).

        Args:
            windows: (B, W) raw policy inputs.
            memory: where neighbours are retrieved from.
            member: the actor whose action stands unless the critics agree on a better candidate. Training
                follows one actor for a whole episode, so that where they disagree each is tried to the end.
                None is the mean of all, for evaluation and as the teacher of distillation.
        """
        states = self.normaliser(torch.from_numpy(windows))
        means, _ = self.networks.average_policy(states)
        base = means.mean(dim=0) if member is None else means[member]
        if self.updates < self.config.choice_after_updates:
            return Decision(base.numpy(), np.zeros(len(windows), dtype=bool))
        found = memory.retrieve_repelled(windows, self.config.neighbours)
        candidates = torch.cat([base[None], means, torch.from_numpy(found.actions).transpose(0, 1)])
        valid = torch.ones(candidates.shape[:2], dtype=torch.bool)
        valid[1 + len(means) :] = torch.from_numpy(found.support >= 0.5).T
        if member is None:  # what is measured, and taught to one network, is no matter of chance
            valid[1 + len(means) :] &= bool(self.participation >= 0.5)
        elif self.participation < 1.0:
            asked = torch.rand(len(windows), generator=self.generator) < self.participation
            valid[1 + len(means) :] &= asked
        risk = self.networks.risk(states, candidates)
        price = self.config.slip_penalty * risk.slip + self.networks.risk.multiplier * risk.excess
        conservative = self.networks.conservative(states, candidates) - price
        exploratory = self.networks.exploratory(states, candidates) - price
        blended = critics.blend(conservative, exploratory, self.eta)
        index = choose(conservative, blended, valid, margin=self.config.advantage_margin)
        chosen = candidates[index, torch.arange(len(windows))]
        return Decision(chosen.numpy(), (index > len(means)).numpy())

    # --- learning --------------------------------------------------------------------------------

    def clone(self, batch: MemoryBatch) -> float:
        """One step of behaviour cloning; returns the loss. Each actor sees its own share of the rows."""
        windows = self.normaliser(torch.from_numpy(batch.windows))
        actions = torch.from_numpy(batch.intended_actions)
        loss = self._imitation_loss(windows, actions, torch.ones(len(actions)))
        self._step_policy(loss)
        n = self.networks
        track(n.average_policy.parameters(), n.policy.parameters(), self.config.average_rate)
        n.target_policy.load_state_dict(n.policy.state_dict())
        return float(loss.detach())

    def update(
        self, batch: MemoryBatch, successes: MemoryBatch | None, fresh: MemoryBatch, memory: LongTermMemory
    ) -> Stats:
        """One learner step: critics, policy, targets, priorities.

        Args:
            batch: prioritised sample; the critics and the E-step learn from it.
            successes: uniform sample of successful episodes, imitated as the memory stratum (E9); None while
                there are none.
            fresh: uniform sample of the latest episodes, the fresh stratum (E9).
            memory: retrieved from, and given the new TD errors.
        """
        self._set_learning_rate()
        # A context of its own for each: it keeps the rounded weights, which the optimisers change.
        with self._rounding():
            stats, td_errors = self._update_critics(batch, memory)
        with self._rounding():
            bonus = self._update_rnd(batch)
        with self._rounding():
            stats |= self._update_risk(batch)
        with self._rounding():
            stats |= self._update_policy(batch, successes, fresh, memory)
        memory.update_scores(batch.ids, td_errors, bonus)
        self.networks.track(self.config.target_rate, self.config.average_rate)
        self.updates += 1
        return stats | {
            "eta": self.eta,
            "kl_lambda": self.kl_lambda,
            "participation": self.participation,
            "rnd_bonus": 0.0 if bonus is None else float(bonus.mean()),
        }

    def _rounding(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bf16")

    def _update_critics(self, batch: MemoryBatch, memory: LongTermMemory) -> tuple[Stats, np.ndarray]:
        n = self.networks
        states = self.normaliser(torch.from_numpy(batch.windows))
        next_states = self.normaliser(torch.from_numpy(batch.bootstrap_windows))
        actions = torch.from_numpy(batch.actions)
        rewards, discounts = torch.from_numpy(batch.n_step_rewards), torch.from_numpy(batch.discounts)
        returns, weights = torch.from_numpy(batch.returns_to_go), torch.from_numpy(batch.weights)
        with torch.no_grad():
            # One actor per update, at random: over the updates, draws from their mixture.
            member = int(torch.randint(self.config.actors, (), generator=self.generator))
            drawn = n.target_policy.sample_member(member, next_states, self.generator)
            found = memory.recall(
                batch.ids, batch.bootstrap_windows, self.config.target_neighbours, later=True
            )
            candidates, valid = _with_retrieved(drawn, found)
            if self.very_sparse > 0.0:
                here = memory.recall(batch.ids, batch.windows, self.config.neighbours)
                potential, next_potential = self._potential(here), self._potential(found)
                rewards = rewards + discounts * next_potential - potential
                returns = returns - potential
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

    def _potential(self, found: Retrieved) -> torch.Tensor:
        """Likeness to successful trajectories (B,), the return-to-go of the nearest one where it is near.

        Its change from a step to the next is added to the reward of the critics while rewards are very sparse
        (E14). A difference of potentials leaves the best policy what it is (Ng et al. 1999): loitering near
        a success earns nothing.
        """
        near = np.exp(-0.5 * np.square(found.distances[:, 0] / self.config.similarity_reach))
        returns = np.where(np.isfinite(found.returns[:, 0]), found.returns[:, 0], 0.0)
        weight = self.very_sparse * self.config.similarity_weight
        return torch.from_numpy((weight * near * returns).astype(np.float32))

    def _update_rnd(self, batch: MemoryBatch) -> np.ndarray | None:
        """Train the predictor and return the bonus (B,) in the units of the score; None where unwanted."""
        weight = self.very_sparse * self.config.rnd_weight
        if weight == 0.0:
            return None
        errors = self.networks.rnd(self.normaliser(torch.from_numpy(batch.windows)))
        self.rnd_optimizer.zero_grad(set_to_none=True)
        errors.mean().backward()
        self.rnd_optimizer.step()
        return (weight * self.networks.rnd.bonus(errors.detach())).numpy()

    def _update_risk(self, batch: MemoryBatch) -> Stats:
        risk = self.networks.risk
        slips = torch.from_numpy((batch.sources == Source.SLIP).astype(np.float32))
        states = self.normaliser(torch.from_numpy(batch.windows))
        loss = risk.loss(states, torch.from_numpy(batch.actions), slips, torch.from_numpy(batch.peak_forces))
        self.risk_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.risk_optimizer.step()
        return {"risk_loss": float(loss.detach())}

    def _update_policy(
        self, batch: MemoryBatch, successes: MemoryBatch | None, fresh: MemoryBatch, memory: LongTermMemory
    ) -> Stats:
        n, config = self.networks, self.config
        rest = config.improvement_batch - len(fresh.ids)
        ids = np.concatenate([batch.ids[:rest], fresh.ids])
        raw = np.concatenate([batch.windows[:rest], fresh.windows])
        executed = torch.from_numpy(np.concatenate([batch.actions[:rest], fresh.actions]))
        states = self.normaliser(torch.from_numpy(raw))
        with torch.no_grad():
            target = mpo.Gaussian(*n.target_policy(states))
            drawn = draw(target.mean, target.std, self.generator, config.improvement_samples)
            found = memory.recall_repelled(ids, raw, config.neighbours)
            candidates, _ = _with_retrieved(drawn, found)
            candidates = torch.cat([candidates, executed[None]])
            q = critics.blend(
                n.target_conservative(states, candidates), n.target_exploratory(states, candidates), self.eta
            )
            excess = n.risk(states, candidates).excess if n.risk.constrained else torch.zeros_like(q)
            q = q - n.risk.multiplier * excess
            # What was tried there with exploration noise: the critics know its value best, as they are
            # trained on it. It is a candidate of the memory's where it beats the policy, and no draw of the
            # policy's: as one it would pull the policy towards the noise wherever values are equal.
            better = q[-1] > q[: len(drawn)].mean(dim=0) + config.advantage_margin
            support = torch.cat([torch.from_numpy(found.support).T, better[None].float()])
            share = config.retrieval_share * self.participation
            log_prior = mpo.candidate_log_prior(support, len(drawn), share)
            temperature = mpo.solve_temperature(q, log_prior, config.epsilon)
            weights = mpo.improvement_weights(q, log_prior, temperature)
            drawn_excess = float(excess[: len(drawn)].mean())
            n.risk.tighten(drawn_excess, config.force_budget, config.force_rate)
        improvement, stats = mpo.mpo_loss(
            mpo.Gaussian(*n.policy(states)),
            target,
            candidates[:, None],
            weights[:, None],
            kl_mean=self.kl_lambda,
            kl_std=self.kl_lambda * config.std_penalty_ratio,
        )
        stratum, loss = 0.0, improvement
        imitated = {"imitation_loss": 0.0, "imitation_kept": 0.0, "memory_mass": 0.0}
        if successes is not None:
            imitation, imitated = self._memory_stratum(successes)
            scheduled = linear(config.memory_share_start, config.memory_share_end, self.progress)
            mass = max(imitated["memory_mass"], config.memory_share_floor)
            stratum = self.participation * min(scheduled, mass)
            loss = (1.0 - stratum) * improvement + stratum * imitation
        self._step_policy(loss)
        return (
            stats
            | imitated
            | {
                "temperature": float(temperature),
                "retrieved_mass": float(weights[len(drawn) :].sum(dim=0).mean()),
                "retrieved_support": float(found.support.mean()),
                "memory_share": stratum,
                "force_excess": drawn_excess,
                "force_multiplier": float(n.risk.multiplier),
            }
        )

    def _memory_stratum(self, successes: MemoryBatch) -> tuple[torch.Tensor, Stats]:
        """Imitate successful episodes, but not the steps that the critics call worse than the policy's own.

        What is imitated is the intended action, or the executed one where the critics call that better: then
        the success may be owed to the exploration noise. A success holds poor steps too. Each is weighted
        min(1, exp(A / beta)), A its advantage over the target policy's mean (critic-regularised regression,
        Wang et al. 2020, never above 1 so that an overestimated step cannot take over). Also returns the mean
        weight and the policy's mass on the rows: how nearly it does what they did, by a Gaussian kernel as
        wide as imitation is (E9).
        """
        n = self.networks
        windows = self.normaliser(torch.from_numpy(successes.windows))
        actions = torch.from_numpy(successes.intended_actions)
        weights = torch.ones(len(actions))
        with torch.no_grad():
            mean = n.target_policy(windows)[0].mean(dim=0)
            if self.updates >= self.config.choice_after_updates:
                three = torch.stack([actions, torch.from_numpy(successes.actions), mean])
                q = critics.blend(
                    n.target_conservative(windows, three), n.target_exploratory(windows, three), self.eta
                )
                by_noise = q[1] > q[0] + self.config.advantage_margin
                actions = torch.where(by_noise[:, None], three[1], actions)
                advantage = torch.where(by_noise, q[1], q[0]) - q[2]
                weights = (advantage / self.config.advantage_scale).clamp(max=0.0).exp()
            errors = ((actions - mean) / self.config.imitation_std).square().mean(dim=-1)
            mass = float((-0.5 * errors).exp().mean())
        loss = self._imitation_loss(windows, actions, weights)
        stats = {
            "imitation_loss": float(loss.detach()),
            "imitation_kept": float(weights.mean()),
            "memory_mass": mass,
        }
        return loss, stats

    def _imitation_loss(
        self, states: torch.Tensor, actions: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Each actor imitates its own share of the rows, so that they stay different where data is thin."""
        count = self.config.actors
        rows = len(states) // count * count
        mean, _ = self.networks.policy(states[:rows].unflatten(0, (count, -1)))
        # Likelihood under a fixed width: fitting the width too would end all exploration, since the agent's
        # own intended actions have no spread.
        errors = ((actions[:rows].unflatten(0, (count, -1)) - mean) / self.config.imitation_std).square()
        return 0.5 * (weights[:rows].unflatten(0, (count, -1)) * errors.sum(dim=-1)).mean()

    def _step_policy(self, loss: torch.Tensor) -> None:
        self.policy_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.networks.policy.parameters(), self.config.gradient_norm)
        self.policy_optimizer.step()

    def _set_learning_rate(self) -> None:
        rate = cosine(self.config.learning_rate, self.config.final_learning_rate, self.progress)
        for optimizer in (
            *(self.policy_optimizer, self.critic_optimizer),
            *(self.risk_optimizer, self.rnd_optimizer),
        ):
            for group in optimizer.param_groups:
                group["lr"] = rate

    # --- saving ----------------------------------------------------------------------------------

    def learned(self) -> dict[str, Restorable]:
        """What learning has changed: networks and optimisers, for `checkpoint.capture` and `restore`."""
        return {
            **vars(self.networks),
            "policy_optimizer": self.policy_optimizer,
            "critic_optimizer": self.critic_optimizer,
            "risk_optimizer": self.risk_optimizer,
            "rnd_optimizer": self.rnd_optimizer,
        }

    def parts(self) -> dict[str, Restorable]:
        """Everything that an exact resume needs beside `updates`."""
        return {"normaliser": self.normaliser, **self.learned(), "generator": self.generator}


def _with_retrieved(drawn: torch.Tensor, found: Retrieved) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates (N + K, B, A), draws first, and which of them exist (N + K, B)."""
    retrieved = torch.from_numpy(found.actions).transpose(0, 1)
    exists = torch.from_numpy(found.valid).transpose(0, 1)
    valid = torch.cat([torch.ones(drawn.shape[:2], dtype=torch.bool), exists])
    return torch.cat([drawn, retrieved]), valid
