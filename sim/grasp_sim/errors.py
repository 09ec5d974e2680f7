"""The errors a person can cause and mend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Thing = TypeVar("Thing")


class UserError(Exception):
    """Something a person asked for cannot be done.

    The message is one clear line: what was asked, what exists, what to do. Commands print it without a
    traceback (see `grasp_sim.cli.run_command`), so raise it only where the cause lies outside the program.
    """


class UnknownName(UserError, ValueError):
    """Something was asked for by a name that does not exist."""


def find(kind: str, name: str, known: Mapping[str, Thing]) -> Thing:
    """What is `known` as `name`, a `kind` such as "task"; raises UnknownName listing what exists."""
    if name not in known:
        raise UnknownName(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    return known[name]
