"""What the command starts; importing it imports nothing of it."""

from __future__ import annotations

from grasp_sim.start import start


def emulate() -> int:
    """`grasp-emulate`."""
    return start("grasp-emulate", "grasp_sim.ur_emulator.command:main")
