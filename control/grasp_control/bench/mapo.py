"""`grasp-bench mapo`: held-out success against programs tried, for MAPO, its baselines and ablations."""

from __future__ import annotations

import csv
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_control.bench.measure import beside, show_rows, write_rows
from grasp_control.bench.settings import require_beginning
from grasp_control.bootstrap import intervals
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.learner import greedy_success
from grasp_control.mapo.pool import make_executor
from grasp_control.mapo.training import Training
from grasp_control.markdown import markdown
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
from grasp_sim.list_programs import ListPrograms
from grasp_sim.program_env import GraspPrograms
from grasp_sim.programs import Executor, ProgramTask

TASKS: dict[str, Callable[[], ProgramTask]] = {"lists": ListPrograms, "grasps": GraspPrograms}
_EXPLORES = {"explored": 2, "drawn": 0}
VARIANTS: dict[str, dict[str, Any]] = {
    "mapo": {},
    "clip-0.1": {"clip": 0.1},
    "no-clipping": {"clip": 0.0},
    "no-exploration": {"systematic": False},
    "no-memory": {"remember": False},
    "reinforce": {"method": "reinforce", "explored": 0, "drawn": 2, "entropy": 0.0},
    "reinforce-entropy": {"method": "reinforce", "explored": 0, "drawn": 2},
    "marginal-likelihood": _EXPLORES | {"method": "marginal-likelihood", "systematic": False},
    "hard-em": _EXPLORES | {"method": "hard-em", "systematic": False},
    "systematic-likelihood": _EXPLORES | {"method": "marginal-likelihood"},
    "systematic-em": _EXPLORES | {"method": "hard-em"},
    "systematic-likelihood-128": _EXPLORES | {"method": "marginal-likelihood", "hidden": 128},
}
"""What is compared, and the settings in which it differs. All execute two programs a problem and update."""

HELP = """Compare MAPO with REINFORCE, maximum marginal likelihood and hard EM, and with parts of it left out.

A grid of tasks, variants and seeds. Each cell learns from the training problems until it has executed
PROGRAMS programs, those that it executed before counted again, and writes the most probable program for every
held-out problem now and then. Likelihood and hard EM keep a memory, too; the systematic ones have MAPO's
exploration besides, the others draw from their policy.

Rows go to OUT.csv as cells end; the same command again goes on with the cells that are missing there. OUT.md
(interquartile means with 95 % bootstrap intervals) and OUT.png are made of the whole file.

  lists   chains of functions that explain five examples (after DeepCoder); microseconds a program
  grasps  grasp programs in PyBullet; about 80 ms a program, executed once for all cells

Variants:
{variants}
""".format(
    variants="\n".join(
        f"  {name:26} {' '.join(f'{key}={value}' for key, value in changes.items()) or 'as it is'}"
        for name, changes in VARIANTS.items()
    )
)


@dataclass
class MAPOBenchConfig:
    """Settings of `grasp-bench mapo`."""

    tasks: list[str] = field(default_factory=lambda: ["lists"])
    """lists, grasps."""
    variants: list[str] = field(default_factory=lambda: list(VARIANTS))
    """What is compared."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    """Each fixes networks and exploration; the problems are always the same."""
    programs: int = 40_000
    """Programs that a cell executes."""
    evaluations: int = 10
    """Evaluations in a cell, evenly over these."""
    problems: int = 1000
    """Training problems."""
    held_out: int = 200
    """Held-out problems."""
    batch: int = 16
    """Training problems of an update; fewer make more updates of as many executions."""
    processes: int = 0
    """Processes that execute programs beside the learner; 0: none, exactly repeatable."""
    store: str = "runs/mapo"
    """Folder in which the rewards of executed grasp programs are kept, for all cells and calls."""
    out: str = "docs/benchmarks/mapo"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, known in (("tasks", TASKS), ("variants", VARIANTS)):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: name at least one.")
            for value in getattr(self, name):
                require_choice(name, value, known)
        if not self.seeds or min(self.seeds) < 0:
            raise ValueError(f"seeds={self.seeds}: name at least one, none negative.")
        counts = ("programs", "evaluations", "problems", "held_out", "batch")
        require_at_least(self, dict.fromkeys(counts, 1) | {"processes": 0})
        require_at_most(
            self,
            {
                "programs": 10**9,
                "problems": 10**6,
                "held_out": 10**6,
                "evaluations": 10**4,
                "batch": 10**5,
                "processes": 64,
            },
        )
        require_path("store", self.store)
        require_beginning(self.out)

    def store_of(self, task_name: str) -> str:
        """The file in which a task's rewards are kept; none where executing costs less than looking up."""
        return str(Path(self.store) / f"{task_name}.sqlite") if task_name == "grasps" else ""


def run(arguments: Sequence[str]) -> int:
    """Run the grid; returns the exit code."""
    return run_command(MAPOBenchConfig, run_grid, HELP, argv=arguments, program="grasp-bench mapo")


def run_grid(config: MAPOBenchConfig) -> None:
    """Run the cells that have no rows yet, and report."""
    torch.set_num_threads(1)  # the networks are small; two threads on one core would wait for each other
    path = beside(Path(config.out), ".csv")
    rows = _read(path)
    cells = list(itertools.product(config.tasks, config.seeds, config.variants))
    done = {(row["task"], int(row["seed"]), row["variant"]) for row in rows}
    executors: dict[str, tuple[ProgramTask, Executor]] = {}
    for number, (task_name, seed, variant) in enumerate(cells):
        if (task_name, seed, variant) in done:
            continue
        if task_name not in executors:
            task = TASKS[task_name]()
            rng = np.random.default_rng(0)
            execute = make_executor(task, MAPOConfig().check_share, rng, config.store_of(task_name))
            executors[task_name] = task, execute
        rows += run_cell(config, task_name, variant, seed, *executors[task_name])
        write_rows(path, rows)
        last = rows[-1]
        print(
            f"{task_name} {variant} seed {seed}: held-out {float(last['success']):.1%} after"
            f" {int(last['programs']):,} programs, {float(last['wall_s']):.0f} s."
            f" {number + 1} of {len(cells)} cells.",
            flush=True,
        )
    report(Path(config.out), rows)


def run_cell(
    config: MAPOBenchConfig, task_name: str, variant: str, seed: int, task: ProgramTask, execute: Executor
) -> list[dict[str, object]]:
    """Learn; a row for each evaluation."""
    settings = MAPOConfig(problems=config.batch, **VARIANTS[variant])
    problems = task.problems("train", config.problems)
    held_out = task.problems("held-out", config.held_out)
    began, rows = time.monotonic(), []
    # Where everything was tried there is nothing left to spend: four times the updates are enough then.
    most = 4 * config.programs // (settings.problems * (settings.explored + settings.drawn)) + 1
    due = [config.programs * (number + 1) // config.evaluations for number in range(config.evaluations)]
    with Training(
        task,
        problems,
        settings,
        seed,
        execute,
        processes=config.processes,
        make_task=TASKS[task_name],
        store=config.store_of(task_name),
    ) as training:
        while due:
            training.update()
            if training.executions >= due[0] or training.updates == most:
                rows.append(
                    {
                        "task": task_name,
                        "variant": variant,
                        "seed": seed,
                        "programs": due.pop(0),
                        "success": round(greedy_success(training.learner.policy, held_out, execute), 4),
                        "held_out": len(held_out),
                        "solved": round(len(training.solved) / len(problems), 4),
                        "different": sum(map(len, training.tried.values())),
                        "updates": training.updates,
                        "wall_s": round(time.monotonic() - began, 1),
                    }
                )
            if training.updates == most:
                break
    return rows


def report(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write OUT.md and OUT.png, and print the table."""
    lines, curves = [], {}
    for task, variant in dict.fromkeys((row["task"], row["variant"]) for row in rows):
        own = [row for row in rows if (row["task"], row["variant"]) == (task, variant)]
        runs = [
            {int(row["programs"]): row for row in own if row["seed"] == seed}
            for seed in dict.fromkeys(row["seed"] for row in own)
        ]
        points = sorted(set.intersection(*(set(points) for points in runs)))
        scores = np.array([[float(points_of[point]["success"]) for point in points] for points_of in runs])
        mean, low, high = intervals(scores[:, None, :])
        curves[task, variant] = points, mean, low, high
        last = [points_of[points[-1]] for points_of in runs]
        different = [int(row["different"]) for row in last]
        lines.append(
            {
                "task": task,
                "variant": variant,
                "seeds": len(runs),
                "programs": f"{points[-1]:,}",
                "held-out (95 %)": f"{mean[-1]:.1%} ({low[-1]:.1%} to {high[-1]:.1%})",
                "training problems solved": f"{np.mean([float(row['solved']) for row in last]):.1%}",
                # The last update may execute a few more than were due.
                "executed before": f"{max(0.0, 1.0 - np.mean(different) / points[-1]):.1%}",
            }
        )
    show_rows("Success on held-out problems, interquartile mean and 95 % interval", lines)
    beside(out, ".md").write_text(markdown(lines))
    draw(curves).savefig(beside(out, ".png"))
    print(f"Written: {out}.csv, {out}.md, {out}.png")


def draw(curves: dict[tuple[str, str], tuple[list[int], np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """A panel for each task: held-out success against programs tried, with the intervals shaded."""
    tasks = list(dict.fromkeys(task for task, _ in curves))
    colors = matplotlib.colormaps["tab20"]
    figure = Figure(figsize=(7.0 * len(tasks), 4.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        axes.set(title=task, xlabel="programs executed", ylabel="held-out success, interquartile mean")
        axes.grid(alpha=0.3)
        for (own, variant), (points, mean, low, high) in curves.items():
            if own == task:
                color = colors(list(VARIANTS).index(variant))
                axes.plot(points, mean, "o-", color=color, label=variant, markersize=3)
                axes.fill_between(points, low, high, color=color, alpha=0.15)
        axes.legend(fontsize="small")
    return figure


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
