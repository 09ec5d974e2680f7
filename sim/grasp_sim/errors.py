"""The errors a person can cause and mend."""

from __future__ import annotations


class UserError(Exception):
    """Something a person asked for cannot be done.

    The message is one clear line: what was asked, what exists, what to do. Commands print it without a
    traceback (see `grasp_sim.cli.run_command`), so raise it only where the cause lies outside the program.
    """
