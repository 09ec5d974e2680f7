"""The environments by name.

Adding one is a line in `_ENVIRONMENTS`; modules are imported only when their environment is built, so asking
for one simulator never loads the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium

from grasp_sim.rewards import UnknownName

__all__ = ["CONTROL_MODES", "UnknownName", "make", "names", "register_gymnasium"]

CONTROL_MODES: tuple[str, ...] = ("servo", "osc")
"""`servo`: joint position targets as on the real arm. `osc`: robosuite's OSC_POSE, the field's standard."""

_ENVIRONMENTS: dict[str, tuple[str, str]] = {
    # name: ("module:class", Gymnasium id)
    "robosuite-lift": ("grasp_sim.robosuite_env:RobosuiteLift", "grasp/RobosuiteLift-v0"),
}


def names() -> list[str]:
    """The names that `make` takes."""
    return sorted(_ENVIRONMENTS)


def make(
    name: str,
    *,
    control_mode: str = "servo",
    reward: str = "sparse",
    horizon: int = 100,
    seed: int | None = 0,
) -> gymnasium.Env:
    """Build an environment. `seed` fixes the episodes that `reset()` starts when it is given no seed."""
    if name not in _ENVIRONMENTS:
        raise UnknownName(f"there is no environment {name!r}; there are: {', '.join(names())}")
    if control_mode not in CONTROL_MODES:
        raise UnknownName(f"there is no control mode {control_mode!r}; there are: {', '.join(CONTROL_MODES)}")
    entry: Any = _load(_ENVIRONMENTS[name][0])
    return entry(control_mode=control_mode, reward=reward, horizon=horizon, seed=seed)


def _load(entry_point: str) -> Any:
    module, attribute = entry_point.split(":")
    return getattr(import_module(module), attribute)


def register_gymnasium() -> None:
    """Make every environment available to `gymnasium.make`; harmless when done twice."""
    for entry_point, gymnasium_id in _ENVIRONMENTS.values():
        if gymnasium_id not in gymnasium.registry:
            gymnasium.register(id=gymnasium_id, entry_point=entry_point)


register_gymnasium()
