"""What the study measured, as arrays: one series for each task, structure and arm.

Shapes: R runs (seeds), P measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grasp_control.cells import Row
from grasp_sim.grid import GRID_REWARDS

TARGET = 0.8
"""Return whose number of steps is told."""


@dataclass(frozen=True)
class Series:
    """The runs of one arm on one task under one reward structure."""

    env: str
    structure: str
    memory: str
    seeds: list[int]
    steps: np.ndarray
    """(P,) environment steps at which every run was measured."""
    returns: np.ndarray
    """(R, P)."""
    entropy: np.ndarray
    """(R, P) nats."""
    hits: np.ndarray
    """(R, P); NaN where nothing was retrieved."""

    @property
    def late(self) -> int:
        """Measurements in the last quarter."""
        return max(len(self.steps) // 4, 1)

    @property
    def final(self) -> np.ndarray:
        """(R,) mean return over the last quarter: a single measurement is mostly chance."""
        return self.returns[:, -self.late :].mean(axis=1)

    @property
    def whole(self) -> np.ndarray:
        """(R,) mean return over all measurements: the more, the faster and the better it was learned."""
        return self.returns.mean(axis=1)

    @property
    def to_target(self) -> np.ndarray:
        """(R,) first measured steps with the target return; the last step where there are none."""
        reached = self.returns >= TARGET
        return np.where(reached.any(axis=1), self.steps[reached.argmax(axis=1)], self.steps[-1])

    @property
    def reached(self) -> int:
        """Runs that had the target return at some measurement."""
        return int((self.returns >= TARGET).any(axis=1).sum())

    @property
    def hit_rate(self) -> np.ndarray:
        """(R,) mean over the measurements before which something was retrieved; NaN where there is none."""
        some = np.isfinite(self.hits)
        sums = np.where(some, self.hits, 0.0).sum(axis=1)
        return np.divide(sums, some.sum(axis=1), out=np.full(len(sums), np.nan), where=some.any(axis=1))


def read_series(rows: Sequence[Row]) -> list[Series]:
    """A series for each task, structure and arm. Measurements that a run lacks are left out for all."""
    runs: dict[tuple[str, str, str], dict[int, dict[int, Row]]] = {}
    for row in rows:
        key = row["env"], row["structure"], row["memory"]
        runs.setdefault(key, {}).setdefault(int(row["seed"]), {})[int(row["env_steps"])] = row
    series = []
    for key, seeds in runs.items():
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))

        def column(
            name: str, seeds: dict[int, dict[int, Row]] = seeds, steps: list[int] = steps
        ) -> np.ndarray:
            values = [[run[step][name] for step in steps] for run in seeds.values()]
            return np.array([[float(value or math.nan) for value in line] for line in values])

        if steps:
            arrays = column("return"), column("entropy"), column("hit_rate")
            series.append(Series(*key, list(seeds), np.array(steps), *arrays))
    order = list(GRID_REWARDS)
    return sorted(series, key=lambda one: (one.env, order.index(one.structure), one.memory != "off"))


def find_series(series: Sequence[Series], env: str, structure: str, memory: str) -> Series | None:
    """The series of one arm, if it was run."""
    same = (env, structure, memory)
    return next((one for one in series if (one.env, one.structure, one.memory) == same), None)
