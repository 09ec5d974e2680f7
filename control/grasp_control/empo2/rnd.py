"""How new a situation is to the learner (E14): random network distillation, Burda et al. 2019.

A network is trained to predict the outputs of another one with fixed random weights. Where it was trained
often its error is small, so the error says how seldom the learner met such a window.

Shapes: B batch, W policy input.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from grasp_control.networks import linear

_FEATURES, _HIDDEN = 64, 128
_SCALE_RATE = 0.01
_LIMIT = 5.0
"""Multiples of the usual error beyond which a window counts as no newer."""


class RandomNetwork(nn.Module):
    """A fixed random network, the network that predicts it, and the usual error."""

    scale: Tensor
    """(), running mean of the error; 0 before the first batch."""

    def __init__(self, windows: int, generator: torch.Generator) -> None:
        """Take the width W."""
        super().__init__()

        def network() -> nn.Sequential:
            # Without the LayerNorm of the other networks, which hides how far away a window lies.
            first = linear(windows, _HIDDEN, generator, gain=math.sqrt(2.0))
            return nn.Sequential(first, nn.ReLU(), linear(_HIDDEN, _FEATURES, generator, gain=1.0))

        self.fixed, self.predictor = network(), network()
        self.fixed.requires_grad_(False)
        self.register_buffer("scale", torch.zeros(()))

    def forward(self, windows: Tensor) -> Tensor:
        """Squared prediction error (B,) of normalised windows (B, W); its mean is the loss."""
        return (self.predictor(windows) - self.fixed(windows)).float().square().mean(dim=-1)

    @torch.no_grad()
    def bonus(self, errors: Tensor) -> Tensor:
        """The newness (B,) that goes with `errors` (B,), about 1 on average, and 5 at most."""
        mean = errors.mean()
        self.scale.copy_(mean if self.scale == 0 else self.scale + _SCALE_RATE * (mean - self.scale))
        return (errors / self.scale.clamp(min=1e-12)).clamp(max=_LIMIT)
