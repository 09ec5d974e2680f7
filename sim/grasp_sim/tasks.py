"""The tasks: which objects lie where, when an episode succeeds, and what breaks.

A task knows nothing of simulators. `Task.sample` draws a `Start` that every simulator can begin from, so one
seed is the same problem in all of them. Lengths in m, base frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.errors import find
from grasp_sim.objects import (
    FRICTION_LIMITS,
    MASS_LIMITS,
    MAX_GRASP_WIDTH,
    MIN_WIDTH,
    ObjectError,
    ObjectSpec,
    Part,
    check_range,
    is_number,
)
from grasp_sim.scene import TABLE_CENTRE, TABLE_HALF_SIZE, TABLE_HEIGHT, Start
from grasp_sim.servo import heading, joints_at

ARM_NOISE = 0.02
"""rad, standard deviation of the arm's joints about `ur5e.HOME` at the start, as in robosuite."""
PLACED_ABOVE = 0.0005
"""m between table and object at the start, so that no contact begins with a penetration."""


@dataclass
class ObjectsConfig:
    """Which objects a task draws from; what is left empty is as the task says."""

    kinds: list[str] = field(default_factory=list)
    """Kinds of object, such as [box, sphere]."""
    width: list[float] = field(default_factory=list)
    """m between the pads, [least, greatest]; at most 0.079."""
    mass: list[float] = field(default_factory=list)
    """kg, [least, greatest]."""
    friction: list[float] = field(default_factory=list)
    """Coefficient of sliding friction, [least, greatest]."""
    spread: list[float] = field(default_factory=list)
    """m about the table's centre within which the object lies: [x, y]."""
    unholdable: bool = False
    """Allow widths beyond the gripper's; then some episodes cannot be solved."""

    def __post_init__(self) -> None:
        """Check every range that is given."""
        if not isinstance(self.kinds, list | tuple):
            raise ObjectError(f"objects.kinds={self.kinds} must be a list, such as [box, sphere]")
        for kind in self.kinds:
            find("kind of object", kind, KINDS)
        widest = 0.2 if self.unholdable else MAX_GRASP_WIDTH
        for name, least, greatest, hint in (
            ("width", MIN_WIDTH, widest, _TOO_WIDE),
            ("mass", *MASS_LIMITS, ""),
            ("friction", 0.01, FRICTION_LIMITS[1], ""),
        ):
            given = getattr(self, name)
            if not _is_left_empty(given):
                check_range(f"objects.{name}", given, least, greatest, ObjectError, hint)
        if not _is_left_empty(self.spread) and not (
            isinstance(self.spread, list | tuple)
            and len(self.spread) == 2
            and all(is_number(s) for s in self.spread)
            and all(0 <= s <= half - 0.1 for s, half in zip(self.spread, TABLE_HALF_SIZE, strict=True))
        ):
            raise ObjectError(
                f"objects.spread={self.spread} must be [x, y], each from 0 to {TABLE_HALF_SIZE[0] - 0.1:g} m,"
                " or the object lies off the table."
            )


_TOO_WIDE = (
    f"the gripper opens {gripper.STROKE * 1000:g} mm and holds up to {MAX_GRASP_WIDTH * 1000:g} mm; with"
    " objects.unholdable=true wider ones are allowed"
)


def _is_left_empty(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) == 0


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How much of a task's ranges is used: 0 the easiest episode, 1 the whole task. For curricula (E14)."""

    distance: float = 1.0
    """Of the object from the table's centre, and of the heading from the gripper's."""
    height: float = 1.0
    """To lift it; at 0 a fifth of it is enough."""
    friction: float = 1.0
    """At 0 the highest friction alone."""
    size: float = 1.0
    """At 0 the middle width alone."""
    reach: float = 1.0
    """Of the tool from the object: at 0 it starts about the object, at 0.5 straight above it, at 1 at home
    (a reverse curriculum, Florensa et al. 2017)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for part in fields(self):
            value = getattr(self, part.name)
            if not (is_number(value) and 0.0 <= value <= 1.0):
                raise ValueError(f"difficulty.{part.name}={value!r} must be from 0 to 1.")


@dataclass(frozen=True, slots=True)
class Task:
    """One task; the same in every simulator."""

    name: str
    kinds: tuple[str, ...]
    width: tuple[float, float]
    """m between the pads."""
    mass: tuple[float, float]
    """kg."""
    friction: tuple[float, float]
    spread: tuple[float, float]
    """m (x, y), half sides of the area about the table's centre."""
    grip_force: float
    """N that hold every object of the task without harm; what the scripted expert commands."""
    lift: float = 0.05
    """m that the object must rise, held by both fingers."""
    breaking_force: float = float("inf")
    """N on a pad from which the object breaks, which ends the episode without success."""
    standard_lift: bool = False
    """robosuite's own Lift: its cube, its gripper, and its criterion (the centre 4 cm above the table)."""

    def configured(self, config: ObjectsConfig) -> Task:
        """This task with the ranges that `config` gives."""
        given = {
            name: tuple(getattr(config, name))
            for name in ("kinds", "width", "mass", "friction", "spread")
            if getattr(config, name)
        }
        if given and self.standard_lift:
            raise ObjectError(
                f"objects.{next(iter(given))} is given, but {self.name} is robosuite's standard task with its"
                " own cube: choose the task 'objects'"
            )
        return replace(self, **given)

    def sample(self, rng: np.random.Generator, difficulty: Difficulty) -> Start:
        """The start of an episode, from `rng` alone."""
        arm = ur5e.HOME + ARM_NOISE * rng.standard_normal(ur5e.DOF)
        if self.standard_lift:
            shape = standard_cube(rng)
        else:
            low, high = self.friction
            width_low, width_high = _towards(sum(self.width) / 2.0, self.width, difficulty.size)
            shape = KINDS[self.kinds[int(rng.integers(len(self.kinds)))]](
                rng,
                float(rng.uniform(width_low, width_high)),
                float(rng.uniform(*self.mass)),
                float(rng.uniform(high - (high - low) * difficulty.friction, high)),
            )
        spread = np.array(self.spread) * difficulty.distance
        place = np.array(TABLE_CENTRE) + rng.uniform(-spread, spread)
        rest = TABLE_HEIGHT + float(shape.size[2]) / 2.0
        goal = TABLE_HEIGHT + STANDARD_HEIGHT if self.standard_lift else rest + self.lift
        start = Start(
            object=shape,
            object_position=np.array([*place, rest + PLACED_ABOVE]),
            goal_height=rest + (0.2 + 0.8 * difficulty.height) * (goal - rest),
            object_yaw=float(rng.uniform(-np.pi, np.pi)) * difficulty.distance,
            joint_positions=arm,
        )
        # About an object that the gripper cannot hold the fingers would start inside it.
        holdable = shape.grasp_width <= MAX_GRASP_WIDTH
        return _nearer(start, difficulty.reach) if holdable and difficulty.reach < 1.0 else start

    def solved(self, start: Start, height: float, grasped: bool) -> bool:
        """Whether the object, its centre at `height` m in the base frame, counts as lifted."""
        return bool(height > start.goal_height) and (grasped or self.standard_lift)


def _nearer(start: Start, reach: float) -> Start:
    """`start` with the tool brought towards the object: first above it, then down about it."""
    aside, above = max(2.0 * reach - 1.0, 0.0), min(2.0 * reach, 1.0)
    home, rotation = ur5e.Kinematics().pose(start.joint_positions)
    grasp = start.object_position + np.array([0.0, 0.0, gripper.grasp_height(float(start.object.size[2]))])
    position = grasp + (aside, aside, above) * (home - grasp)
    turn = 0.0  # a round object looks the same from everywhere
    if start.object.symmetry:
        period = 2.0 * np.pi / start.object.symmetry
        turn = (start.object_yaw - heading(rotation) + period / 2.0) % period - period / 2.0
    yaw = heading(rotation) + (1.0 - aside) * turn
    return replace(start, joint_positions=joints_at(position, yaw, start.joint_positions))


STANDARD_HEIGHT = 0.04
"""m of the cube's centre above the table, robosuite's criterion of Lift."""
STANDARD_HALF_SIZE = (0.020, 0.022)
"""m, range of the cube's half extents, as in robosuite."""


def _towards(middle: float, limits: tuple[float, float], share: float) -> tuple[float, float]:
    return middle + share * (limits[0] - middle), middle + share * (limits[1] - middle)


def standard_cube(rng: np.random.Generator) -> ObjectSpec:
    """robosuite's cube: each half extent drawn by itself, density 1000 kg/m^3, friction 1."""
    half = rng.uniform(*STANDARD_HALF_SIZE, size=3)
    part = Part("box", (float(half[0]), float(half[1]), float(half[2])))
    return ObjectSpec("cube", (part,), mass=1000.0 * part.volume, friction=1.0, symmetry=4)


# ---- kinds of object: (rng, width between the pads in m, mass in kg, friction) -> ObjectSpec

Kind = Callable[[np.random.Generator, float, float, float], ObjectSpec]


def _box(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    half = (width / 2.0, width / 2.0 * float(rng.uniform(1.1, 1.8)), float(rng.uniform(0.0125, 0.04)))
    return ObjectSpec("box", (Part("box", half),), mass, friction, symmetry=2)


def _cylinder(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    part = Part("cylinder", (width / 2.0, float(rng.uniform(0.0125, 0.04))))
    return ObjectSpec("cylinder", (part,), mass, friction, symmetry=0)


def _sphere(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    return ObjectSpec("sphere", (Part("sphere", (width / 2.0,)),), mass, friction, symmetry=0)


def _capsule(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    part = Part("capsule", (width / 2.0, float(rng.uniform(0.01, 0.04))), axis="y")
    return ObjectSpec("capsule", (part,), mass, friction, symmetry=2)


def _tee(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    """A stem along y, held at its middle, with a bar across its end: the weight hangs beside the grasp."""
    half_height = float(rng.uniform(0.0125, 0.02))
    stem, bar = 0.045, 0.008
    parts = (
        Part("box", (width / 2.0, stem - bar, half_height), (0.0, -bar, 0.0)),
        Part("box", (width / 2.0 + 0.015, bar, half_height), (0.0, stem - bar, 0.0)),
    )
    return ObjectSpec("tee", parts, mass, friction, symmetry=2)


def _knob(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    """A cylinder on a broader foot, held above the foot."""
    half, foot = float(rng.uniform(0.03, 0.04)), 0.006
    parts = (
        Part("cylinder", (width / 2.0, half - foot), (0.0, 0.0, foot)),
        Part("cylinder", (width / 2.0 + 0.008, foot), (0.0, 0.0, foot - half)),
    )
    return ObjectSpec("knob", parts, mass, friction, symmetry=0)


def _dumbbell(rng: np.random.Generator, width: float, mass: float, friction: float) -> ObjectSpec:
    """A bar along y, held at its middle, between two balls that it rests on."""
    radius, reach = width / 2.0 + 0.005, width / 2.0 + 0.025
    parts = (
        Part("cylinder", (width / 2.0, reach), axis="y"),
        Part("sphere", (radius,), (0.0, reach, 0.0)),
        Part("sphere", (radius,), (0.0, -reach, 0.0)),
    )
    return ObjectSpec("dumbbell", parts, mass, friction, symmetry=2)


KINDS: dict[str, Kind] = {
    "box": _box,
    "cylinder": _cylinder,
    "sphere": _sphere,
    "capsule": _capsule,
    "tee": _tee,
    "knob": _knob,
    "dumbbell": _dumbbell,
}
"""Every kind of object by name. Adding one is a function and a line here."""

_ALL = tuple(KINDS)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "lift",
            kinds=("box",),
            width=(2 * STANDARD_HALF_SIZE[0], 2 * STANDARD_HALF_SIZE[1]),
            mass=(0.064, 0.085),
            friction=(1.0, 1.0),
            spread=(0.03, 0.03),
            grip_force=60.0,
            standard_lift=True,
        ),
        Task(
            "objects",
            kinds=_ALL,
            width=(0.02, 0.07),
            mass=(0.02, 1.0),
            friction=(0.2, 1.2),
            spread=(0.14, 0.24),
            grip_force=60.0,
        ),
        Task(
            "slippery",
            kinds=("box", "cylinder", "capsule"),
            width=(0.03, 0.06),
            mass=(0.8, 1.5),
            friction=(0.1, 0.18),
            spread=(0.10, 0.15),
            grip_force=110.0,
        ),
        Task(
            "fragile",
            kinds=("box", "cylinder", "sphere"),
            width=(0.03, 0.06),
            mass=(0.02, 0.3),
            friction=(0.5, 1.2),
            spread=(0.10, 0.15),
            grip_force=25.0,
            breaking_force=40.0,
        ),
    )
}
"""Every task by name. Adding one is an entry here."""


def find_task(name: str) -> Task:
    """The task called `name`; raises UnknownName listing what exists."""
    return find("task", name, TASKS)
