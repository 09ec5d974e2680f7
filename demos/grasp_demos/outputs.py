"""Files that a command writes: never one that it reads, never an episode, and always the old one or whole."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grasp_demos.episode import DemoError


def require_suffix(name: str, value: str, suffixes: Sequence[str]) -> None:
    """For `__post_init__`: raise ValueError unless the file `value` ends in one of the suffixes."""
    if Path(value).suffix.lower() not in suffixes:
        wanted = suffixes[0] if len(suffixes) == 1 else f"one of {', '.join(suffixes)}"
        raise ValueError(f"{name}={value} must end in {wanted}, as in {name}=out{suffixes[0]}.")


def require_output(name: str, path: Path, inputs: Iterable[Path | str]) -> None:
    """Raise DemoError where writing `path` would cost something else than an earlier output.

    Args:
        name: the setting that names it.
        path: a file, absent or to be replaced.
        inputs: files and folders that the command reads.
    """
    above = next((folder for folder in path.parents if os.path.lexists(folder)), Path())
    if not above.is_dir():
        raise DemoError(f"{name}={path}: {above} is no folder; choose another place.")
    held = _about(path)
    if held is not None and not stat.S_ISREG(held.st_mode):
        raise DemoError(f"{name}={path} is no regular file and is not replaced: choose another name.")
    for given in inputs:
        if held is not None and _is_same(path, given):
            raise DemoError(
                f"{name}={path} is one of the files to read and is not replaced: choose another name."
            )
    if path.match("episode_*") and (
        any(path.parent.glob("episode_*.npz")) or any(path.parent.glob("episode_*.log"))
    ):
        raise DemoError(
            f"{name}={path} has the name of an episode, in a folder with episodes: choose another name."
        )


def require_outside(name: str, path: Path, folder: Path) -> None:
    """Raise DemoError where `path`, links followed, is the folder or lies in it."""
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    if os.path.commonpath([inner, outer]) == outer:
        raise DemoError(f"{name}={path} lies in {folder}, which is read: choose a place outside of it.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file of that name: it takes the place of `path` when the block ends without an error.

    It is written in a new folder beside it, so that no link that lies there already is followed.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=path.parent))
        try:
            yield folder / path.name
            os.replace(folder / path.name, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the file system that names no file, as that of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def _about(path: Path) -> os.stat_result | None:
    """Of the path itself, be it a link; None where there is nothing."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_same(path: Path, other: Path | str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # What cannot even be looked at is no regular file that exists.
        return False
