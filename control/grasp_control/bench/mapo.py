"""`grasp-bench mapo`: held-out success against programs tried, for MAPO, its baselines and ablations."""

from __future__ import annotations

import contextlib
import csv
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_control.bench.learning_report import intervals
from grasp_control.bench.measure import beside, show_rows, write_rows
from grasp_control.bench.settings import require_beginning
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.learner import Learner, greedy_success
from grasp_control.mapo.pool import OneSampler, SamplerPool
from grasp_control.mapo.sampler import Sampler
from grasp_control.markdown import markdown
from grasp_sim.cli import require_at_least, require_at_most, require_choice, run_command
from grasp_sim.list_programs import ListPrograms
from grasp_sim.program_env import GraspPrograms
from grasp_sim.programs import Executor, ProgramTask

TASKS: dict[str, Callable[[], ProgramTask]] = {"lists": ListPrograms, "grasps": GraspPrograms}
VARIANTS: dict[str, dict[str, Any]] = {
    "mapo": {},
    "no-clipping": {"clip": 0.0},
    "no-exploration": {"systematic": False},
    "no-memory": {"remember": False},
    "reinforce": {"method": "reinforce", "explored": 0, "drawn": 4},
    "reinforce-entropy": {"method": "reinforce", "explored": 0, "drawn": 4, "entropy": 0.01},
    "marginal-likelihood": {"method": "marginal-likelihood"},
    "hard-em": {"method": "hard-em"},
}
"""What is compared, and the settings in which it differs. All try four programs a problem and update."""

HELP = """Compare MAPO with REINFORCE, maximum marginal likelihood and hard EM, and with parts of it left out.

A grid of tasks, variants and seeds. Each cell learns from the training problems until it has tried PROGRAMS
programs, and writes the most probable program for every held-out problem now and then. Rows go to OUT.csv as
cells end; the same command again goes on with the cells that are missing there. OUT.md (interquartile means
with 95 % bootstrap intervals) and OUT.png are made of the whole file.

  lists   chains of functions that explain five examples (after DeepCoder); microseconds a program
  grasps  grasp programs in PyBullet; about 80 ms a program, executed once for all cells of a call

Variants:
{variants}
""".format(
    variants="\n".join(
        f"  {name:20} {' '.join(f'{key}={value}' for key, value in changes.items()) or 'as it is'}"
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
    programs: int = 100_000
    """Pairs of problem and program that a cell may try."""
    evaluations: int = 10
    """Evaluations in a cell, evenly over these."""
    problems: int = 1000
    """Training problems."""
    held_out: int = 200
    """Held-out problems."""
    processes: int = 0
    """Processes that execute programs beside the learner; 0: none, exactly repeatable."""
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
        counts = ("programs", "evaluations", "problems", "held_out")
        require_at_least(self, dict.fromkeys(counts, 1) | {"processes": 0})
        require_at_most(
            self,
            {"programs": 10**9, "problems": 10**6, "held_out": 10**6, "evaluations": 10**4, "processes": 64},
        )
        require_beginning(self.out)


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
            checked = Executor(task, MAPOConfig().check_share, np.random.default_rng(0))
            executors[task_name] = task, checked
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
    settings = MAPOConfig(**VARIANTS[variant])
    training = task.problems("train", config.problems)
    held_out = task.problems("held-out", config.held_out)
    made, drawn = (
        torch.Generator().manual_seed(int(s)) for s in np.random.SeedSequence(seed).generate_state(2)
    )
    learner = Learner(task, len(training[0].features), settings, made)
    rng = np.random.default_rng(seed)
    began, rows = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        samplers: OneSampler | SamplerPool
        if config.processes:
            kind = TASKS[task_name]
            samplers = stack.enter_context(SamplerPool(kind, training, settings, config.processes, seed))
        else:
            sampler = Sampler(training, learner.policy, settings, execute, drawn)
            samplers = OneSampler(sampler, len(training))
        tried, solved = 0, set[int]()
        # Where everything was tried there is nothing left to spend: four times the updates are enough then.
        most = 4 * config.programs // (settings.problems * (settings.explored + settings.drawn)) + 1
        due = [config.programs * (number + 1) // config.evaluations for number in range(config.evaluations)]
        for update in range(most):
            for idle in samplers.idle():
                owned = samplers.owned(idle)
                numbers = rng.choice(owned, min(settings.problems, len(owned)), replace=False).tolist()
                samplers.request(idle, numbers, learner.policy.state_dict())
            found = samplers.collect()
            learner.update(found, training)
            tried += sum(len(one.tried) for one in found)
            solved |= {one.problem for one in found if one.memory or any(reward for _, reward in one.drawn)}
            if tried >= due[0] or update == most - 1:
                rows.append(
                    {
                        "task": task_name,
                        "variant": variant,
                        "seed": seed,
                        "programs": due.pop(0),
                        "success": round(greedy_success(learner.policy, held_out, execute), 4),
                        "held_out": len(held_out),
                        "solved": round(len(solved) / len(training), 4),
                        "updates": update + 1,
                        "wall_s": round(time.monotonic() - began, 1),
                    }
                )
                if not due:
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
        lines.append(
            {
                "task": task,
                "variant": variant,
                "seeds": len(runs),
                "programs": f"{points[-1]:,}",
                "held-out (95 %)": f"{mean[-1]:.1%} ({low[-1]:.1%} to {high[-1]:.1%})",
                "training problems solved": f"{np.mean([float(row['solved']) for row in last]):.1%}",
            }
        )
    show_rows("Success on held-out problems, interquartile mean and 95 % interval", lines)
    beside(out, ".md").write_text(markdown(lines))
    draw(curves).savefig(beside(out, ".png"))
    print(f"Written: {out}.csv, {out}.md, {out}.png")


def draw(curves: dict[tuple[str, str], tuple[list[int], np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """A panel for each task: held-out success against programs tried, with the intervals shaded."""
    tasks = list(dict.fromkeys(task for task, _ in curves))
    figure = Figure(figsize=(7.0 * len(tasks), 4.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        axes.set(title=task, xlabel="programs tried", ylabel="held-out success, interquartile mean")
        axes.grid(alpha=0.3)
        for (own, variant), (points, mean, low, high) in curves.items():
            if own == task:
                color = f"C{list(VARIANTS).index(variant)}"
                axes.plot(points, mean, "o-", color=color, label=variant, markersize=3)
                axes.fill_between(points, low, high, color=color, alpha=0.15)
        axes.legend(fontsize="small")
    return figure


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
