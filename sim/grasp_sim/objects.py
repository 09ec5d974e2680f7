"""The objects that are grasped: shapes made of primitives, with mass, friction and symmetry.

Object frame: origin at the centre of the bounding box, z up as the object lies on the table, x the direction
in which the fingers should close (the narrower horizontal one). Lengths in m, half extents where said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from grasp_sim import ur5e
from grasp_sim.errors import UserError

MAX_PARTS = 3
"""Most primitives one object is made of."""
SHAPES: dict[str, int] = {"box": 3, "cylinder": 2, "sphere": 1, "capsule": 2}
"""Primitives both simulators have, and the number of sizes of each."""
CLEARANCE = 0.006
"""m, the least that the open gripper must be wider than what it closes on."""
MAX_GRASP_WIDTH = ur5e.GRIPPER_STROKE - CLEARANCE
"""m, the widest object that the gripper can hold."""
MIN_WIDTH = 0.01
"""m, the narrowest object of a task."""
MASS_LIMITS = (1e-3, 10.0)
"""kg that an object may have."""
FRICTION_LIMITS = (0.0, 5.0)
"""Coefficients of sliding friction that an object may have."""
GRAVITY = 9.81
"""m/s^2, in both simulators."""


_HALF = 0.5**0.5
_Z_TO_AXIS = {"x": (0.0, _HALF, 0.0, _HALF), "y": (-_HALF, 0.0, 0.0, _HALF), "z": (0.0, 0.0, 0.0, 1.0)}


class ObjectError(UserError, ValueError):
    """An object was described that cannot exist or cannot be held."""


def is_number(given: object) -> bool:
    """Whether `given` is a real number; NaN is one."""
    return isinstance(given, Real)


def is_range(given: Any, least: float, greatest: float) -> bool:
    """Whether `given` is [low, high] with least <= low <= high <= greatest."""
    pair = isinstance(given, list | tuple) and len(given) == 2 and all(map(is_number, given))
    return pair and least <= given[0] <= given[1] <= greatest  # also false for NaN


def check_range(
    name: str, given: Any, least: float, greatest: float, error: type[UserError], hint: str = ""
) -> None:
    """Raise `error` unless `given`, the setting `name`, `is_range`."""
    if not is_range(given, least, greatest):
        raise error(
            f"{name}={given} must be [low, high] with {least:g} <= low <= high <= {greatest:g}"
            + (f": {hint}" if hint else "")
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One primitive of an object."""

    shape: str
    """One of `SHAPES`."""
    size: tuple[float, ...]
    """m. box: half extents (x, y, z); sphere: (radius,); cylinder and capsule: (radius, half length), the
    capsule's half length without its caps."""
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m, in the object frame."""
    axis: str = "z"
    """Axis of the object frame that a cylinder or capsule runs along; what has no length is not turned."""

    def __post_init__(self) -> None:
        """Refuse what no simulator can build."""
        if self.shape not in SHAPES:
            raise ObjectError(f"there is no shape {self.shape!r}; there are: {', '.join(SHAPES)}")
        if len(self.size) != SHAPES[self.shape] or not all(0 < s < 1 for s in self.size):
            raise ObjectError(
                f"a {self.shape} has {SHAPES[self.shape]} sizes between 0 and 1 m; it was given {self.size}"
            )
        if self.axis not in ("x", "y", "z"):
            raise ObjectError(f"an axis is x, y or z; it was given {self.axis!r}")

    @property
    def quaternion(self) -> tuple[float, float, float, float]:
        """xyzw, turns the z axis, along which simulators build cylinders and capsules, to the part's axis."""
        turned = len(self.size) == 2  # a radius and a length
        return _Z_TO_AXIS[self.axis if turned else "z"]

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) m, of the box around the part, along the axes of the object frame."""
        if self.shape == "box":
            return np.array(self.size)
        radius = self.size[0]
        half = np.full(3, radius)
        if self.shape != "sphere":
            half["xyz".index(self.axis)] = self.size[1] + (radius if self.shape == "capsule" else 0.0)
        return half

    @property
    def volume(self) -> float:
        """m^3."""
        if self.shape == "box":
            return 8.0 * float(np.prod(self.size))
        radius = self.size[0]
        ball = 4.0 / 3.0 * np.pi * radius**3
        if self.shape == "sphere":
            return ball
        tube = 2.0 * np.pi * radius**2 * self.size[1]
        return tube + ball if self.shape == "capsule" else tube

    @property
    def unit_inertia(self) -> np.ndarray:
        """(3,) m^2, diagonal of the inertia about the part's own centre, per kg, along the object frame."""
        if self.shape == "box":
            square = np.array(self.size) ** 2
            return (square.sum() - square) / 3.0
        radius = self.size[0]
        if self.shape == "sphere":
            return np.full(3, 0.4 * radius**2)
        half = self.size[1]
        across = radius**2 / 4.0 + half**2 / 3.0
        along = radius**2 / 2.0
        if self.shape == "capsule":
            caps = 4.0 / 3.0 * np.pi * radius**3 / self.volume  # the two half balls' share of the mass
            cap_across = 0.4 * radius**2 + half**2 + 0.75 * radius * half
            across = (1.0 - caps) * across + caps * cap_across
            along = (1.0 - caps) * along + caps * 0.4 * radius**2
        inertia = np.full(3, across)
        inertia["xyz".index(self.axis)] = along
        return inertia


@dataclass(frozen=True, slots=True)
class ObjectSpec:
    """One object: up to `MAX_PARTS` primitives of one density."""

    name: str
    """Kind of object, for people and reports."""
    parts: tuple[Part, ...]
    """The primitives; their bounding box is centred on the origin."""
    mass: float
    """kg."""
    friction: float
    """Coefficient of sliding friction between this object and the pads or the table."""
    symmetry: int
    """n-fold rotational symmetry about the vertical as two equal fingers see it, so at least 2; 0 means that
    any rotation is the same."""

    def __post_init__(self) -> None:
        """Refuse what cannot exist."""
        if not 1 <= len(self.parts) <= MAX_PARTS:
            raise ObjectError(f"{self.name} has {len(self.parts)} parts; an object has 1 to {MAX_PARTS}")
        for name, value, low, high in (
            ("mass", self.mass, *MASS_LIMITS),
            ("friction", self.friction, *FRICTION_LIMITS),
        ):
            if not low <= value <= high:  # also false for NaN
                raise ObjectError(f"{self.name} has {name} {value}; it must be from {low} to {high}")
        if self.symmetry != 0 and self.symmetry < 2:
            raise ObjectError(f"{self.name} has symmetry {self.symmetry}; it must be 0 or at least 2")
        low, high = self._bounds()
        if not np.allclose(low + high, 0.0, atol=1e-6):
            raise ObjectError(
                f"{self.name}'s bounding box is centred on {((low + high) / 2).tolist()} m, not the origin"
            )

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        centres = np.array([part.position for part in self.parts])
        halves = np.array([part.half_extents for part in self.parts])
        return (centres - halves).min(axis=0), (centres + halves).max(axis=0)

    @property
    def size(self) -> np.ndarray:
        """(3,) m, full extents of the bounding box."""
        low, high = self._bounds()
        return high - low

    @property
    def grasp_width(self) -> float:
        """m between the pads when they close along x on the object's centre."""
        reach = 0.0
        for part in self.parts:
            offset = np.abs(np.array(part.position))
            # A part further off the centre than the pads reach is not between them.
            if offset[1] < part.half_extents[1] + 0.01 and offset[2] < part.half_extents[2] + 0.01:
                reach = max(reach, float(offset[0] + part.half_extents[0]))
        return 2.0 * reach

    @property
    def holding_force(self) -> float:
        """N on each pad from which friction carries the weight: m g / (2 mu), Coulomb's law."""
        return self.mass * GRAVITY / (2.0 * self.friction) if self.friction > 0 else float("inf")

    @property
    def part_masses(self) -> np.ndarray:
        """(parts,) kg, at one density."""
        volumes = np.array([part.volume for part in self.parts])
        return self.mass * volumes / volumes.sum()

    @property
    def centre_of_mass(self) -> np.ndarray:
        """(3,) m, in the object frame."""
        return self.part_masses @ np.array([part.position for part in self.parts]) / self.mass

    @property
    def inertia(self) -> np.ndarray:
        """(3, 3) kg m^2 about the centre of mass, along the object frame (overlaps count twice)."""
        total = np.zeros((3, 3))
        for part, mass in zip(self.parts, self.part_masses, strict=True):
            offset = np.array(part.position) - self.centre_of_mass
            total += mass * (
                np.diag(part.unit_inertia) + offset @ offset * np.eye(3) - np.outer(offset, offset)
            )
        return total

    @property
    def principal_inertia(self) -> tuple[np.ndarray, np.ndarray]:
        """Moments (3,) in kg m^2 about the centre of mass, and the quaternion (4,) xyzw that turns the object
        frame to their axes: (0, 0, 0, 1) where the inertia lies along the object frame."""
        inertia = self.inertia
        moments = np.diag(inertia).copy()
        if np.abs(inertia - np.diag(moments)).max() < 1e-12 * moments.sum():
            return moments, np.array([0.0, 0.0, 0.0, 1.0])
        moments, axes = np.linalg.eigh(inertia)
        axes[:, 2] *= np.sign(np.linalg.det(axes))
        return moments, ur5e.quaternion_of(axes)


def box(
    size: tuple[float, float, float], *, mass: float, friction: float, symmetry: int | None = None
) -> ObjectSpec:
    """A box of full extents `size` (x, y, z) in m. Symmetry is 4 for a square outline, else 2."""
    if symmetry is None:
        symmetry = 4 if abs(size[0] - size[1]) < 1e-9 else 2
    half = (size[0] / 2, size[1] / 2, size[2] / 2)
    return ObjectSpec("box", (Part("box", half),), mass, friction, symmetry)
