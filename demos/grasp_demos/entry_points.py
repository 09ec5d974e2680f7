"""What the commands of this package start; importing it imports nothing of theirs."""

from __future__ import annotations

from grasp_sim.start import start


def record() -> int:
    """`grasp-record`."""
    return start("grasp-record", "grasp_demos.record:main")


def replay() -> int:
    """`grasp-replay`."""
    return start("grasp-replay", "grasp_demos.replay:main")


def demos() -> int:
    """`grasp-demos`."""
    return start("grasp-demos", "grasp_demos.commands:main")
