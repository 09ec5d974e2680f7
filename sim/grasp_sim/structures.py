"""Reward structures: when and how reliably what a step earned is paid (R1). The same for every task.

A task's own reward says what a step earns, sparsely or densely. At once, late or with noise is said here, by
functions of what they are given: noise and luck are drawn elsewhere.

Shapes: T steps so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from grasp_sim.errors import UserError

NOISE = 0.1
"""Standard deviation of the noise on every step, where the whole task is worth about 1."""
TRAP_WIN, TRAP_LOSS, TRAP_LUCK = 2.0, -1.0, 0.2
"""What a trap pays when one is lucky, what else, and the probability of luck: a loss of 0.4 on average, and
now and then more than the task can bring."""
_PURPOSE = 1
"""Keeps these draws apart from those of sensors in the same step of the same episode."""


class Structure(Enum):
    """When and how reliably it is paid."""

    AT_ONCE = "at once"
    DELAYED = "delayed"
    NOISY = "noisy"


def delayed(earned: Sequence[float], delay: int, over: bool) -> float:
    """What is paid on the newest step: what was earned `delay` steps before; with the episode's end all that
    is left. A delay of 0 pays everything with the end.

    Args:
        earned: (T,) of the episode's steps, the newest last.
        delay: steps.
        over: the newest step is the last.
    """
    if over:
        return float(sum(earned[-delay - 1 :] if delay else earned))
    return float(earned[-delay - 1]) if 0 < delay < len(earned) else 0.0


def noisy(earned: float, entered: bool, normal: float, uniform: float) -> float:
    """What is paid for a step: what it earned with noise, or what the trap that it entered holds.

    Args:
        earned: by the step.
        entered: the step led into a trap.
        normal: a draw from the standard normal distribution.
        uniform: a draw from [0, 1).
    """
    if entered:
        return TRAP_WIN if uniform < TRAP_LUCK else TRAP_LOSS
    return earned + NOISE * normal


def check_delay(structure: Structure, delay: int, horizon: int, prefix: str = "") -> None:
    """Raise ValueError for a delay of no use to the structure, or for which no episode is long enough."""
    if delay < 0:
        raise ValueError(f"{prefix}delay={delay} must not be negative.")
    if delay and structure is not Structure.DELAYED:
        raise ValueError(
            f"{prefix}delay={delay} is for the delayed reward: this one is paid {structure.value}."
        )
    if delay > horizon:
        raise ValueError(
            f"{prefix}delay={delay} is longer than an episode of {prefix}horizon={horizon} steps: shorten "
            "it, or pay all with the end by 0."
        )


class Payment:
    """The account of one episode: `begin` it, then `pay` for every step.

    Draws depend on the episode's seed and the step's number alone, so that an episode can be gone on with.
    """

    def __init__(self, structure: Structure, delay: int, horizon: int) -> None:
        try:
            check_delay(structure, delay, horizon)
        except ValueError as error:
            raise UserError(str(error)) from error
        self._structure, self._delay = structure, delay
        self._seed, self._earned, self._lured = 0, list[float](), False

    def begin(self, seed: int) -> None:
        """A new episode; `seed` fixes its noise and its luck."""
        self._seed, self._earned, self._lured = seed, [], False

    def pay(self, earned: float, *, lured: bool, over: bool) -> float:
        """The reward of the next step. `lured`: it ended in a trap, which counts when it is entered."""
        if self._structure is Structure.AT_ONCE:
            return earned
        entered, self._lured = lured and not self._lured, lured
        self._earned.append(earned)
        if self._structure is Structure.DELAYED:
            return delayed(self._earned, self._delay, over)
        draws = np.random.default_rng([self._seed, len(self._earned), _PURPOSE])
        return noisy(earned, entered, float(draws.standard_normal()), float(draws.random()))

    def save(self) -> dict[str, np.ndarray]:
        """What `load` needs, as arrays."""
        return {
            "earned": np.array(self._earned, np.float64).reshape(-1, 1),
            "episode": np.array([self._seed, int(self._lured)], np.uint64),
        }

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save`."""
        self._earned = saved["earned"][:, 0].tolist()
        self._seed, self._lured = int(saved["episode"][0]), bool(saved["episode"][1])
