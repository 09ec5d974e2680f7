"""Demonstrations of robosuite's Lift that another program recorded, as robomimic's files hold them.

What is missing or means something else is named before any work. T steps; robosuite's world frame is the base
frame shifted by `BASE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.convert import robosuite_actions
from grasp_demos.convert.format import ImportSettings, decide
from grasp_demos.convert.hdf5 import Source
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

_OBSERVED = {
    "robot0_joint_pos": (ur5e.DOF, "the state of the arm"),
    "robot0_joint_vel": (ur5e.DOF, "the state of the arm"),
    "robot0_gripper_qpos": (6, "the gripper's opening"),
    "robot0_eef_pos": (3, "the check of the robot and its place"),
}
_CUBE = {"cube_pos": (3, "the cube's pose"), "cube_quat": (4, "the cube's pose")}
_NEEDED = {"actions": "what is learnt", "rewards": "the rewards"}
_CURE = "robomimic's dataset_states_to_obs.py writes obs and next_obs"


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
    warnings = _check_environment(source)
    decide("task", settings.task, TASK, source.path)
    decide("control_mode", settings.control_mode, "osc", source.path)
    _check_keys(source, demos)
    actions = {demo: source.array(f"data/{demo}/actions", 7) for demo in demos}
    _check_range(source, actions)
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


def _check_environment(source: Source) -> list[str]:
    path = source.path
    args = source.json("data", "env_args")
    if args is None:
        raw = "; it is a recording of robosuite itself" if source.text("data", "env_info") else ""
        raise DemoError(
            f"{path} lacks the attribute env_args of /data, which says task, robot and what actions mean"
            f"{raw}: robomimic's convert_robosuite.py writes it, and {_CURE}."
        )
    kwargs = args.get("env_kwargs")
    if not isinstance(kwargs, dict):
        raise DemoError(f"{path}: its env_args lack env_kwargs, which say the robot and what actions mean.")
    if args.get("env_name") != "Lift":
        raise DemoError(f"{path} is of the task {args.get('env_name')}; only Lift can be imported.")
    robots = kwargs.get("robots", [])
    robots = [robots] if isinstance(robots, str) else robots
    if robots != ["UR5e"]:
        raise DemoError(f"{path} is of the robot {_listed(robots)}; only a UR5e can be imported.")
    gripper = kwargs.get("gripper_types", "default")
    gripper = gripper[0] if isinstance(gripper, list) and len(gripper) == 1 else gripper
    if gripper not in ("default", "Robotiq85Gripper"):
        raise DemoError(f"{path} is of the gripper {gripper}; only a Robotiq85Gripper can be imported.")
    rate = kwargs.get("control_freq", 20)
    if rate != POLICY_RATE_HZ:
        raise DemoError(f"{path} was recorded at {rate} Hz; policies here act at {POLICY_RATE_HZ:g} Hz.")
    version = args.get("env_version") or source.text("data", "repository_version") or "of unknown version"
    warnings = robosuite_actions.check_controller(kwargs.get("controller_configs"), str(version), path)
    if kwargs.get("reward_shaping"):
        warnings.append(f"{path.name} holds shaped rewards, which were kept.")
    return warnings


def _listed(robots: Any) -> str:
    return ", ".join(map(str, robots)) if isinstance(robots, list) and robots else str(robots)


def _check_keys(source: Source, demos: Sequence[str]) -> None:
    """Raise DemoError naming every missing key, what needs it, and the first demonstration without it."""
    lacking: dict[str, list[str]] = {}
    for demo in demos:
        wanted = dict(_NEEDED)
        for group in ("obs", "next_obs"):
            part = f"data/{demo}/{group}"
            if not source.has(part):
                what = "every state" if group == "obs" else "the state after the last action"
                wanted[group] = what
                continue
            cube = {} if source.has(f"{part}/object") else _CUBE
            wanted |= {f"{group}/{name}": what for name, (_, what) in (_OBSERVED | cube).items()}
        for name, what in wanted.items():
            if not source.has(f"data/{demo}/{name}"):
                lacking.setdefault(f"{name} (needed for {what})", []).append(demo)
    if lacking:
        named = "; ".join(f"{key}: missing in {held[0]}{_more(held)}" for key, held in lacking.items())
        raise DemoError(f"{source.path} cannot be imported. {named}. {_CURE}.")


def _more(held: Sequence[Any]) -> str:
    return f" and {len(held) - 1} more" if len(held) > 1 else ""


def _check_range(source: Source, actions: dict[str, np.ndarray]) -> None:
    """Raise DemoError naming demonstration, step and dimension of what is not finite or beyond [-1, 1]."""
    faults = []
    for demo, values in actions.items():
        if len(values) == 0:
            faults.append(f"{demo} has no steps")
        wrong = np.argwhere(~(np.abs(values) <= 1.0))  # NaN included
        if len(wrong):
            step, column = (int(i) for i in wrong[0])
            count = f" ({len(wrong)} values)" if len(wrong) > 1 else ""
            name = robosuite_actions.NAMES[column]
            faults.append(f"{demo}, step {step}, {name} is {values[step, column]:.6g}{count}")
    if faults:
        raise DemoError(
            f"{source.path} holds actions outside [-1, 1], the controller's range, and clipping them would "
            f"change the demonstration: {'; '.join(faults[:5])}"
            f"{f'; and {len(faults) - 5} more' if len(faults) > 5 else ''}. Scale them or delete those demos."
        )


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
    joints, velocities, gripper, tool = (rows(name, columns) for name, (columns, _) in _OBSERVED.items())
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
