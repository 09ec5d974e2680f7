"""Writing arrays so that nothing is lost."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np


def write_npz(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays; a file of that name is replaced only by a complete one."""
    part = path.with_name(f".{path.name}.part")
    try:
        content = io.BytesIO()  # at once: a full disk would leave numpy's archive open, which complains later
        np.savez(content, **arrays)
        part.write_bytes(content.getbuffer())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file on a full disk is of no use
        raise


def unwritable(path: Path) -> str:
    """Why no file can be written there, as far as can be told before; empty where it can."""
    folder = path.resolve().parent
    if not folder.is_dir():
        return "there is no folder for it"
    if path.is_dir():
        return "it is a folder"
    return "" if os.access(folder, os.W_OK) else f"nothing may be written in {folder}"
