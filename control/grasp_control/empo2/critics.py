"""Targets and loss of the dual critics (E7).

The conservative critic is a lower bound of the current policy's value: minimum over the target ensemble,
bootstrapped with the current policy, never below the return that a stored episode really reached. The
exploratory critic is the value of the best action among policy samples and retrieved actions.

Shapes: M ensemble members, C candidate actions, B batch.
"""

from __future__ import annotations

import torch

Stats = dict[str, float]


def conservative_targets(
    n_step_rewards: torch.Tensor,
    discounts: torch.Tensor,
    next_values: torch.Tensor,
    returns_to_go: torch.Tensor,
) -> torch.Tensor:
    """TD targets of the conservative critic, (B,).

    Args:
        n_step_rewards: (B,).
        discounts: (B,), 0 where the episode terminated within the n steps.
        next_values: (M, B), target ensemble at actions of the current policy, n steps later.
        returns_to_go: (B,), the discounted return that the stored episode reached. In a deterministic
            simulator repeating its actions reaches it again, so the optimal value is never below it
            (self-imitation learning, Oh et al. 2018).
    """
    bootstrap = n_step_rewards + discounts * next_values.min(dim=0).values
    return torch.maximum(bootstrap, returns_to_go)


def exploratory_targets(
    n_step_rewards: torch.Tensor,
    discounts: torch.Tensor,
    next_values: torch.Tensor,
    valid: torch.Tensor,
    returns_to_go: torch.Tensor,
) -> torch.Tensor:
    """TD targets of the exploratory critic, (B,).

    Args:
        n_step_rewards: (B,).
        discounts: (B,).
        next_values: (M, C, B), target ensemble at every candidate n steps later.
        valid: (C, B) bool, false where a retrieved candidate does not exist. At least one candidate of each
            row is valid, since the policy's own samples are.
        returns_to_go: (B,), as in `conservative_targets`.
    """
    # The ensemble's mean, not its maximum: the best of many candidates is optimistic enough already.
    values = next_values.mean(dim=0).masked_fill(~valid, -torch.inf)
    bootstrap = n_step_rewards + discounts * values.max(dim=0).values
    return torch.maximum(bootstrap, returns_to_go)


def critic_loss(
    predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Stats]:
    """Weighted squared error summed over the ensemble.

    Args:
        predictions: (M, B).
        targets: (B,).
        weights: (B,), importance weights of the prioritised sample.

    Returns:
        loss (), absolute TD errors (B,) averaged over the ensemble, statistics.
    """
    errors = predictions - targets.detach()
    loss = (weights * errors.square()).mean(dim=1).sum()
    td_errors = errors.detach().abs().mean(dim=0)
    stats = {
        "critic_loss": float(loss.detach()),
        "q_mean": float(predictions.detach().mean()),
        "q_spread": float(predictions.detach().std(dim=0, unbiased=False).mean()),
        "td_error": float(td_errors.mean()),
    }
    return loss, td_errors, stats


def blend(conservative: torch.Tensor, exploratory: torch.Tensor, eta: float) -> torch.Tensor:
    """Q = eta * Qc + (1 - eta) * Qe (E7); (M, ...) -> (...). Qc is the members' minimum, Qe their mean."""
    return eta * conservative.min(dim=0).values + (1.0 - eta) * exploratory.mean(dim=0)
