"""Bullet's record of positions, velocities and contacts as an array."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pybullet


def save_bullet(client: int) -> np.ndarray:
    """(bytes,) uint8, positions, velocities and contacts of a client in Bullet's file format."""
    with tempfile.TemporaryDirectory(prefix="grasp-state-") as folder:
        file = Path(folder) / "state.bullet"
        pybullet.saveBullet(str(file), physicsClientId=client)
        return np.frombuffer(file.read_bytes(), dtype=np.uint8)


def load_bullet(client: int, content: np.ndarray) -> None:
    """Inverse of `save_bullet`, for a client whose bodies were added in the same order."""
    with tempfile.TemporaryDirectory(prefix="grasp-state-") as folder:
        file = Path(folder) / "state.bullet"
        file.write_bytes(content.tobytes())
        pybullet.restoreState(fileName=str(file), physicsClientId=client)
