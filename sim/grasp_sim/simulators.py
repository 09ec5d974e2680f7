"""The simulators by name. Each is imported only when asked for, so that one never loads the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from grasp_sim.errors import find
from grasp_sim.scene import Scene
from grasp_sim.tasks import Task


@dataclass(frozen=True, slots=True)
class Simulator:
    """Where a simulator's scene is found, and whose versions a recording depends on."""

    module: str
    """Has `make_scene(control_mode, task)`."""
    packages: tuple[str, ...]

    def make_scene(self, control_mode: str, task: Task) -> Scene:
        """Import the simulator and build its scene for a task."""
        with _quiet():
            module = import_module(self.module)
        return module.make_scene(control_mode, task)

    def versions(self) -> dict[str, str]:
        """Versions of its packages."""
        return {name: version(name) for name in self.packages}


SIMULATORS: dict[str, Simulator] = {
    "robosuite": Simulator("grasp_sim.robosuite_scene", ("mujoco", "robosuite")),
    "pybullet": Simulator("grasp_sim.pybullet_scene", ("pybullet",)),
}
"""Every simulator by name. Adding one is an entry here."""


def find_simulator(name: str) -> Simulator:
    """The simulator called `name`; raises UnknownName listing what exists."""
    return find("simulator", name, SIMULATORS)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops what is printed to the error stream meanwhile: PyBullet greets with its build time."""
    if sys.stderr is None:  # the process was started without one
        yield
        return
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
