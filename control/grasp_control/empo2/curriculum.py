"""A curriculum for very sparse rewards (E14): episodes get harder as success grows.

Training episodes use a share of the task's ranges (`grasp_sim.tasks.Difficulty`); evaluation always uses all
of the task.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from grasp_sim.cli import require_at_most
from grasp_sim.tasks import Difficulty


@dataclass
class CurriculumConfig:
    """Difficulty that follows success [E14]."""

    enabled: bool = False
    """Begin with easy episodes. For tasks in which the whole task is hardly ever solved by chance."""
    start: float = 0.1
    """Share of the task's ranges that the first episodes use."""
    step: float = 0.1
    """By how much the share changes."""
    episodes: int = 20
    """Episodes at one share before it may change."""
    raise_at: float = 0.6
    """Success rate from which the share rises."""
    lower_at: float = 0.1
    """Success rate below which it falls."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("start", "step", "raise_at", "lower_at"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"algo.curriculum.{name}={getattr(self, name)} must be from 0 to 1.")
        if self.lower_at >= self.raise_at:
            raise ValueError(
                f"algo.curriculum.lower_at={self.lower_at} must be below raise_at={self.raise_at}."
            )
        if self.episodes < 1:
            raise ValueError(f"algo.curriculum.episodes={self.episodes} must be at least 1.")
        require_at_most(self, {"episodes": 100_000}, "algo.curriculum.")


class Curriculum:
    """How hard the next training episode is."""

    def __init__(self, config: CurriculumConfig) -> None:
        self.config = config
        self.share = config.start if config.enabled else 1.0
        """Of the task's ranges, 0 to 1."""
        self._outcomes: list[bool] = []

    @property
    def difficulty(self) -> Difficulty:
        """For the next episode."""
        return Difficulty(**{part.name: self.share for part in fields(Difficulty)})

    def observe(self, success: bool) -> bool:
        """Take in the outcome of an episode of this difficulty; whether the next one's is another."""
        config, before = self.config, self.share
        if not config.enabled:
            return False
        self._outcomes.append(success)
        if len(self._outcomes) < config.episodes:
            return False
        rate = sum(self._outcomes) / len(self._outcomes)
        self._outcomes = []
        if rate >= config.raise_at:
            self.share = min(1.0, self.share + config.step)
        elif rate < config.lower_at:
            self.share = max(0.0, self.share - config.step)
        return self.share != before

    def state(self) -> dict[str, Any]:
        """Everything `load` needs."""
        return {"share": self.share, "outcomes": self._outcomes}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.share, self._outcomes = float(state["share"]), [bool(o) for o in state["outcomes"]]
