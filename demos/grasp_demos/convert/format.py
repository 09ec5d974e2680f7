"""What a format of demonstrations is: how it is recognised, read and written."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from grasp_demos.episode import KINDS, DemoError, Episode
from grasp_demos.topics import Topics
from grasp_sim.cli import require_choice
from grasp_sim.errors import UserError


@dataclass
class ImportSettings:
    """What a file may not say of its episodes. Empty: taken from the file."""

    task: str = ""
    """Name of the environment, such as robosuite-lift; empty takes it from the file."""
    control_mode: str = ""
    """What the actions command, servo or osc; empty takes it from the file."""
    kind: str = ""
    """human-like (the executed action is learnt) or clean (the intended); empty takes it from the file."""
    topics: Topics = field(default_factory=Topics)

    def __post_init__(self) -> None:
        if self.kind:
            require_choice("kind", self.kind, KINDS)


class Imported(NamedTuple):
    """What was read from a file."""

    episodes: list[Episode]
    warnings: list[str]
    """One line each: what was left out or assumed."""


class Format(NamedTuple):
    """One format of demonstrations."""

    name: str
    description: str
    """One line for a person."""
    matches: Callable[[Path], bool]
    """Whether an existing path looks like it; looks at names and first bytes only, and never raises."""
    read: Callable[[Path, ImportSettings], Imported]
    """All episodes of a path. Raises DemoError naming the path, what is wrong and what to do."""
    write: Callable[[Sequence[Episode], Path], None] | None
    """Write valid episodes to a path that does not exist; None where a format is only read."""


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether the path is a regular file with these first bytes; never raises, and waits for no pipe."""
    try:
        if not path.is_file():  # Opening a pipe waits for somebody to write into it.
            return False
        with open(path, "rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def decide(setting: str, asked: str, held: str, where: object) -> str:
    """The value of a setting of `ImportSettings`: what the file `where` holds, or else what was asked for.

    Raises DemoError naming the setting where it is in neither, or where the two differ.
    """
    if asked and held and asked != held:
        raise DemoError(f"{where} says {setting} {held}; {setting}={asked} was asked for: leave it out.")
    if not (asked or held):
        raise DemoError(f"{where} does not say its {setting}: give it, as in {setting}={_EXAMPLES[setting]}.")
    return asked or held


_EXAMPLES = {"task": "robosuite-lift", "control_mode": "servo", "kind": "human-like"}


def load_package(name: str, purpose: str) -> Any:
    """Import a package of the extra `exchange`; raises UserError saying how to install it.

    `purpose` names what needs it, such as "the format robomimic".
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the package {name}, which cannot be imported ({error}): "
            "pip install -c requirements.lock -e '.[exchange]'"
        ) from error
