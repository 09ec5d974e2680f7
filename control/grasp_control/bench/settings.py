"""Checks of settings that several benchmarks have, for their `__post_init__`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grasp_sim import registry
from grasp_sim.cli import require_choice, require_path


def require_environments(names: Sequence[str]) -> None:
    """Raise ValueError unless `names` holds environments, at least one."""
    if not names:
        raise ValueError("environments is empty: name at least one.")
    for name in names:
        require_choice("environments", name, registry.names())


def require_beginning(out: str) -> None:
    """Raise ValueError unless the setting `out` can begin the names of files."""
    require_path("out", out)
    if Path(out).name in ("", ".."):
        raise ValueError(f"out={out!r} names no file: give a beginning such as out=runs/compared.")
