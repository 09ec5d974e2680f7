"""Wall time that a run has taken over all its calls."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Stopwatch:
    """Goes on from the seconds that earlier calls left in `path`; what was noted last survives a kill."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.monotonic() - read_seconds(path)

    @property
    def seconds(self) -> float:
        """Of all calls until now."""
        return time.monotonic() - self._start

    def note(self) -> None:
        """Store the seconds until now."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(f"{self.seconds:.1f}\n")
        os.replace(fresh, self._path)


def read_seconds(path: Path) -> float:
    """Seconds that were noted last; 0 where none were."""
    return float(path.read_text()) if path.exists() else 0.0
