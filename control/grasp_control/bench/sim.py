"""`grasp-bench sim`: how fast the simulators step, reset and run side by side on this machine."""

from __future__ import annotations

import contextlib
import gc
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grasp_control import progress
from grasp_control.bench.measure import load_per_core, show_rows, write_rows
from grasp_control.bench.settings import require_environments
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_path, run_command
from grasp_sim.contract import ACTION_DIM, POLICY_RATE_HZ
from grasp_sim.env import GraspEnv
from grasp_sim.expert import ScriptedExpert
from grasp_sim.vector import make_vector

HELP = """Measure the simulators: control steps a second, resets, several processes at once.

Steps are timed in CPU time of one process, resets left out; the rounds of everything that is timed alternate,
and the median is printed. Once each environment is driven by the scripted expert through whole episodes. Once
robosuite's own Lift as it comes and robosuite-lift are given the same random actions, from one reset at the
start of each round: only these lines are compared with plain robosuite.

Example: grasp-bench sim rounds=1 resets=200 out=/tmp/sim.csv"""

PLAIN = "plain robosuite"
COMPARED = "robosuite-lift"
"""The environment of the same task, which is given the same random actions."""


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
    rows, alike = measure_steps(config)
    show_rows("Control steps a second, one core, the scripted expert acts", rows)
    if alike:
        show_rows("Control steps a second, one core, the same random actions", alike)
    resets = [measure_resets(name, config.resets) for name in config.environments if config.resets]
    if resets:
        show_rows("Resets", resets)
    sides = [measure_processes(name, config) for name in config.environments]
    show_rows(f"{config.processes} processes side by side, wall time", sides)
    path = Path(config.out)
    long = [
        {"part": part, "environment": row["environment"], "figure": name, "value": value}
        for part, table in (
            ("steps, expert", rows),
            ("steps, same random actions", alike),
            ("resets", resets),
            ("processes", sides),
        )
        for row in table
        for name, value in row.items()
        if name != "environment"
    ]
    write_rows(path, [*long, {"part": "machine", "environment": "", "figure": "load", "value": load}])
    print(f"Raw figures: {path}")


def measure_steps(config: SimBenchConfig) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """CPU time of control steps, median over alternating rounds: with the expert, and with random actions."""
    modes = registry.CONTROL_MODES
    expert = {
        f"{name} {m}": time_expert(name, m, config.steps) for name in config.environments for m in modes
    }
    alike: dict[str, Iterator[float]] = {}
    if COMPARED in config.environments:
        alike[PLAIN] = time_plain(config.steps)
        alike |= {f"{COMPARED} {mode}": time_random(mode, config.steps) for mode in modes}
    timers = [*expert.values(), *alike.values()]
    rates: dict[Iterator[float], list[float]] = {timer: [] for timer in timers}
    with progress.bar("Time control steps", config.rounds * len(timers)) as advance:
        for _ in range(config.rounds):
            for timer in timers:
                rates[timer].append(next(timer))
                advance()
    plain = float(np.median(rates[alike[PLAIN]])) if alike else 0.0
    return (
        [_rates(label, rates[timer]) for label, timer in expert.items()],
        [
            _rates(label, rates[timer]) | {f"times {PLAIN}": float(np.median(rates[timer])) / plain}
            for label, timer in alike.items()
        ],
    )


def _rates(label: str, rates: Sequence[float]) -> dict[str, object]:
    return {
        "environment": label,
        "median [steps/s]": float(np.median(rates)),
        "least [steps/s]": min(rates),
        "most [steps/s]": max(rates),
    }


def time_expert(name: str, mode: str, steps: int) -> Iterator[float]:
    """Control steps per CPU second of whole episodes of the expert, again and again."""
    env = registry.make(name, control_mode=mode)
    _expert_seconds(env, 60)  # compiles and warms up
    while True:
        yield steps / _expert_seconds(env, steps)


def _expert_seconds(env: GraspEnv, steps: int) -> float:
    """CPU seconds of `steps` steps, in episodes that begin anew as often as needed."""
    expert = ScriptedExpert(env.action_scale, env.control_mode, env.task.grip_force)
    over, info, spent = True, {}, 0.0
    for _ in range(steps):
        if over:
            _, info = env.reset()
            expert.reset()
        action = expert.act(info["state"])
        began = time.process_time()
        _, _, terminated, truncated, info = env.step(action)
        spent += time.process_time() - began
        over = terminated or truncated
    return spent


def random_actions(steps: int) -> Iterator[np.ndarray]:
    """A round's random actions (steps, 6) in [-1, 1], again and again; the same whenever it is begun."""
    rng = np.random.default_rng(0)
    while True:
        yield rng.uniform(-1.0, 1.0, size=(steps, ACTION_DIM)).astype(np.float32)


def time_random(mode: str, steps: int) -> Iterator[float]:
    """Control steps per CPU second of `COMPARED` with random actions, an episode a round."""
    env = registry.make(COMPARED, control_mode=mode, horizon=steps + 1)
    env.reset()
    env.step(np.zeros(ACTION_DIM, np.float32))  # compiles
    for actions in random_actions(steps):
        env.reset()
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        yield steps / (time.process_time() - began)


def time_plain(steps: int) -> Iterator[float]:
    """Control steps per CPU second of robosuite's Lift as it comes, with the same random actions.

    robosuite's action is a turn about three axes and the gripper's speed: ours (x, y, z, yaw, opening, force)
    moves it by x, y, z, yaw and opening.
    """
    from grasp_sim.robosuite_scene import robosuite  # imported there without its warnings

    with contextlib.redirect_stdout(io.StringIO()):
        env = robosuite.make(
            "Lift",
            robots="UR5e",
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            control_freq=POLICY_RATE_HZ,
            ignore_done=True,
        )
    for actions in random_actions(steps):
        theirs = np.zeros((steps, 7))
        theirs[:, [0, 1, 2, 5, 6]] = actions[:, [0, 1, 2, 3, 4]]
        theirs[:, 6] *= -1.0  # there 1 closes, here it opens
        env.reset()
        began = time.process_time()
        for action in theirs:
            env.step(action)
        yield steps / (time.process_time() - began)


def measure_resets(name: str, count: int) -> dict[str, object]:
    """Time of a reset, and what a great many of them leave behind."""
    env = registry.make(name)
    for _ in range(100):
        env.reset()
    gc.collect()
    memory, bodies = resident_bytes(), count_bodies(env)
    began = time.process_time()
    with progress.bar(f"Reset {name}", count) as advance:
        for _ in range(count):
            env.reset()
            advance()
    spent = time.process_time() - began
    gc.collect()
    grown = resident_bytes() - memory
    bodies_after = count_bodies(env)
    env.close()
    return {
        "environment": name,
        "resets": count,
        "each [ms]": 1e3 * spent / count,
        "memory grown [MB]": grown / 1e6,
        "bodies before": bodies,
        "bodies after": bodies_after,
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
            actions = rng.uniform(-1, 1, (steps, ACTION_DIM)).astype(np.float32)
            began = time.perf_counter()
            for action in actions:
                _, _, terminated, truncated, _ = single.step(action)
                if terminated or truncated:
                    single.reset()
            rates["one"].append(steps / (time.perf_counter() - began))
            rounds = max(config.processes * steps // count, 1)
            actions = rng.uniform(-1, 1, (rounds, count, ACTION_DIM)).astype(np.float32)
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
