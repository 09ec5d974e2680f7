"""How an episode looks to robomimic: environment, actions and observations, by what simulated it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

import numpy as np

from grasp_demos.convert.robosuite_actions import CONTROLLER, to_robosuite
from grasp_demos.episode import DemoError, Episode
from grasp_sim.contract import ACTION_NAMES
from grasp_sim.errors import UnknownName
from grasp_sim.registry import gymnasium_id
from grasp_sim.scene import Start
from grasp_sim.simulators import find_simulator
from grasp_sim.tasks import find_task
from grasp_sim.ur5e import Kinematics

ROBOSUITE, GYM = 1, 2
"""robomimic's types of environments."""
_OUR_ACTIONS = (
    f"Actions are {', '.join(ACTION_NAMES)} of the grasp contract in control mode {{mode}}, each in [-1, 1]: "
    "deltas of the TCP per step along the axes of the robot's base (1 is {position} m or {yaw} rad), the "
    "opening (-1 closed, 1 open, reached at half of that) and the grip-force limit (-1 is {force_min} N, "
    "1 is {force_max} N). "
)
_NOT_PLAYABLE = (
    "No controller of robosuite takes them: the controller of env_args only lets the environment be built, "
    "to play back states. "
)
_OSC_ACTIONS = (
    "Actions are those of robosuite's OSC_POSE as configured in env_args: delta x, y, z, rotation vector "
    "(with the turn that keeps the tool upright) along the axes of the robot's base, gripper (-1 opens, 1 "
    "closes). "
)
_LEARNT = {
    "clean": "They are the intended ones, before noise; the states follow from the executed ones.",
    "human-like": "They are the executed ones.",
}


class Shown(NamedTuple):
    """One episode as robomimic reads it."""

    actions: np.ndarray
    """(T, 6 or 7) float64."""
    observations: dict[str, np.ndarray]
    """(T + 1, width) each, beside those that every episode has."""
    model_file: str
    """MJCF of the episode; empty where the simulator has none."""


class View(Protocol):
    """What is written about the episodes of one file."""

    attributes: dict[str, str]
    """Of the group /data."""

    def show(self, episode: Episode) -> Shown: ...


def make_view(episode: Episode) -> View:
    """The view for all episodes of this one's task and control mode; raises DemoError for an unknown task."""
    simulator, _, task = episode.metadata.task.partition("-")
    if simulator != "robosuite":
        return OtherView(episode)
    try:
        find_task(task)
    except UnknownName as error:
        raise DemoError(f"{episode}: {error}.") from error
    return RobosuiteView(episode, task)


class OtherView:
    """Of a simulator without MJCF, or a real arm: `states` are its own, and nothing plays them back."""

    def __init__(self, episode: Episode) -> None:
        metadata = episode.metadata
        meaning = _meaning(episode) + _LEARNT[metadata.kind]
        environment = {
            "env_name": gymnasium_id(metadata.task),
            "env_version": " ".join(f"{name} {held}" for name, held in metadata.versions.items()),
            "type": GYM,
            "env_kwargs": {"control_mode": metadata.control_mode, "horizon": metadata.horizon},
        }
        self.attributes = {
            "env_args": json.dumps(environment),
            "action_meaning": meaning,
            "state_meaning": "States are the simulator's own; there is no MJCF model_file to show them with.",
        }

    def show(self, episode: Episode) -> Shown:
        return Shown(episode.training_actions.astype(np.float64), {}, "")


class RobosuiteView:
    """Of a task in robosuite: states can be played back, and in the standard lift under OSC actions too."""

    def __init__(self, episode: Episode, task: str) -> None:
        metadata = episode.metadata
        self._task = find_task(task)
        self._osc = metadata.control_mode == "osc" and self._task.standard_lift
        self._scene: Any = find_simulator("robosuite").make_scene(metadata.control_mode, self._task)
        from grasp_sim import robosuite_export  # loads robosuite

        self._export = robosuite_export
        self._base_xml = robosuite_export.base_xml(self._scene)
        self._kinematics = Kinematics()
        gripper = "Robotiq85Gripper" if self._task.standard_lift else "ParallelGripper"
        built = {"robots": ["UR5e"], "gripper_types": gripper, "controller_configs": CONTROLLER}
        settings = {
            "has_renderer": False,
            "has_offscreen_renderer": False,
            "use_camera_obs": False,
            "use_object_obs": True,
            "reward_shaping": False,
            "ignore_done": True,
            "control_freq": round(metadata.rate_hz),
        }
        version = metadata.versions.get("robosuite", "")
        environment = {
            "env_name": "Lift",
            "env_version": version,
            "type": ROBOSUITE,
            "env_kwargs": built | settings,
        }
        meaning = _OSC_ACTIONS if self._osc else _meaning(episode) + _NOT_PLAYABLE
        states = "States are time, qpos and qvel of the MuJoCo model in model_file."
        if not self._task.standard_lift:
            states += " robosuite knows its gripper once grasp_sim.robosuite_gripper is imported."
        self.attributes = {
            "env_args": json.dumps(environment),
            "env": "Lift",
            "env_info": json.dumps({"env_name": "Lift"} | built),
            "repository_version": version,
            "action_meaning": meaning + _LEARNT[metadata.kind],
            "state_meaning": states,
        }

    def show(self, episode: Episode) -> Shown:
        width = len(self._scene.dynamic_state())
        if episode.simulator_states.shape[1] != width or "start" not in episode.snapshot:
            raise DemoError(
                f"{episode} holds {episode.simulator_states.shape[1]} numbers of the simulator's state, and "
                f"{width} are needed with its start: it cannot be exported; record it again."
            )
        try:
            start = Start.from_json(np.asarray(episode.snapshot["start"], np.uint8).tobytes().decode())
        except (KeyError, TypeError, ValueError) as error:
            raise DemoError(f"{episode} has a snapshot whose start cannot be read ({error}).") from error
        learnt = episode.training_actions
        actions, seen = learnt.astype(np.float64), []
        converted = np.zeros((len(learnt), 7))
        for step, state in enumerate(episode.simulator_states):
            self._scene.show(start, state)
            seen.append(self._export.observe(self._scene))
            if self._osc and step < len(learnt):
                rotation = self._kinematics.pose(self._scene.joints()[0])[1]
                converted[step] = to_robosuite(learnt[step], episode.metadata.action_scale, rotation)
        observations = {name: np.stack([row[name] for row in seen]) for name in seen[0]}
        xml = self._export.model_xml(self._scene, self._base_xml)
        return Shown(converted if self._osc else actions, observations, xml)


def _meaning(episode: Episode) -> str:
    scale = episode.metadata.action_scale
    numbers = {name: getattr(scale, name) for name in ("position", "yaw", "force_min", "force_max")}
    return _OUR_ACTIONS.format(mode=episode.metadata.control_mode, **numbers)
