"""What the simulated robot saw, cycle by cycle, for tests of the limits at the driver's side."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grasp_ros.npz import write_npz
from grasp_sim.contract import STATE_WIDTH
from grasp_sim.ur5e import DOF


class SimRecord:
    """Grows by 0.4 kB a cycle, so it is kept only on request. `save` writes an npz, of C cycles:

    - stamps (C,) int64 ns of the node's clock, the stamp of what was published of the cycle
    - times (C,) s of the monotonic clock
    - targets (C, 6) rad, what the driver gave the arm
    - running (C,) bool, whether the program ran
    - states (C, STATE_WIDTH), the states after the cycle as they were published, packed
    - episodes (E, 2): the first cycle of each episode and its seed
    - command_times (N,) s of the monotonic clock, when the active controller took a command; each point of a
      trajectory is one
    - commands (N, 6) in rad or rad/s; command_offsets (N,) s from then on that a point of a trajectory is due
    - gripper_times (M,) s likewise, and gripper_commands (M, 2) in rad and N
    - faults (F,) text
    - overruns (): cycles that were left out since the machine was too slow
    """

    def __init__(self) -> None:
        self._stamps, self._running = array("q"), array("b")
        self._episodes = array("q")
        self._times, self._targets, self._states = array("d"), array("d"), array("d")
        self._command_times, self._command_offsets, self._commands = array("d"), array("d"), array("d")
        self._gripper_times, self._gripper_commands = array("d"), array("d")
        self.faults: list[str] = []
        self.overruns = 0

    def cycle(self, stamp: int, time: float, target: np.ndarray, running: bool, state: np.ndarray) -> None:
        """A cycle; `state` is a packed GraspState."""
        self._stamps.append(stamp)
        self._times.append(time)
        self._targets.extend(target.tolist())
        self._running.append(running)
        self._states.extend(state.tolist())

    def episode(self, seed: int) -> None:
        """An episode begins with the next cycle."""
        self._episodes.extend((len(self._stamps), seed))

    def command(self, time: float, values: Sequence[float], offset: float = 0.0) -> None:
        """A command of 6 values for the arm."""
        self._command_times.append(time)
        self._command_offsets.append(offset)
        self._commands.extend(values)

    def gripper(self, time: float, values: Sequence[float]) -> None:
        """A command of 2 values for the gripper."""
        self._gripper_times.append(time)
        self._gripper_commands.extend(values)

    def save(self, path: Path) -> None:
        """Write it; a file of that name is replaced only by a complete one."""
        write_npz(
            path,
            stamps=np.array(self._stamps, np.int64),
            times=np.array(self._times),
            targets=np.array(self._targets).reshape(-1, DOF),
            running=np.array(self._running, bool),
            states=np.array(self._states).reshape(-1, STATE_WIDTH),
            episodes=np.array(self._episodes, np.int64).reshape(-1, 2),
            command_times=np.array(self._command_times),
            command_offsets=np.array(self._command_offsets),
            commands=np.array(self._commands).reshape(-1, DOF),
            gripper_times=np.array(self._gripper_times),
            gripper_commands=np.array(self._gripper_commands).reshape(-1, 2),
            faults=np.array(self.faults, np.str_),
            overruns=np.array(self.overruns),
        )
