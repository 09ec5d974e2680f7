"""What was sent to a driver and when, for tests of limits and delays, and to look into after an incident."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grasp_ros.npz import write_npz
from grasp_sim.ur5e import DOF


class CommandRecord:
    """Grows by 72 bytes a command, 130 MB an hour at 500 Hz. `save` writes an npz with N commands:

    stamps (N,) int64 ns, the stamp of the newest joint state; sent (N,) int64 ns of the node's clock when the
    command was published; status (N,) the filter's, as its number in `Status`; commands (N, 6) in rad or
    rad/s.
    """

    def __init__(self) -> None:
        self._stamps, self._sent, self._status = array("q"), array("q"), array("b")
        self._commands = array("d")

    def add(self, stamp: int, sent: int, status: int, command: Sequence[float]) -> None:
        """A command of 6 numbers; more are cut off."""
        self._stamps.append(stamp)
        self._sent.append(sent)
        self._status.append(status)
        self._commands.extend(command[:DOF])

    def save(self, path: Path) -> None:
        """Write it; a file of that name is replaced only by a complete one."""
        write_npz(
            path,
            stamps=np.array(self._stamps, np.int64),
            sent=np.array(self._sent, np.int64),
            status=np.array(self._status, np.int8),
            commands=np.array(self._commands).reshape(-1, DOF),
        )
