"""Explain a dataclass of settings: one entry per setting with key, type, default and meaning.

The meaning is the string literal below the field, read from the class's source, or the field's
`metadata["help"]`.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping

from omegaconf import MISSING


@dataclasses.dataclass(frozen=True)
class Setting:
    """One `key=value` that a command takes."""

    key: str
    """Dotted path, such as `memory.capacity`."""
    type_name: str
    default: str
    help: str


def list_settings(config_class: type, prefix: str = "") -> list[Setting]:
    """Every leaf of a nested dataclass in the order of its fields."""
    return list(_settings(config_class, None, prefix))


def nested_class(config_class: type, name: str) -> type | None:
    """The dataclass that field `name` holds, or None when it is a leaf."""
    for part in _alternatives(typing.get_type_hints(config_class)[name]):
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            return part
    return None


def describe(config_class: type, help_text: str, program: str, presets: Mapping[str, list[str]]) -> str:
    """The text of `--help`."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    lines = [inspect.cleandoc(help_text), "", f"Usage: {program} [key=value ...]", "", "Settings:"]
    for setting in list_settings(config_class):
        lines.append(f"  {setting.key}={setting.default}  ({setting.type_name})")
        lines += textwrap.wrap(setting.help, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if presets:
        lines += ["", "Presets (a value for a whole group, then changed by the settings after it):"]
        lines += [f"  {group}={' | '.join(names)}" for group, names in presets.items()]
    lines += [
        "",
        "  --help          show this",
        "  --print-config  show the settings that would be used and stop",
        "",
        "Relative paths start where the command is started.",
    ]
    return "\n".join(lines)


def _settings(config_class: type, instance: object, prefix: str) -> Iterator[Setting]:
    hints = typing.get_type_hints(config_class)
    explained = _docstrings(config_class)
    for field in dataclasses.fields(config_class):
        if field.name == "defaults":  # Hydra's own list, not a setting.
            continue
        value = _default(field) if instance is None else getattr(instance, field.name)
        inner = nested_class(config_class, field.name)
        if inner is not None:
            held = value if dataclasses.is_dataclass(value) else None
            yield from _settings(inner, held, f"{prefix}{field.name}.")
            continue
        text = field.metadata.get("help") or explained.get(field.name, "")
        yield Setting(
            prefix + field.name, _type_name(hints[field.name]), _show(value), " ".join(text.split())
        )


def _default(field: dataclasses.Field) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING


def _show(value: object) -> str:
    if value == MISSING:
        return "<required>"
    if value is None:
        return "null"
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_show(v) for v in value) + "]"
    return str(value)


def _alternatives(hint: object) -> tuple[object, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return typing.get_args(hint)
    return (hint,)


def _type_name(hint: object) -> str:
    names = []
    for part in _alternatives(hint):
        if part is type(None):
            names.append("null")
        elif isinstance(part, type) and issubclass(part, enum.Enum):
            names.append(" | ".join(part.__members__))
        elif isinstance(part, type) and not typing.get_args(part):
            names.append(part.__name__)
        else:
            names.append(str(part).removeprefix("typing."))
    return " or ".join(names)


def _docstrings(config_class: type) -> dict[str, str]:
    """Attribute docstrings, those of base classes included."""
    found: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):  # No source at hand: help shows keys without meanings.
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, following in itertools.pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                found[statement.target.id] = following.value.value
    return found
