"""What an action risks: a slip, and more contact force than is safe (E15).

Two small networks look a few steps ahead. One estimates the probability that the row is tagged as slip, that
is that the object slides or falls within the tag's look-back; candidates for acting are ranked less for it.
The other estimates by how much the contact force exceeds the safe limit within the n steps of the targets;
the policy's objective holds its mean under a budget by a Lagrange multiplier, which rises while the budget is
exceeded and falls when it is not (Altman, Constrained Markov Decision Processes, 1999; for MPO: Huang et al.,
A Constrained Multi-Objective Reinforcement Learning Framework, 2021).

Shapes: B batch, N actions per window, W policy input, A action dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from grasp_control.networks import QEnsemble

_SLIP, _FORCE = 0, 1
MULTIPLIER_MAX = 10.0
"""Units of return per safe limit of excess force. Far beyond any task's return: never trade it for more."""


class Risk(NamedTuple):
    """Estimates for actions (..., B)."""

    slip: Tensor
    """Probability of a slip, 0 to 1, among rows drawn for learning: they hold more slips than episodes do."""
    excess: Tensor
    """Contact force over the safe limit, as a share of the limit; at least 0."""


class GraspRisk(nn.Module):
    """Heads for slip and force, and the multiplier of the force constraint."""

    multiplier: Tensor
    """(), at least 0: return given up for an excess of the whole limit."""

    def __init__(
        self,
        windows: int,
        actions: int,
        generator: torch.Generator,
        *,
        force_limit: float,
        hidden: Sequence[int] = (128, 128),
    ) -> None:
        """Take the widths W and A, and the safe limit in N (infinite: there is no constraint)."""
        super().__init__()
        self.force_limit = force_limit
        self.heads = QEnsemble(windows, actions, 2, generator, hidden)
        self.register_buffer("multiplier", torch.zeros(()))

    @property
    def constrained(self) -> bool:
        """There is a safe limit."""
        return math.isfinite(self.force_limit)

    def forward(self, windows: Tensor, actions: Tensor) -> Risk:
        """Windows (B, W) normalised and actions (B, A) or (N, B, A)."""
        estimates = self.heads(windows, actions)
        return Risk(torch.sigmoid(estimates[_SLIP]), estimates[_FORCE].clamp(min=0.0))

    def loss(self, windows: Tensor, actions: Tensor, slips: Tensor, peak_forces: Tensor) -> Tensor:
        """Of B rows: `slips` (B,) are 1 where tagged, `peak_forces` (B,) N come within the next steps."""
        estimates = self.heads(windows, actions)
        loss = functional.binary_cross_entropy_with_logits(estimates[_SLIP], slips)
        if self.constrained:
            loss = loss + (estimates[_FORCE] - self.excess_of(peak_forces)).square().mean()
        return loss

    def excess_of(self, forces: Tensor) -> Tensor:
        """Share of the safe limit by which `forces` (...) in N exceed it."""
        return (forces / self.force_limit - 1.0).clamp(min=0.0)

    @torch.no_grad()
    def tighten(self, excess: float, budget: float, rate: float) -> None:
        """One step of dual ascent on mean excess <= budget."""
        if self.constrained:
            self.multiplier.add_(rate * (excess - budget)).clamp_(0.0, MULTIPLIER_MAX)
