"""grasp-bench runs: put finished training runs side by side, with the raw data behind the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from grasp_control.bench.measure import beside, show_rows, write_rows
from grasp_control.bench.settings import require_beginning
from grasp_control.figures import STEPS_LABEL, moving_average, new_axes
from grasp_control.markdown import markdown
from grasp_control.run import WALL_FILE, load_config
from grasp_control.stopwatch import read_seconds
from grasp_control.summary import POLICY_LABELS, PolicySummary, summarise
from grasp_control.tables import STEP_COLUMN, read_stream
from grasp_sim.cli import run_command
from grasp_sim.errors import UserError

HELP = """Put finished training runs side by side: a table, a figure and the raw data.

Writes OUT.csv (a row per run and policy), OUT_episodes.csv (every evaluation episode), OUT.md and OUT.png.

Example:
  grasp-bench runs runs=[runs/lift-0,runs/lift-1,runs/lift-2] out=docs/benchmarks/lift
"""


@dataclass
class RunsConfig:
    """Put finished training runs side by side."""

    runs: list[str] = field(default_factory=list)
    """Folders of runs made by grasp-train."""
    out: str = "docs/benchmarks/lift"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        """Check that there is something to compare."""
        if not self.runs:
            raise ValueError("runs is empty: name at least one run's folder, as in runs=[runs/a,runs/b].")
        require_beginning(self.out)


def run(arguments: Sequence[str]) -> int:
    """Entry point of `grasp-bench runs`."""
    return run_command(RunsConfig, compare, HELP, argv=arguments, program="grasp-bench runs")


def compare(config: RunsConfig) -> None:
    """Collect, print and write."""
    folders = [Path(folder) for folder in config.runs]
    rows, episodes = [], []
    for folder in folders:
        settings = load_config(folder)
        summaries = summarise(folder)
        if not any(summary.policy == "exported" for summary in summaries):
            raise UserError(f"{folder} has no proven network yet: let grasp-train finish it first.")
        fallbacks, wall_min = _of_the_whole_run(folder)
        for summary in summaries:
            rows.append(
                {
                    "run": folder.name,
                    "env": settings.env.name,
                    "control_mode": settings.env.control_mode,
                    "seed": settings.seed,
                    "policy": summary.policy,
                    "env_steps": int(summary.env_step),
                    "demos": settings.demos.episodes,
                    "successes": summary.successes,
                    "episodes": summary.episodes,
                    "retrieval_fallbacks": fallbacks,
                    "wall_min": wall_min,
                }
            )
        evaluation = read_stream(folder, "evaluation")
        names = list(evaluation)
        episodes += [
            {"run": folder.name, **dict(zip(names, values, strict=True))}
            for values in zip(*evaluation.values(), strict=True)
        ]
    out = Path(config.out)
    write_rows(beside(out, ".csv"), rows)
    write_rows(beside(out, "_episodes.csv"), episodes)
    lines = table(folders)
    beside(out, ".md").write_text(markdown(lines))
    learning_curves(folders).savefig(beside(out, ".png"))
    show_rows("Success with its 95 % interval, n episodes", lines)
    print(f"Written: {out}.csv, {out}_episodes.csv, {out}.md, {out}.png")


def _of_the_whole_run(folder: Path) -> tuple[int | str, float | str]:
    """Memory queries over the deadline in training, and minutes of wall time; "" where a run lacks them."""
    fallbacks = read_stream(folder, "train").get("retrieval_fallbacks", np.empty(0))
    seconds = read_seconds(folder / WALL_FILE)
    return int(fallbacks[-1]) if len(fallbacks) else "", round(seconds / 60, 1) if seconds else ""


def table(folders: Sequence[Path]) -> list[dict[str, str]]:
    """A row per run, a column per policy, and the mean over the runs of one environment and control mode.

    A policy that a run did not evaluate has an empty cell, and no mean.
    """
    found = {folder: {s.policy: s for s in summarise(folder)} for folder in folders}
    policies = [p for p in POLICY_LABELS if any(p in held for held in found.values())][::-1]
    groups: dict[tuple[str, str], list[Path]] = {}
    for folder in folders:
        env = load_config(folder).env
        groups.setdefault((env.name, env.control_mode), []).append(folder)
    rows = []
    for (name, mode), members in groups.items():
        for folder in members:
            held = found[folder]
            cells = {POLICY_LABELS[p]: _cell(held[p]) if p in held else "" for p in policies}
            rows.append({"run": folder.name} | cells)
        if len(members) > 1:
            line = {"run": f"mean of {len(members)}, {name} {mode}"}
            for p in policies:
                shares = [found[folder][p].share for folder in members if p in found[folder]]
                line[POLICY_LABELS[p]] = f"{np.mean(shares):.1%}" if len(shares) == len(members) else ""
            rows.append(line)
    return rows


def learning_curves(folders: Sequence[Path]) -> Figure:
    """Training success of every run against environment steps, and what its exported network reached."""
    figure, axes = new_axes("Success while training (with exploration noise)", STEPS_LABEL, "success rate")
    for number, folder in enumerate(folders):
        episodes = read_stream(folder, "episodes")
        fresh = episodes["repeated_start"] == 0
        steps = episodes[STEP_COLUMN][fresh]
        axes.plot(steps, moving_average(episodes["success"][fresh]), color=f"C{number}", label=folder.name)
        held = {s.policy: s for s in summarise(folder)}
        for policy, marker in (("cloned", "x"), ("exported", "o")):
            if policy in held:
                axes.plot([held[policy].env_step], [held[policy].share], marker, color=f"C{number}")
    axes.set_ylim(0.0, 1.05)
    axes.legend(loc="lower right", title="x cloned, o exported network")
    return figure


def _cell(summary: PolicySummary) -> str:
    return f"{summary.share:.0%} ({summary.low:.0%}-{summary.high:.0%}, n={summary.episodes})"
