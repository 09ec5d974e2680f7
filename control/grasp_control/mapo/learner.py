"""Improves the policy from what samplers found: MAPO or one of the methods that it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from grasp_control.mapo import estimators
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.estimators import Programs, Stats
from grasp_control.mapo.grammar import Grammar
from grasp_control.mapo.policy import ProgramPolicy
from grasp_control.mapo.sampler import Found, Scored
from grasp_sim.programs import Executor, Problem, ProgramTask


class Learner:
    """The policy and its optimiser."""

    def __init__(
        self, task: ProgramTask, features: int, config: MAPOConfig, generator: torch.Generator
    ) -> None:
        """Fresh networks from `generator`, for problems of F `features`."""
        self._config = config
        self.policy = ProgramPolicy(Grammar(task), features, generator, config.hidden)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), config.learning_rate)

    def update(self, found: Sequence[Found], problems: Sequence[Problem]) -> Stats:
        """One step on what was found; `problems` by number."""
        config, count = self._config, len(found)
        memory = self._programs(found, problems, [one.memory for one in found])
        drawn = self._programs(found, problems, [one.drawn for one in found])
        (remembered, _), (outside, entropy) = memory, drawn
        stats: Stats = {}
        if config.method == "mapo":
            loss, stats = estimators.mapo_loss(remembered, outside, count, clip=config.clip)
        elif config.method == "reinforce":
            loss = estimators.reinforce_loss(outside, count)
        elif config.method == "marginal-likelihood":
            loss = estimators.marginal_likelihood_loss(remembered, count)
        else:
            loss = estimators.hard_em_loss(remembered, count)
        if config.entropy > 0.0 and len(entropy):
            loss = loss - config.entropy * entropy.mean()
        self.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:  # there may be nothing to learn from yet
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.gradient_norm)
            self.optimizer.step()
        rewards = outside.rewards
        return stats | {
            "loss": float(loss.detach()),
            "drawn_reward": float(rewards.mean()) if len(rewards) else 0.0,
            "drawn_entropy": float(entropy.detach().mean()) if len(entropy) else 0.0,
            "solved": float(np.mean([bool(one.memory) for one in found])),
        }

    def _programs(
        self, found: Sequence[Found], problems: Sequence[Problem], scored: Sequence[Scored]
    ) -> tuple[Programs, torch.Tensor]:
        """Programs of all problems in one row, and their entropies."""
        places = [place for place, programs in enumerate(scored) for _ in programs]
        owners = torch.tensor(places, dtype=torch.int64)
        rewards = torch.tensor([reward for programs in scored for _, reward in programs])
        if not places:
            none = torch.zeros(0)
            return Programs(none, none, owners), none
        features = np.stack([problems[found[place].problem].features for place in places])
        programs = [program for programs in scored for program, _ in programs]
        log_probs, entropy = self.policy.log_probs(torch.from_numpy(features), programs)
        return Programs(log_probs, rewards, owners), entropy


def greedy_success(policy: ProgramPolicy, problems: Sequence[Problem], execute: Executor) -> float:
    """Mean reward of the most probable tokens' program on each problem."""
    features = torch.from_numpy(np.stack([problem.features for problem in problems]))
    written = policy.write(features, None)
    rewards = [execute(p.key, program) for p, program in zip(problems, written, strict=True) if program]
    return float(np.sum(rewards)) / len(problems)
