"""The table and the figure of `grasp-bench learning`, from its raw results.

Shapes: R runs (seeds), T tasks, P evaluation points.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_control.bench.measure import beside, show_rows
from grasp_control.bootstrap import intervals
from grasp_control.figures import STEPS_LABEL
from grasp_control.markdown import markdown
from grasp_sim.errors import UserError

LEVELS = (0.80, 0.85, 0.90)
"""Success whose number of steps is told."""

BASELINE_LEVELS = {"sac": 0.85, "sac-demos": 0.85, "ppo": 0.80}
"""The success that a baseline needs where EMPO2 needs 90 %, when their steps are compared (E17)."""


class Curve(NamedTuple):
    """One method's runs on one task."""

    env: str
    method: str
    variant: str
    demos: int
    steps: np.ndarray
    """(P,) environment steps at which every run was evaluated."""
    scores: np.ndarray
    """(R, P) success."""
    iqm: np.ndarray
    """(P,) interquartile mean over the runs."""
    low: np.ndarray
    """(P,) lower end of its 95 % interval."""
    high: np.ndarray
    """(P,)."""
    drops: float
    """Per 100 episodes at the last point, the mean of the runs."""
    broken: float
    """The same of objects that broke."""

    @property
    def label(self) -> str:
        """The method in a few words."""
        variant = "" if self.variant == "full" else f" {self.variant}"
        return f"{self.method}{variant}" + (f", {self.demos} demos" if self.demos else "")

    def steps_to(self, level: float) -> float:
        """First evaluated steps at which the interquartile mean reaches `level`; infinite if none."""
        reached = np.flatnonzero(self.iqm >= level)
        return float(self.steps[reached[0]]) if len(reached) else math.inf


def report(out: Path) -> None:
    """Write OUT.md and OUT.png from OUT.csv, and print the tables."""
    path = beside(out, ".csv")
    if not path.exists():
        raise UserError(f"there is no {path}: run grasp-bench learning out={out} first.")
    curves = read_curves(path)
    table, ratios = summary(curves), step_ratios(curves)
    show_rows("Success, interquartile mean and 95 % interval", table)
    text = markdown(table)
    if ratios:
        show_rows("Steps that a baseline needs for each of EMPO2's", ratios)
        text += "\n" + markdown(ratios)
    beside(out, ".md").write_text(text)
    draw(curves).savefig(beside(out, ".png"))
    print(f"Written: {out}.csv, {out}.md, {out}.png")


def read_curves(path: Path) -> list[Curve]:
    """A curve for each task, method, variant and number of demonstrations.

    Points that a run lacks, because it was evaluated more rarely or is shorter, are left out for all.
    """
    runs: dict[tuple[str, str, str, int], dict[str, dict[int, dict[str, str]]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["env"], row["method"], row["variant"], int(row["demos"])
            points = runs.setdefault(key, {}).setdefault(row["seed"], {})
            points[int(row["env_steps"])] = row
    curves = []
    for key, seeds in runs.items():
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        if steps:
            scores = np.array([[float(run[step]["success"]) for step in steps] for run in seeds.values()])
            ends = [run[steps[-1]] for run in seeds.values()]
            faults = [
                float(np.mean([100.0 * int(end[name]) / int(end["episodes"]) for end in ends]))
                for name in ("drops", "broken")
            ]
            curves.append(Curve(*key, np.array(steps), scores, *intervals(scores[:, None, :]), *faults))
    return curves


def summary(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """A line for each curve: its last point, and the steps to reach each level."""
    return [
        {
            "task": curve.env,
            "method": curve.label,
            "seeds": len(curve.scores),
            "steps": int(curve.steps[-1]),
            "success (95 %)": f"{curve.iqm[-1]:.1%} ({curve.low[-1]:.1%} to {curve.high[-1]:.1%})",
            "on the way": ", ".join(
                f"{mean:.1%} at {step:,}" for mean, step in zip(curve.iqm[:-1], curve.steps[:-1], strict=True)
            ),
            **{f"steps to {level:.0%}": _written(curve.steps_to(level)) for level in LEVELS},
            "drops per 100": round(curve.drops, 1),
            "broken per 100": round(curve.broken, 1),
        }
        for curve in curves
    ] + _over_tasks(curves)


def _over_tasks(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """The last points over all tasks, for what was run on several tasks with equally many seeds."""
    lines: list[dict[str, object]] = []
    for label in dict.fromkeys(curve.label for curve in curves):
        same = [curve for curve in curves if curve.label == label]
        if len(same) > 1 and len({len(curve.scores) for curve in same}) == 1:
            mean, low, high = intervals(np.stack([curve.scores[:, -1:] for curve in same], axis=1))
            line: dict[str, object] = {
                "task": f"all {len(same)}",
                "method": label,
                "seeds": len(same[0].scores),
                "steps": "last of each",
                "success (95 %)": f"{mean[0]:.1%} ({low[0]:.1%} to {high[0]:.1%})",
            }
            levels = (f"steps to {level:.0%}" for level in LEVELS)
            lines.append(line | dict.fromkeys(("on the way", *levels, "drops per 100", "broken per 100"), ""))
    return lines


def step_ratios(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """Steps of each baseline to its level over EMPO2's to 90 %, on tasks where EMPO2 reaches it.

    Where EMPO2's cloned policy is there already, its first point of training counts. A baseline that never
    reached its level needs more than its last point. Where EMPO2's runs share no point of training, there is
    no ratio.
    """
    lines: list[dict[str, object]] = []
    for empo2 in (c for c in curves if c.method == "empo2" and c.variant == "full"):
        trained = empo2.steps[empo2.steps > 0]
        ours = max(empo2.steps_to(LEVELS[-1]), float(trained[0])) if len(trained) else math.inf
        for other in curves:
            if other.env != empo2.env or other.demos not in (0, empo2.demos) or math.isinf(ours):
                continue
            level = BASELINE_LEVELS.get(other.method)
            if level is None:
                continue
            theirs = other.steps_to(level)
            more = math.isinf(theirs)
            ratio = (float(other.steps[-1]) if more else theirs) / ours
            lines.append(
                {
                    "task": empo2.env,
                    "EMPO2": f"{empo2.label}: {_written(ours)} to {LEVELS[-1]:.0%}",
                    "baseline": f"{other.label}: {_written(theirs)} to {level:.0%}",
                    "ratio": f"more than {ratio:.1f}" if more else f"{ratio:.1f}",
                }
            )
    return lines


def _written(steps: float) -> str:
    return "not reached" if math.isinf(steps) else f"{steps:,.0f}"


def draw(curves: Sequence[Curve]) -> Figure:
    """A panel for each task: success against environment steps, with the intervals shaded."""
    tasks = list(dict.fromkeys(curve.env for curve in curves))
    labels = list(dict.fromkeys(curve.label for curve in curves))
    figure = Figure(figsize=(6.0 * len(tasks), 4.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        axes.set(title=task, xlabel=STEPS_LABEL, ylabel="success rate, interquartile mean", ylim=(0.0, 1.05))
        axes.grid(alpha=0.3)
        for curve in (curve for curve in curves if curve.env == task):
            color = f"C{labels.index(curve.label)}"
            axes.plot(curve.steps, curve.iqm, "o-", color=color, label=curve.label, markersize=3)
            axes.fill_between(curve.steps, curve.low, curve.high, color=color, alpha=0.2)
        axes.legend(title=f"shaded: 95 % interval over {_seed_range(curves, task)} seeds")
    return figure


def _seed_range(curves: Sequence[Curve], task: str) -> str:
    counts = sorted({len(curve.scores) for curve in curves if curve.env == task})
    return "-".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
