"""Demonstrations of robosuite's Lift that another program recorded, as robomimic's files hold them.

What is missing or means something else is named before any work. T steps; robosuite's world frame is the base
frame shifted by `BASE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grasp_demos.convert import robosuite_actions
from grasp_demos.convert.format import ImportSettings, decide
from grasp_demos.convert.hdf5 import Source
from grasp_demos.convert.robosuite_checks import OBSERVED, check_environment, check_keys, check_range
from grasp_demos.episode import ACTORS, DemoError, Episode, Metadata
from grasp_sim import ur5e
from grasp_sim.contract import POLICY_RATE_HZ, GraspState, encode, pack_state
from grasp_sim.env import ACTION_SCALES
from grasp_sim.robosuite_fingers import robotiq_opening
from grasp_sim.scene import TABLE_HEIGHT
from grasp_sim.tasks import STANDARD_HALF_SIZE, STANDARD_HEIGHT, find_task

TASK = "robosuite-lift"
BASE = np.array([-0.56, 0.0, 0.912])
"""m, of the robot's base in the world of robosuite's Lift."""
TOOL_TOLERANCE = 0.005
"""m between the tool as observed and as the joints say; more means another robot, mount or place."""


class _Observed(NamedTuple):
    """(T + 1, width) each: before every step, and after the last."""

    joints: np.ndarray
    velocities: np.ndarray
    gripper: np.ndarray
    tool: np.ndarray
    cube_position: np.ndarray
    cube_quaternion: np.ndarray


def read(
    source: Source, demos: Sequence[str], settings: ImportSettings
) -> tuple[dict[str, Episode], list[str]]:
    """The episodes of these demonstrations by their names, and warnings; raises DemoError."""
    warnings = check_environment(source)
    decide("task", settings.task, TASK, source.path)
    decide("control_mode", settings.control_mode, "osc", source.path)
    check_keys(source, demos)
    actions = {demo: source.array(f"data/{demo}/actions", 7) for demo in demos}
    check_range(source, actions)
    warnings += [
        f"{source.path.name} holds no grip force: 0 N is put in its place, also where the cube is held.",
        f"{source.path.name} does not say who acted: a person is assumed.",
    ]
    kinematics, episodes = ur5e.Kinematics(), {}
    for demo in demos:
        observed = _observe(source, demo, len(actions[demo]))
        poses = [kinematics.pose(joints) for joints in observed.joints]
        _check_tool(source, demo, observed.tool, np.array([position for position, _ in poses]))
        rotations = np.array([rotation for _, rotation in poses[:-1]])
        taken, lost = robosuite_actions.from_robosuite(actions[demo], rotations, find_task("lift"))
        if (lost > robosuite_actions.ROTATION_TOLERANCE).any():
            step, axis = (int(i) for i in np.argwhere(lost > robosuite_actions.ROTATION_TOLERANCE)[0])
            name, value = robosuite_actions.NAMES[3 + axis], actions[demo][step, 3 + axis]
            warnings.append(
                f"{demo} was left out: step {step}, {name} is {value:.3g}, and osc mode, which keeps the "
                "tool pointing down, cannot tilt it."
            )
            continue
        size = _cube_size(source, demo)
        if size is None:
            size = np.full(3, sum(STANDARD_HALF_SIZE))
            warnings.append(
                f"{demo} has no model_file with the cube's size: {size[0] * 1000:g} mm, the middle of "
                "robosuite's range, is assumed."
            )
        episodes[demo] = _build(source, demo, settings, taken, observed, size, warnings)
    return episodes, warnings


def _observe(source: Source, demo: str, steps: int) -> _Observed:
    """Observations before every step and after the last; raises DemoError where they do not fit together."""
    object_in = source.has(f"data/{demo}/obs/object") and not source.has(f"data/{demo}/obs/cube_pos")

    def rows(name: str, columns: int) -> np.ndarray:
        before, after = (
            source.array(f"data/{demo}/{group}/{name}", columns).astype(np.float64)
            for group in ("obs", "next_obs")
        )
        for group, held in (("obs", before), ("next_obs", after)):
            if len(held) != steps:
                raise DemoError(
                    f"{source.path} data/{demo}/{group}/{name} has {len(held)} rows for {steps} actions."
                )
        joined = np.concatenate([before, after[-1:]])
        if not np.isfinite(joined).all():
            step = int(np.argwhere(~np.isfinite(joined))[0][0])
            raise DemoError(f"{source.path} data/{demo}, step {step}: {name} is not finite.")
        if not np.allclose(after[:-1], before[1:], atol=1e-3):
            step = int(np.argwhere(~np.isclose(after[:-1], before[1:], atol=1e-3))[0][0])
            raise DemoError(
                f"{source.path} data/{demo}, step {step}: next_obs/{name} is not what obs holds a step "
                "later: steps are missing."
            )
        return joined

    if object_in:
        described = rows("object", 10)
        position, quaternion = described[:, :3], described[:, 3:7]
    else:
        position, quaternion = rows("cube_pos", 3), rows("cube_quat", 4)
    if not np.allclose(np.linalg.norm(quaternion, axis=1), 1.0, atol=1e-3):
        raise DemoError(f"{source.path} data/{demo}: the cube's quaternions do not have length 1.")
    joints, velocities, gripper, tool = (rows(name, columns) for name, (columns, _) in OBSERVED.items())
    return _Observed(joints, velocities, gripper, tool, position, quaternion)


def _check_tool(source: Source, demo: str, observed: np.ndarray, computed: np.ndarray) -> None:
    distance = np.linalg.norm(observed - BASE - computed, axis=1)
    if distance.max() > TOOL_TOLERANCE:
        step = int(distance.argmax())
        raise DemoError(
            f"{source.path} data/{demo}, step {step}: robot0_eef_pos is {distance[step] * 1000:.3g} mm from "
            f"where the joints of a UR5e at {BASE.tolist()} m have it: it is another tool or place."
        )


_CUBE_GEOM = re.compile(r'<geom\b[^<>]{0,2000}\bname="cube_g0"[^<>]{0,2000}>')
_SIZE = re.compile(r'\bsize="([^"]{1,100})"')


def _cube_size(source: Source, demo: str) -> np.ndarray | None:
    """(3,) m from the MJCF; None where there is none. No XML parser reads it: XML can be made to expand."""
    geom = _CUBE_GEOM.search(source.text(f"data/{demo}", "model_file") or "")
    size = _SIZE.search(geom.group()) if geom else None
    try:
        half = np.array([float(v) for v in size.group(1).split()]) if size else np.empty(0)
    except ValueError:
        return None
    return 2.0 * half if half.shape == (3,) and ((half > 0.0) & (half < 0.5)).all() else None


def _build(
    source: Source,
    demo: str,
    settings: ImportSettings,
    actions: np.ndarray,
    observed: _Observed,
    size: np.ndarray,
    warnings: list[str],
) -> Episode:
    positions = observed.cube_position - BASE
    lifted = np.flatnonzero(positions[1:, 2] > TABLE_HEIGHT + STANDARD_HEIGHT)
    steps = len(actions) if len(lifted) == 0 else int(lifted[0]) + 1
    if steps < len(actions):
        warnings.append(f"{demo}: its last {len(actions) - steps} steps, after success, were left out.")
    kinematics, states = ur5e.Kinematics(), []
    for step in range(steps + 1):
        tcp_position, tcp_quaternion = kinematics.forward(observed.joints[step])
        now = step / POLICY_RATE_HZ
        states.append(
            GraspState(
                joint_positions=observed.joints[step],
                joint_velocities=observed.velocities[step],
                tcp_position=tcp_position,
                tcp_quaternion=tcp_quaternion,
                gripper_opening=robotiq_opening(observed.gripper[step][[[0, 1], [3, 4]]]),
                gripper_force=0.0,
                object_position=positions[step],
                object_quaternion=observed.cube_quaternion[step],
                object_size=size,
                joint_time=now,
                gripper_time=now,
                object_time=now,
                time=now,
            )
        )
    taken = actions[:steps]
    ends = np.arange(steps) == steps - 1
    success = len(lifted) > 0
    metadata = Metadata(
        task=TASK,
        control_mode="osc",
        action_scale=ACTION_SCALES["osc"],
        kind=settings.kind or "human-like",  # only the executed action is known
        source="robomimic",
        success=success,
        note=f"{source.path.name} {demo}",
    )
    return Episode(
        metadata=metadata,
        states=np.stack([pack_state(state) for state in states]),
        observations=np.stack([encode(state) for state in states]),
        intended_actions=taken,
        requested_actions=taken.copy(),
        executed_actions=taken.copy(),
        rewards=source.array(f"data/{demo}/rewards")[:steps].astype(np.float32),
        terminations=ends & success,
        truncations=ends & (not success),
        slips=np.zeros(steps, bool),
        drops=np.zeros(steps, bool),
        actors=np.full(steps, ACTORS.index("person"), np.uint8),
        simulator_states=np.zeros((steps + 1, 0)),
    )
