"""What the commands of this package start; importing it imports nothing of theirs."""

from __future__ import annotations

from grasp_sim.start import start


def train() -> int:
    """`grasp-train`."""
    return start("grasp-train", "grasp_control.train:main")


def evaluate() -> int:
    """`grasp-eval`."""
    return start("grasp-eval", "grasp_control.evaluate:main")


def distill() -> int:
    """`grasp-distill`."""
    return start("grasp-distill", "grasp_control.distill:main")


def bundle() -> int:
    """`grasp-bundle`."""
    return start("grasp-bundle", "grasp_control.bundle_command:main")


def bench() -> int:
    """`grasp-bench`."""
    return start("grasp-bench", "grasp_control.bench:main")


def perform() -> int:
    """`grasp-perform`."""
    return start("grasp-perform", "grasp_control.perform:main")


def programs() -> int:
    """`grasp-programs`."""
    return start("grasp-programs", "grasp_control.mapo.train:main")


def study() -> int:
    """`grasp-study`."""
    return start("grasp-study", "grasp_control.study.command:main")
