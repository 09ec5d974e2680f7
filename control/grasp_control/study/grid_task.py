"""The grid world as a task of the study. A cell takes seconds: one that was interrupted begins anew, and as
everything in it follows from its seed, ends the same."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from grasp_control.bench.measure import write_rows
from grasp_control.stopwatch import Stopwatch
from grasp_control.study.agent import AgentConfig, Walk
from grasp_control.study.arms import Arm
from grasp_control.study.cell import Cell, Rows, short
from grasp_control.study.hunt import Hunt
from grasp_sim.grid import GridEnv


def settings(cell: Cell) -> GridEnv:
    """The environment of a cell."""
    return GridEnv(cell.structure, delay=cell.delay, horizon=cell.horizon, seed=cell.seed)


def describe(cell: Cell) -> str:
    """What is built, in a line."""
    return settings(cell).describe


def run(cell: Cell) -> tuple[Rows, Rows]:
    """Train and measure: rows of the result and of what the memory did."""
    cell.wall.unlink(missing_ok=True)
    stopwatch = Stopwatch(cell.wall)
    hunt = Hunt(settings(cell), Arm.parse(cell.memory), cell.seed, AgentConfig(), cell.env_steps)
    due = list(cell.points)
    rows: Rows = []
    memory_rows: Rows = []
    retrievals: Rows = []
    since: list[Walk] = []
    while not hunt.finished:
        walk = hunt.episode()
        since.append(walk)
        if walk.retrieved.any():
            retrievals.append({"env_steps": hunt.env_steps, **_retrieved([walk])._asdict()})
        while due and hunt.env_steps >= due[0]:
            point = cell.same | {"env_steps": due.pop(0)}
            score, entropy = hunt.measure(cell.episodes)
            found = _retrieved(since)
            rate = found.hits / found.retrievals if found.retrievals else math.nan
            rows.append(point | {"return": short(score), "entropy": short(entropy), "hit_rate": short(rate)})
            memory_rows.append(point | _memory_row(hunt, found))
            since = []
            cell.note_steps(hunt.env_steps)
            stopwatch.note()
    write_rows(cell.path / "retrievals.csv", retrievals or [{"env_steps": "", **_retrieved([])._asdict()}])
    return rows, memory_rows


class Retrieved(NamedTuple):
    """What the memory did in some episodes."""

    retrievals: int
    """Actions that it chose."""
    hits: int
    """Those whose episode was paid more than 0 in all."""
    distance: float | str
    """Their mean distance, cells; empty where there are none."""


def _retrieved(walks: list[Walk]) -> Retrieved:
    distances = np.concatenate([walk.distances[walk.retrieved] for walk in walks] or [np.zeros(0)])
    hits = sum(int(walk.retrieved.sum()) for walk in walks if walk.rewards.sum() > 0)
    return Retrieved(len(distances), hits, short(distances.mean()) if len(distances) else "")


def _memory_row(hunt: Hunt, found: Retrieved) -> dict[str, object]:
    memory, gate = hunt.memory, hunt.participation.gate
    latest = list(memory.latest) if memory else []
    low, median, high = np.quantile(latest, [0.0, 0.5, 1.0]) if latest else [math.nan] * 3
    return {
        "retrievals": found.retrievals,
        "distance": found.distance,
        "rows": len(memory) if memory else 0,
        "writes": memory.writes if memory else 0,
        "refused": memory.refused if memory else 0,
        "write_low": short(low),
        "write_median": short(median),
        "write_high": short(high),
        "participation": short(hunt.participation.value),
        "density": short(gate.density),
        "delay": short(gate.delay),
        "noise": short(gate.noise),
    }
