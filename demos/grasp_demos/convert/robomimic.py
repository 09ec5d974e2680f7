"""robomimic's HDF5 data sets (https://robomimic.github.io/docs/datasets/overview.html)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grasp_demos.convert.format import Format, Imported, ImportSettings
from grasp_demos.episode import Episode

_MAGIC = b"\x89HDF\r\n\x1a\n"


def matches(path: Path) -> bool:
    """Whether the path is an HDF5 file."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path, settings: ImportSettings) -> Imported:
    """Every demonstration of a file."""
    raise NotImplementedError


def write(episodes: Sequence[Episode], path: Path) -> None:
    """Write episodes of one task."""
    raise NotImplementedError


FORMAT = Format("robomimic", "HDF5 file of robomimic, robosuite or mimicgen", matches, read, write)
