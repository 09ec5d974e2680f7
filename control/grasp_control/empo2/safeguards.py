"""Protection against collapse (E13): from raised caution to a rollback, each step for a logged reason.

    outliers in memory above 15 %      -> purge them
    the return drops suddenly          -> raise the KL coefficient lambda for a while
    still down when that while is over -> roll back to a checkpoint from before the drop
    the critics' values explode        -> roll back to the last checkpoint

Nothing here touches networks, memory or disk: `Safeguards` watches numbers and says what is to be done, and
the training loop does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from grasp_sim.cli import require_at_most


@dataclass
class SafeguardsConfig:
    """Protection against collapse [E13]."""

    outlier_share: float = 0.15
    """Share of outliers in the memory above which they are purged."""
    outlier_ratio: float = 5.0
    """A row is an outlier when its embedding is longer than this many times the median length."""
    recent_episodes: int = 20
    """Episodes whose mean return is compared with those before."""
    reference_episodes: int = 60
    """Episodes before them that say what return is usual."""
    drop_share: float = 0.5
    """Share of the usual return that must be lost to count as a drop."""
    certainty: float = 3.5
    """Standard errors by which the recent mean must lie below the usual one besides."""
    value_ratio: float = 10.0
    """The critics have blown up when their mean value is this many times the largest return."""
    lambda_factor: float = 3.0
    """Factor on the KL coefficient after a drop."""
    patience: int = 20
    """Episodes that raised caution, or a rollback, is given to help."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, low, high in (
            ("outlier_share", 0.0, 1.0),
            ("outlier_ratio", 1.0, 1e6),
            ("drop_share", 0.0, 1.0),
            ("certainty", 0.0, 1e6),
            ("value_ratio", 1.0, 1e6),
            ("lambda_factor", 1.0, 1e3),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"algo.safeguards.{name}={value} must be from {low:g} to {high:g}.")
        for name in ("recent_episodes", "reference_episodes", "patience"):
            if getattr(self, name) < 2:
                raise ValueError(f"algo.safeguards.{name}={getattr(self, name)} must be at least 2.")
            require_at_most(self, {name: 100_000}, "algo.safeguards.")


MAX_ROLLBACKS = 3
"""After so many in one drop the policy is left alone: whatever it is, it is not in the networks."""


class Action(Enum):
    """What the training loop is asked to do."""

    PURGE = "purge outliers"
    RAISE_LAMBDA = "raise lambda"
    LOWER_LAMBDA = "lower lambda"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Event:
    """One action, and why."""

    action: Action
    cause: str
    """One line with the numbers that led to it."""
    before_step: int = 0
    """Environment step at which the drop began: a rollback goes to a checkpoint from before it."""
    number: int = 0
    """Rollbacks before this one since the drop began."""


class Safeguards:
    """Follows the returns of training episodes from fresh starts."""

    def __init__(self, config: SafeguardsConfig) -> None:
        self.config = config
        self._returns: list[float] = []
        self._steps: list[int] = []
        self._usual: list[float] = []
        """Returns from before the drop, kept until it is over; empty while all is well."""
        self._since = 0
        """Episodes since the last action."""
        self._rolled_back = 0
        """Rollbacks since the drop began."""
        self._drop_step = 0
        self._largest_return = 0.0
        """Largest magnitude of an episode's return; 0 before the first that is not 0."""
        self._explosions = 0
        """Times in a row that the values were beyond it."""

    @property
    def drop_step(self) -> int | None:
        """Environment step at which the present drop began: checkpoints from before it are still needed."""
        return self._drop_step if self._usual else None

    @property
    def lambda_factor(self) -> float:
        """Factor on the KL coefficient now."""
        return self.config.lambda_factor if self._usual else 1.0

    def observe(self, total_reward: float, env_step: int) -> Event | None:
        """Take in the return of an episode that ended at `env_step`; answers what is to be done."""
        config = self.config
        self._largest_return = max(self._largest_return, abs(total_reward))
        self._returns.append(total_reward)
        self._steps.append(env_step)
        kept = config.recent_episodes + config.reference_episodes
        self._returns, self._steps = self._returns[-kept:], self._steps[-kept:]
        if not self._usual:
            return self._watch()
        self._since += 1
        if self._since < max(config.patience, config.recent_episodes):
            return None
        recent = self._returns[-config.recent_episodes :]
        if self._down(recent, self._usual, config.certainty / 2.0):
            return self._go_back(recent)
        return self._recovered(recent)

    def observe_values(self, values: float, env_step: int) -> Event | None:
        """Take in the critics' largest mean value; a rollback when no return can explain it."""
        limit = self.config.value_ratio * self._largest_return
        if not self._largest_return or abs(values) <= limit:
            self._explosions = 0
            return None
        self._explosions += 1
        cause = (
            f"the critics' mean value is {values:.3g}, and no episode's return was above"
            f" {self._largest_return:.3g}"
        )
        return Event(Action.ROLL_BACK, cause, env_step, self._explosions - 1)

    def _down(self, recent: Sequence[float], usual: Sequence[float], certainty: float) -> bool:
        """The return has dropped by much, and surely."""
        lost = float(np.mean(usual) - np.mean(recent))
        much = lost >= self.config.drop_share * abs(float(np.mean(usual))) and lost > 0.0
        return much and standard_errors_below(recent, usual) >= certainty

    def _watch(self) -> Event | None:
        config = self.config
        if len(self._returns) < config.recent_episodes + config.reference_episodes:
            return None
        usual, recent = self._returns[: -config.recent_episodes], self._returns[-config.recent_episodes :]
        if not self._down(recent, usual, config.certainty):
            return None
        self._usual, self._since, self._rolled_back = usual, 0, 0
        self._drop_step = self._steps[-config.recent_episodes]
        cause = (
            f"the mean return of the last {len(recent)} episodes is {np.mean(recent):.3f}, that is"
            f" {standard_errors_below(recent, usual):.1f} standard errors below {np.mean(usual):.3f}"
        )
        return Event(Action.RAISE_LAMBDA, cause)

    def _recovered(self, recent: Sequence[float]) -> Event:
        cause = f"the mean return is back at {np.mean(recent):.3f} (usual: {np.mean(self._usual):.3f})"
        self.restart()
        return Event(Action.LOWER_LAMBDA, cause)

    def _accepted(self, recent: Sequence[float]) -> Event:
        cause = (
            f"the mean return is still {np.mean(recent):.3f} after {MAX_ROLLBACKS} rollbacks;"
            " from now on that is the usual one"
        )
        self.restart()
        return Event(Action.LOWER_LAMBDA, cause)

    def restart(self) -> None:
        """Forget the returns so far, as when what an episode is like has changed."""
        self._returns, self._steps, self._usual = [], [], []

    def _go_back(self, recent: Sequence[float]) -> Event:
        if self._rolled_back == MAX_ROLLBACKS:
            return self._accepted(recent)
        waited, self._since = self._since, 0
        self._rolled_back += 1
        cause = (
            f"the mean return is still {np.mean(recent):.3f} (usual: {np.mean(self._usual):.3f}) after"
            f" {waited} more episodes; rollback {self._rolled_back} of at most {MAX_ROLLBACKS}"
        )
        return Event(Action.ROLL_BACK, cause, self._drop_step, self._rolled_back - 1)

    def state(self) -> dict[str, Any]:
        """Everything `load` needs."""
        return {name.removeprefix("_"): value for name, value in vars(self).items() if name != "config"}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        for name, value in state.items():
            setattr(self, f"_{name}", list(value) if isinstance(value, list | tuple) else value)


def standard_errors_below(recent: Sequence[float], usual: Sequence[float]) -> float:
    """By how many standard errors the mean of `recent` lies below that of `usual`.

    The spread is that of `usual` for both: what is asked is how odd `recent` would be if nothing had changed,
    and twenty failures in a row have no spread of their own.
    """
    new, old = np.asarray(recent, dtype=np.float64), np.asarray(usual, dtype=np.float64)
    error = math.sqrt(float(old.var(ddof=1)) * (1.0 / len(new) + 1.0 / len(old)))
    difference = float(old.mean() - new.mean())
    if error == 0.0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference / error
