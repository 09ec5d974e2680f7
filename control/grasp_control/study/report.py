"""The report of `grasp-study`, from its raw results: OUT.md and OUT_*.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grasp_control.bench.measure import beside, show_rows
from grasp_control.bootstrap import Estimate, intervals
from grasp_control.cells import read_rows
from grasp_control.markdown import markdown
from grasp_control.study import figures
from grasp_control.study.cell import COLUMNS
from grasp_control.study.series import TARGET, Series, read_series
from grasp_control.study.verdicts import diagnostics, in_words, verdicts
from grasp_sim.errors import UserError


def report(out: Path) -> None:
    """Write OUT.md and OUT_*.png from OUT.csv and OUT_memory.csv, and print the tables."""
    path, memory_path = beside(out, ".csv"), beside(out, "_memory.csv")
    for each in (path, memory_path):
        if not each.exists():
            raise UserError(f"there is no {each}: run grasp-study out={out} first.")
    rows = read_rows(path)
    if not rows or tuple(rows[0]) != COLUMNS:
        raise UserError(f"{path} does not hold the columns {', '.join(COLUMNS)}: choose another out=...")
    series = read_series(rows)
    tables = {
        "Results": summary(series),
        "Verdicts": verdicts(series),
        "Signs of trouble": diagnostics(series, read_rows(memory_path)),
    }
    said = in_words(series)
    text = "".join(f"- {line}\n" for line in said) + "\n" if said else ""
    for title, table in tables.items():
        if table:
            show_rows(title, table)
            text += f"## {title}\n\n{markdown(table)}\n"
    print("\n".join(said))
    for task in dict.fromkeys(one.env for one in series):
        text += f"## Figures: {task}\n\n" + draw([one for one in series if one.env == task], out)
    beside(out, ".md").write_text(text.rstrip() + "\n")
    print(f"Written: {out}.md, {out}_*.png, from {path} and {memory_path}.")


def draw(series: Sequence[Series], out: Path) -> str:
    """Write the figures of one task; returns the Markdown that shows them."""
    drawn = {name: figures.by_structure(series, name) for name in figures.MEASURES}
    drawn |= {"heat": figures.heat_map(series), "curves": figures.curves(series)}
    text = ""
    for name, figure in drawn.items():
        path = beside(out, f"_{series[0].env}_{name}.png")
        figure.savefig(path)
        text += f"![{name}]({path.name})\n"
    return text + "\n"


def summary(series: Sequence[Series]) -> list[dict[str, object]]:
    """A line for each arm: interquartile means with 95 % intervals."""
    return [
        {
            "task": one.env,
            "structure": one.structure,
            "memory": one.memory,
            "seeds": len(one.seeds),
            "return, last quarter": _written(one.final, ".2f"),
            "return, whole run": _written(one.whole, ".2f"),
            f"steps to {TARGET}": _written(one.to_target, ",.0f"),
            "reached": f"{one.reached} of {len(one.seeds)}",
            "entropy": _written(one.entropy[:, -one.late :].mean(axis=1), ".2f"),
            "hit rate": _written(one.hit_rate, ".2f"),
        }
        for one in series
    ]


def _written(values: np.ndarray, form: str) -> str:
    values = values[np.isfinite(values)].astype(np.float64)
    if not len(values):
        return ""
    return Estimate(*(float(part[0]) for part in intervals(values[:, None, None]))).written(form)
