"""`grasp-bench sim`: how fast the simulators step, reset and run side by side on this machine."""

from __future__ import annotations

import contextlib
import gc
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grasp_control import progress
from grasp_control.bench.measure import load_per_core, show_rows, write_rows
from grasp_control.bench.settings import require_environments
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_path, run_command
from grasp_sim.env import GraspEnv
from grasp_sim.expert import ScriptedExpert
from grasp_sim.vector import make_vector

HELP = """Measure the simulators: control steps a second, resets, several processes at once.

Steps are timed in CPU time of one process, whole episodes of the scripted expert, resets left out; the
rounds of all environments alternate, and the median is printed. `plain robosuite` steps robosuite's own Lift
with its own controller through robosuite's own interface.

Example: grasp-bench sim rounds=1 resets=200 out=/tmp/sim.csv"""

PLAIN = "plain robosuite"


@dataclass
class SimBenchConfig:
    """Settings of `grasp-bench sim`."""

    environments: list[str] = field(default_factory=registry.names)
    """Environments measured, each in both control modes."""
    rounds: int = 5
    """Times each is measured, alternating."""
    steps: int = 400
    """Control steps timed in each round."""
    resets: int = 10_000
    """Resets after which memory and bodies are compared with those after the first hundred."""
    processes: int = 2
    """Processes that run side by side."""
    each: int = 32
    """Environments in each of them."""
    out: str = "docs/benchmarks/sim.csv"
    """Where the raw figures are written."""

    def __post_init__(self) -> None:
        require_environments(self.environments)
        require_at_least(self, {"rounds": 1, "steps": 1, "resets": 0, "processes": 1, "each": 1})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(SimBenchConfig, measure, HELP, argv=arguments, program="grasp-bench sim")


def measure(config: SimBenchConfig) -> None:
    """Print all tables and write the CSV."""
    load = load_per_core()
    if load > 0.6:
        print(f"This machine is busy (load {load:.2f} per core): look at the ratios, not at the figures.")
    rows = measure_steps(config)
    show_rows("Control steps a second, one core", rows)
    resets = [measure_resets(name, config.resets) for name in config.environments if config.resets]
    if resets:
        show_rows("Resets", resets)
    sides = [measure_processes(name, config) for name in config.environments]
    show_rows(f"{config.processes} processes side by side, wall time", sides)
    path = Path(config.out)
    long = [
        {"part": part, "environment": row["environment"], "figure": name, "value": value}
        for part, table in (("steps", rows), ("resets", resets), ("processes", sides))
        for row in table
        for name, value in row.items()
        if name != "environment"
    ]
    write_rows(path, [*long, {"part": "machine", "environment": "", "figure": "load", "value": load}])
    print(f"Raw figures: {path}")


def measure_steps(config: SimBenchConfig) -> list[dict[str, object]]:
    """CPU time of control steps, median over alternating rounds."""
    timers: dict[str, Iterator[float]] = {}
    if "robosuite-lift" in config.environments:
        timers[PLAIN] = time_plain(config.steps)
    for name in config.environments:
        for mode in registry.CONTROL_MODES:
            timers[f"{name} {mode}"] = time_expert(name, mode, config.steps)
    rates: dict[str, list[float]] = {label: [] for label in timers}
    with progress.bar("Time control steps", config.rounds * len(timers)) as advance:
        for _ in range(config.rounds):
            for label, timer in timers.items():
                rates[label].append(next(timer))
                advance()
    plain = float(np.median(rates[PLAIN])) if PLAIN in rates else float("nan")
    return [
        {
            "environment": label,
            "median [steps/s]": float(np.median(values)),
            "least [steps/s]": min(values),
            "most [steps/s]": max(values),
            f"times {PLAIN}": float(np.median(values)) / plain,
        }
        for label, values in rates.items()
    ]


def time_expert(name: str, mode: str, steps: int) -> Iterator[float]:
    """Control steps per CPU second of whole episodes of the expert, again and again."""
    env = registry.make(name, control_mode=mode)
    expert = ScriptedExpert(env.action_scale, mode, env.task.grip_force)
    for _, info in _episodes(env, expert, 60, time.process_time):  # compiles and warms up
        del info
    while True:
        spent, count = 0.0, 0
        for seconds, _ in _episodes(env, expert, steps, time.process_time):
            spent, count = spent + seconds, count + 1
        yield count / spent


def _episodes(
    env: GraspEnv, expert: ScriptedExpert, steps: int, clock: Callable[[], float]
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Seconds and info of each of `steps` steps, in episodes that begin anew as often as needed."""
    over, info = True, {}
    for _ in range(steps):
        if over:
            _, info = env.reset()
            expert.reset()
        action = expert.act(info["state"])
        began = clock()
        _, _, terminated, truncated, info = env.step(action)
        yield clock() - began, info
        over = terminated or truncated


def time_plain(steps: int) -> Iterator[float]:
    """Control steps per CPU second of robosuite's Lift as it comes, random actions."""
    from grasp_sim.robosuite_scene import robosuite  # imported there without its warnings

    with contextlib.redirect_stdout(io.StringIO()):
        env = robosuite.make(
            "Lift",
            robots="UR5e",
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            control_freq=20,
            ignore_done=True,
        )
    rng = np.random.default_rng(0)
    while True:
        env.reset()
        actions = rng.uniform(-1.0, 1.0, size=(steps, 7))
        began = time.process_time()
        for action in actions:
            env.step(action)
        yield steps / (time.process_time() - began)


def measure_resets(name: str, count: int) -> dict[str, object]:
    """Time of a reset, and what a great many of them leave behind."""
    env = registry.make(name)
    for _ in range(100):
        env.reset()
    gc.collect()
    memory = resident_bytes()
    began = time.process_time()
    with progress.bar(f"Reset {name}", count) as advance:
        for _ in range(count):
            env.reset()
            advance()
    spent = time.process_time() - began
    gc.collect()
    grown = resident_bytes() - memory
    bodies = count_bodies(env)
    env.close()
    return {
        "environment": name,
        "resets": count,
        "each [ms]": 1e3 * spent / count,
        "memory grown [MB]": grown / 1e6,
        "bodies": bodies,
    }


def count_bodies(env: GraspEnv) -> int:
    """Bodies in the simulator, which each reset must leave as many as there were."""
    scene: Any = env._scene
    if env.simulator == "robosuite":
        return scene.model.nbody
    import pybullet

    return pybullet.getNumBodies(physicsClientId=scene.client)


def resident_bytes() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/status").read_text().split()
    return 1024 * int(fields[fields.index("VmRSS:") + 1])


def measure_processes(name: str, config: SimBenchConfig) -> dict[str, object]:
    """Throughput in wall time of one environment alone, and of many in several processes, random actions."""
    single = registry.make(name)
    count = config.processes * config.each
    vector = make_vector(name, count, processes=config.processes)
    steps = 4 * config.steps
    rng = np.random.default_rng(0)
    rates: dict[str, list[float]] = {"one": [], "several": []}
    try:
        single.reset(seed=0)
        vector.reset(seed=0)
        for _ in range(config.rounds):
            actions = rng.uniform(-1, 1, (steps, 6)).astype(np.float32)
            began = time.perf_counter()
            for action in actions:
                _, _, terminated, truncated, _ = single.step(action)
                if terminated or truncated:
                    single.reset()
            rates["one"].append(steps / (time.perf_counter() - began))
            rounds = max(config.processes * steps // count, 1)
            actions = rng.uniform(-1, 1, (rounds, count, 6)).astype(np.float32)
            began = time.perf_counter()
            for action in actions:
                vector.step(action)
            rates["several"].append(rounds * count / (time.perf_counter() - began))
    finally:
        single.close()
        vector.close()
    one, several = float(np.median(rates["one"])), float(np.median(rates["several"]))
    return {
        "environment": name,
        "one process [steps/s]": one,
        f"{config.processes} processes [steps/s]": several,
        "ratio": several / one,
    }
