"""One cell of `grasp-bench learning`: one method on one environment from one seed, in a process of its own.

What is in a cell's folder: `cell.json` (its settings), `log.txt` (what it printed), `steps` (environment
steps so far), `run/` (demonstrations, checkpoints, every evaluation episode, seconds so far) and, once it is
finished, `result.csv`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from omegaconf import MISSING

from grasp_control.bench.measure import write_rows
from grasp_control.build import load_demonstrations, make_trainer
from grasp_control.cells import GridCell
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import TrainConfig
from grasp_control.earlier import load_earlier_runs
from grasp_control.evaluate import result_rows
from grasp_control.metrics import MetricsWriter
from grasp_control.run import WALL_FILE, RunFolder, held
from grasp_control.stopwatch import Stopwatch
from grasp_control.tables import STEP_COLUMN, Value, plain_value, read_stream
from grasp_control.train import RECORD, resume, train_hybrid
from grasp_sim import registry
from grasp_sim.cli import overrides, parse_config, run_command
from grasp_sim.errors import UserError

COLUMNS = (
    *("env", "method", "variant", "seed", "demos", "env_steps", "success", "episodes", "wall_s"),
    *("drops", "broken"),
)
"""Of the raw results. `success` is a share, `drops` and `broken` count the evaluation's episodes in which the
object fell or broke; `wall_s` is the cell's time so far, evaluations included."""

DEMONSTRATED = {"empo2": True, "sac": False, "ppo": False, "sac-demos": True}
"""The methods, and whether they learn from demonstrations."""

VARIANTS: dict[str, list[str]] = {
    "full": [],
    "no-window": ["context=1"],
    "no-retrieval": ["memory.retrieval=false"],
    "no-novelty": ["memory.novelty_weight=0"],
    "uniform-replay": ["memory.alpha=0"],
    "no-exploratory-critic": ["algo.eta_start=1", "algo.eta_end=1"],
    "no-slip-tagging": [
        *("memory.slip_fraction=0", "memory.slip_quota=0", "memory.slip_repulsion=0"),
        "algo.slip_penalty=0",
    ],
    "no-force-constraint": ["algo.force_rate=0"],
    "no-hard-starts": ["algo.hard_start_share=0"],
    "from-programs": ["seeds=runs/{task}-programs-seed{seed}"],
}
"""EMPO2 with a part left out, or with demonstrations by programs: the settings of grasp-train that do it, in
which task and seed of the cell are filled in."""

_MISSING_SB3 = "the baselines need Stable-Baselines3: pip install -c requirements.lock -e '.[baselines]'."


@dataclass
class Cell(GridCell):
    """One cell of the grid."""

    columns = COLUMNS
    env: str = MISSING
    """Environment, or environment:reward where the reward is not sparse."""
    method: str = MISSING
    """One of `DEMONSTRATED`."""
    variant: str = "full"
    """One of `VARIANTS`."""
    demos: int = 0
    """Demonstrations; 0 for a method that uses none."""
    settings: list[str] = field(default_factory=list)
    """Further settings of grasp-train."""

    @property
    def name(self) -> str:
        """What is unique in a grid."""
        return f"{self.env.replace(':', '-')}_{self.method}_{self.variant}_seed{self.seed}_demos{self.demos}"

    @property
    def kind(self) -> str:
        """Methods differ in their pace."""
        return self.method

    @property
    def wall(self) -> Path:
        """The run keeps it."""
        return self.path / "run" / WALL_FILE

    def train_config(self) -> TrainConfig:
        """The cell as settings of grasp-train. A baseline has no use for EMPO2's own, such as `env_steps`."""
        env, _, reward = self.env.partition(":")
        asked: dict[str, object] = {
            "seed": self.seed,
            "out": self.path / "run",
            "env.name": env,
            "env.reward": reward or "sparse",
            "evaluation_episodes": self.episodes,
            "video": False,
        }
        asked["demos.episodes"] = self.demos
        if self.method == "empo2":
            # What is measured is the hybrid policy: all steps are for training, none for distillation.
            asked |= {"env_steps": self.env_steps, "distill.env_steps": 0}
            asked |= {"curve_every": self.every, "curve_episodes": self.episodes}
        task = env.partition("-")[2]
        changes = [change.format(task=task, seed=self.seed) for change in VARIANTS[self.variant]]
        return parse_config(TrainConfig, [*self.settings, *changes, *overrides(asked)])


def main() -> int:
    """Run the cell that the command line describes."""
    return run_command(Cell, run, "Run one cell of grasp-bench learning.", program="cell")


def run(cell: Cell) -> None:
    """Train, evaluate on the way, and write the result when all is done."""
    torch.set_num_threads(1)
    with held(cell.path):
        cell.note_settings()
        if cell.method == "empo2":
            _train_empo2(cell)
        else:
            _train_baseline(cell)
        _write_result(cell)


def _train_empo2(cell: Cell) -> None:
    """As grasp-train does up to its distillation; resumes from the last checkpoint."""
    config = cell.train_config()
    env = registry.make(**vars(config.env), seed=config.seed)
    run = RunFolder(config)
    with run.begin():
        stopwatch = Stopwatch(run.wall_s)
        episodes = load_demonstrations(config, run, env, RECORD)
        checkpoints = CheckpointStore(run.checkpoints)
        earlier = [] if checkpoints.steps() else load_earlier_runs(config, env)
        trainer = make_trainer(config, env, episodes, earlier)
        with CellMetrics(cell, run.path, resume(run, trainer, checkpoints), stopwatch) as metrics:
            train_hybrid(config, trainer, checkpoints, metrics)


def _train_baseline(cell: Cell) -> None:
    """From the beginning, whatever an interrupted try left."""
    try:
        from grasp_control.baselines.train import train_baseline
    except ModuleNotFoundError as error:
        if error.name != "stable_baselines3":
            raise
        raise UserError(_MISSING_SB3) from error
    config = cell.train_config()
    run = RunFolder.existing(config)
    for left in (cell.path / "steps", run.wall_s):
        left.unlink(missing_ok=True)
    stopwatch = Stopwatch(run.wall_s)
    demonstrations = []
    if cell.demos:
        env = registry.make(**vars(config.env), seed=config.seed)
        demonstrations = load_demonstrations(config, run, env, RECORD)
        env.close()
    with CellMetrics(cell, run.path, -1, stopwatch) as metrics:
        train_baseline(
            cell.method,
            config,
            demonstrations,
            cell.points,
            lambda step, results: metrics.replace_table(
                "evaluation", result_rows(cell.method, step, results)
            ),
            metrics.reached,
        )


_FAULTS = {"drops": "drop", "broken": "broken"}
"""Columns of the raw results, and of the evaluation's episodes."""


class CellMetrics(MetricsWriter):
    """A run's measurements that also keep the cell's progress, and when each evaluation was done."""

    def __init__(self, cell: Cell, run_dir: Path, resume_step: int, stopwatch: Stopwatch) -> None:
        """Go on from `resume_step`, or from the start with -1."""
        super().__init__(run_dir, resume_step, stopwatch)
        self._cell = cell
        self._time = stopwatch
        self._noted = 0.0

    def reached(self, step: int) -> None:
        """Note the environment steps taken so far, at most once a second: a baseline tells every step."""
        if time.monotonic() - self._noted > 1.0:
            self._noted = time.monotonic()
            self._cell.note_steps(step)
            self._time.note()

    def write(self, stream: str, row: Mapping[str, Value]) -> None:
        """Append one row, and note the progress of training episodes."""
        super().write(stream, row)
        if stream == "episodes":
            self.reached(int(plain_value(row[STEP_COLUMN])))

    def replace_table(
        self, stream: str, rows: Iterable[Mapping[str, Value]], same: Sequence[str] = ("policy", STEP_COLUMN)
    ) -> None:
        """Append rows in place of older ones; of an evaluation, also a summary with the time."""
        rows = list(rows)
        super().replace_table(stream, rows, same)
        if stream == "evaluation":
            point = {
                STEP_COLUMN: rows[0][STEP_COLUMN],
                "success": sum(int(plain_value(row["success"])) for row in rows) / len(rows),
                "episodes": len(rows),
                "wall_s": round(self._time.seconds, 1),
                **{name: sum(int(plain_value(row[of])) for row in rows) for name, of in _FAULTS.items()},
            }
            super().replace_table("points", [point], (STEP_COLUMN,))


def _write_result(cell: Cell) -> None:
    """The cell's rows of the raw results. EMPO2 is evaluated at the end of the episode that reaches a point:
    its rows carry the point."""
    points = read_stream(cell.path / "run", "points")
    same = {name: getattr(cell, name) for name in ("env", "method", "variant", "seed", "demos")}
    rows = []
    for values in zip(*points.values(), strict=True):
        point = dict(zip(points, values, strict=True))
        step = int(point[STEP_COLUMN])
        reached = step if step == cell.env_steps else step // cell.every * cell.every
        shown = {"success": round(point["success"], 4), "episodes": int(point["episodes"])}
        faults = {name: int(point[name]) for name in _FAULTS}
        rows.append(same | {"env_steps": reached} | shown | {"wall_s": round(point["wall_s"], 1)} | faults)
    write_rows(cell.result, rows)


if __name__ == "__main__":
    sys.exit(main())
