"""Domain randomisation: what differs from episode to episode between the simulation and what it stands for.

`RandomizationConfig` holds ranges, `draw` turns them into one `Drawn` for an episode, from a generator passed
in. Physical factors change the `Start`; what concerns sensors and the action's way is done by
`grasp_sim.sensing`. The defaults change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace

import numpy as np

from grasp_sim import gripper
from grasp_sim.errors import UserError
from grasp_sim.objects import FRICTION_LIMITS, MASS_LIMITS, check_range, is_number
from grasp_sim.scene import Physics, Start


class RandomizationError(UserError, ValueError):
    """A range of the randomisation contradicts itself or physics."""


def _one() -> list[float]:
    return [1.0, 1.0]


def _none() -> list[float]:
    return [0.0, 0.0]


@dataclass
class RandomizationConfig:
    """Ranges [least, greatest], drawn uniformly once per episode; noise is drawn every step."""

    mass: list[float] = field(default_factory=_one)
    """Factor on the object's mass."""
    friction: list[float] = field(default_factory=_one)
    """Factor on the object's friction."""
    damping: list[float] = field(default_factory=_one)
    """Factor on the viscous friction of the arm's joints."""
    actuator_gain: list[float] = field(default_factory=_one)
    """Factor on the stiffness with which the arm follows its targets."""
    gripper_speed: list[float] = field(default_factory=_one)
    """Factor on the speed of the fingers."""
    gripper_force: list[float] = field(default_factory=_one)
    """Factor between the commanded and the real grip force."""
    joint_latency: list[float] = field(default_factory=_none)
    """s by which the measured joints are old."""
    gripper_latency: list[float] = field(default_factory=_none)
    """s by which the measured opening and force are old."""
    object_latency: list[float] = field(default_factory=_none)
    """s by which the object's pose is old."""
    action_delay: list[int] = field(default_factory=lambda: [0, 0])
    """Policy steps from an action to its effect."""
    object_position_offset: float = 0.0
    """m, the greatest error of the perceived position along each axis, constant over an episode."""
    object_yaw_offset: float = 0.0
    """rad, the greatest error of the perceived yaw, constant over an episode."""
    joint_noise: float = 0.0
    """rad, standard deviation of each measured joint position."""
    joint_velocity_noise: float = 0.0
    """rad/s, standard deviation of each measured joint velocity."""
    opening_noise: float = 0.0
    """m, standard deviation of the measured opening."""
    force_noise: float = 0.0
    """N, standard deviation of the measured grip force."""
    object_position_noise: float = 0.0
    """m, standard deviation of the perceived position along each axis."""
    object_yaw_noise: float = 0.0
    """rad, standard deviation of the perceived yaw."""

    def __post_init__(self) -> None:
        """Check every range."""
        for part in fields(self):
            name, given, (least, greatest) = part.name, getattr(self, part.name), _LIMITS[part.name]
            if part.default_factory is not MISSING:
                check_range(f"randomization.{name}", given, least, greatest, RandomizationError)
            elif not is_number(given) or not least <= given <= greatest:
                raise RandomizationError(
                    f"randomization.{name}={given} must be from {least:g} to {greatest:g}"
                )
        if not all(isinstance(steps, int) for steps in self.action_delay):
            raise RandomizationError(
                f"randomization.action_delay={self.action_delay} must be two whole numbers of policy steps"
            )

    def check_objects(self, mass: Sequence[float], friction: Sequence[float]) -> None:
        """Raise RandomizationError if a factor takes a task's range out of what a simulator can hold."""
        for name, given, limits in (
            ("mass", mass, MASS_LIMITS),
            ("friction", friction, FRICTION_LIMITS),
        ):
            factors = getattr(self, name)
            low, high = factors[0] * given[0], factors[1] * given[1]
            if not limits[0] <= low <= high <= limits[1]:
                raise RandomizationError(
                    f"randomization.{name}={factors} times the objects' {name} from {given[0]:g} to"
                    f" {given[1]:g} is {low:g} to {high:g}; it must stay from {limits[0]:g} to"
                    f" {limits[1]:g}: narrow the one or the other"
                )

    def check_ignored_force(self) -> None:
        """Raise RandomizationError if the force is scaled, for a gripper that has no force to scale."""
        if tuple(self.gripper_force) != (1.0, 1.0):
            raise RandomizationError(
                f"randomization.gripper_force={self.gripper_force} changes nothing in robosuite-lift, whose"
                " Robotiq 85 ignores the force: leave it at [1.0, 1.0], or choose pybullet-lift"
            )


_LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("mass", "friction", "damping", "actuator_gain"), (0.05, 20.0)),
    "gripper_speed": (0.05, 5.0),
    "gripper_force": (0.05, gripper.FORCE_SCALE_MAX),
    **dict.fromkeys(("joint_latency", "gripper_latency", "object_latency"), (0.0, 1.0)),
    "action_delay": (0, 20),
    "object_position_offset": (0.0, 0.1),
    "object_yaw_offset": (0.0, math.pi),
    **dict.fromkeys(("joint_noise", "opening_noise", "object_position_noise"), (0.0, 0.1)),
    **dict.fromkeys(("joint_velocity_noise", "object_yaw_noise"), (0.0, 1.0)),
    "force_noise": (0.0, 100.0),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What holds for one episode; names and units as in `RandomizationConfig`. The defaults do nothing."""

    mass: float = 1.0
    friction: float = 1.0
    damping: float = 1.0
    actuator_gain: float = 1.0
    gripper_speed: float = 1.0
    gripper_force: float = 1.0
    joint_latency: float = 0.0
    gripper_latency: float = 0.0
    object_latency: float = 0.0
    action_delay: int = 0
    object_position_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    object_yaw_offset: float = 0.0
    joint_noise: float = 0.0
    joint_velocity_noise: float = 0.0
    opening_noise: float = 0.0
    force_noise: float = 0.0
    object_position_noise: float = 0.0
    object_yaw_noise: float = 0.0

    def without_physics(self) -> Drawn:
        """What concerns sensors and the action's way alone."""
        return replace(self, **dict.fromkeys(_PHYSICAL, 1.0))

    def pack(self) -> np.ndarray:
        """(20,) float64, the fields in order."""
        return np.concatenate([np.atleast_1d(getattr(self, part.name)) for part in fields(self)])

    @staticmethod
    def unpack(row: np.ndarray) -> Drawn:
        """Inverse of `pack`."""
        numbers = iter(float(value) for value in row)
        values: dict[str, object] = {}
        for part in fields(Drawn):
            if part.name == "object_position_offset":
                values[part.name] = (next(numbers), next(numbers), next(numbers))
            else:
                values[part.name] = next(numbers)
        values["action_delay"] = int(values["action_delay"])  # type: ignore[call-overload]
        return Drawn(**values)  # type: ignore[arg-type]


_PHYSICAL = ("mass", "friction", "damping", "actuator_gain", "gripper_speed", "gripper_force")


def draw(config: RandomizationConfig, rng: np.random.Generator) -> Drawn:
    """One episode's draw. Every range is drawn from whatever its width, so that changing one leaves the
    others' values alone."""
    values: dict[str, object] = {}
    for part in fields(Drawn):
        setting = getattr(config, part.name)
        if part.name == "action_delay":
            values[part.name] = int(rng.integers(setting[0], setting[1] + 1))
        elif part.name == "object_position_offset":
            values[part.name] = tuple(float(v) for v in rng.uniform(-setting, setting, size=3))
        elif part.name == "object_yaw_offset":
            values[part.name] = float(rng.uniform(-setting, setting))
        elif isinstance(setting, list | tuple):
            values[part.name] = float(rng.uniform(*setting))
        else:
            values[part.name] = float(setting)
    return Drawn(**values)  # type: ignore[arg-type]


def apply(drawn: Drawn, start: Start) -> Start:
    """`start` with the physical factors of `drawn`."""
    shape = replace(
        start.object,
        mass=start.object.mass * drawn.mass,
        friction=start.object.friction * drawn.friction,
    )
    physics = Physics(
        damping_scale=drawn.damping,
        actuator_gain_scale=drawn.actuator_gain,
        gripper_speed=gripper.SPEED * drawn.gripper_speed,
        gripper_force_scale=drawn.gripper_force,
    )
    return replace(start, object=shape, physics=physics)
