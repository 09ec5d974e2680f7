"""Timing and reporting shared by the benchmarks."""

from __future__ import annotations

import csv
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number; a line of the CSV."""

    part: str
    name: str
    rows: int
    """Rows held while it was measured."""
    statistic: str
    value: float
    unit: str


def timings(action: Callable[[], object], repeats: int, *, warm_up: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Wall and CPU milliseconds (repeats,) of each call. CPU time leaves out waiting for a busy core."""
    for _ in range(warm_up):
        action()
    wall, cpu = np.empty(repeats), np.empty(repeats)
    for i in range(repeats):
        began, began_cpu = time.perf_counter(), time.thread_time()
        action()
        cpu[i] = time.thread_time() - began_cpu
        wall[i] = time.perf_counter() - began
    return wall * 1e3, cpu * 1e3


def latency(part: str, name: str, rows: int, action: Callable[[], object], repeats: int) -> list[Figure]:
    """Median and 99th percentile of wall and CPU time of `action`."""
    wall, cpu = timings(action, repeats)
    return [
        Figure(part, name, rows, f"{kind} {label}", float(np.quantile(times, quantile)), "ms")
        for kind, times in (("wall", wall), ("cpu", cpu))
        for label, quantile in (("p50", 0.5), ("p99", 0.99))
    ]


def once(part: str, name: str, rows: int, action: Callable[[], object]) -> list[Figure]:
    """Wall time of one call of `action`."""
    wall, _ = timings(action, 1, warm_up=0)
    return [Figure(part, name, rows, "once", float(wall[0]), "ms")]


def load_per_core() -> float:
    """Runnable processes per core over the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def show(title: str, figures: list[Figure]) -> None:
    """Print figures as one table: a line per measured thing, a column per statistic."""
    statistics = list(dict.fromkeys(figure.statistic for figure in figures))
    table = Table(title=escape(title), title_justify="left")
    table.add_column("measured", overflow="fold")
    table.add_column("rows", justify="right")
    units = {figure.statistic: figure.unit for figure in figures}
    for statistic in statistics:
        heading = f"{statistic} [{units[statistic]}]".replace(" []", "")
        table.add_column(escape(heading), justify="right")
    lines: dict[tuple[str, int], dict[str, float]] = {}
    for figure in figures:
        lines.setdefault((figure.name, figure.rows), {})[figure.statistic] = figure.value
    for (name, rows), values in lines.items():
        cells = [f"{values[s]:.4g}" if s in values else "" for s in statistics]
        table.add_row(escape(name), f"{rows:,}", *cells)
    _console().print(table)


def show_rows(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows with the same keys as one table."""
    table = Table(title=escape(title), title_justify="left")
    for name in rows[0]:
        table.add_column(escape(name), overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else escape(str(v)) for v in row.values()))
    _console().print(table)


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows with the same keys as CSV; an older file stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = beside(path, ".new")
    with fresh.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(fresh, path)


def beside(out: Path, ending: str) -> Path:
    """`out` with its name made longer, whatever dots it holds: "v1.2" and ".csv" give "v1.2.csv"."""
    return out.with_name(out.name + ending)


def _console() -> Console:
    """Into a file or a pipe rich assumes 80 columns and would fold the names."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def write_csv(path: Path, figures: list[Figure], load: float) -> None:
    """Write all figures, the machine they were measured on and its `load` before, replacing an older file."""
    machine = {"part": "machine", "name": "", "rows": 0, "statistic": "", "value": "", "unit": ""}
    described = [
        {
            **machine,
            "name": platform.processor() or platform.machine(),
            "value": os.cpu_count(),
            "unit": "cores",
        },
        {**machine, "name": f"python {platform.python_version()}"},
        {**machine, "name": "load per core before the start", "value": f"{load:.2f}"},
    ]
    write_rows(path, [*described, *(asdict(figure) for figure in figures)])
