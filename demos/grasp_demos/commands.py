"""`grasp-demos <what> ...`: look after data sets of demonstrations."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grasp_sim.cli import run_named

COMMANDS = {
    "check": ("grasp_demos.check:run_check", "name everything that is wrong with episodes"),
    "show": ("grasp_demos.show:run_show", "a table of episodes; a plot of one"),
    "import": ("grasp_demos.convert.command:run_import", "read demonstrations of another program"),
    "export": ("grasp_demos.convert.command:run_export", "write demonstrations for another program"),
}
"""Names, each with a function `(arguments) -> exit code`, imported when it is asked for, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; the entry point of `grasp-demos`."""
    return run_named(
        "grasp-demos",
        "command",
        COMMANDS,
        list(sys.argv[1:] if arguments is None else arguments),
        usage="<what> [PATH ...] [key=value ...]",
        closing="grasp-demos <what> --help explains one. grasp-record records, grasp-replay replays.",
    )


if __name__ == "__main__":
    sys.exit(main())
