"""One line in the terminal for devices that are held in the hand."""

from __future__ import annotations

import sys

from grasp_demos.teleop.operator import Status


class StatusLine:
    """Rewrites one line of the error stream; on none that is a terminal, tells only what changes."""

    def __init__(self) -> None:
        self._before = ""

    def show(self, status: Status) -> None:
        """Say how things stand."""
        text = line(status)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text}")
        elif (told := f"{status.phase} {status.episode} {status.verdict}") != self._before:
            self._before = told
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\n")


def line(status: Status) -> str:
    """What the line says."""
    x, y, z = 1000.0 * (status.state.object_position - status.state.tcp_position)
    parts = [
        f"episode {status.episode} {status.phase}" + (f" step {status.step}" if status.step else ""),
        f"{status.recorded} of {status.wanted}",
        f"object at x {x:+.0f} y {y:+.0f} z {z:+.0f} mm",
        "held" if status.grasped else "",
        f"{status.actor} acts" if status.takes_over and status.phase == "recording" else "",
        status.verdict,
    ]
    return ", ".join(part for part in parts if part)
