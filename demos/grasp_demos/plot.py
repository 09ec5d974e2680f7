"""One episode over time as a picture: heights, gripper, actions; when it slipped or somebody took over.

Every figure is built explicitly, so drawing needs no display and shares no state.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from grasp_demos.episode import ACTORS, Episode
from grasp_demos.outputs import replacing
from grasp_demos.validate import state_names
from grasp_demos.words import printable
from grasp_sim.contract import ACTION_NAMES

ACTION_COLORS = {"intended": "#2ca02c", "requested": "#ffbb78", "executed": "#1f77b4"}
SPAN_COLORS = {"slip": "#bcbd22", "drop": "#d62728", "person": "#9467bd", "policy": "#17becf"}
_ALPHA = 0.25


def save_plot(episode: Episode, path: Path) -> None:
    """Draw an episode into a file, its type by its suffix; the file is the old one or whole."""
    figure = plot_episode(episode)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:].lower())


def plot_episode(episode: Episode) -> Figure:
    """Height of object and TCP, opening and force, and the six dimensions of the action, over time.

    Actions hold from one state to the next. Slips, drops and the steps in which somebody else than most of
    the time acted are spans behind the curves.
    """
    states = {name: episode.states[:, column] for column, name in enumerate(state_names())}
    with np.errstate(invalid="ignore"):
        times = states["time"] - states["time"][0]
    if not (np.isfinite(times).all() and (np.diff(times) > 0.0).all()):  # Damaged stamps: draw by steps.
        times = np.arange(len(times)) / episode.metadata.rate_hz
    figure = Figure(figsize=(11.0, 11.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title_of(episode), fontsize=12)
    heights = [2.2, 2.0, *[1.0] * len(ACTION_NAMES)]
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)

    top = axes[0]
    top.plot(times, states["tcp_position[2]"] * 1000.0, color="#444444", label="TCP")
    top.plot(times, states["object_position[2]"] * 1000.0, color="#d62728", label="object's centre")
    top.set_ylabel("height (mm)")

    gripper = axes[1]
    gripper.plot(times, states["gripper_opening"] * 1000.0, color="#1f77b4", label="opening")
    gripper.set_ylabel("opening (mm)", color="#1f77b4")
    gripper.set_ylim(bottom=min(0.0, float(np.nan_to_num(states["gripper_opening"]).min()) * 1000.0) - 3.0)
    force = gripper.twinx()
    force.plot(times, states["gripper_force"], color="#8c564b", label="grip force")
    force.set_ylabel("force (N)", color="#8c564b")

    for dimension, name in enumerate(ACTION_NAMES):
        _draw_action(axes[2 + dimension], episode, times, dimension, name)
    axes[-1].set_xlabel("time (s)")
    axes[-1].set_xlim(times[0], times[-1])
    spans = _draw_spans(list(axes), episode, times)
    _legend_above(top, [*top.get_legend_handles_labels()[0], *spans])
    _legend_above(axes[2], axes[2].get_legend_handles_labels()[0], "actions, -1 to 1:")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.align_ylabels(axes)
    return figure


def title_of(episode: Episode) -> str:
    """What is shown, in two lines or three."""
    held = episode.metadata
    outcome = "success" if held.success else "failure"
    if not held.complete:
        outcome += ", incomplete"
    first = f"Episode {held.index}: {held.task}, {held.control_mode} control, {outcome}"
    second = f"recorded by {held.source}, {held.kind}, seed {held.seed}, {len(episode)} steps"
    lines = [first, second + (f", {held.recorded_at}" if held.recorded_at else "")]
    if held.note:
        note = printable(held.note)
        lines.append(note if len(note) <= 100 else note[:97] + "...")
    # A dollar sign would begin a formula.
    return "\n".join(printable(line).replace("$", r"\$") for line in lines)


def _legend_above(axis: Axes, handles: list, title: str = "") -> None:
    """In one row above the axes, where it hides no curve."""
    handles = [Patch(linewidth=0, alpha=0.0, label=title), *handles] if title else handles
    axis.legend(
        handles=handles,
        ncols=len(handles),
        fontsize=9,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        borderaxespad=0.0,
    )


def _draw_action(axis: Axes, episode: Episode, times: np.ndarray, dimension: int, name: str) -> None:
    actions = {kind: getattr(episode, f"{kind}_actions")[:, dimension] for kind in ACTION_COLORS}
    # The requested action lies broad beneath the executed one, which mostly covers it.
    for kind, width in (("requested", 3.5), ("intended", 1.2), ("executed", 1.2)):
        color = ACTION_COLORS[kind]
        axis.stairs(actions[kind], times, baseline=None, color=color, linewidth=width, label=kind)
    for limit in (-1.0, 1.0):
        axis.axhline(limit, color="#999999", linewidth=0.8, linestyle="--")
    axis.set_ylabel(name.replace("_", " "))
    most = max(
        1.1, *(float(np.nan_to_num(np.abs(values), posinf=1.0).max()) * 1.05 for values in actions.values())
    )
    axis.set_ylim(-most, most)


def _draw_spans(axes: list[Axes], episode: Episode, times: np.ndarray) -> list[Patch]:
    """Shade the steps with something remarkable; returns what the legend says about them."""
    usual = int(np.bincount(episode.actors).argmax())
    flags = {"slip": episode.slips, "drop": episode.drops}
    flags |= {name: episode.actors == k for k, name in enumerate(ACTORS) if k != usual}
    patches = []
    for name, flag in flags.items():
        color = SPAN_COLORS.get(name, "#7f7f7f")
        edges = np.flatnonzero(np.diff(flag.astype(np.int8), prepend=0, append=0))
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            for axis in axes:
                axis.axvspan(times[begin], times[end], color=color, alpha=_ALPHA, linewidth=0)
        if len(edges):
            label = name if name in ("slip", "drop") else f"{name} acts"
            patches.append(Patch(color=color, alpha=_ALPHA, linewidth=0, label=label))
    return patches
