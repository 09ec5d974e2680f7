"""Actions of robosuite's OSC_POSE and what they are in `osc` mode.

robosuite's: seven numbers in [-1, 1]: delta x, y, z, a rotation vector, and the gripper (negative opens,
positive closes, 0 stays). `osc` mode has the same controller, keeps the tool pointing down by itself, and so
takes the rotation about the vertical alone. Frame: the axes of the robot's base. T steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from grasp_demos.episode import DemoError
from grasp_sim import osc
from grasp_sim.contract import ActionScale, decode
from grasp_sim.env import ACTION_SCALES
from grasp_sim.servo import heading, upright_turn, wrap
from grasp_sim.tasks import Task

NAMES = ("delta_x", "delta_y", "delta_z", "rotation_x", "rotation_y", "rotation_z", "gripper")
"""Dimensions of robosuite's action."""
ROTATION_TOLERANCE = 0.05
"""Of the range, 0.025 rad a step: what a rotation may lose (`Taken.lost`) and still count as the same."""

CONTROLLER: dict[str, Any] = {
    "type": "BASIC",
    "body_parts": {
        "right": {
            "type": "OSC_POSE",
            "input_max": 1,
            "input_min": -1,
            "output_max": [osc.POSITION_SCALE] * 3 + [osc.ROTATION_SCALE] * 3,
            "output_min": [-osc.POSITION_SCALE] * 3 + [-osc.ROTATION_SCALE] * 3,
            "kp": osc.STIFFNESS,
            "damping_ratio": osc.DAMPING_RATIO,
            "impedance_mode": "fixed",
            "kp_limits": [0, 300],
            "damping_ratio_limits": [0, 10],
            "position_limits": None,
            "orientation_limits": None,
            "uncouple_pos_ori": True,
            "input_type": "delta",
            "input_ref_frame": "base",
            "interpolation": None,
            "ramp_ratio": 0.2,
            "gripper": {"type": "GRIP"},
        }
    },
}
"""The composite controller configuration (robosuite 1.5) under which `osc` mode's actions mean the same."""


def to_robosuite(action: np.ndarray, scale: ActionScale, rotation: np.ndarray) -> np.ndarray:
    """(7,) of an action (6,) of `osc` mode with the tool at `rotation` (3, 3), base from tcp.

    The rotation holds the turn that brings the tool upright, limited as the controller limits it. The opening
    becomes open or close, and the force limit is left out: robosuite's Robotiq 85 knows no more.
    """
    command = decode(action, scale)
    turn = osc.limited(upright_turn(rotation, command.delta_yaw), osc.ROTATION_SCALE)
    closes = 1.0 if command.opening < scale.opening / 2.0 else -1.0
    return np.array([*command.delta_position / osc.POSITION_SCALE, *turn / osc.ROTATION_SCALE, closes])


class Taken(NamedTuple):
    """What `osc` mode makes of robosuite's actions."""

    actions: np.ndarray
    """(T, 6) float32, in [-1, 1]."""
    lost: np.ndarray
    """(T, 3), how much of the rotation about x, y and z it cannot express, as a share of the range."""


def from_robosuite(actions: np.ndarray, rotations: np.ndarray, task: Task) -> Taken:
    """What `osc` mode makes of actions (T, 7) in [-1, 1] with the tool at `rotations` (T, 3, 3).

    The yaw is the change of the tool's heading. About x and y the smaller counts as lost of what is asked for
    and of how far that is from the turn with which `osc` mode brings the tool upright. A gripper that is to
    stay goes on as before, open at first. The force limit, which robosuite does not have and its Robotiq 85
    ignores, is the task's.
    """
    scale = ACTION_SCALES["osc"]
    asked = actions[:, 3:6]
    turned = Rotation.from_rotvec(asked * osc.ROTATION_SCALE).as_matrix() @ rotations
    yaw = np.array([wrap(heading(new) - heading(old)) for new, old in zip(turned, rotations, strict=True)])
    upright = np.array([upright_turn(r, y) for r, y in zip(rotations, yaw, strict=True)]) / osc.ROTATION_SCALE
    yaw /= scale.yaw
    lost = np.minimum(np.abs(asked), np.abs(asked - upright))
    lost[:, 2] = np.maximum(np.abs(yaw) - 1.0, 0.0)

    direction, last = np.sign(actions[:, 6]), -1.0
    opening = np.empty(len(actions))
    for step, closes in enumerate(direction):
        last = closes or last
        opening[step] = -last
    force = 2.0 * (task.grip_force - scale.force_min) / (scale.force_max - scale.force_min) - 1.0
    columns = [*actions[:, :3].T, np.clip(yaw, -1.0, 1.0), opening, np.full(len(actions), force)]
    return Taken(np.column_stack(columns).astype(np.float32), lost)


def check_controller(configuration: Any, version: str, where: object) -> list[str]:
    """Warnings about a controller configuration; raises DemoError where actions mean something else.

    Takes robosuite's composite configuration, and the flat one of versions before 1.5. `version` is that of
    the robosuite that wrote it, for messages.
    """
    if isinstance(configuration, list) and len(configuration) == 1:
        configuration = configuration[0]
    if not isinstance(configuration, Mapping):
        raise DemoError(
            f"{where}: its env_kwargs hold no controller_configs, which say what the actions mean; before "
            "robosuite 1.5 the default was not OSC_POSE."
        )
    warnings: list[str] = []
    if "body_parts" not in configuration:
        part = dict(configuration)
        if not part.pop("control_delta", True):
            raise DemoError(f"{where}: its controller takes absolute poses; only deltas can be imported.")
        warnings.append(
            f"the controller configuration of robosuite {version} is a flat one, from before 1.5; it was "
            "read as the composite one of robosuite 1.5.2."
        )
    else:
        parts = configuration["body_parts"]
        parts = parts.get("arms", parts) if isinstance(parts, Mapping) else {}
        part = parts.get("right") if isinstance(parts, Mapping) else None
    if not isinstance(part, Mapping) or part.get("type") != "OSC_POSE":
        held = part.get("type") if isinstance(part, Mapping) else None
        raise DemoError(f"{where}: its arm has the controller {held}; only OSC_POSE can be imported.")
    expected = CONTROLLER["body_parts"]["right"]
    for name in ("input_type", "goal_update_mode", "impedance_mode", *_RANGES):
        wanted = {"goal_update_mode": "achieved"}.get(name, expected.get(name))
        held = part.get(name, wanted)
        if not _same(held, wanted):
            raise DemoError(
                f"{where}: its OSC_POSE has {name} {held}; actions mean the same only with {wanted}: convert "
                "them before importing."
            )
    if part.get("input_ref_frame", "base") not in ("base", "world"):  # Lift's base is aligned with the world
        raise DemoError(f"{where}: its actions are in the frame {part['input_ref_frame']}, not the base's.")
    for name in ("kp", "damping_ratio", "interpolation", "uncouple_pos_ori"):
        held = part.get(name, expected[name])
        if not _same(held, expected[name]):
            warnings.append(
                f"its controller has {name} {held}, here it is {expected[name]}: a replay goes otherwise."
            )
    return warnings


_RANGES = ("input_max", "input_min", "output_max", "output_min")


def _same(held: Any, wanted: Any) -> bool:
    """Whether two settings are equal, a number standing for six of it."""
    if held is None or wanted is None:
        return held is wanted
    try:
        return bool(np.allclose(np.asarray(held, np.float64), np.asarray(wanted, np.float64)))
    except (TypeError, ValueError):
        return held == wanted
