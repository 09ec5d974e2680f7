"""`grasp-demos show`: a table of episodes with totals, and a plot of one."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grasp_demos.episode import ACTORS, DemoError, Episode
from grasp_demos.files import find_episodes
from grasp_demos.outputs import require_output, require_suffix
from grasp_demos.reader import read_episode
from grasp_demos.validate import check_shapes
from grasp_demos.words import printable, run_on_paths

PLOT_SUFFIXES = (".png", ".pdf", ".svg")

COLUMNS = (
    "index",
    "task",
    "source",
    "who acted",
    "kind",
    "seed",
    "steps",
    "seconds",
    "success",
    "complete",
    "slips",
    "drops",
    "recorded at",
    "note",
)
_NUMBERS = ("index", "seed", "steps", "seconds", "slips", "drops")


@dataclass
class ShowConfig:
    """Settings of `grasp-demos show`."""

    episode: int | None = None
    """Index of the one episode to show; null shows all."""
    plot: str | None = None
    """Picture of one episode, such as out.png (also pdf, svg); needs episode=N where there are several."""

    def __post_init__(self) -> None:
        if self.plot is not None:
            require_suffix("plot", self.plot, PLOT_SUFFIXES)


HELP = """\
Show what data sets hold: a line an episode, and the totals.

Examples:
  grasp-demos show runs/demos                               a data set
  grasp-demos show runs/a runs/b                            several
  grasp-demos show runs/demos episode=2 plot=two.png        one episode over time, as a picture

"who acted" gives the share of the steps whose action the expert, a policy or a person chose. Slips and drops
are counted by occurrence, however many steps one lasts.

The exit code is 0 when all could be read, 1 when a file could not, 2 when something is wrong with the
request.
"""


def show_command(paths: list[str], config: ShowConfig) -> int:
    """Print the table, name what cannot be read, draw the plot."""
    episodes: list[Episode] = []
    damaged: list[str] = []
    found = find_episodes(paths)
    if config.plot is not None:
        require_output("plot", Path(config.plot), [*paths, *found.episodes])
    for path in found.episodes:
        try:
            episode = read_episode(path)
        except DemoError as error:
            damaged.append(str(error))
            continue
        misshapen = next(check_shapes(episode), None)
        if misshapen is None:
            episodes.append(episode)
        else:
            damaged.append(f"{misshapen}. It cannot be shown.")
    chosen = select(episodes, config)
    if chosen:
        print_table(chosen)
    for line in damaged:
        print(f"grasp-demos show: {printable(line)}", file=sys.stderr)
    if config.plot is not None and chosen:
        from grasp_demos.plot import save_plot  # Only a plot needs matplotlib, whose import takes a second.

        save_plot(chosen[0], Path(config.plot))
        print(f"plotted {printable(str(chosen[0]))} into {config.plot}")
    return 1 if damaged else 0


def select(episodes: list[Episode], config: ShowConfig) -> list[Episode]:
    """The episodes asked for; raises DemoError where there are none such, or several to plot."""
    chosen = episodes
    if config.episode is not None:
        chosen = [e for e in episodes if e.metadata.index == config.episode]
        if not chosen:
            held = ", ".join(str(e.metadata.index) for e in episodes) or "none that can be read"
            raise DemoError(f"there is no episode {config.episode}; there are: {held}.")
    if config.plot is not None and len(chosen) > 1:
        names = ", ".join(str(e) for e in chosen[:3])
        hint = "name its file" if config.episode is not None else "add episode=N"
        raise DemoError(f"one plot shows one episode, and there are {len(chosen)} ({names}): {hint}.")
    return chosen


def row(episode: Episode) -> tuple[str, ...]:
    """An episode's cells, in the order of `COLUMNS`."""
    metadata = episode.metadata
    said = {True: "yes", False: "no"}
    return (
        str(metadata.index),
        metadata.task,
        metadata.source,
        shares(episode.actors),
        metadata.kind,
        str(metadata.seed),
        str(len(episode)),
        f"{duration(episode):.2f}",
        said[metadata.success],
        said[metadata.complete],
        str(occurrences(episode.slips)),
        str(occurrences(episode.drops)),
        metadata.recorded_at,
        metadata.note,
    )


def shares(actors: np.ndarray) -> str:
    """Who acted in how much of an episode, such as `policy 80 %, person 20 %`."""
    if not len(actors):
        return "nobody"
    counts = {name: int(np.sum(actors == k)) for k, name in enumerate(ACTORS)}
    counts["unknown"] = int(np.sum(actors >= len(ACTORS)))
    acted = {name: count for name, count in counts.items() if count}
    if len(acted) == 1:
        return next(iter(acted))
    return ", ".join(f"{name} {100.0 * count / len(actors):.0f} %" for name, count in acted.items())


def duration(episode: Episode) -> float:
    """s from the first to the last state, by their stamps; 0 where they are not finite."""
    first, last = float(episode.states[0, -1]), float(episode.states[-1, -1])
    return last - first if math.isfinite(last - first) else 0.0


def occurrences(flags: np.ndarray) -> int:
    """How often flags (T,) become true."""
    return int(np.sum(np.diff(flags.astype(np.int8), prepend=0) == 1))


def totals(episodes: Sequence[Episode]) -> str:
    """One line about all of them."""
    steps, seconds = sum(map(len, episodes)), sum(map(duration, episodes))
    successes = sum(e.metadata.success for e in episodes)
    actors = shares(np.concatenate([e.actors for e in episodes]))
    slips = sum(occurrences(e.slips) for e in episodes)
    drops = sum(occurrences(e.drops) for e in episodes)
    incomplete = sum(not e.metadata.complete for e in episodes)
    minutes, rest = divmod(round(seconds), 60)
    counts = {"success": successes, "slip": slips, "drop": drops}
    said = {name: _several(count, name) for name, count in counts.items()}
    return (
        f"{_several(len(episodes), 'episode')}, {_several(steps, 'step')}, {minutes}:{rest:02d} min, "
        f"{said['success']}, {incomplete} incomplete, {said['slip']}, {said['drop']}; acted: {actors}"
    )


def _several(count: int, name: str) -> str:
    return f"{count} {name if count == 1 else name + ('es' if name.endswith('s') else 's')}"


def print_table(episodes: Sequence[Episode]) -> None:
    """The table and the totals on standard output, each data set under its folder's name."""
    console = Console(highlight=False, width=1000)  # Cut nothing, whatever the terminal or pipe.
    folders: dict[Path | None, list[Episode]] = {}
    for episode in episodes:
        folders.setdefault(episode.path.parent if episode.path else None, []).append(episode)
    for folder, held in folders.items():
        rows = [row(episode) for episode in held]
        console.print(Text(printable(str(folder or "")), "bold"))
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        shown = [k for k in range(len(COLUMNS)) if any(cells[k] for cells in rows)]
        for k in shown:
            justify = "right" if COLUMNS[k] in _NUMBERS else "left"
            table.add_column(COLUMNS[k], justify=justify, no_wrap=True)
        for cells in rows:
            table.add_row(*(Text(printable(cells[k])) for k in shown))
        console.print(table)
        if len(folders) > 1:
            console.print(Text(f"{totals(held)}\n"))
    console.print(Text(totals(episodes) if len(folders) == 1 else f"in all: {totals(episodes)}"))


def run_show(arguments: Sequence[str]) -> int:
    """Entry point of `grasp-demos show`."""
    return run_on_paths(ShowConfig, show_command, HELP, arguments, "grasp-demos show")
