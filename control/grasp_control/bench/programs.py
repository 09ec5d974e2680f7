"""`grasp-bench programs`: how long grasp programs take to execute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grasp_control.bench.measure import Figure, load_per_core, show, write_csv
from grasp_control.mapo.grammar import Grammar
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
from grasp_sim.program_env import OBJECT_TASKS, GraspPrograms
from grasp_sim.programs import Program
from grasp_sim.simulators import SIMULATORS

HELP = """Measure how long grasp programs take to execute, and how many lift their object.

Programs are drawn at random from the grammar, each for an object of its own. CPU time leaves out what other
programs had the core for; the table says how busy the machine was.

Example: grasp-bench programs objects=slippery programs=200 out=/tmp/programs.csv"""

LIMIT_MS = 150.0
"""Within which a program is to be executed in PyBullet."""


@dataclass
class ProgramsBenchConfig:
    """Settings of `grasp-bench programs`."""

    objects: str = "programs"
    """Task whose objects are lifted."""
    simulator: str = "pybullet"
    """Where programs are executed."""
    programs: int = 1000
    """Programs executed."""
    seed: int = 0
    """Of the choice of programs."""
    out: str = "docs/benchmarks/programs.csv"
    """The file written."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_choice("objects", self.objects, OBJECT_TASKS)
        require_choice("simulator", self.simulator, SIMULATORS)
        require_at_least(self, {"programs": 1, "seed": 0})
        require_at_most(self, {"programs": 10**6})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    return run_command(ProgramsBenchConfig, measure, HELP, argv=arguments, program="grasp-bench programs")


def measure(config: ProgramsBenchConfig) -> None:
    """Execute, and write what it took."""
    load = load_per_core()
    task = GraspPrograms(config.objects, config.simulator)
    grammar, rng = Grammar(task), np.random.default_rng(config.seed)
    problems = task.problems("train", min(config.programs, 300))
    task.execute(problems[0].key, draw(grammar, rng))  # the first loads the simulator
    wall, cpu = np.empty(config.programs), np.empty(config.programs)
    lifted = np.empty(config.programs, dtype=bool)
    for number in range(config.programs):
        key, program = problems[number % len(problems)].key, draw(grammar, rng)
        began, began_cpu = time.perf_counter(), time.thread_time()
        lifted[number] = task.execute(key, program) == 1.0
        cpu[number] = 1e3 * (time.thread_time() - began_cpu)
        wall[number] = 1e3 * (time.perf_counter() - began)
    figures = []
    for name, which in (("all", np.ones_like(lifted)), ("lifted", lifted), ("failed", ~lifted)):
        if which.any():
            figures += _figures(config, name, wall[which], cpu[which])
    show(f"Executing grasp programs in {config.simulator}, {load:.1f} processes per core before", figures)
    write_csv(Path(config.out), figures, load)
    print(f"Written: {config.out}")


def draw(grammar: Grammar, rng: np.random.Generator) -> Program:
    """A whole program, each token uniform among the legal ones."""
    program: Program = ()
    while not grammar.is_whole(program):
        program = (*program, int(rng.choice(np.flatnonzero(grammar.legal(program)))))
    return program


def _figures(config: ProgramsBenchConfig, name: str, wall: np.ndarray, cpu: np.ndarray) -> list[Figure]:
    def figure(statistic: str, value: float, unit: str = "ms") -> Figure:
        return Figure(config.simulator, f"{config.objects}, {name}", len(wall), statistic, value, unit)

    quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)]
    return [
        *(figure(f"cpu {label}", float(np.quantile(cpu, share))) for label, share in quantiles),
        *(figure(f"wall {label}", float(np.quantile(wall, share))) for label, share in quantiles),
        figure(f"cpu over {LIMIT_MS:.0f} ms", float(100.0 * np.mean(cpu > LIMIT_MS)), "%"),
    ]
