"""Reading HDF5 files of others: what a file claims is checked before anything is allocated or followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from grasp_demos.convert.format import load_package
from grasp_demos.episode import DemoError
from grasp_demos.files import require_regular

MAX_STEPS = 100_000
"""Steps of one demonstration; more than an hour at 20 Hz."""
MAX_COLUMNS = 10_000
"""Numbers of one step in one array."""
MAX_BYTES = 4 * 2**30
"""Read from one file altogether: a compressed or empty array can claim any size."""


class Source:
    """An open HDF5 file. Names are paths inside it; DemoErrors name the file."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self._file = file
        self._left = MAX_BYTES

    def names(self, group: str) -> list[str]:
        """Names in a group, in its order; empty where there is no such group."""
        held = self._find(group)
        with _named(self.path):
            # A name that is no UTF-8 comes as bytes.
            return [name for name in held if isinstance(name, str)] if hasattr(held, "keys") else []

    def has(self, name: str) -> bool:
        """Whether there is something of that name in this file itself: links out of it do not count."""
        return self._find(name) is not None

    def text(self, name: str, attribute: str) -> str | None:
        """A text attribute; None where it is missing or no text."""
        value = self._attribute(name, attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return value if isinstance(value, str) else None

    def number(self, name: str, attribute: str) -> int | None:
        """A whole number held in an attribute; None where it is missing or something else."""
        value = self._attribute(name, attribute)
        return int(value) if isinstance(value, int | np.integer) else None

    def json(self, name: str, attribute: str) -> dict[str, Any] | None:
        """A JSON object held in a text attribute; None where there is none. DemoError for other text."""
        text = self.text(name, attribute)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DemoError(f"{self.path} {name}: its {attribute} is no JSON ({error}).") from error
        if not isinstance(value, dict):
            raise DemoError(f"{self.path} {name}: its {attribute} is no JSON object.")
        return value

    def array(self, name: str, columns: int | None = None, *, narrow: bool = True) -> np.ndarray:
        """An array of numbers, (rows,) or (rows, columns) where `columns` is given.

        `narrow` refuses more rows than `MAX_STEPS`, more columns than `MAX_COLUMNS` and more dimensions than
        two. Raises DemoError naming what is wrong, before it is read.
        """
        held = self._find(name)
        with _named(self.path):
            shape, dtype = getattr(held, "shape", None), getattr(held, "dtype", None)
            elsewhere = shape is not None and (held.external is not None or held.is_virtual)
        if shape is None or dtype is None:
            raise DemoError(f"{self.path} {name} is missing, or no array.")
        if elsewhere:
            raise DemoError(f"{self.path} {name} lies in another file: copy it into this one.")
        if dtype.kind not in "biuf" or dtype.hasobject:
            raise DemoError(f"{self.path} {name} is of type {dtype}; it must hold numbers.")
        if columns is not None and (len(shape) != 2 or shape[1] != columns):
            raise DemoError(f"{self.path} {name} has shape {shape}; it must be (steps, {columns}).")
        limits = (MAX_STEPS + 1, MAX_COLUMNS)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        too_wide = len(shape) > 2 or any(n > most for n, most in zip(shape, limits, strict=False))
        if (narrow and too_wide) or size > self._left:
            raise DemoError(
                f"{self.path} {name} claims shape {shape} ({size} bytes): more than {limits} a demonstration "
                f"or {MAX_BYTES} bytes a file are not read; split the file, or restore it if it is damaged."
            )
        self._left -= size
        with _named(self.path):
            return np.asarray(held[()])

    def _attribute(self, name: str, attribute: str) -> Any:
        held = self._find(name)
        with _named(self.path):
            return None if held is None else held.attrs.get(attribute)

    def _find(self, name: str) -> Any:
        """The object at a path of hard links, or None. Soft and external links would lead elsewhere."""
        held = self._file
        with _named(self.path):
            for part in name.strip("/").split("/"):
                if not hasattr(held, "keys") or type(held.get(part, getlink=True)).__name__ != "HardLink":
                    return None
                held = held[part]
        return held


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what h5py raises over a damaged file, which is many things, into a DemoError naming the file."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DemoError(
            f"{path} cannot be read as HDF5; it is cut off or damaged ({error}). Restore it from a copy."
        ) from error


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a file for reading; raises DemoError where it is cut off or damaged, as every method does."""
    h5py = load_package("h5py", f"{path}, an HDF5 file,")
    with _named(path):
        require_regular(path)
        file = h5py.File(path, "r")
    with file:
        yield Source(path, file)
