"""The figures of the study: four with the reward structures on the x axis, a heat map, learning curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_control.bootstrap import intervals
from grasp_control.figures import STEPS_LABEL
from grasp_control.study.series import TARGET, Series, find_series

MEASURES: dict[str, tuple[str, Callable[[Series], np.ndarray]]] = {
    "return": ("return in the last quarter", lambda one: one.final),
    "speed": (f"steps to a return of {TARGET}", lambda one: one.to_target.astype(np.float64)),
    "entropy": ("entropy in the last quarter, nats", lambda one: one.entropy[:, -one.late :].mean(axis=1)),
    "hits": ("hit rate of retrieved actions", lambda one: one.hit_rate),
}
"""Names of the four figures, and what each shows of a series: (R,)."""


def structures_of(series: Sequence[Series]) -> list[str]:
    """In the order in which they came."""
    return list(dict.fromkeys(one.structure for one in series))


def memories_of(series: Sequence[Series]) -> list[str]:
    """In the order in which they came."""
    return list(dict.fromkeys(one.memory for one in series))


def by_structure(series: Sequence[Series], name: str) -> Figure:
    """One of `MEASURES` of one task: a line for each arm, interquartile means with 95 % intervals."""
    label, measure = MEASURES[name]
    structures, memories = structures_of(series), memories_of(series)
    figure = _figure(7.0, 4.0)
    axes = figure.add_subplot()
    axes.set(xlabel="reward structure", ylabel=f"{label}, interquartile mean")
    axes.grid(alpha=0.3)
    for number, memory in enumerate(memories):
        places, points = [], []
        for place, structure in enumerate(structures):
            one = find_series(series, series[0].env, structure, memory)
            values = measure(one) if one else np.zeros(0)
            values = values[np.isfinite(values)]
            if len(values):
                places.append(place + 0.06 * (number - (len(memories) - 1) / 2))
                points.append([float(part[0]) for part in intervals(values[:, None, None])])
        if points:
            mean, low, high = np.array(points).T
            axes.errorbar(
                places,
                mean,
                yerr=np.maximum([mean - low, high - mean], 0.0),
                fmt="o-",
                capsize=3,
                color=f"C{number}",
                label=memory,
            )
    axes.set_xticks(range(len(structures)), structures)
    axes.set_ylim(bottom=0.0)
    if axes.get_legend_handles_labels()[0]:  # where nothing was retrieved there is no hit rate
        axes.legend(title=f"memory; {_seeds(series)} seeds, 95 % intervals", fontsize="small")
    return figure


def heat_map(series: Sequence[Series]) -> Figure:
    """Mean return over the whole run, by structure and arm, of one task."""
    structures, memories = structures_of(series), memories_of(series)
    table = np.full((len(memories), len(structures)), np.nan)
    for row, memory in enumerate(memories):
        for column, structure in enumerate(structures):
            one = find_series(series, series[0].env, structure, memory)
            if one:
                table[row, column] = intervals(one.whole[:, None, None])[0][0]
    figure = _figure(6.0, 3.6)
    axes = figure.add_subplot()
    picture = axes.imshow(table, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(structures)), structures)
    axes.set_yticks(range(len(memories)), memories)
    axes.set(xlabel="reward structure", ylabel="memory")
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            color = "white" if value < 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color)
    figure.colorbar(picture, label="return over the whole run")
    return figure


def curves(series: Sequence[Series]) -> Figure:
    """A panel for each structure of one task: return against environment steps, the intervals shaded."""
    structures, memories = structures_of(series), memories_of(series)
    figure = _figure(4.2 * len(structures), 3.8)
    panels = np.atleast_1d(figure.subplots(1, len(structures), sharey=True))
    for axes, structure in zip(panels, structures, strict=True):
        axes.set(title=structure, xlabel=STEPS_LABEL, ylim=(0.0, 1.05))
        axes.grid(alpha=0.3)
        axes.locator_params(axis="x", nbins=4)
        for number, memory in enumerate(memories):
            one = find_series(series, series[0].env, structure, memory)
            if one:
                mean, low, high = intervals(one.returns[:, None, :])
                axes.plot(one.steps, mean, color=f"C{number}", label=memory)
                axes.fill_between(one.steps, low, high, color=f"C{number}", alpha=0.15)
        axes.legend(title="memory", fontsize="small")
    panels[0].set_ylabel("return, interquartile mean")
    return figure


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _seeds(series: Sequence[Series]) -> str:
    counts = sorted({len(one.seeds) for one in series})
    return "-".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
