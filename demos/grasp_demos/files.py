"""Which files are meant by the words of a command: episodes, and what lies beside them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from grasp_demos.episode import DemoError

DISCARDED = "discarded"
"""Folder inside a data set for what an operator threw away; no reader looks there."""


class Found(NamedTuple):
    """What files and folders hold."""

    episodes: list[Path]
    """Every `.npz`, each once, a folder's in the order of their indices."""
    remarks: list[tuple[Path, str]]
    """What else lies in the folders, and what it means."""


def find_episodes(paths: Iterable[Path | str]) -> Found:
    """The episode files that `paths` (files, or folders holding them) name.

    Raises DemoError for a path that does not exist, or a folder without episodes.
    """
    episodes: dict[str, Path] = {}
    remarks: list[tuple[Path, str]] = []
    for path in map(Path, paths):
        if path.is_dir():
            held, beside = _look_into(path)
            remarks += beside
        elif path.exists() or path.is_symlink():
            held = [path]
        else:
            raise DemoError(f"{path} does not exist.{what_lies_beside(path)}")
        for file in held:
            episodes.setdefault(os.path.realpath(file), file)  # Path.resolve raises where links go round.
    return Found(list(episodes.values()), remarks)


def require_regular(path: Path) -> os.stat_result:
    """What the system says of a regular file; opening a pipe or a device might never end.

    Raises FileNotFoundError or IsADirectoryError, and DemoError for anything else that is none.
    """
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise DemoError(f"{path} is no regular file: name an episode's file or a data set's folder.")
    return about


def what_lies_beside(path: Path) -> str:
    """A sentence about the folder where a missing file was looked for, to follow an error's first."""
    if not path.parent.is_dir():
        return f" Nor does the folder {path.parent}."
    names = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    if not names:
        return f" The folder {path.parent} is empty."
    return f" The folder {path.parent} holds {', '.join(names[:6])}{' and more' if len(names) > 6 else ''}."


def _look_into(folder: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    inside = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=_order)
    held = [p for p in inside if p.suffix == ".npz" and not p.is_dir()]
    remarks: list[tuple[Path, str]] = []
    other: list[str] = []
    for path in inside:
        if path in held or path.name == DISCARDED:
            continue
        if path.match("episode_*.log"):
            remarks.append((path, "is a recording that runs or was killed: recording here again recovers it"))
        elif path.match("episode_*.log.damaged*"):
            remarks.append((path, "is a damaged recording that was set aside"))
        else:
            other.append(f"{path.name}/" if path.is_dir() else path.name)
    if not held:
        below = sorted({str(p.parent) for p in folder.glob("*/episode_*.npz")})
        hint = f" These do: {', '.join(below[:6])}{' and more' if len(below) > 6 else ''}." if below else ""
        if any(path.match("episode_*.log") for path, _ in remarks):
            hint = " It has an unfinished one: recording into it again recovers it."
        hint = hint or f" grasp-record out={folder} records some."
        raise DemoError(f"{folder} holds no episodes (episode_*.npz).{hint}")
    if other:
        listed = ", ".join(other[:6]) + (" and more" if len(other) > 6 else "")
        which = "is no episode and was" if len(other) == 1 else "are no episodes and were"
        remarks.append((folder, f"holds {listed}, which {which} left out"))
    return held, remarks


def _order(path: Path) -> tuple[int, str]:
    return len(path.name), path.name
