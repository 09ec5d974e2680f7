"""What a simulator has to offer to be used by `grasp_sim.env.GraspEnv`, and what an episode starts from.

Everything is in the base frame (the robot's mounting frame, z up), in m, rad, N and s.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.contract import POLICY_RATE_HZ, Command
from grasp_sim.objects import ObjectError, ObjectSpec, Part

TABLE_HEIGHT = -0.112
"""m, the table's top; the base stands on a pedestal as in robosuite."""
TABLE_CENTRE = (0.56, 0.0)
"""m (x, y), the middle of the table."""
TABLE_HALF_SIZE = (0.4, 0.4)
"""m (x, y)."""
CONTROL_PERIOD = 1.0 / POLICY_RATE_HZ
"""s of one control step."""
CAMERA, CAMERA_TARGET = (1.25, -0.52, 0.36), (0.49, 0.01, 0.02)
"""m, where pictures are taken from and what they show in their middle: close up, from the front right, with
every place where a task puts its object in view."""
FIELD_OF_VIEW = 45.0
"""deg, vertical."""


@dataclass(frozen=True, slots=True)
class Physics:
    """What domain randomisation may change in the simulator for one episode; the defaults change nothing."""

    damping_scale: float = 1.0
    """Factor on the viscous friction of the arm's joints."""
    actuator_gain_scale: float = 1.0
    """Factor on the stiffness with which the arm follows its joint targets, its root on the damping."""
    gripper_speed: float = gripper.SPEED
    """m/s, the greatest change of the opening."""
    gripper_force_scale: float = 1.0
    """Factor between the commanded and the real grip force."""


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Everything an episode starts from. The same start in two simulators is the same problem."""

    object: ObjectSpec
    object_position: np.ndarray
    """(3,) m, the object's centre."""
    object_yaw: float
    """rad, of the object's x axis about the vertical."""
    goal_height: float
    """m, above which the object's centre must be lifted."""
    joint_positions: np.ndarray = field(default_factory=lambda: ur5e.HOME.copy())
    """(6,) rad."""
    physics: Physics = field(default_factory=Physics)

    def __post_init__(self) -> None:
        """Check the numbers, and keep arrays of its own that nobody can write to: an episode goes by them."""
        for name, shape in (("object_position", (3,)), ("joint_positions", (ur5e.DOF,))):
            given = np.array(getattr(self, name), dtype=np.float64)
            if given.shape != shape:
                raise ObjectError(f"a start's {name} has shape {given.shape}; it must be {shape}")
            given.flags.writeable = False
            object.__setattr__(self, name, given)
        for name in ("object_position", "joint_positions", "object_yaw", "goal_height"):
            if not np.isfinite(getattr(self, name)).all():
                raise ObjectError(f"a start's {name} is {getattr(self, name)}; it must be finite")
        outside = np.abs(self.joint_positions) > ur5e.POSITION_MAX
        if outside.any():
            first = int(outside.argmax())
            raise ObjectError(
                f"a start's {ur5e.JOINT_NAMES[first]} is {self.joint_positions[first]:g} rad; it must be"
                f" within +-{ur5e.POSITION_MAX[first]:g}"
            )

    @property
    def object_quaternion(self) -> np.ndarray:
        """(4,) xyzw of the object in the base frame."""
        half = self.object_yaw / 2.0
        return np.array([0.0, 0.0, np.sin(half), np.cos(half)])

    def __eq__(self, other: object) -> bool:
        """Every number is the same; the generated comparison would fail on arrays."""
        return self.to_json() == other.to_json() if isinstance(other, Start) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> str:
        """The start as text; numbers survive exactly."""
        return json.dumps(asdict(self), default=np.ndarray.tolist)

    @staticmethod
    def from_json(text: str) -> Start:
        """Inverse of `to_json`."""
        values = json.loads(text)
        shape = values["object"]
        parts = [Part(p["shape"], tuple(p["size"]), tuple(p["position"]), p["axis"]) for p in shape["parts"]]
        return Start(
            object=ObjectSpec(**{**shape, "parts": tuple(parts)}),
            object_position=np.array(values["object_position"]),
            object_yaw=values["object_yaw"],
            goal_height=values["goal_height"],
            joint_positions=np.array(values["joint_positions"]),
            physics=Physics(**values["physics"]),
        )


class Scene(Protocol):
    """A simulator with the arm, a gripper, the table and one object."""

    def reset(self, start: Start) -> None:
        """Begin an episode: the arm at rest, the gripper open, the object where `start` puts it."""
        ...

    def advance_servo(self, start: np.ndarray, goal: np.ndarray, command: Command) -> None:
        """Simulate one control step: joint targets run from `start` to `goal` (6,), the gripper follows
        `command.opening` with at most `command.force_limit`."""
        ...

    def drive(self, target: np.ndarray, command: Command, period: float) -> None:
        """Simulate `period` s, one cycle of a robot's driver: joint targets (6,) hold for all of it, the
        gripper as in `advance_servo`. `period` is 0.002 s (500 Hz) or 0.008 s (125 Hz).

        The physics of `advance_servo`, for a target that may change in every cycle. An episode with driven
        cycles cannot be saved: a scene may know its past by whole control steps alone."""
        ...

    def advance_osc(self, command: Command, turn: np.ndarray) -> None:
        """Simulate one control step of robosuite's OSC_POSE law: the TCP's goal is `command.delta_position`
        away from where it is, and turned by the rotation vector `turn` (3,) in rad about the base's axes.
        Each number is limited to the law's range. The gripper as in `advance_servo`."""
        ...

    @property
    def time(self) -> float:
        """s since the episode began."""
        ...

    @property
    def faulty(self) -> bool:
        """The state is not finite or the simulator broke down; stays so until the next reset."""
        ...

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Arm positions (6,) in rad and velocities (6,) in rad/s."""
        ...

    def opening(self) -> float:
        """m between the pads."""
        ...

    def object_pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) of the object frame's origin and quaternion (4,) xyzw."""
        ...

    def pad_forces(self, closing_axis: np.ndarray) -> np.ndarray:
        """(2,) N that each finger presses on the object along `closing_axis` (3,), a unit vector."""
        ...

    def dynamic_state(self) -> np.ndarray:
        """(S,) float64, the time and the positions and velocities of all that moves, in the simulator's own
        layout; S is the same throughout an episode. Enough to show a moment, not to go on from it."""
        ...

    def show(self, start: Start, dynamic_state: np.ndarray) -> None:
        """Put everything where a `dynamic_state` of an episode begun from `start` has it: pictures, `joints`,
        `opening` and `object_pose` are of that moment then. Only `reset` or `restore` goes on from there."""
        ...

    def save(self) -> dict[str, np.ndarray]:
        """Everything the simulator's future depends on besides the episode's `Start`."""
        ...

    def restore(self, start: Start, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save` for an episode begun from `start`, bit-exact, in a scene of the same kind."""
        ...

    def render(self, width: int, height: int) -> np.ndarray:
        """(height, width, 3) uint8, seen from `CAMERA`. Raises RenderUnavailable saying what to install."""
        ...

    def close(self) -> None:
        """Free what the simulator holds; a second time is harmless."""
        ...
