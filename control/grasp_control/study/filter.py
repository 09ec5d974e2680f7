"""What is written to memory where rewards are noisy: repeated success (R7)."""

from __future__ import annotations

import math

REPEATS = 3
"""Episodes that must have ended in the same place before one of them is trusted."""


class RepeatedSuccess:
    """Trusts an episode whose outcome has paid again and again: on average by more than chance.

    The mean return of an outcome, less its standard error, must be positive. A trap that paid once is not
    trusted, and neither is one that pays more now and then than it costs otherwise, once it was seen often
    enough: trust that luck has earned is lost again.
    """

    def __init__(self) -> None:
        self._sums: dict[int, tuple[int, float, float]] = {}

    def observe(self, outcome: int, total: float) -> None:
        """Take in that an episode ended in `outcome` with the return `total`."""
        count, mean, squares = self._sums.get(outcome, (0, 0.0, 0.0))
        count += 1
        step = total - mean
        mean += step / count
        squares += step * (total - mean)  # Welford's sum of squared deviations
        self._sums[outcome] = count, mean, squares

    def trusts(self, outcome: int) -> bool:
        """Whether episodes that end there are worth remembering, as far as is known by now."""
        count, mean, squares = self._sums.get(outcome, (0, 0.0, 0.0))
        return count >= REPEATS and mean > math.sqrt(squares / (count - 1) / count)
