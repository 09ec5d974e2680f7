"""Reading the manifest of a policy bundle: what each field must be, and a line for each one that is not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from grasp_control.limits import Limits
from grasp_control.memory.window import MAX_LENGTH
from grasp_sim import ur5e
from grasp_sim.contract import ActionScale


class Kind(NamedTuple):
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


def _list_of(accepts: Callable[[Any], bool], length: int | None = None) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, list) and length in (None, len(v)) and all(map(accepts, v))


_TEXT = Kind("a non-empty text", _is_text)
_NUMBER = Kind("a finite number", _is_number)
_COUNT = Kind("a whole number, 0 or more", lambda v: _is_number(v) and isinstance(v, int) and v >= 0)
_TEXTS = Kind("a list of texts", lambda v: v != [] and _list_of(_is_text)(v))
_JOINTS = Kind(f"a list of {ur5e.DOF} finite numbers", _list_of(_is_number, ur5e.DOF))
_TEXT_BY_NAME = Kind("texts by name", _by_name(_is_text))
_NUMBER_BY_NAME = Kind("finite numbers by name", _by_name(_is_number))
_OBJECT = Kind("a JSON object", lambda v: isinstance(v, dict))
_OBJECTS = Kind(
    "a list of JSON objects, one for each run", lambda v: v != [] and _list_of(_OBJECT.accepts)(v)
)
_DIGEST = Kind(
    "64 hexadecimal digits", lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v))
)

MANIFEST = {
    "robot": _TEXT,
    "gripper": _TEXT,
    "control_mode": _TEXT,
    "task": _TEXT,
    "action_scale": _OBJECT,
    "context": _COUNT,
    "training": _OBJECTS,
    "success": _NUMBER_BY_NAME,
    "limits": _OBJECT,
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
SCALE = {scale.name: _NUMBER for scale in fields(ActionScale)}
LIMITS = {
    limit.name: _JOINTS if isinstance(getattr(Limits(), limit.name), tuple) else _NUMBER
    for limit in fields(Limits)
}
TRAINING = {
    "run_id": _TEXT,
    "algorithm": _TEXT,
    "seed": _COUNT,
    "env_steps": _COUNT,
    "demonstrations": _COUNT,
    "packages": _TEXT_BY_NAME,
    "task": _TEXT,
    "control_mode": _TEXT,
    "context": _COUNT,
    "success": _NUMBER_BY_NAME,
}


def read_fields(data: Any, kinds: Mapping[str, Kind], prefix: str, faults: list[str]) -> dict[str, Any]:
    """The fields of `kinds` found in `data`; what is missing, unknown or wrong is added to `faults`.

    Lists of texts and numbers come as tuples.
    """
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
            values[name] = tuple(data[name]) if kind in (_TEXTS, _JOINTS) else data[name]
    return values


def inconsistent(values: dict[str, Any], scale: dict[str, float], limits: dict[str, Any]) -> list[str]:
    """A line for each way in which fields that were read well contradict each other."""
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
    for name in ("position_lead", "yaw_lead", "joint_lead", "rotation_step", "joint_velocity"):
        least = min(limits[name]) if isinstance(limits[name], tuple) else limits[name]
        if least <= 0:
            faults.append(f"limits.{name} is {limits[name]}; it must be above 0.")
    if any(low >= high for low, high in zip(limits["joint_min"], limits["joint_max"], strict=True)):
        faults.append(f"limits.joint_min {limits['joint_min']} is not below joint_max {limits['joint_max']}.")
    return faults
