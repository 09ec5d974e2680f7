"""`grasp-bench safety`: what the safety filter costs a cycle of the driver, without ROS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import Status
from grasp_control.arm.safety import SafetyFilter
from grasp_control.bench.measure import Figure, load_per_core, show, write_csv
from grasp_sim import ur5e
from grasp_sim.cli import require_at_least, require_choice, require_path, run_command
from grasp_sim.servo import heading, joints_at

HELP = """Measure the safety filter: time of a step, and of a whole cycle with all that it is told.

Each situation is simulated with an arm that follows exactly. Close other programs first: the table says how
busy the machine was, and the longest times are those in which another program had the core; CPU time leaves
these out.

Example: grasp-bench safety rate=125 out=/tmp/safety.csv"""

SITUATIONS = {"free motion": Status.OK, "limited motion": Status.LIMITED, "hold": Status.HOLD}
"""A smooth motion within all limits; a tool pressed onto the floor that slides along it; an arm without
setpoints. Each with the status that the filter then has."""


@dataclass
class SafetyBenchConfig:
    """Settings of `grasp-bench safety`."""

    rate: int = 500
    """Cycles a second, 125 or 500."""
    cycles: int = 20_000
    """Cycles timed in each situation."""
    out: str = "docs/benchmarks/safety.csv"
    """Where the raw figures are written."""

    def __post_init__(self) -> None:
        require_choice("rate", str(self.rate), ("125", "500"))
        require_at_least(self, {"cycles": 100})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(SafetyBenchConfig, measure, HELP, argv=arguments, program="grasp-bench safety")


def measure(config: SafetyBenchConfig) -> None:
    """Print the table and write the CSV."""
    path = Path(config.out)
    path.parent.mkdir(parents=True, exist_ok=True)  # fails now rather than after the measurements
    load = load_per_core()
    if load > 0.6:
        print(f"This machine is busy (load {load:.2f} per core): these figures are not worth keeping.")
    figures = [figure for name in SITUATIONS for figure in measure_situation(config, name)]
    show(f"Safety filter at {config.rate} Hz", figures)
    write_csv(path, figures, load)
    print(f"Raw figures: {path}")


def measure_situation(config: SafetyBenchConfig, name: str) -> list[Figure]:
    """Microseconds of a step and of a whole cycle, and the share of cycles with the status expected."""
    limits = SafetyConfig(rate_hz=float(config.rate), setpoint_jump_max=1.0)
    subject, arm, period = SafetyFilter(limits), ur5e.HOME.copy(), limits.period
    subject.robot(program_running=True)
    targets = _targets(name, config.cycles, period)
    warm_up = round(3.0 / period)  # the start, the ramp, the way to the first target
    steps, cpu, cycles = np.empty(config.cycles), np.empty(config.cycles), np.empty(config.cycles)
    expected = 0
    for k in range(-warm_up, config.cycles):
        now = (k + warm_up) * period
        share = min(max(2.0 * (k / warm_up + 0.8), 0.0), 1.0)
        target = targets[max(k, 0)] if k >= 0 else ur5e.HOME + share * (targets[0] - ur5e.HOME)
        began = time.perf_counter()
        subject.measured(arm, None, stamp_age=0.0, now=now)
        subject.gripper(10.0, stamp_age=0.0, now=now)
        if k < 0 or name != "hold":
            subject.setpoint(target, epoch=subject.epoch, stamp_age=0.0, now=now)
        before_cpu, before = time.thread_time(), time.perf_counter()
        verdict = subject.step(now)
        ended, ended_cpu = time.perf_counter(), time.thread_time()
        if verdict.positions is not None:
            arm = verdict.positions
        if k >= 0:
            steps[k], cpu[k], cycles[k] = ended - before, ended_cpu - before_cpu, ended - began
            expected += verdict.status is SITUATIONS[name]
    figures = [Figure("safety", name, config.cycles, "share of cycles so", expected / config.cycles, "")]
    for statistic, value in (
        ("step p50", np.quantile(steps, 0.5)),
        ("step p99", np.quantile(steps, 0.99)),
        ("step max", steps.max()),
        ("step cpu p99", np.quantile(cpu, 0.99)),
        ("cycle p50", np.quantile(cycles, 0.5)),
        ("cycle p99", np.quantile(cycles, 0.99)),
    ):
        figures.append(Figure("safety", name, config.cycles, statistic, float(value) * 1e6, "us"))
    return figures


def _targets(name: str, cycles: int, period: float) -> np.ndarray:
    """(cycles, 6) rad."""
    phase = 2.0 * np.pi * 0.5 * period * np.arange(cycles)
    if name != "limited motion":
        return ur5e.HOME + 0.1 * np.sin(phase)[:, None] * np.array([1.0, 0.2, 0.1, -0.1, 0.1, 1.0])
    position, rotation = ur5e.Kinematics().pose(ur5e.HOME)
    ways = np.linspace(-0.05, 0.05, 101)  # m aside, 3 cm into the table
    postures = [joints_at(position + np.array([0.0, y, -0.21]), heading(rotation), ur5e.HOME) for y in ways]
    return np.array(
        [[np.interp(0.05 * np.sin(p), ways, joint) for joint in np.transpose(postures)] for p in phase]
    )
