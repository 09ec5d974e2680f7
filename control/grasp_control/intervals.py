"""Confidence intervals of measured success. No Torch: the robot's side uses it too."""

from __future__ import annotations

import math


def wilson_interval(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson score interval of a success rate in [0, 1], 95 % by default; (0, 1) when nothing was tried.

    Unlike the normal approximation it stays within [0, 1] and has a width at 0 and at n successes.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n; received {successes} of {n}.")
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return low, high
