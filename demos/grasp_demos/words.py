"""Commands that take plain words, files and folders, beside `key=value` settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from grasp_sim.cli import EXIT_USER_ERROR, run_command

T = TypeVar("T")

_SETTING = re.compile(r"[A-Za-z_][\w.]*=")


def run_on_paths(
    config_class: type[T],
    main: Callable[[list[str], T], int],
    help_text: str,
    arguments: Sequence[str],
    program: str,
    *,
    kind: str = "episode file or data set's folder",
    example: str = "runs/demos",
) -> int:
    """Run `main` on the paths and the settings among `arguments`, and return the exit code.

    A word is a setting where it begins with `name=` or a dash, else a path: `./a=b` names a file of that
    name. Errors are handled as `grasp_sim.cli.run_command` does; no path at all is one. `kind` says what the
    paths are, `example` is one of them.
    """
    settings = [word for word in arguments if _SETTING.match(word) or word.startswith("-")]
    paths = [word for word in arguments if word not in settings]
    named = next((word for word in settings if word.startswith("path=")), None)
    if named is not None:
        bare = named.removeprefix("path=") or example
        print(f"{program}: write a path without path=, as in {program} {printable(bare)}.", file=sys.stderr)
        return EXIT_USER_ERROR
    if "" in paths:
        print(
            f"{program}: one of the paths is empty; the current folder is written as a dot.", file=sys.stderr
        )
        return EXIT_USER_ERROR
    asked = {"-h", "--help"} & set(settings)
    if not paths and not asked and "--print-config" not in settings:
        print(
            f"{program}: name at least one {kind}, as in {program} {example}; --help explains.",
            file=sys.stderr,
        )
        return EXIT_USER_ERROR
    shown = f"{program} PATH..." if asked else program
    return run_command(
        config_class, lambda config: main(paths, config), help_text, argv=settings, program=shown
    )


def printable(text: str) -> str:
    """The text on one line without control characters: names and notes from others may hold any."""
    return "".join(
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
