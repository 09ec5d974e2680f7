"""The ROS parameters of a node, declared from a dataclass of settings.

    @dataclass
    class GreetConfig:
        rate: float = 2.0
        \"\"\"Hz.\"\"\"

    config = declare(node, GreetConfig)

A field's docstring becomes the parameter's description, a nested dataclass a dotted prefix. A node's settings
hold from its start to its end, so the parameters are read-only.
"""

from __future__ import annotations

import difflib
import math
import typing
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

from grasp_sim.cli_help import list_settings, nested_class
from grasp_sim.errors import UserError

T = TypeVar("T")

_KINDS = (bool, int, float, str, list[bool], list[int], list[float], list[str])
"""What a field may be annotated with."""


def declare(node: Node, config_class: type[T]) -> T:
    """Declare a parameter for every field of a dataclass and return the dataclass with their values.

    A whole number is taken for a float. Raises UserError, one line that names the parameter, where a value
    has another type or is refused by the dataclass, and where a parameter was given that does not exist.
    """
    given: dict[str, Any] = {
        # rclpy knows a public way only to declare what was given, misspelt or not.
        name: parameter.value
        for name, parameter in node._parameter_overrides.items()
        if not node.has_parameter(name)  # such as use_sim_time, which rclpy declares itself
    }
    explained = {setting.key: setting for setting in list_settings(config_class)}
    for name in given:
        if name not in explained:
            close = difflib.get_close_matches(name, explained, n=1, cutoff=0.5)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise UserError(f"there is no parameter '{name}'.{hint} Parameters: {', '.join(explained)}.")
    try:
        config, values = _build(config_class, given, "")
    except ValueError as error:  # from a __post_init__, which has quoted the values it received
        raise UserError(str(error)) from error
    for name, value in values.items():
        descriptor = ParameterDescriptor(description=explained[name].help, read_only=True)
        node.declare_parameter(name, value, descriptor, ignore_override=True)
    return config


def _build(config_class: type[T], given: dict[str, Any], prefix: str) -> tuple[T, dict[str, Any]]:
    """The dataclass, and the value of each of its parameters by their full names."""
    hints = typing.get_type_hints(config_class)
    arguments: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for part in fields(config_class):  # type: ignore[arg-type]
        name = prefix + part.name
        inner = nested_class(config_class, part.name)
        if inner is not None:
            arguments[part.name], within = _build(inner, given, f"{name}.")
            declared.update(within)
            continue
        kind = hints[part.name]
        if kind not in _KINDS:
            raise TypeError(
                f"{config_class.__name__}.{part.name} is a {kind}; a parameter is one of {_KINDS}"
            )
        if name in given:
            arguments[part.name] = _converted(name, given[name], kind)
        elif part.default is MISSING and part.default_factory is MISSING:
            raise UserError(f"the parameter '{name}' has no default and must be given: -p {name}:=...")
    config = config_class(**arguments)
    for part in fields(config_class):  # type: ignore[arg-type]
        if nested_class(config_class, part.name) is None:
            declared[prefix + part.name] = getattr(config, part.name)
    return config, declared


def _converted(name: str, value: Any, kind: Any) -> Any:
    """The value as the field's type; raises UserError where it is of another."""
    element = typing.get_args(kind)[0] if typing.get_args(kind) else None
    if element and value is None:  # what rcl makes of an empty list
        return []
    values = [value] if element is None else value
    wanted = element or kind
    taken = (int, float) if wanted is float else (wanted,)
    is_list = not isinstance(values, str | bytes) and hasattr(values, "__iter__")
    if not is_list or not all(type(one) in taken for one in values):
        named = f"a list of {wanted.__name__}" if element else wanted.__name__
        raise UserError(f"{name}={_shown(value)} does not fit: it must be {named}.")
    converted = [wanted(one) for one in values]
    if wanted is float and any(math.isnan(one) for one in converted):
        raise UserError(f"{name}={_shown(value)} is not a number.")
    return converted[0] if element is None else converted


def _shown(value: Any) -> Any:
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else value
