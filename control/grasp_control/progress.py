"""Progress bars with the time left; where the output is no terminal, a few lines for each."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

QUIET_SECONDS = 20
"""Work shorter than this gets no line in a log file before its last."""


class Advance(Protocol):
    """Moves a bar by one, or to `total`; `note` is shown behind it."""

    def __call__(self, *, total: int | None = None, note: str | None = None) -> None:
        """One step further."""
        ...


def numbered(*titles: str) -> list[str]:
    """Titles of stages that follow each other, as "[2/7] Clone the demonstrations"."""
    return [f"[{number}/{len(titles)}] {title}" for number, title in enumerate(titles, start=1)]


class TimeLeft:
    """Estimates the time left from the speed over the last tenth of the work."""

    def __init__(self, steps: int, steady_from: int = 0) -> None:
        """Of `steps` steps, those before `steady_from` say nothing about the speed of the others."""
        self._steps, self._steady_from = steps, steady_from
        self._seen: deque[tuple[float, int]] = deque()

    def seconds(self, now: float, position: int) -> float:
        """Seconds left at the time `now`, in seconds, and at `position`; NaN while nothing is known."""
        if position < self._steady_from:
            return math.nan
        self._seen.append((now, position))
        while len(self._seen) > 2 and self._seen[1][1] <= position - self._steps / 10:
            self._seen.popleft()
        then, before = self._seen[0]
        if position == before:
            return math.nan
        return (now - then) / (position - before) * (self._steps - position)


@contextmanager
def bar(title: str, steps: int, *, done: int = 0, steady_from: int = 0) -> Iterator[Advance]:
    """A bar of `steps` steps, of which `done` are behind us; the time left is known from `steady_from` on.

    In a log file, where a bar cannot be redrawn, it prints a line when it ends, and at every tenth of long
    work; none where nothing was left to do.
    """
    console = Console()
    started = time.monotonic()
    time_left = TimeLeft(steps, steady_from)
    time_left.seconds(started, done)
    position, noted, tenth = done, "", 0
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[tail]}", markup=False, table_column=Column(overflow="fold")),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=steps, completed=done, tail="")

        def advance(*, total: int | None = None, note: str | None = None) -> None:
            nonlocal position, noted, tenth
            position = position + 1 if total is None else total
            noted = note if note is not None else noted
            now = time.monotonic()
            left = time_left.seconds(now, position)
            tail = _listed(_about(left) if position < steps else "", noted)
            progress.update(task, completed=position, tail=tail)
            reached = 10 * (position - done) // max(steps - done, 1)
            if not console.is_terminal and tenth < reached < 10 and now - started > QUIET_SECONDS:
                print(_listed(f"{title}: {position}/{steps}", tail), flush=True)
            tenth = max(tenth, reached)

        yield advance
    if not console.is_terminal and done < steps:
        line = f"{title}: {position}/{steps} in {time.monotonic() - started:.0f} s"
        print(_listed(line, noted), flush=True)


def _about(seconds: float) -> str:
    if math.isnan(seconds):
        return ""
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"


def _listed(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
