"""Problems that are answered by programs: sequences of tokens, executed and rewarded at the end.

A `ProgramTask` knows the tokens, which of them may follow which, the problems (an object to grasp, examples
to explain), and what a program achieves on one of them. `grasp_control.mapo` learns to write the programs.
"""

from __future__ import annotations

from collections import deque
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np

from grasp_sim.errors import UserError

Program = tuple[int, ...]
"""Numbers of tokens. A whole program is one after which the task's `legal` allows nothing."""

REWARD_TOLERANCE = 1e-9
"""By which a second execution may differ from the first."""


class ProgramError(UserError):
    """A task contradicts what it promises: a dead end, a reward out of range, chance."""


class Problem(NamedTuple):
    """One problem of a task."""

    key: str
    """Names it among all of its task, and is all that `execute` needs."""
    features: np.ndarray
    """(F,) float32, what the policy may know of it; about -1 to 1."""


class ProgramTask(Protocol):
    """Tokens, grammar, problems, and what becomes of programs."""

    name: str
    tokens: tuple[str, ...]
    """V names."""
    longest: int
    """Tokens of the longest program."""

    def legal(self, prefix: Program) -> np.ndarray:
        """(V,) bool: tokens that may follow; none exactly where the program is whole."""
        ...

    def problems(self, split: str, count: int) -> list[Problem]:
        """The first `count` problems of a split, "train" or "held-out", always the same."""
        ...

    def execute(self, key: str, program: Program) -> float:
        """The reward, 0 to 1, of a whole program on the problem of this key."""
        ...

    def describe(self, program: Program) -> str:
        """What the program does, in words."""
        ...


def require_grammar(task: ProgramTask, most: int = 50_000) -> int:
    """Walk the grammar, shortest prefixes first, `most` of them; returns how many there were.

    Raises ProgramError for a grammar without programs, or one that allows programs longer than it says: a
    prefix of that length that is not whole is a dead end, as it can only be broken off.
    """
    waiting: deque[Program] = deque([()])
    seen = 0
    while waiting and seen < most:
        prefix = waiting.popleft()
        seen += 1
        legal = require_legal(task, prefix)
        if not legal.any():
            if not prefix:
                raise ProgramError(f"the grammar of {task.name} allows no token to begin with")
            continue
        if len(prefix) >= task.longest:
            words = " ".join(task.tokens[token] for token in prefix)
            raise ProgramError(
                f"the grammar of {task.name} has a dead end: '{words}' is as long as a program may be"
                f" ({task.longest} tokens) and not whole"
            )
        waiting.extend((*prefix, int(token)) for token in np.flatnonzero(legal))
    return seen


def require_legal(task: ProgramTask, prefix: Program) -> np.ndarray:
    """`task.legal(prefix)`; raises ProgramError where it is not (V,) bool."""
    legal = np.asarray(task.legal(prefix))
    if legal.shape != (len(task.tokens),) or legal.dtype != np.bool_:
        raise ProgramError(
            f"the grammar of {task.name} answers {legal.dtype} {legal.shape} to {prefix}; it must be bool"
            f" ({len(task.tokens)},)"
        )
    return legal


def is_whole(task: ProgramTask, program: Program) -> bool:
    """Whether every token is legal where it stands and nothing may follow."""
    for length, token in enumerate(program):
        legal = require_legal(task, program[:length])
        if not (0 <= token < len(legal) and legal[token]):
            return False
    return not require_legal(task, program).any()


class Rewards(Protocol):
    """Where rewards are kept beyond a process, as in `grasp_sim.executions`."""

    def get(self, key: str, program: Program) -> float | None: ...
    def add(self, key: str, program: Program, reward: float) -> None: ...


class Executor:
    """Executes programs once each and remembers what they were worth, by (problem, program)."""

    def __init__(
        self,
        task: ProgramTask,
        check_share: float = 0.0,
        rng: np.random.Generator | None = None,
        store: Rewards | None = None,
    ) -> None:
        """`check_share` of the programs, drawn from `rng`, are executed twice, or once more than the `store`
        knows of: a reward that differs is an error, since a memory of programs is worth nothing where
        repeating one does not repeat its reward."""
        if check_share > 0.0 and rng is None:
            raise ValueError("check_share needs an rng to draw from.")
        self._task, self._share, self._rng, self._store = task, check_share, rng, store
        self._known: dict[tuple[str, Program], float] = {}
        self.executed = 0
        """Executions so far, those of checks not counted."""

    def __call__(self, key: str, program: Program) -> float:
        """The reward of a whole program, 0 to 1. Raises ProgramError for a reward outside, and for chance."""
        known = self._known.get((key, program))
        if known is not None:
            return known
        reward = self._store.get(key, program) if self._store is not None else None
        if reward is None:
            reward = self._reward(key, program)
            self.executed += 1
        else:
            self._check(key, program, reward)
        if self._rng is not None and self._rng.random() < self._share:
            again = self._reward(key, program)
            if abs(again - reward) > REWARD_TOLERANCE:
                raise ProgramError(
                    f"{self._task.name} is not deterministic: '{self._task.describe(program)}' on {key} was"
                    f" worth {reward:g}, and {again:g} when it was executed again"
                )
        self._known[key, program] = reward
        if self._store is not None:
            self._store.add(key, program, reward)
        return reward

    def _reward(self, key: str, program: Program) -> float:
        reward = float(self._task.execute(key, program))
        self._check(key, program, reward)
        return reward

    def _check(self, key: str, program: Program, reward: float) -> None:
        if not (isfinite(reward) and 0.0 <= reward <= 1.0):
            raise ProgramError(
                f"{self._task.name} rewards '{self._task.describe(program)}' on {key} with {reward};"
                " it must be from 0 to 1"
            )
