"""Writing arrays so that nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def write_npz(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays; a file of that name is replaced only by a complete one."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        np.savez(file, **arrays)
    os.replace(part, path)
