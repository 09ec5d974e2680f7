"""The figures of a training report, one function each, from columns as `tables.read_stream` answers them.

Every function builds an explicit Figure, so drawing needs no display and shares no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_control.empo2.safeguards import Action
from grasp_control.intervals import wilson_interval
from grasp_control.tables import STEP_COLUMN

Columns = Mapping[str, np.ndarray]

MOVING_AVERAGE_EPISODES = 100
"""Width of the learning curve's window: fewer than a hundred episodes are mostly noise."""

SCORE_BINS = 20

STEPS_LABEL = "environment steps"

SOURCE_COLORS = {"online": "#7f7f7f", "success": "#2ca02c", "demo": "#1f77b4", "slip": "#d62728"}
"""Fixed per source, so that figures of different runs compare."""


def new_axes(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """A figure with one pair of labelled axes that can be saved without a display."""
    figure = Figure(figsize=(7.0, 4.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    return figure, axes


def moving_average(values: np.ndarray, width: int = MOVING_AVERAGE_EPISODES) -> np.ndarray:
    """Mean of each value and up to `width - 1` before it, (n,); NaN values count as absent."""
    present = np.isfinite(values)
    sums = np.cumsum(np.where(present, values, 0.0))
    counts = np.cumsum(present).astype(np.float64)
    sums[width:], counts[width:] = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    return np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0)


def success_bars(results: Sequence[tuple[str, int, int]]) -> Figure:
    """Success rate with its 95 % Wilson interval for each (policy, successes, episodes)."""
    figure, axes = new_axes("Success with 95 % Wilson interval", "", "success rate")
    for position, (_, successes, episodes) in enumerate(results):
        share = successes / episodes
        low, high = wilson_interval(successes, episodes)
        # At 0 and at n successes the bound is the rate itself, up to rounding of either sign.
        error = [[max(share - low, 0.0)], [max(high - share, 0.0)]]
        axes.bar(position, share, yerr=error, capsize=8, width=0.6, color=f"C{position}")
        axes.annotate(f"{successes} of {episodes}", (position, 0.02), ha="center", color="white")
    axes.set_xticks(range(len(results)), [policy for policy, _, _ in results])
    axes.set_ylim(0.0, 1.05)
    return figure


def learning_curve(
    episodes: Columns, evaluations: Sequence[tuple[str, float, int, int]], events: Columns
) -> Figure:
    """Success in training as a moving average, (policy, env_step, successes, episodes) evaluations, and the
    safeguards' events."""
    figure, axes = new_axes("Learning curve", STEPS_LABEL, "success rate")
    if episodes:
        label = f"training with noise, mean of {MOVING_AVERAGE_EPISODES}"
        axes.plot(episodes[STEP_COLUMN], moving_average(episodes["success"]), label=label, color="C0")
    for number, policy in enumerate(dict.fromkeys(policy for policy, *_ in evaluations)):
        points = sorted(point[1:] for point in evaluations if point[0] == policy)
        steps = [step for step, _, _ in points]
        shares = np.array([successes / n for _, successes, n in points])
        bounds = np.array([wilson_interval(successes, n) for _, successes, n in points])
        error = np.maximum(np.stack([shares - bounds[:, 0], bounds[:, 1] - shares]), 0.0)
        style = "o-" if len(points) > 1 else "o"
        axes.errorbar(steps, shares, yerr=error, fmt=style, capsize=4, color=f"C{number + 1}", label=policy)
    mark_events(axes, events)
    axes.set_ylim(0.0, 1.05)
    axes.legend(loc="lower right")
    return figure


def over_steps(train: Columns, column: str, title: str, y_label: str, *, share: bool = False) -> Figure:
    """One statistic of the learner against environment steps; `share` draws the whole range from 0 to 1."""
    figure, axes = new_axes(title, STEPS_LABEL, y_label)
    axes.plot(train[STEP_COLUMN], train[column], color="C0")
    if share:
        axes.set_ylim(0.0, 1.05)
    return figure


SHARES = {
    "eta": "conservative critic in Q (eta)",
    "kl_lambda": "KL coefficient (lambda)",
    "memory_share": "memory stratum in the loss",
    "memory_mass": "policy's mass on the successes",
    "participation": "memory's participation (gate)",
    "difficulty": "difficulty (curriculum)",
    "reward_density": "rewarded steps",
}
"""Statistics between 0 and 1 that say what the learner was told to do, and what that followed from."""


def schedules(train: Columns, events: Columns) -> Figure:
    """What the learner was told at each step, and the safeguards' events."""
    figure, axes = new_axes("Schedules, gate and safeguards", STEPS_LABEL, "share or coefficient")
    for column, label in SHARES.items():
        axes.plot(train[STEP_COLUMN], train[column], label=label)
    mark_events(axes, events)
    axes.set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return figure


EVENT_COLORS = {
    Action.RAISE_LAMBDA.value: "C1",
    Action.LOWER_LAMBDA.value: "C2",
    Action.ROLL_BACK.value: "C3",
    Action.PURGE.value: "C4",
}


def mark_events(axes: Axes, events: Columns) -> None:
    """A vertical line at each of the safeguards' events, one colour for each action."""
    if not events or STEP_COLUMN not in events:
        return
    named: set[str] = set()
    for step, action in zip(events[STEP_COLUMN], events["action"], strict=True):
        label = None if action in named else f"safeguard: {action}"
        axes.axvline(step, color=EVENT_COLORS[str(action)], linestyle="--", linewidth=1, label=label)
        named.add(action)


CONSTRAINT = ("force_excess", "force_multiplier")


def constraint(train: Columns) -> Figure:
    """The force constraint: the policy's excess over the safe force, and the multiplier that answers it."""
    figure, axes = new_axes("Grip-force constraint", STEPS_LABEL, "mean excess, share of the safe force")
    axes.plot(train[STEP_COLUMN], train["force_excess"], color="C3", label="excess")
    other = axes.twinx()
    other.set_ylabel("multiplier, return per safe force")
    other.plot(train[STEP_COLUMN], train["force_multiplier"], color="C0", label="multiplier")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def source_shares(train: Columns) -> Figure:
    """What the memory's rows come from, stacked to one."""
    figure, axes = new_axes("Sources of the memory's rows", STEPS_LABEL, "share of rows")
    names = [name for name in SOURCE_COLORS if f"share_{name}" in train]
    shares = [np.nan_to_num(train[f"share_{name}"]) for name in names]
    axes.stackplot(
        train[STEP_COLUMN], shares, labels=names, colors=[SOURCE_COLORS[name] for name in names], alpha=0.8
    )
    axes.set_ylim(0.0, 1.0)
    figure.legend(loc="outside right center", reverse=True)
    return figure


def score_histogram(histogram: Columns) -> Figure:
    """Scores of the memory's rows, at the first and at the last time they were counted, in the same bins."""
    figure, axes = new_axes("Scores in the memory", "score", "share of rows")
    steps = histogram[STEP_COLUMN]
    shown = sorted({steps.min(), steps.max()})
    rows = np.isin(steps, shown)
    edges = np.linspace(histogram["bin_low"][rows].min(), histogram["bin_high"][rows].max(), SCORE_BINS + 1)
    for color, step in zip(("C7", "C0"), shown, strict=False):
        low, high, counts = (histogram[name][steps == step] for name in ("bin_low", "bin_high", "count"))
        shares = rebinned(np.append(low, high[-1]), counts, edges) / max(counts.sum(), 1.0)
        axes.stairs(shares, edges, fill=True, alpha=0.5, color=color, label=f"step {step:.0f}")
    axes.legend()
    return figure


def rebinned(edges: np.ndarray, counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Counts (m,) in bins with the edges `wanted` (m + 1,), from `counts` (n,) in bins with `edges` (n + 1,).

    What a bin holds is taken to lie evenly in it.
    """
    return np.diff(np.interp(wanted, edges, np.concatenate([[0.0], np.cumsum(counts)])))


def slip_counts(episodes: Columns) -> Figure:
    """Episodes with a slip, and with a drop, counted from the start of the run."""
    figure, axes = new_axes("Slips and drops", STEPS_LABEL, "episodes so far")
    for column, label, color in (("slip", "with a slip", "C3"), ("drop", "with a drop", "C1")):
        if column in episodes:
            axes.plot(
                episodes[STEP_COLUMN], np.cumsum(np.nan_to_num(episodes[column])), label=label, color=color
            )
    axes.legend(loc="upper left")
    return figure
