"""Directories that are either there completely or not at all, whenever the process is killed.

Used by policy bundles and checkpoints. No torch, since the robot's side imports it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PARTIAL = ".partial-"


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """Give an empty directory to fill; it becomes `path` when the block ends without an error.

    Everything is flushed to disk before the rename, so a power cut cannot leave a name without its contents.
    A directory already at `path` is replaced; killed between the two renames, its contents are still there
    under a hidden name, and `path` is absent rather than mixed.
    """
    path = path.absolute()  # so that "." has a name, too
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}{_PARTIAL}{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for file in sorted(partial.rglob("*"), reverse=True):
            _flush(file)
        _flush(partial)
        replaced = path.with_name(f".{path.name}.replaced{_PARTIAL}{os.getpid()}")
        if path.exists():
            path.rename(replaced)
        partial.rename(path)
        _flush(path.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_directory(path: Path) -> None:
    """Delete a directory so that a kill half-way leaves a partial one, not a damaged one under its name."""
    partial = path.with_name(f".{path.name}{_PARTIAL}{os.getpid()}")
    path.rename(partial)
    shutil.rmtree(partial)


def remove_partial(parent: Path) -> None:
    """Delete what killed processes left in `parent`. Only for a directory with a single writer."""
    for leftover in parent.glob(f".*{_PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
