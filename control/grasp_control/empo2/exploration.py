"""Which action to take among the policy's and the memory's candidates (E10).

Shapes: M ensemble members, C candidates, B windows.
"""

from __future__ import annotations

import torch


def choose(
    conservative: torch.Tensor, blended: torch.Tensor, valid: torch.Tensor, *, margin: float
) -> torch.Tensor:
    """Leave the policy's mean action only for a candidate that every conservative critic calls better.

    An immature or disagreeing critic harms when it picks freely; where its members disagree about the sign
    of the advantage the policy's own action stands.

    Args:
        conservative: (M, C, B), each member's value of each candidate; candidate 0 is the policy's mean.
        blended: (C, B), Q = eta * Qc + (1 - eta) * Qe, which ranks the candidates that pass.
        valid: (C, B) bool, false where a retrieved candidate does not exist.
        margin: smallest advantage over candidate 0 that counts, in units of return.

    Returns:
        (B,) int64, the index of the chosen candidate.
    """
    advantage = (conservative - conservative[:, :1]).min(dim=0).values
    agreed = valid & (advantage > margin)
    agreed[0] = ~agreed.any(dim=0)
    return blended.masked_fill(~agreed, -torch.inf).argmax(dim=0)
