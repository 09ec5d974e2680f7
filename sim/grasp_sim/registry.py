"""The environments by name: every task in every simulator.

A task is registered in `grasp_sim.tasks`, a simulator in `grasp_sim.simulators`; nothing has to be added
here. Modules are imported only when their environment is built, so asking for one simulator never loads the
other.
"""

from __future__ import annotations

import gymnasium

from grasp_sim.env import ACTION_SCALES, GraspEnv
from grasp_sim.errors import UnknownName, find
from grasp_sim.randomization import RandomizationConfig
from grasp_sim.simulators import SIMULATORS
from grasp_sim.tasks import TASKS, ObjectsConfig

__all__ = ["CONTROL_MODES", "UnknownName", "make", "names", "register_gymnasium"]

CONTROL_MODES: tuple[str, ...] = tuple(ACTION_SCALES)
"""`servo`: joint position targets as on the real arm. `osc`: robosuite's OSC_POSE, the field's standard."""


GRID_ID = "grasp/Grid-v0"


def names() -> list[str]:
    """The names that `make` takes, `<simulator>-<task>`."""
    return sorted(f"{simulator}-{task}" for simulator in SIMULATORS for task in TASKS)


def make(
    name: str,
    *,
    control_mode: str = "servo",
    reward: str = "sparse",
    delay: int = 0,
    horizon: int = 100,
    seed: int | None = 0,
    objects: ObjectsConfig | None = None,
    randomization: RandomizationConfig | None = None,
) -> GraspEnv:
    """Build an environment. `seed` fixes the episodes that `reset()` starts when it is given no seed."""
    simulator, task = find("environment", name, {known: known.split("-", 1) for known in names()})
    return GraspEnv(
        simulator,
        task,
        control_mode=control_mode,
        reward=reward,
        delay=delay,
        horizon=horizon,
        seed=seed,
        objects=objects,
        randomization=randomization,
    )


def gymnasium_id(name: str) -> str:
    """The id for `gymnasium.make`, such as grasp/RobosuiteLift-v0."""
    return f"grasp/{name.title().replace('-', '')}-v0"


def register_gymnasium() -> None:
    """Make every environment, and the grid world, available to `gymnasium.make`; harmless when done twice."""
    if GRID_ID not in gymnasium.registry:
        gymnasium.register(id=GRID_ID, entry_point="grasp_sim.grid:GridEnv")
    for name in names():
        if gymnasium_id(name) not in gymnasium.registry:
            simulator, task = name.split("-", 1)
            gymnasium.register(
                id=gymnasium_id(name),
                entry_point="grasp_sim.env:GraspEnv",
                kwargs={"simulator": simulator, "task": task},
            )


register_gymnasium()
