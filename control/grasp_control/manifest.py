"""What a policy bundle says about itself, and what a robot asks of it (C3).

The manifest is JSON beside the network. Reading it reports every wrong or missing field in one line each,
so that a person mends the file in one go. No torch: the robot's side reads it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from grasp_control.limits import Limits
from grasp_control.manifest_fields import LIMITS, MANIFEST, SCALE, TRAINING, inconsistent, read_fields
from grasp_sim.contract import (
    ACTION_NAMES,
    CONTRACT_VERSION,
    OBSERVATION_NAMES,
    POLICY_RATE_HZ,
    ActionScale,
)
from grasp_sim.errors import UserError

SCHEMA_VERSION = 2
"""Raised whenever the manifest's fields change."""

OBSERVATION_UNITS: tuple[str, ...] = ("m", "m", "N", "m", "m", "m", "1", "1", "m", "m", "m", "m", "s")

COMMAND_UNITS: tuple[str, ...] = ("m", "m", "m", "rad", "m", "N")
"""Units of the network's second output; the deltas are per policy step."""

FRAMES: dict[str, str] = {
    "base": "the robot's mounting frame (ROS base_link), z up; deltas are along its axes",
    "tcp": "between the fingertips, z along the approach direction",
    "quaternions": "xyzw",
}


class BundleError(UserError):
    """A policy bundle is missing, damaged, or not made for this robot."""


@dataclass(frozen=True, slots=True)
class Training:
    """A run whose policy is in the network, and how the network does on the run's task."""

    run_id: str
    algorithm: str
    seed: int
    env_steps: int
    """Control steps in the simulator."""
    demonstrations: int
    """Number of demonstration episodes used."""
    packages: dict[str, str]
    """Installed versions, by distribution name."""
    task: str
    """The environment that it learned in, such as pybullet-objects."""
    control_mode: str
    """In which it acted there."""
    context: int
    """Pairs in its own window."""
    success: dict[str, float] = field(default_factory=dict)
    """Measured on `episodes` fresh episodes of the task: `success_rate` of the network and, by grasp-distill,
    `teacher_success_rate` of the run's own policy on the same episodes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a consumer must know to feed the network and to obey it."""

    robot: str
    gripper: str
    control_mode: str
    task: str
    """The environments that it was trained in, joined by ", "."""
    action_scale: ActionScale
    context: int
    """C, pairs of (observation, previous executed action) in one window."""
    training: tuple[Training, ...]
    """The runs that were distilled, one or more."""
    success: dict[str, float]
    """Measured figures by name, e.g. `{"success_rate": 0.94, "episodes": 100}`; over all the runs' tasks."""
    limits: Limits = field(default_factory=Limits)
    rate_hz: float = POLICY_RATE_HZ
    observation_names: tuple[str, ...] = OBSERVATION_NAMES
    observation_units: tuple[str, ...] = OBSERVATION_UNITS
    action_names: tuple[str, ...] = ACTION_NAMES
    command_units: tuple[str, ...] = COMMAND_UNITS
    frames: dict[str, str] = field(default_factory=lambda: dict(FRAMES))
    contract_version: int = CONTRACT_VERSION
    schema_version: int = SCHEMA_VERSION
    network_sha256: str = ""
    """Hexadecimal digest of policy.onnx; filled in by the export."""

    @property
    def window_width(self) -> int:
        """W of the network's input: context * (observation + action widths)."""
        return self.context * (len(self.observation_names) + len(self.action_names))

    @property
    def runs(self) -> str:
        """The ids of the runs that were distilled, for a title or a table."""
        return " + ".join(run.run_id for run in self.training)

    def to_json(self) -> str:
        """The manifest file's text."""
        return json.dumps(asdict(self), indent=2, default=_plain) + "\n"

    def check(self) -> None:
        """Raise BundleError listing every fault that reading this manifest back would find."""
        text = replace(self, network_sha256=self.network_sha256 or "0" * 64).to_json()
        faults = contract_faults(Manifest.from_json(text, "the manifest"))
        if faults:
            raise BundleError("\n".join(f"the manifest: {fault}" for fault in faults))

    @classmethod
    def from_json(cls, text: str, origin: str) -> Manifest:
        """Read the text of the manifest file named `origin`; raise BundleError listing every fault."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits, 100,000 brackets
            raise BundleError(f"{origin} is not JSON ({error}): export the bundle again.") from error
        if not isinstance(data, dict):
            raise BundleError(f"{origin} holds a {type(data).__name__}; it must be a JSON object.")
        if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
            # The field list of another schema is unknown, so nothing else in the file can be judged.
            raise BundleError(
                f"{origin}: schema_version is {data['schema_version']!r}; this version reads "
                f"{SCHEMA_VERSION}: export the bundle again, or install the version it was made with."
            )
        faults: list[str] = []
        values = read_fields(data, MANIFEST, "", faults)
        scale = read_fields(values.get("action_scale"), SCALE, "action_scale.", faults)
        limits = read_fields(values.get("limits"), LIMITS, "limits.", faults)
        training = [
            read_fields(run, TRAINING, f"training[{number}].", faults)
            for number, run in enumerate(values.get("training", []))
        ]
        if not faults:
            faults += inconsistent(values, scale, limits)
        if faults:
            raise BundleError("\n".join(f"{origin}: {fault}" for fault in faults))
        parts = {
            "action_scale": ActionScale(**scale),
            "limits": Limits(**limits),
            "training": tuple(Training(**run) for run in training),
        }
        return cls(**{**values, **parts})


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a robot, or a simulator standing in for one, asks of a bundle."""

    robot: str = "ur5e"
    gripper: str = "robotiq-2f85"
    control_mode: str = "servo"
    rate_hz: float = POLICY_RATE_HZ
    action_scale: ActionScale = field(default_factory=ActionScale)
    limits: Limits = field(default_factory=Limits)

    def faults(self, manifest: Manifest) -> list[str]:
        """One line for each way in which the bundle does not fit; empty when it does."""
        remedy = {
            "robot": "use a bundle trained for this robot",
            "gripper": "use a bundle trained with this gripper",
            "control_mode": "train or evaluate in this mode, then export again",
            "rate_hz": "run the policy server at the bundle's rate or retrain at this one",
        }
        faults = [
            f"{name} {wanted!r} is asked for, the bundle has {found!r}: {remedy[name]}."
            for name in remedy
            if (wanted := getattr(self, name)) != (found := getattr(manifest, name))
        ]
        for scale in fields(ActionScale):
            wanted, found = (getattr(side.action_scale, scale.name) for side in (self, manifest))
            if not math.isclose(wanted, found, rel_tol=1e-9):
                faults.append(
                    f"action_scale.{scale.name} {wanted!r} is asked for, the bundle has {found!r}: "
                    "set the robot's action scale to the bundle's or retrain with this one."
                )
        for limit in fields(Limits):
            wanted, found = (np.asarray(getattr(side.limits, limit.name)) for side in (self, manifest))
            if not np.allclose(wanted, found, rtol=1e-9, atol=0.0):
                faults.append(
                    f"limits.{limit.name} {wanted.tolist()!r} is asked for, the bundle has "
                    f"{found.tolist()!r}: set the servo's limits to the bundle's or retrain with these."
                )
        return faults


def contract_faults(manifest: Manifest) -> list[str]:
    """One line for each way in which the manifest departs from the installed contract."""
    advice = "export the policy again with this version, or install the version it was made with."
    if manifest.contract_version != CONTRACT_VERSION:
        found = manifest.contract_version
        return [f"contract version {CONTRACT_VERSION} is installed, the bundle has {found}: {advice}"]
    wanted = {
        "observation_names": OBSERVATION_NAMES,
        "observation_units": OBSERVATION_UNITS,
        "action_names": ACTION_NAMES,
        "command_units": COMMAND_UNITS,
    }
    return [
        f"{name} must be {list(value)} ({len(value)}), the bundle has {list(found)} ({len(found)}): {advice}"
        for name, value in wanted.items()
        if (found := getattr(manifest, name)) != value
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise BundleError(f"the manifest holds {value!r}, a {type(value).__name__}, which JSON cannot hold.")
