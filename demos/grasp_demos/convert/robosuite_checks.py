"""What has to hold of a file of robosuite's Lift before its demonstrations are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grasp_demos.convert import robosuite_actions
from grasp_demos.convert.hdf5 import Source
from grasp_demos.episode import DemoError
from grasp_sim import ur5e
from grasp_sim.contract import POLICY_RATE_HZ

OBSERVED = {
    "robot0_joint_pos": (ur5e.DOF, "the state of the arm"),
    "robot0_joint_vel": (ur5e.DOF, "the state of the arm"),
    "robot0_gripper_qpos": (6, "the gripper's opening"),
    "robot0_eef_pos": (3, "the check of the robot and its place"),
}
"""Observations of the robot that an import needs: their widths, and what for."""
_CUBE = {"cube_pos": (3, "the cube's pose"), "cube_quat": (4, "the cube's pose")}
_NEEDED = {"actions": "what is learnt", "rewards": "the rewards"}
_CURE = "robomimic's dataset_states_to_obs.py writes obs and next_obs"


def check_environment(source: Source) -> list[str]:
    """Warnings about `env_args`; DemoError where task, robot, gripper, rate or controller are others."""
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


def check_keys(source: Source, demos: Sequence[str]) -> None:
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
            wanted |= {f"{group}/{name}": what for name, (_, what) in (OBSERVED | cube).items()}
        for name, what in wanted.items():
            if not source.has(f"data/{demo}/{name}"):
                lacking.setdefault(f"{name} (needed for {what})", []).append(demo)
    if lacking:
        named = "; ".join(f"{key}: missing in {held[0]}{_more(held)}" for key, held in lacking.items())
        raise DemoError(f"{source.path} cannot be imported. {named}. {_CURE}.")


def _more(held: Sequence[Any]) -> str:
    return f" and {len(held) - 1} more" if len(held) > 1 else ""


def check_range(source: Source, actions: dict[str, np.ndarray]) -> None:
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
