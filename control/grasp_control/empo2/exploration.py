"""What is tried in training: noise on the policy's actions, and candidates from the memory (E10).

Shapes: M ensemble members, C candidates, B windows, T steps, A action dimension.
"""

from __future__ import annotations

import numpy as np
import torch


def coloured_noise(steps: int, action_dim: int, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """Gaussian noise (T, A) of unit variance whose power falls with frequency as f^-exponent.

    0 is white: every step by itself, so that a sequence of steps goes nowhere. 1 is pink, half way to a
    random walk: some of it lasts a whole episode, which is what finds a grasp without a demonstration
    (Eberhard et al., Pink Noise Is All You Need, 2023). Made in the frequency domain (Timmer & Koenig 1995).
    """
    if exponent == 0.0:
        return rng.standard_normal((steps, action_dim)).astype(np.float32)
    count = 2 * max(steps, 2)  # the series joins its end on to its beginning: only half of it is used
    frequencies = np.fft.rfftfreq(count)
    frequencies[0] = frequencies[1]
    scale = frequencies ** (-exponent / 2.0)
    parts = rng.standard_normal((2, len(scale), action_dim)) * scale[:, None]
    parts[1, [0, -1]] = 0.0  # of a real signal the mean and the highest frequency are real
    parts[0, [0, -1]] *= np.sqrt(2.0)
    power = 2.0 * np.sum(scale**2) * 2.0 - 2.0 * (scale[0] ** 2 + scale[-1] ** 2)
    series = np.fft.irfft(parts[0] + 1j * parts[1], count, axis=0) * count / np.sqrt(power)
    return series[:steps].astype(np.float32)


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
