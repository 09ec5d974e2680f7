"""A language so small that everything about it can be added up."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_sim.programs import Problem, Program

TOKENS = ("a", "b", "c", "end")
END = 3


class Tiny:
    """Up to three letters and the end; no letter twice in a row. Rewards are drawn once, most are 0."""

    name = "tiny"
    tokens = TOKENS
    longest = 4

    def __init__(self, seed: int = 0, rewarded: float = 0.2) -> None:
        self.programs = everything(self)
        """All of them."""
        rng = np.random.default_rng(seed)
        self.rewards = {
            (f"train/{number}", program): float(rng.random() * (rng.random() < rewarded))
            for number in range(4)
            for program in self.programs
        }

    def legal(self, prefix: Program) -> np.ndarray:
        legal = np.zeros(4, dtype=bool)
        if prefix and prefix[-1] == END:
            return legal
        legal[:END] = len(prefix) < self.longest - 1
        if prefix:
            legal[prefix[-1]] = False
            legal[END] = True
        return legal

    def problems(self, split: str, count: int) -> list[Problem]:
        rng = np.random.default_rng(3)
        return [Problem(f"{split}/{n}", rng.normal(size=5).astype(np.float32)) for n in range(count)]

    def execute(self, key: str, program: Program) -> float:
        return self.rewards[key, program]

    def describe(self, program: Program) -> str:
        return "".join(TOKENS[token] for token in program[:-1])


def everything(task, prefix: Program = ()) -> list[Program]:
    """All whole programs."""
    legal = np.flatnonzero(task.legal(prefix))
    if not len(legal):
        return [prefix]
    return [program for token in legal for program in everything(task, (*prefix, int(token)))]


@pytest.fixture(scope="session")
def tiny():
    """Makes tasks of the small language."""
    return Tiny
