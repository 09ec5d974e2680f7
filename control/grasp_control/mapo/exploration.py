"""Systematic exploration: no program is tried twice on a problem (M3).

Liang et al., Memory Augmented Policy Optimization, 2018, algorithm 1. A Bloom filter holds all programs tried
and every prefix of which all continuations were: what it holds is never written again. It takes a few bits a
program, whatever the language; in exchange a share of the programs is taken for tried and never is.
"""

from __future__ import annotations

import numpy as np
from rbloom import Bloom

from grasp_control.mapo.grammar import Grammar
from grasp_sim.programs import Program


class Explored:
    """What was tried, by number of the problem."""

    def __init__(self, grammar: Grammar, expected: int = 1_000_000, false_positives: float = 1e-3) -> None:
        """`false_positives` is the share of untried prefixes that count as tried once `expected` were."""
        if not (expected >= 1 and 0.0 < false_positives < 1.0):
            raise ValueError(
                f"expected={expected} must be at least 1 and false_positives={false_positives} between 0"
                " and 1."
            )
        self._grammar = grammar
        # Python's hash of a tuple of whole numbers is the same in every process.
        self._filter = Bloom(expected, false_positives)

    def untried(self, problem: int, prefix: Program) -> np.ndarray:
        """(V,) bool: legal tokens behind which something is left to try."""
        allowed = self._grammar.legal(prefix).copy()
        for token in np.flatnonzero(allowed):
            if (problem, *prefix, int(token)) in self._filter:
                allowed[token] = False
        return allowed

    def close(self, problem: int, prefix: Program) -> None:
        """A whole program was tried, or nothing is left behind a prefix; so for every shorter prefix that has
        nothing else left."""
        self._filter.add((problem, *prefix))
        for length in range(len(prefix) - 1, -1, -1):
            if self.untried(problem, prefix[:length]).any():
                return
            self._filter.add((problem, *prefix[:length]))

    def finished(self, problem: int) -> bool:
        """Everything was tried."""
        return (problem,) in self._filter
