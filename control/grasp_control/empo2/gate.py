"""How much the memory takes part, by the structure of the reward (E10, R7, R8).

Where rewards are rare or late, what once succeeded is the best guide; where every step is rewarded, learning
from the present policy is faster and imitation holds it back; where rewards are noisy, what the memory calls
good may be luck. `GateConfig.structure` says which it is, or leaves it to three running statistics: density,
delay and noise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from grasp_sim.cli import require_at_most, require_choice

PARTICIPATION = {"sparse": 1.0, "delayed": 1.0, "noisy": 0.5, "dense": 0.2}
"""The memory's participation by reward structure [R7]."""
ADAPTIVE = "adaptive"
VERY_SPARSE = 0.01
"""Share of rewarded steps below which a reward is very sparse [E14]."""


@dataclass
class GateConfig:
    """Participation of the memory in acting and learning [E10]."""

    structure: str = ADAPTIVE
    """The reward's structure: sparse, delayed, noisy or dense; 'adaptive' finds it out [R7, R8]."""
    episodes: int = 50
    """Latest training episodes whose rewards are looked at."""

    def __post_init__(self) -> None:
        require_choice("algo.gate.structure", self.structure, [*PARTICIPATION, ADAPTIVE])
        if self.episodes < 1:
            raise ValueError(f"algo.gate.episodes={self.episodes} must be at least 1.")
        require_at_most(self, {"episodes": 100_000}, "algo.gate.")


class MemoryGate:
    """Running statistics of the rewards, and the participation that follows from them."""

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self._sums: deque[tuple[float, ...]] = deque(maxlen=config.episodes)

    def observe(self, rewards: np.ndarray) -> None:
        """Take in the rewards (T,) of one episode."""
        r = np.asarray(rewards, np.float64)
        magnitude = np.abs(r)
        total = float(magnitude.sum())
        late = float(magnitude @ np.arange(1, len(r) + 1)) / (total * len(r)) if total else 0.0
        self._sums.append(
            (
                float(len(r)),
                float(np.count_nonzero(r)),
                float(total > 0),
                late,
                float(((r - r.mean()) ** 2).sum()),
                float((np.diff(r) ** 2).sum()),
            )
        )

    def _sum(self, column: int) -> float:
        return sum(row[column] for row in self._sums)

    @property
    def density(self) -> float:
        """Share of steps with a reward other than 0; NaN before the first episode."""
        return self._sum(1) / self._sum(0) if self._sums else float("nan")

    @property
    def delay(self) -> float:
        """Where in rewarded episodes the reward comes on average: 0 at the start, 1 at the end; or NaN."""
        rewarded = self._sum(2)
        return self._sum(3) / rewarded if rewarded else float("nan")

    @property
    def noise(self) -> float:
        """Share of the reward's variance that changes from each step to the next, 0 to 1.

        The mean squared step of white noise is twice its variance, that of a smooth shaping next to nothing,
        that of one spike in an episode as much as its variance; so twice their ratio less one, weighed by how
        many steps are rewarded at all.
        """
        variance = self._sum(4)
        if not variance:
            return 0.0
        ratio = self._sum(5) / (2.0 * variance)
        return min(max(2.0 * ratio - 1.0, 0.0), 1.0) * self.density

    @property
    def participation(self) -> float:
        """Of the memory, 0 to 1: a factor on its stratum, on retrieved candidates and on their choice."""
        if self.config.structure != ADAPTIVE:
            return PARTICIPATION[self.config.structure]
        if not self._sums:
            return 1.0
        late = max(0.0, 2.0 * self.delay - 1.0) if self._sum(2) else 0.0
        smooth = self.density * (1.0 - self.noise) * (1.0 - late)
        wary = 1.0 - (1.0 - PARTICIPATION["noisy"]) * self.noise
        return (1.0 - (1.0 - PARTICIPATION["dense"]) * smooth) * wary

    @property
    def very_sparse(self) -> float:
        """How much the means for very sparse rewards are wanted [E14]: 1 without any reward, 0 from a density
        of 1 % on, and where the structure is said to be another."""
        rare = self.config.structure in ("sparse", "delayed", ADAPTIVE)
        return max(0.0, 1.0 - self.density / VERY_SPARSE) if rare and self._sums else 0.0

    def state(self) -> dict[str, Any]:
        """Everything `load` needs."""
        return {"sums": [list(row) for row in self._sums]}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._sums = deque((tuple(row) for row in state["sums"]), maxlen=self.config.episodes)
