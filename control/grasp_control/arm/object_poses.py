"""Where the object is, as a perception on any computer says it: one JSON datagram for each measurement.

    {"frame": "base_link", "position": [x, y, z], "quaternion": [x, y, z, w], "size": [x, y, z],
     "symmetry": 4, "age": 0.03}

m and xyzw; the object's centre; full extents; `symmetry` as in `GraspState`, which may be left out; `age` the
s since it was measured, since two computers seldom share a clock. `size` is needed once.
"""

from __future__ import annotations

import json
import socket
import time
from typing import NamedTuple, Protocol

import numpy as np

from grasp_sim.errors import UserError

FRAME = "base_link"
MAX_SYMMETRY = 360
_LONGEST = 4096  # bytes of a message
_LARGEST = 1e6  # m or s; also refuses what is not finite


class ObjectPose(NamedTuple):
    """One measurement of the object."""

    position: np.ndarray
    """(3,) m, base frame."""
    quaternion: np.ndarray
    """(4,) xyzw, base frame."""
    size: np.ndarray | None
    """(3,) m, where it was said."""
    symmetry: int | None
    """n-fold about the vertical, where it was said."""
    measured: float
    """s, monotonic."""


class PoseSource(Protocol):
    """Anything that tells where the object is."""

    def take(self) -> ObjectPose | None:
        """The newest measurement since the last call; None where none came."""
        ...

    @property
    def refused(self) -> str:
        """Why the last message could not be used, or ""."""
        ...


class DatagramPoses:
    """A `PoseSource` that listens for datagrams on `address`."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Raises UserError where the port cannot be had."""
        self.refused = ""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(address)
        except OSError as error:
            host, port = address
            raise UserError(
                f"poses={host}:{port} cannot be listened on ({error.strerror}): is another grasp-run running?"
            ) from error
        self._socket.setblocking(False)

    def take(self) -> ObjectPose | None:
        """See `PoseSource`."""
        newest = None
        for _ in range(100):  # a flood must not hold up the arm's loop
            try:
                message = self._socket.recv(_LONGEST)
            except BlockingIOError:
                break
            try:
                newest, self.refused = parse(message, time.monotonic()), ""
            except ValueError as error:
                self.refused = f"a pose was refused: {error}"
        return newest

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


def parse(message: bytes, received: float) -> ObjectPose:
    """One measurement; ValueError saying what is wrong with it."""
    try:
        values = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON") from error
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    if values.get("frame") != FRAME:
        raise ValueError(f"its frame is {values.get('frame')!r}, not {FRAME!r}")
    age = _numbers(values, "age", 1)[0]
    if age < 0.0:
        raise ValueError(f"its age is {age:g} s")
    quaternion = _numbers(values, "quaternion", 4)
    if abs(np.linalg.norm(quaternion) - 1.0) > 0.01:
        raise ValueError(f"its quaternion {quaternion.tolist()} is not of length 1")
    size = _numbers(values, "size", 3) if "size" in values else None
    if size is not None and not (size > 0.0).all():
        raise ValueError(f"its size {size.tolist()} is not positive")
    symmetry = values.get("symmetry")
    whole = isinstance(symmetry, int) and not isinstance(symmetry, bool) and 0 <= symmetry <= MAX_SYMMETRY
    if symmetry is not None and not whole:
        raise ValueError(f"its symmetry is {symmetry!r}, not a whole number")
    return ObjectPose(_numbers(values, "position", 3), quaternion, size, symmetry, received - age)


def _numbers(values: dict[str, object], name: str, count: int) -> np.ndarray:
    given = values.get(name)
    listed = given if isinstance(given, list) else [given]
    fits = len(listed) == count and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < _LARGEST for v in listed
    )
    if not fits:
        raise ValueError(f"its {name} is {given!r}, not {count} finite numbers"[:200])
    return np.array(listed, dtype=np.float64)
