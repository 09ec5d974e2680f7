"""Tries programs on problems: explores, draws outside of the memory, executes, remembers (M1, M3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.exploration import Explored
from grasp_control.mapo.memory import ProgramMemory
from grasp_control.mapo.policy import Allowed, ProgramPolicy
from grasp_sim.programs import Executor, Problem, Program

Scored = list[tuple[Program, float]]
"""Programs and their rewards."""
REJECTIONS = (1, 2, 4, 13)
"""Programs drawn for each that is missing, until one is outside of the memory. Where none is, the memory has
nearly all of the policy's probability, and what is outside nearly none of the weight."""


class Found(NamedTuple):
    """What an update learns of one problem."""

    problem: int
    memory: Scored
    """All of the memory, as it was when the others were drawn."""
    drawn: Scored
    """Drawn from the policy; where a memory takes part, outside of it."""
    tried: list[Program]
    """Tried for the first time."""
    executions: int
    """Programs tried, those tried before counted again."""


class Sampler:
    """Owner of some problems: what was tried on them, and what was worth something."""

    def __init__(
        self,
        problems: Sequence[Problem],
        policy: ProgramPolicy,
        config: MAPOConfig,
        execute: Executor,
        generator: torch.Generator,
    ) -> None:
        """`problems` are all of them, by number; the sampler owns those that it is asked about."""
        self._problems, self._policy, self._config = problems, policy, config
        self._grammar = policy.grammar
        self._execute, self._generator = execute, generator
        self._tried: set[tuple[int, Program]] = set()
        self._executions: dict[int, int] = {}
        expected = 1000 * len(problems)
        self._explored = Explored(self._grammar, expected, config.false_positives)
        self.memory = ProgramMemory(config.memory)
        self._features = torch.from_numpy(np.stack([problem.features for problem in problems]))

    @property
    def tried(self) -> int:
        """Pairs of problem and program that were tried, executed or known before."""
        return len(self._tried)

    def sample(self, numbers: Sequence[int]) -> list[Found]:
        """Explore and draw for problems of these numbers, each once."""
        if not self._config.remember:
            self.memory = ProgramMemory(self._config.memory)
        tried: dict[int, list[Program]] = {number: [] for number in numbers}
        self._executions = dict.fromkeys(numbers, 0)
        for _ in range(self._config.explored):
            self._explore([number for number in numbers if not self._explored.finished(number)], tried)
        memories = {number: list(self.memory.of(self._problems[number].key).items()) for number in numbers}
        drawn = self._draw(numbers, tried)
        for number, programs in drawn.items():
            for program, reward in programs:
                self.memory.add(self._problems[number].key, program, reward)
        return [
            Found(number, memories[number], drawn[number], tried[number], self._executions[number])
            for number in numbers
        ]

    def recall(self, tried: dict[int, list[Program]]) -> None:
        """Take over problems on which these programs were tried before, by another sampler."""
        for number, programs in tried.items():
            for program in programs:
                self._note(number, program, self._execute(self._problems[number].key, program))

    def _explore(self, numbers: list[int], tried: dict[int, list[Program]]) -> None:
        allowed: list[Allowed] | None = None
        if self._config.systematic:
            allowed = [lambda prefix, n=number: self._explored.untried(n, prefix) for number in numbers]
        written = self._policy.write(self._features[numbers], self._generator, allowed) if numbers else []
        for number, program in zip(numbers, written, strict=True):
            if program is None:  # all that is left was taken for tried by mistake
                self._explored.close(number, ())
            else:
                self._try(number, program, tried)

    def _draw(self, numbers: Sequence[int], tried: dict[int, list[Program]]) -> dict[int, Scored]:
        drawn: dict[int, Scored] = {number: [] for number in numbers}
        reject = self._config.method == "mapo"
        missing = [number for number in numbers for _ in range(self._config.drawn)]
        for copies in REJECTIONS:
            rows = [number for number in missing for _ in range(copies)]
            written = self._policy.write(self._features[rows], self._generator) if rows else []
            again = []
            for place, number in enumerate(missing):
                candidates = written[place * copies : (place + 1) * copies]
                program = next(
                    (one for one in candidates if one and not (reject and self._holds(number, one))), None
                )
                if program is None:
                    again.append(number)
                else:
                    drawn[number].append((program, self._try(number, program, tried, remember=False)))
            missing = again
        return drawn

    def _holds(self, number: int, program: Program) -> bool:
        return (self._problems[number].key, program) in self.memory

    def _try(
        self, number: int, program: Program, tried: dict[int, list[Program]], *, remember: bool = True
    ) -> float:
        reward = self._execute(self._problems[number].key, program)
        self._executions[number] += 1
        if (number, program) not in self._tried:
            tried[number].append(program)
        self._note(number, program, reward if remember else 0.0)
        return reward

    def _note(self, number: int, program: Program, reward: float) -> None:
        self._tried.add((number, program))
        self._explored.close(number, program)
        self.memory.add(self._problems[number].key, program, reward)
