"""What is maximised, as losses whose gradients are estimates: MAPO (M1, M2) and its baselines (M5).

Expected reward splits into the memory's programs B and all others,

    E[R] = pi_B E[R | in B] + (1 - pi_B) E[R | outside of B],

pi_B being the policy's probability of B. MAPO takes the first part exactly, by summing over B, and the second
from programs that were drawn from the policy and are not in B (Liang et al., Memory Augmented Policy
Optimization, 2018, equations 5 to 9). The estimate is unbiased, and varies less than REINFORCE's, since
nothing about B is left to chance. A policy that has pi_B near 0, as at the beginning, learns nothing from B:
its weight is clipped from below, max(pi_B, alpha), which biases the estimate towards B and is without effect
once the policy has found it likely.

Shapes: P problems; I programs in memory and J drawn ones, of all problems in one row, `owners` telling whose.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

Stats = dict[str, float]


class Programs(NamedTuple):
    """Programs of several problems in one row."""

    log_probs: Tensor
    """(N,) under the policy, with gradients."""
    rewards: Tensor
    """(N,)."""
    owners: Tensor
    """(N,) int64, the number of the problem, 0 to P - 1."""


def mapo_loss(
    memory: Programs, outside: Programs, problems: int, *, clip: float, baseline: float = 0.0
) -> tuple[Tensor, Stats]:
    """Minus the expected reward's estimate, a mean over P problems.

    Args:
        memory: all of the memory's programs of these problems.
        outside: programs drawn from the policy that are not in memory, any number for each problem. A problem
            without any loses its second part, which is right only where its pi_B is nearly 1.
        problems: P.
        clip: alpha, least weight of a memory that is not empty; 0 leaves the estimate unbiased.
        baseline: subtracted from every reward. Changes no expectation while `clip` is 0.
    """
    log_mass = _log_sum(memory.log_probs.detach(), memory.owners, problems)
    mass = log_mass.exp().clamp(max=1.0)
    weight = torch.where(torch.isfinite(log_mass), mass.clamp(min=clip), torch.zeros_like(mass))
    # Within the memory each program has the policy's probability given that it is one of these.
    given_memory = (memory.log_probs.detach() - log_mass[memory.owners]).exp()
    inside = weight[memory.owners] * given_memory * (memory.rewards - baseline)
    counts = torch.bincount(outside.owners, minlength=problems).clamp(min=1)
    share = (1.0 - weight) / counts
    drawn = share[outside.owners] * (outside.rewards - baseline)
    total = (inside * memory.log_probs).sum() + (drawn * outside.log_probs).sum()
    stats = {"memory_mass": float(mass.mean()), "memory_weight": float(weight.mean())}
    return -total / problems, stats


def reinforce_loss(drawn: Programs, problems: int, *, baseline: float = 0.0) -> Tensor:
    """The same of programs drawn from the policy alone (Williams 1992)."""
    counts = torch.bincount(drawn.owners, minlength=problems).clamp(min=1)
    return -((drawn.rewards - baseline) / counts[drawn.owners] * drawn.log_probs).sum() / problems


def marginal_likelihood_loss(memory: Programs, problems: int) -> Tensor:
    """Minus the log of the reward expected from the memory's programs, a mean over the problems in memory."""
    found = torch.bincount(memory.owners, minlength=problems) > 0
    total = _log_sum(memory.log_probs + memory.rewards.log(), memory.owners, problems)
    return -total[found].sum() / max(int(found.sum()), 1)


def hard_em_loss(memory: Programs, problems: int) -> Tensor:
    """Minus the log probability of each problem's most likely one of its best programs, a mean over the
    problems in memory (iterative maximum likelihood)."""
    ranked = memory.rewards.double() * 1e9 + memory.log_probs.detach().double()
    best = ranked.new_full((problems,), -torch.inf).scatter_reduce(0, memory.owners, ranked, "amax")
    chosen = ranked >= best[memory.owners]
    return -memory.log_probs[chosen].sum() / max(int((best > -torch.inf).sum()), 1)


def _log_sum(values: Tensor, owners: Tensor, problems: int) -> Tensor:
    """(P,) log of the summed exponentials of each problem's values; minus infinity without any."""
    highest = values.new_full((problems,), -torch.inf).scatter_reduce(0, owners, values.detach(), "amax")
    shift = torch.where(torch.isfinite(highest), highest, torch.zeros_like(highest))
    total = values.new_zeros(problems).index_add(0, owners, (values - shift[owners]).exp())
    none = total == 0.0
    return torch.where(none, torch.ones_like(total), total).log().masked_fill(none, -torch.inf) + shift
