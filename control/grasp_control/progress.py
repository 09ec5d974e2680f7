"""Progress bars with the time left, silent where the output is no terminal except for one line a stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Advance(Protocol):
    """Moves a bar by one, or to `total`; `note` is shown behind it."""

    def __call__(self, *, total: int | None = None, note: str | None = None) -> None:
        """One step further."""
        ...


@contextmanager
def bar(title: str, steps: int, done: int = 0) -> Iterator[Advance]:
    """A bar of `steps` steps, of which `done` are behind us.

    In a log file, where a bar cannot be redrawn, it prints a line when it begins, when it ends, and at every
    tenth of long work.
    """
    console = Console()
    started = time.monotonic()
    position, noted, tenth = done, "", 0
    columns = (
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=steps, completed=done, note="")

        def advance(*, total: int | None = None, note: str | None = None) -> None:
            nonlocal position, noted, tenth
            position = position + 1 if total is None else total
            noted = note if note is not None else noted
            progress.update(task, completed=position, note=noted)
            now = 10 * (position - done) // max(steps - done, 1)
            elapsed = time.monotonic() - started
            if not console.is_terminal and now > tenth and elapsed > 20 and now < 10:
                left = elapsed / max(position - done, 1) * (steps - position)
                print(
                    f"{title}: {position}/{steps}, about {left / 60:.0f} min left {noted}".rstrip(),
                    flush=True,
                )
            tenth = max(tenth, now)

        yield advance
    if not console.is_terminal:
        print(
            f"{title}: {position}/{steps} in {time.monotonic() - started:.0f} s {noted}".rstrip(), flush=True
        )
