"""`grasp-demos <what> ...`: look after data sets of demonstrations."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "check": ("grasp_demos.check:run_check", "name everything that is wrong with episodes"),
    "show": ("grasp_demos.show:run_show", "a table of episodes; a plot of one"),
    "import": ("grasp_demos.convert.command:run_import", "read demonstrations of another program"),
    "export": ("grasp_demos.convert.command:run_export", "write demonstrations for another program"),
}
"""Names, each with a function `(arguments) -> exit code`, imported when it is asked for, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; the entry point of `grasp-demos`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    listing = "\n".join(f"  {name:10} {text}" for name, (_, text) in COMMANDS.items())
    if not words or words[0] in ("-h", "--help"):
        print(f"Usage: grasp-demos <what> [PATH ...] [key=value ...]\n\n{listing}\n")
        print("grasp-demos <what> --help explains one. grasp-record records, grasp-replay replays.")
        return 0 if words else 2
    if words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], COMMANDS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        print(
            f"grasp-demos: there is no command '{words[0]}'.{hint} Commands: {', '.join(COMMANDS)}.",
            file=sys.stderr,
        )
        return 2
    module, function = COMMANDS[words[0]][0].split(":")
    return getattr(importlib.import_module(module), function)(words[1:])


if __name__ == "__main__":
    sys.exit(main())
