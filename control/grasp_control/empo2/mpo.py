"""Policy improvement by MPO (E8): Abdolmaleki et al., Maximum a Posteriori Policy Optimisation, 2018.

E-step: weights over candidate actions, softmax of Q / temperature, the temperature from its convex dual.
M-step: weighted likelihood with the mean and the standard deviation constrained separately (section 4.2).

Shapes: N candidate actions, B batch, A action dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

Stats = dict[str, float]
_LOG_2PI = math.log(2.0 * math.pi)


class Gaussian(NamedTuple):
    """A diagonal Gaussian policy's parameters, each (B, A)."""

    mean: torch.Tensor
    std: torch.Tensor


def log_density(actions: torch.Tensor, policy: Gaussian) -> torch.Tensor:
    """Log density of `actions` (..., B, A) under `policy`, (..., B)."""
    z = (actions - policy.mean) / policy.std
    return (-0.5 * z.square() - policy.std.log() - 0.5 * _LOG_2PI).sum(dim=-1)


def candidate_log_prior(support: torch.Tensor, samples: int, memory_share: float) -> torch.Tensor:
    """Log prior of N candidates, first `samples` draws from the policy, then K from the memory.

    The improved distribution is q(a) ~ prior(a) exp(Q / T). Under the policy alone, an action that it would
    hardly draw (open instead of closed) can never gain weight, however much better it is. So the prior is a
    mixture: 1 - `memory_share` spread over the draws from the policy, `memory_share` over the actions
    retrieved for the same situation. Where nothing was retrieved the prior is the policy, and mass that a
    retrieved action lacks for want of support goes back to the policy.

    Args:
        support: (K, B), 0 to 1: what the evidence for a retrieved action is worth; 0 where it does not exist.
        samples: number of draws from the policy.
        memory_share: in [0, 1).

    Returns:
        (samples + K, B), each column's probabilities summing to 1; minus infinity without support.
    """
    retrieved = (support > 0).sum(dim=0)
    remembered = support * memory_share / retrieved.clamp(min=1)
    drawn = (1.0 - remembered.sum(dim=0)) / samples
    return torch.cat([drawn.expand(samples, -1), remembered]).log()


def solve_temperature(
    q: torch.Tensor, log_prior: torch.Tensor, epsilon: float, iterations: int = 40
) -> torch.Tensor:
    """The temperature that minimises MPO's dual g(T) = T * epsilon + T * mean_B log E_N[exp(Q / T)].

    The dual is convex and its derivative is epsilon minus the mean KL of the improved distribution, which
    falls as T rises: bisection in log T reaches the minimum on every batch, which one gradient step a batch
    does not.

    Args:
        q: (N, B).
        log_prior: (N, B), log prior of the candidates.
        epsilon: bound in nats on the KL from the sampling policy to the improved distribution.

    Returns:
        () tensor, between 1e-4 and 1e2.
    """
    low, high = math.log(1e-4), math.log(1e2)
    for _ in range(iterations):
        middle = 0.5 * (low + high)
        if float(_improvement_kl(q, log_prior, math.exp(middle))) > epsilon:
            low = middle
        else:
            high = middle
    return torch.tensor(math.exp(high), dtype=q.dtype)


def improvement_weights(q: torch.Tensor, log_prior: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """E-step weights, (N, B), summing to 1 over N."""
    return torch.softmax(q / temperature + log_prior, dim=0)


def _improvement_kl(q: torch.Tensor, log_prior: torch.Tensor, temperature: float) -> torch.Tensor:
    prior = torch.log_softmax(log_prior, dim=0)
    posterior = torch.log_softmax(q / temperature + log_prior, dim=0)
    ratio = torch.where(torch.isfinite(prior), posterior - prior, torch.zeros_like(prior))
    return (posterior.exp() * ratio).sum(dim=0).mean()


def mpo_loss(
    policy: Gaussian,
    target: Gaussian,
    actions: torch.Tensor,
    weights: torch.Tensor,
    *,
    kl_mean: float,
    kl_std: float,
) -> tuple[torch.Tensor, Stats]:
    """M-step: weighted negative log-likelihood plus KL penalties to the target policy.

    The mean is fitted under the target's standard deviation and the standard deviation around the target's
    mean, so each is held by a penalty of its own and a confident mean does not collapse the exploration.

    Args:
        policy: the policy being improved, at the batch's states.
        target: the target policy at the same states, not differentiated.
        actions: (N, B, A).
        weights: (N, B), from `improvement_weights`.
        kl_mean: coefficient lambda of the mean's KL.
        kl_std: coefficient of the standard deviation's KL.
    """
    target = Gaussian(target.mean.detach(), target.std.detach())
    weights = weights.detach()
    with_mean = Gaussian(policy.mean, target.std)
    with_std = Gaussian(target.mean, policy.std)
    fit_mean = -(weights * log_density(actions, with_mean)).sum(dim=0).mean()
    fit_std = -(weights * log_density(actions, with_std)).sum(dim=0).mean()
    divergence_mean = kl_divergence(target, with_mean).mean()
    divergence_std = kl_divergence(target, with_std).mean()
    loss = fit_mean + fit_std + kl_mean * divergence_mean + kl_std * divergence_std
    stats = {
        "policy_loss": float(loss.detach()),
        "kl_mean": float(divergence_mean.detach()),
        "kl_std": float(divergence_std.detach()),
        "entropy": float(entropy(policy).detach().mean()),
    }
    return loss, stats


def kl_divergence(p: Gaussian, q: Gaussian) -> torch.Tensor:
    """KL(p || q) of diagonal Gaussians, (B,) nats."""
    ratio = (p.std / q.std).square()
    shift = ((p.mean - q.mean) / q.std).square()
    return 0.5 * (ratio + shift - 1.0 - ratio.log()).sum(dim=-1)


def entropy(policy: Gaussian) -> torch.Tensor:
    """Differential entropy, (B,) nats."""
    return (policy.std.log() + 0.5 * (1.0 + _LOG_2PI)).sum(dim=-1)
