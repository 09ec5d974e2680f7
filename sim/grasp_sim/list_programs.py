"""Programs that turn lists of numbers into others, found from examples: a subset of DeepCoder's problems.

After Balog et al., DeepCoder: Learning to Write Programs, 2017. A program is a chain of functions, each of
which takes what the one before made of the list; a problem is five inputs with what an unknown chain makes of
them. A program that explains all five is worth 1, any other 0. What the policy sees are properties of inputs
and outputs that hold for all examples or for none (Odena and Sutton, Learning to Represent Programs with
Property Signatures, 2020).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from functools import cache

import numpy as np

from grasp_sim.errors import UserError
from grasp_sim.programs import Problem, Program, ProgramError

Value = list[int] | int

EXAMPLES = 5
LENGTHS = (3, 6)
"""Of input lists, shortest and longest."""
NUMBERS = (-9, 9)
"""Of input lists, least and greatest."""
LARGEST = 999
"""Results beyond make a program worthless, as does taking an element of an empty list."""
CHAINS = (2, 3)
"""Functions of the programs behind problems."""
_SHORT = 2
"""Chains up to which no problem is explained by a shorter one than its own."""

LIST_FUNCTIONS: dict[str, Callable[[list[int]], list[int]]] = {
    "reverse": lambda x: x[::-1],
    "sort": sorted,
    "drop first": lambda x: x[1:],
    "double": lambda x: [2 * v for v in x],
    "add one": lambda x: [v + 1 for v in x],
    "keep positive": lambda x: [v for v in x if v > 0],
    "running sums": lambda x: list(itertools.accumulate(x)),
    "differences": lambda x: [b - a for a, b in itertools.pairwise(x)],
}
NUMBER_FUNCTIONS: dict[str, Callable[[list[int]], int]] = {
    "first": lambda x: x[0],
    "greatest": max,
    "sum": sum,
    "count": len,
}
"""Nothing but the end may follow them."""
TOKENS = (*LIST_FUNCTIONS, *NUMBER_FUNCTIONS, "end")
END = len(TOKENS) - 1
_FUNCTIONS = (*LIST_FUNCTIONS.values(), *NUMBER_FUNCTIONS.values())


class ListPrograms:
    """A `ProgramTask`. Problems are made from their number, so that nothing is stored."""

    name = "lists"
    tokens = TOKENS
    longest = max(CHAINS) + 1

    def legal(self, prefix: Program) -> np.ndarray:
        """A chain of functions as long as the longest behind a problem, then the end."""
        legal = np.zeros(len(TOKENS), dtype=bool)
        if END in prefix:
            return legal
        legal[END] = len(prefix) > 0
        if len(prefix) < self.longest - 1 and not any(t >= len(LIST_FUNCTIONS) for t in prefix):
            legal[:END] = True
        return legal

    def problems(self, split: str, count: int) -> list[Problem]:
        """Made from split and number. Programs may come back in another problem, examples do not."""
        if split not in ("train", "held-out"):
            raise UserError(f"split={split}: there are train and held-out")
        return [Problem(key, _features(key)) for key in (f"{split}/{number}" for number in range(count))]

    def execute(self, key: str, program: Program) -> float:
        """1 where it explains all examples, else 0."""
        examples, _ = _problem(key)
        if END not in program:
            raise ProgramError(f"{program} is no whole program: it does not end")
        chain = program[:-1]
        return float(all(run(chain, given) == wanted for given, wanted in examples))

    def describe(self, program: Program) -> str:
        """The functions in their order."""
        return ", then ".join(TOKENS[token] for token in program if token != END) or "nothing"


def run(chain: Program, value: Value) -> Value | None:
    """What a chain of functions makes of a list; None where it fails."""
    for token in chain:
        try:
            value = _FUNCTIONS[token](value)  # type: ignore[arg-type]
        except (IndexError, TypeError, ValueError):  # of an empty list, or of a number
            return None
        largest = max(map(abs, value), default=0) if isinstance(value, list) else abs(value)
        if largest > LARGEST:
            return None
    return value


def examples_of(key: str) -> list[tuple[list[int], Value]]:
    """The problem's five pairs of input and output."""
    return _problem(key)[0]


def solution_of(key: str) -> Program:
    """The program that the problem was made of; others may explain it, too."""
    return (*_problem(key)[1], END)


@cache
def _problem(key: str) -> tuple[list[tuple[list[int], Value]], Program]:
    split, _, number = key.partition("/")
    digest = hashlib.sha256(f"lists {split} {int(number)}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    while True:
        chain = _draw_chain(rng)
        inputs = [
            rng.integers(NUMBERS[0], NUMBERS[1] + 1, rng.integers(LENGTHS[0], LENGTHS[1] + 1)).tolist()
            for _ in range(EXAMPLES)
        ]
        outputs = [run(chain, given) for given in inputs]
        if any(output is None or output == [] for output in outputs):
            continue
        examples = [
            (given, output) for given, output in zip(inputs, outputs, strict=True) if output is not None
        ]
        if all(output == outputs[0] for output in outputs) or _explained_shorter(examples, len(chain)):
            continue
        return examples, chain


def _draw_chain(rng: np.random.Generator) -> Program:
    """Functions uniformly; a number only at the end, of every other chain."""
    length = int(rng.choice(CHAINS))
    chain = [int(token) for token in rng.integers(len(LIST_FUNCTIONS), size=length)]
    if rng.random() < 0.5:
        chain[-1] = int(rng.integers(len(LIST_FUNCTIONS), END))
    return tuple(chain)


def _explained_shorter(examples: list[tuple[list[int], Value]], length: int) -> bool:
    for shorter in range(min(length - 1, _SHORT) + 1):
        for chain in itertools.product(range(END), repeat=shorter):
            if all(run(chain, given) == wanted for given, wanted in examples):
                return True
    return False


def _features(key: str) -> np.ndarray:
    """For each property: 1 where it holds for all examples, -1 where for none, else 0; and how large outputs
    are."""
    pairs = [(x, y if isinstance(y, list) else [y]) for x, y in examples_of(key)]
    held = [np.mean([bool(holds(x, y)) for x, y in pairs]) for holds in _PROPERTIES]
    number = float(all(isinstance(y, int) for _, y in examples_of(key)))
    largest = max(abs(v) for _, y in pairs for v in y)
    signature = [1.0 if share == 1.0 else -1.0 if share == 0.0 else 0.0 for share in held]
    return np.array([*signature, number, np.log1p(largest) / np.log1p(LARGEST)], dtype=np.float32)


_MAPS: tuple[Callable[[int], int], ...] = (
    lambda v: v,
    lambda v: -v,
    lambda v: v + 1,
    lambda v: 1 - v,
    lambda v: 2 * v,
    lambda v: -2 * v,
    lambda v: 2 * v + 1,
    lambda v: 2 * v + 2,
    lambda v: v * v,
    lambda v: v * v + 1,
    lambda v: 4 * v,
    lambda v: v + 2,
)
_LISTS: tuple[Callable[[list[int]], list[int]], ...] = (
    lambda x: x,
    lambda x: list(itertools.accumulate(x)),
    lambda x: [b - a for a, b in itertools.pairwise(x)],
    lambda x: [v for v in x if v > 0],
    lambda x: [v for v in x if v < 0],
    lambda x: [v for v in x if v % 2 == 0],
    lambda x: [v for v in x if v % 2],
    lambda x: x[1:],
    lambda x: x[:-1],
)


def _properties() -> tuple[Callable[[list[int], list[int]], bool], ...]:
    """Of an input x and an output y as a list, which is never empty."""
    simple: list[Callable[[list[int], list[int]], bool]] = [
        lambda x, y: y == sorted(y),
        lambda x, y: y == sorted(y, reverse=True),
        lambda x, y: min(y) > 0,
        lambda x, y: max(y) < 0,
        lambda x, y: all(v % 2 == 0 for v in y),
        lambda x, y: all(v % 2 for v in y),
        lambda x, y: max(y) > max(x),
        lambda x, y: max(map(abs, y)) > max(map(abs, x)),
        lambda x, y: sum(y) > sum(x),
        lambda x, y: max(map(abs, y)) > 81,
    ]
    # What one function of the language would have left to see: its values, its length, its ends, its sum.
    for values in _LISTS:
        simple += [
            lambda x, y, f=values: len(y) == len(f(x)),
            lambda x, y, f=values: sum(y) == sum(f(x)),
            lambda x, y, f=values: sum(y) == -sum(f(x)),
            lambda x, y, f=values: y[:1] == f(x)[:1],
            lambda x, y, f=values: y[:1] == f(x)[-1:],
            lambda x, y, f=values: y[-1:] == f(x)[-1:],
            lambda x, y, f=values: y[0] == max(f(x), default=None),
            lambda x, y, f=values: y[0] == min(f(x), default=None),
            lambda x, y, f=values: y[0] == len(f(x)),
        ]
        simple += [lambda x, y, f=values, g=one: {g(v) for v in f(x)} >= set(y) for one in _MAPS]
    return tuple(simple)


_PROPERTIES = _properties()
