"""Grasping in PyBullet as a task of the study: EMPO2 itself, with its memory off, on, told or adaptive.

Every arm begins with the policy that was cloned from five demonstrations. What EMPO2's memory calls good is
judged by the simulator and not by what was paid: it is filtered as it is, so no arm adds a filter.
"""

from __future__ import annotations

import math

import numpy as np

from grasp_control.bench import learning_cell
from grasp_control.config import TrainConfig
from grasp_control.study.arms import Arm
from grasp_control.study.cell import Cell, Rows, short
from grasp_control.tables import STEP_COLUMN, read_stream
from grasp_sim.cli import overrides
from grasp_sim.rewards import REWARDS

ENV = "pybullet-lift"
DEMONSTRATIONS = 5
OFF = [
    *("memory.retrieval=false", "memory.demo_fraction=0", "algo.rnd_weight=0", "algo.similarity_weight=0"),
    *("algo.memory_share_start=0", "algo.memory_share_end=0", "algo.memory_share_floor=0"),
]
"""EMPO2 with a mere replay buffer: nothing is retrieved, and no success is imitated after the cloning."""


def settings(cell: Cell) -> learning_cell.Cell:
    """The cell as one of `grasp-bench learning`, which trains EMPO2 and resumes."""
    gate = Arm.parse(cell.memory).gate
    structure = {"on": "sparse", "told": cell.structure}.get(gate, "adaptive")  # sparse: in full
    asked = {"env.horizon": cell.horizon, "env.delay": cell.delay, "algo.gate.structure": structure}
    asked["metrics_every"] = min(cell.every, TrainConfig.metrics_every)  # entropy is wanted at every point
    inner = learning_cell.Cell(
        folder=str(cell.inner),
        env=f"{ENV}:{cell.structure}",
        method="empo2",
        seed=cell.seed,
        demos=DEMONSTRATIONS,
        env_steps=cell.env_steps,
        every=cell.every,
        episodes=cell.episodes,
        settings=[*cell.settings, *overrides(asked), *(OFF if gate == "off" else [])],
    )
    inner.train_config()
    return inner


def describe(cell: Cell) -> str:
    """What is built, in a line."""
    late = f"; delay {cell.delay or 'to the end'}" if cell.structure == "delayed" else ""
    return f"{ENV}, {cell.horizon} steps. {REWARDS[cell.structure].describe}{late}"


def run(cell: Cell) -> tuple[Rows, Rows]:
    """Train and measure: rows of the result and of what the memory did."""
    inner = settings(cell)
    learning_cell.run(inner)
    points, train, episodes = (
        read_stream(inner.path / "run", name) for name in ("points", "train", "episodes")
    )
    rows: Rows = []
    memory_rows: Rows = []
    before = 0.0
    for step, score in zip(points[STEP_COLUMN], points["success"], strict=True):
        reached = step if step == cell.env_steps else step // cell.every * cell.every
        point = cell.same | {"env_steps": int(reached)}
        own = (episodes[STEP_COLUMN] > before) & (episodes[STEP_COLUMN] <= step)
        retrieved = episodes["gated_share"][own] * episodes["length"][own]
        hits, retrievals = retrieved[episodes["return"][own] > 0].sum(), retrieved.sum()
        last = np.flatnonzero(train[STEP_COLUMN] <= step)[-1:]
        shown = {name: short(float(column[last[0]])) if len(last) else "" for name, column in train.items()}
        rate = hits / retrievals if retrievals else math.nan
        rows.append(point | {"return": short(score), "entropy": shown["entropy"], "hit_rate": short(rate)})
        successes = int(episodes["success"][episodes[STEP_COLUMN] <= step].sum())
        memory_rows.append(
            point
            | {"retrievals": round(retrievals), "distance": "", "rows": shown["memory_size"]}
            | {"writes": successes, "refused": 0, "write_low": "", "write_median": "", "write_high": ""}
            | {"participation": 0 if cell.memory == "off" else shown["participation"]}
            | {"density": shown["reward_density"]}
            | {"delay": shown["reward_delay"], "noise": shown["reward_noise"]}
        )
        before = step
    return rows, memory_rows
