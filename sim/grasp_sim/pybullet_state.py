"""A PyBullet scene as arrays: what the episode started from, and Bullet's record of bodies and contacts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import pybullet

from grasp_sim.objects import MAX_PARTS, SHAPES, ObjectSpec, Part
from grasp_sim.scene import Physics, Start

_PART_WIDTH = 8  # shape, axis, position, and up to three sizes; NaN where there is nothing


def pack_start(start: Start) -> dict[str, np.ndarray]:
    """A start as arrays; `unpack_start` brings it back."""
    spec, physics = start.object, start.physics
    parts = np.full((MAX_PARTS, _PART_WIDTH), np.nan)
    for row, part in zip(parts, spec.parts, strict=False):
        row[:2] = SHAPES.index(part.shape), "xyz".index(part.axis)
        row[2:5] = part.position
        row[5 : 5 + len(part.size)] = part.size
    return {
        "start_name": np.frombuffer(spec.name.encode(), dtype=np.uint8),
        "start_parts": parts,
        "start_object": np.array([spec.mass, spec.friction, spec.symmetry]),
        "start_pose": np.array([*start.object_position, start.object_yaw]),
        "start_joints": np.array(start.joint_positions, dtype=np.float64),
        "start_physics": np.array([getattr(physics, field.name) for field in fields(Physics)]),
    }


def unpack_start(saved: Mapping[str, np.ndarray]) -> Start:
    """The start that `pack_start` wrote."""
    parts = []
    for row in saved["start_parts"]:
        if np.isfinite(row[0]):
            x, y, z = row[2:5].tolist()
            size = row[5:][np.isfinite(row[5:])].tolist()
            parts.append(Part(SHAPES[int(row[0])], tuple(size), (x, y, z), "xyz"[int(row[1])]))
    mass, friction, symmetry = saved["start_object"].tolist()
    return Start(
        object=ObjectSpec(
            saved["start_name"].tobytes().decode(), tuple(parts), mass, friction, int(symmetry)
        ),
        object_position=saved["start_pose"][:3].copy(),
        object_yaw=float(saved["start_pose"][3]),
        joint_positions=saved["start_joints"].copy(),
        physics=Physics(*saved["start_physics"].tolist()),
    )


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
