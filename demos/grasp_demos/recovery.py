"""Recover what a killed recorder left in a data set. What lies there may be anybody's."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from grasp_demos.episode import DemoError, Episode
from grasp_demos.episode_file import write_episode
from grasp_demos.npz import MAX_BYTES
from grasp_demos.reader import read_episode
from grasp_demos.storage import Log, build_episode, parse_log

_LOG_NAME = re.compile(r"episode_\d{6,}\.log")
_MAX_LOG = 2 * MAX_BYTES
"""Bytes of a log: its steps are not packed, and each has its frame besides."""


def recover(folder: Path) -> list[str]:
    """Finish what a killed recorder left in a data set; returns a line for everything that was done.

    Whatever cannot be understood is renamed to end in `.damaged`, never deleted. Other names than a
    recorder's are left alone.
    """
    warnings: list[str] = []
    for leftover in folder.glob("episode_*.tmp"):
        if leftover.is_dir() and not leftover.is_symlink():
            warnings.append(_set_aside(leftover, "is a folder, not an unfinished file"))
        else:
            leftover.unlink()  # Its log is still there.
    for log in sorted(folder.glob("episode_*.log")):
        if _LOG_NAME.fullmatch(log.name):
            try:
                _recover_one(log, warnings)
            except DemoError as error:
                warnings.append(_set_aside(log, str(error)))
    return warnings


def _recover_one(log: Path, warnings: list[str]) -> None:
    """Make an episode of a log, and let the log go once that episode can be read.

    Raises DemoError, worded to follow the log's name and leaving it there, where it cannot be understood.
    """
    content, finished = _read_log(log), log.with_suffix(".npz")
    damaged = content is not None and content.damaged
    written = _read_finished(finished)
    if content is None or (len(content.steps) == 0 and not damaged):
        log.unlink()
        if written is None:
            warnings.append(f"{log} was killed before its first whole step: nothing to keep.")
        return
    if len(content.steps) == 0:
        raise DemoError("is damaged in its first step")
    if written is not None:  # Killed between the rename and what follows it.
        if not np.array_equal(written.states[1:], content.steps["states"], equal_nan=True):
            raise DemoError(f"is another recording than {finished.name}")
        if damaged:
            _rename_aside(log)
        else:
            log.unlink()
        return
    changes = content.ended or {"note": "the recorder was killed"}
    complete = changes.pop("complete", False)
    with _understanding():
        episode = build_episode(content.header, content.steps, complete=complete, **changes)
        if os.path.lexists(finished):
            warnings.append(_set_aside(finished, "cannot be read, and its log can"))
        write_episode(finished, episode)
    state = "complete" if complete else f"incomplete, with its {len(episode)} whole steps"
    if damaged:
        state += f"; its log is damaged after them and was set aside as {_rename_aside(log).name}"
    else:
        log.unlink()
    warnings.append(f"{finished} was recovered ({state}) from a recorder that was killed.")


def _set_aside(path: Path, why: str) -> str:
    return f"{path} {why}: set aside as {_rename_aside(path).name}."


def _read_log(log: Path) -> Log | None:
    """What a log holds; None where not even its header was written.

    Raises DemoError, worded to follow the log's name, where it cannot be understood.
    """
    if not stat.S_ISREG(log.lstat().st_mode):
        raise DemoError("is no regular file")
    if log.stat().st_size > _MAX_LOG:
        raise DemoError(f"has more than {_MAX_LOG >> 20} MiB, which no recording has")
    with _understanding():
        return parse_log(log.read_bytes())


@contextmanager
def _understanding() -> Iterator[None]:
    """Turn what odd content leads to into a DemoError. Its checksums hold, so another program wrote it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DemoError(f"is no log of this program ({error!r})") from error


def _rename_aside(path: Path) -> Path:
    """Rename to a free name with `.damaged` behind it; returns it."""
    for number in itertools.count():
        aside = path.with_name(path.name + ".damaged" + (f".{number}" if number else ""))
        if not os.path.lexists(aside):
            return path.rename(aside)
    raise AssertionError("unreachable")


def _read_finished(path: Path) -> Episode | None:
    try:
        return read_episode(path)
    except DemoError:
        return None
