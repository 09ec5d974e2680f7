"""The nodes as processes, for people without a ROS distribution: what a launch file does where there is one.

Used by `make ros-demo`, by the benchmark and by tests.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grasp_sim.errors import UserError

MODULES = {
    "sim_robot": "grasp_ros.sim_robot",
    "gripper_bridge": "grasp_ros.gripper_bridge",
    "safety": "grasp_ros.safety_node",
    "servo": "grasp_ros.servo_node",
    "policy_server": "grasp_ros.policy_server",
}
"""The nodes of a simulated bring-up, in the order in which they are started, and their modules. Another node
is the module of its own name."""
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
END_S = 5.0
"""s that a process is given to end."""


@dataclass
class Stack:
    """Processes of nodes in a ROS domain of their own, heard on this machine alone. A context manager."""

    folder: Path
    """What each node says goes to `<folder>/<node>.log`."""
    domain_id: int
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters by node and name."""
    nodes: tuple[str, ...] = tuple(MODULES)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Of the processes, and of whoever talks to them."""
        return {
            **os.environ,
            "ROS_DOMAIN_ID": str(self.domain_id),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            for name in self.nodes:
                self.start(name)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self, name: str) -> None:
        """Start a node that is not running."""
        module = MODULES.get(name, f"grasp_ros.{name}")
        command = [sys.executable, "-m", module, "--ros-args", "-r", f"__node:={name}"]
        for key, value in self.parameters.get(name, {}).items():
            command += ["-p", f"{key}:={_yaml(value)}"]
        with open(self.log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is ours, and ends them in order
                preexec_fn=_end_with_parent,
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node and wait for its end."""
        self.processes[name].send_signal(number)
        self.processes[name].wait(END_S)

    def log(self, name: str) -> Path:
        """Where a node's words go."""
        return self.folder / f"{name}.log"

    def check(self) -> None:
        """Raise UserError where a node has ended, with its last words."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                said = self.log(name).read_text(errors="replace").strip().splitlines()
                last = said[-1] if said else "it said nothing"
                raise UserError(f"the node {name} ended (exit code {process.returncode}): {last}")

    def wait_for(self, ready: Callable[[], Any], what: str, seconds: float) -> Any:
        """Poll until `ready()` gives something; raise UserError when a node ends or time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = ready()
            if found:
                return found
            self.check()
        raise UserError(f"waited {seconds:g} s in vain: {what}; the nodes' words are in {self.folder}")

    def end(self) -> None:
        """Ask all that runs to end, those that command the arm first; kill what does not."""
        running = [p for _, p in reversed(self.processes.items()) if p.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        end = time.monotonic() + END_S
        for process in running:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _yaml(value: Any) -> str:
    """A parameter's value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or "''"
    return repr(value)
