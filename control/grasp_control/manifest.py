"""What a policy bundle says about itself, and what a robot asks of it (C3).

The manifest is JSON beside the network. Reading it reports every wrong or missing field in one line each,
so that a person mends the file in one go. No torch: the robot's side reads it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from grasp_control.memory.window import MAX_LENGTH
from grasp_sim.contract import (
    ACTION_NAMES,
    CONTRACT_VERSION,
    OBSERVATION_NAMES,
    POLICY_RATE_HZ,
    ActionScale,
)
from grasp_sim.errors import UserError

SCHEMA_VERSION = 1
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
    """Where a policy comes from."""

    run_id: str
    algorithm: str
    seed: int
    env_steps: int
    """Control steps in the simulator."""
    demonstrations: int
    """Number of demonstration episodes used."""
    packages: dict[str, str]
    """Installed versions, by distribution name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a consumer must know to feed the network and to obey it."""

    robot: str
    gripper: str
    control_mode: str
    task: str
    action_scale: ActionScale
    context: int
    """C, pairs of (observation, previous executed action) in one window."""
    training: Training
    success: dict[str, float]
    """Measured figures by name, e.g. `{"success_rate": 0.94, "episodes": 100}`."""
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
        values = _read(data, _MANIFEST, "", faults)
        scale = _read(values.get("action_scale"), _SCALE, "action_scale.", faults)
        training = _read(values.get("training"), _TRAINING, "training.", faults)
        if not faults:
            faults += _inconsistent(values, scale)
        if faults:
            raise BundleError("\n".join(f"{origin}: {fault}" for fault in faults))
        return cls(**{**values, "action_scale": ActionScale(**scale), "training": Training(**training)})


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a robot, or a simulator standing in for one, asks of a bundle."""

    robot: str = "ur5e"
    gripper: str = "robotiq-2f85"
    control_mode: str = "servo"
    rate_hz: float = POLICY_RATE_HZ
    action_scale: ActionScale = field(default_factory=ActionScale)

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


class _Kind(NamedTuple):
    """A kind of JSON value: the words that name it in an error, and its test."""

    words: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max  # False for NaN; a whole number may be larger


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _by_name(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(accepts, value.values()))


_TEXT = _Kind("a non-empty text", _is_text)
_NUMBER = _Kind("a finite number", _is_number)
_COUNT = _Kind("a whole number, 0 or more", lambda v: _is_number(v) and isinstance(v, int) and v >= 0)
_TEXTS = _Kind("a list of texts", lambda v: isinstance(v, list) and v != [] and all(map(_is_text, v)))
_TEXT_BY_NAME = _Kind("texts by name", _by_name(_is_text))
_NUMBER_BY_NAME = _Kind("finite numbers by name", _by_name(_is_number))
_OBJECT = _Kind("a JSON object", lambda v: isinstance(v, dict))
_DIGEST = _Kind(
    "64 hexadecimal digits", lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v))
)

_MANIFEST = {
    "robot": _TEXT,
    "gripper": _TEXT,
    "control_mode": _TEXT,
    "task": _TEXT,
    "action_scale": _OBJECT,
    "context": _COUNT,
    "training": _OBJECT,
    "success": _NUMBER_BY_NAME,
    "rate_hz": _NUMBER,
    "observation_names": _TEXTS,
    "observation_units": _TEXTS,
    "action_names": _TEXTS,
    "command_units": _TEXTS,
    "frames": _TEXT_BY_NAME,
    "contract_version": _COUNT,
    "schema_version": _COUNT,
    "network_sha256": _DIGEST,
}
_SCALE = {scale.name: _NUMBER for scale in fields(ActionScale)}
_TRAINING = {
    "run_id": _TEXT,
    "algorithm": _TEXT,
    "seed": _COUNT,
    "env_steps": _COUNT,
    "demonstrations": _COUNT,
    "packages": _TEXT_BY_NAME,
}


def _read(data: Any, kinds: Mapping[str, _Kind], prefix: str, faults: list[str]) -> dict[str, Any]:
    """The fields of `kinds` found in `data`; what is missing, unknown or wrong is added to `faults`."""
    if not isinstance(data, dict):
        return {}  # the caller has reported it already
    faults += [
        f"{prefix}{name} is not a field; there are {', '.join(kinds)}." for name in data.keys() - kinds
    ]
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name not in data:
            faults.append(f"{prefix}{name} is missing; it must be {kind.words}.")
        elif not kind.accepts(data[name]):
            faults.append(f"{prefix}{name} is {data[name]!r}; it must be {kind.words}.")
        else:
            values[name] = tuple(data[name]) if kind is _TEXTS else data[name]
    return values


def _inconsistent(values: dict[str, Any], scale: dict[str, float]) -> list[str]:
    faults = []
    if not 1 <= values["context"] <= MAX_LENGTH:
        faults.append(f"context is {values['context']}; it must lie between 1 and {MAX_LENGTH}.")
    if values["rate_hz"] <= 0:
        faults.append(f"rate_hz is {values['rate_hz']}; it must be above 0.")
    for names, units in (("observation_names", "observation_units"), ("action_names", "command_units")):
        if len(values[names]) != len(values[units]):
            faults.append(f"{names} has {len(values[names])} entries, {units} {len(values[units])}.")
    faults += [
        f"action_scale.{name} is {value}; it must be above 0." for name, value in scale.items() if value <= 0
    ]
    if scale["force_min"] >= scale["force_max"]:
        faults.append(
            f"action_scale.force_min {scale['force_min']} is not below force_max {scale['force_max']}."
        )
    return faults
