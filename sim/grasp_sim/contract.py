"""The one contract between every source of state, the policy and every consumer of commands.

`GraspState` is what both simulators, recorded demonstrations and the ROS 2 nodes fill in. `encode` turns it
into the policy's observation, `decode` turns the policy's action into a command. Nobody else builds an
observation or reads an action, so what is trained is what is deployed.

Frames: `base` is the robot's mounting frame (ROS `base_link`), z up. `tcp` sits between the fingertips, its z
axis along the approach direction. Quaternions are xyzw. Units are metres, radians, newtons and seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

CONTRACT_VERSION = 1
"""Raised whenever the meaning, order or width of the observation or the action changes."""

POLICY_RATE_HZ = 20.0

OBSERVATION_NAMES: tuple[str, ...] = (
    "tcp_height",  # m, base frame
    "gripper_opening",  # m
    "gripper_force",  # N
    "object_dx",  # m, object minus TCP, along the axes of the base frame
    "object_dy",
    "object_dz",
    "object_yaw_sin",  # of n * (object yaw - TCP yaw), n the object's rotational symmetry about z
    "object_yaw_cos",
    "object_height",  # m, base frame
    "object_size_x",  # m, full extents
    "object_size_y",
    "object_size_z",
    "object_age",  # s since the object's pose was measured
)
"""The policy's observation. Absolute x, y and yaw are left out on purpose: the same grasp anywhere on the
table is the same problem. Joint angles are left out because with the tool pointing down they follow from the
TCP pose."""

OBSERVATION_DIM = len(OBSERVATION_NAMES)

ACTION_NAMES: tuple[str, ...] = ("delta_x", "delta_y", "delta_z", "delta_yaw", "opening", "force_limit")
"""All in [-1, 1]. Deltas are along the base frame's axes per policy step. Opening: -1 closed, 1 open, reached
at half of that already (`OPENING_GAIN`)."""

OPENING_GAIN = 2.0
"""The opening saturates beyond +-1 / OPENING_GAIN. A jitter around "open" or "closed" then moves no finger:
fingers that drift show in the next observation as the beginning of a grasp and pull the policy into closing
too early, and a real gripper's driver is spared a stream of near-equal commands."""

ACTION_DIM = len(ACTION_NAMES)


class ContractError(ValueError):
    """A state, observation or action does not have the shape, units or range that the contract asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class GraspState:
    """Everything measurable about arm, gripper and object at one instant."""

    joint_positions: np.ndarray
    """(6,) rad, in the order of `grasp_sim.ur5e.JOINT_NAMES`."""
    joint_velocities: np.ndarray
    """(6,) rad/s."""
    tcp_position: np.ndarray
    """(3,) m, base frame, by forward kinematics of `joint_positions`."""
    tcp_quaternion: np.ndarray
    """(4,) xyzw, base frame, by forward kinematics of `joint_positions`."""
    gripper_opening: float
    """m between the fingertips."""
    gripper_force: float
    """N, the grip force (one side)."""
    object_position: np.ndarray
    """(3,) m, base frame, the object's centre."""
    object_quaternion: np.ndarray
    """(4,) xyzw, base frame."""
    object_size: np.ndarray
    """(3,) m, full extents along the object's axes."""
    object_symmetry: int = 4
    """n-fold rotational symmetry about the vertical axis; 0 means any rotation looks the same."""
    joint_time: float = 0.0
    """s, when the joints were measured. All stamps share one clock."""
    gripper_time: float = 0.0
    """s, when the gripper was measured."""
    object_time: float = 0.0
    """s, when the object's pose was measured."""
    time: float = 0.0
    """s, when this state was assembled."""

    def __eq__(self, other: object) -> bool:
        """Every number is the same; the generated comparison would fail on arrays."""
        if not isinstance(other, GraspState):
            return NotImplemented
        return np.array_equal(pack_state(self), pack_state(other))

    __hash__ = None  # type: ignore[assignment]

    def check(self) -> None:
        """Raise ContractError naming the first field that is non-finite or of the wrong shape."""
        values = {name: np.asarray(getattr(self, name), dtype=np.float64) for name in _SHAPES}
        for name, shape in _SHAPES.items():
            if values[name].shape != shape:
                raise ContractError(f"GraspState.{name} has shape {values[name].shape}; it must be {shape}.")
        if np.isfinite(np.concatenate([value.ravel() for value in values.values()])).all():
            return  # all at once: one by one takes as long as the rest of the encoding
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise ContractError(f"GraspState.{name} is not finite: {value.tolist()}.")


_SHAPES: dict[str, tuple[int, ...]] = {
    "joint_positions": (6,),
    "joint_velocities": (6,),
    "tcp_position": (3,),
    "tcp_quaternion": (4,),
    "object_position": (3,),
    "object_quaternion": (4,),
    "object_size": (3,),
    **dict.fromkeys(("gripper_opening", "gripper_force", "joint_time", "gripper_time"), ()),
    **dict.fromkeys(("object_time", "time", "object_symmetry"), ()),
}

STATE_WIDTH = sum(int(np.prod(shape)) for shape in _SHAPES.values())


def pack_state(state: GraspState) -> np.ndarray:
    """Flatten a state into (STATE_WIDTH,) float64, fields in the dataclass's order."""
    return np.concatenate(
        [np.asarray(getattr(state, f.name), dtype=np.float64).reshape(-1) for f in fields(GraspState)]
    )


def unpack_state(row: np.ndarray) -> GraspState:
    """Inverse of `pack_state`; raises ContractError on another width."""
    row = np.asarray(row, dtype=np.float64)
    if row.shape != (STATE_WIDTH,):
        raise ContractError(f"a packed GraspState has shape {row.shape}; it must be ({STATE_WIDTH},).")
    values: dict[str, object] = {}
    cursor = 0
    for field in fields(GraspState):
        shape = _SHAPES[field.name]
        width = int(np.prod(shape))
        part = row[cursor : cursor + width]
        values[field.name] = part.copy() if shape else float(part[0])
        cursor += width
    values["object_symmetry"] = int(values["object_symmetry"])  # type: ignore[arg-type]
    return GraspState(**values)  # type: ignore[arg-type]


def yaw_of(quaternion: np.ndarray) -> float:
    """Heading in rad of the x axis of an xyzw quaternion's frame, projected on the horizontal plane."""
    x, y, z, w = (float(v) for v in quaternion)
    return float(np.arctan2(2.0 * (x * y + w * z), 1.0 - 2.0 * (y * y + z * z)))


def yaw_error(state: GraspState) -> float:
    """Smallest rotation in rad about the base frame's z axis that aligns the gripper with the object.

    Taken modulo the object's symmetry, so a square block turned by 90 degrees gives the same answer.
    """
    if state.object_symmetry == 0:
        return 0.0
    period = 2.0 * np.pi / state.object_symmetry
    difference = yaw_of(state.object_quaternion) - yaw_of(state.tcp_quaternion)
    return float((difference + period / 2.0) % period - period / 2.0)


def encode(state: GraspState) -> np.ndarray:
    """The policy's observation, (OBSERVATION_DIM,) float32. Raises ContractError on a non-finite state."""
    state.check()
    relative = state.object_position - state.tcp_position
    angle = state.object_symmetry * yaw_error(state)
    return np.array(
        [
            state.tcp_position[2],
            state.gripper_opening,
            state.gripper_force,
            *relative,
            np.sin(angle),
            np.cos(angle),
            state.object_position[2],
            *state.object_size,
            state.time - state.object_time,
        ],
        dtype=np.float32,
    )


def encode_rows(rows: np.ndarray) -> np.ndarray:
    """`encode` of packed states (N, STATE_WIDTH), (N, OBSERVATION_DIM) float32, without a loop.

    A row that is not finite gives an observation that is not: nothing is raised for it. Raises ContractError
    on another width.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != STATE_WIDTH:
        raise ContractError(f"packed GraspStates have shape {rows.shape}; it must be (N, {STATE_WIDTH}).")
    part, cursor = {}, 0
    for field in fields(GraspState):
        width = int(np.prod(_SHAPES[field.name]))
        part[field.name] = np.ascontiguousarray(rows[:, cursor : cursor + width].T)  # (width, N)
        cursor += width

    def yaws(quaternions: np.ndarray) -> np.ndarray:
        x, y, z, w = quaternions
        return np.arctan2(2.0 * (x * y + w * z), 1.0 - 2.0 * (y * y + z * z))

    with np.errstate(all="ignore"):  # of rows that are not finite, or too large for float32
        symmetry = np.trunc(part["object_symmetry"][0])
        period = 2.0 * np.pi / np.where(symmetry == 0.0, 1.0, symmetry)
        difference = yaws(part["object_quaternion"]) - yaws(part["tcp_quaternion"])
        error = (difference + period / 2.0) % period - period / 2.0
        angle = symmetry * np.where(symmetry == 0.0, 0.0, error)
        columns = [
            part["tcp_position"][2],
            part["gripper_opening"][0],
            part["gripper_force"][0],
            *(part["object_position"] - part["tcp_position"]),
            np.sin(angle),
            np.cos(angle),
            part["object_position"][2],
            *part["object_size"],
            part["time"][0] - part["object_time"][0],
        ]
        return np.stack(columns, axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class ActionScale:
    """What an action of 1 means. Part of the environment's configuration and of the policy bundle."""

    position: float = 0.0125
    """m per policy step."""
    yaw: float = 0.1
    """rad per policy step."""
    opening: float = 0.085
    """m, the fully open gripper (Robotiq 2F-85)."""
    force_min: float = 20.0
    """N, the grip-force limit at -1 (the 2F-85's smallest)."""
    force_max: float = 235.0
    """N, the grip-force limit at 1."""


@dataclass(frozen=True, slots=True)
class Command:
    """What the servo and the gripper are asked to do during one policy step."""

    delta_position: np.ndarray
    """(3,) m, along the base frame's axes."""
    delta_yaw: float
    """rad, about the base frame's z axis."""
    opening: float
    """m between the fingertips."""
    force_limit: float
    """N."""


def executed_action(action: np.ndarray) -> np.ndarray:
    """The action that is actually sent: clipped to [-1, 1], (ACTION_DIM,) float32.

    Callers store it beside the requested one. Raises ContractError on a wrong width or a non-finite value,
    since neither can be sent to an arm.
    """
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite and is refused below
            action = np.asarray(action, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"an action is {ACTION_DIM} numbers: {ACTION_NAMES}; it was given {action!r}."
        ) from error
    if action.shape != (ACTION_DIM,):
        raise ContractError(
            f"an action has shape {action.shape}; it must be ({ACTION_DIM},): {ACTION_NAMES}."
        )
    if not np.isfinite(action).all():
        raise ContractError(
            f"an action is not finite: {dict(zip(ACTION_NAMES, action.tolist(), strict=True))}."
        )
    return np.clip(action, -1.0, 1.0)


def decode(action: np.ndarray, scale: ActionScale) -> Command:
    """Turn an action into a command. The action is clipped by `executed_action` first; same errors."""
    sent = executed_action(action).astype(np.float64)
    fraction = (np.clip(sent[4:] * (OPENING_GAIN, 1.0), -1.0, 1.0) + 1.0) / 2.0
    return Command(
        delta_position=sent[:3] * scale.position,
        delta_yaw=float(sent[3] * scale.yaw),
        opening=float(fraction[0] * scale.opening),
        force_limit=float(scale.force_min + fraction[1] * (scale.force_max - scale.force_min)),
    )


def rotate_about_vertical(
    observations: np.ndarray, actions: np.ndarray, angles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same situations seen from a base turned about its z axis: copies with horizontal vectors rotated.

    Observations hold no absolute heading, and what they say of yaw is relative, so only (object_dx,
    object_dy) and (delta_x, delta_y) turn. A symmetry of the task until the arm's reach is left; learning
    uses it for small angles. Actions turned out of [-1, 1] are clipped.

    Args:
        observations: (..., OBSERVATION_DIM).
        actions: (..., ACTION_DIM).
        angles: rad, broadcast against the leading dimensions of both.
    """
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    turned = []
    for values, x in ((observations, OBSERVATION_NAMES.index("object_dx")), (actions, 0)):
        copy = values.copy()
        copy[..., x] = cosine * values[..., x] - sine * values[..., x + 1]
        copy[..., x + 1] = sine * values[..., x] + cosine * values[..., x + 1]
        turned.append(copy)
    return turned[0], np.clip(turned[1], -1.0, 1.0)
