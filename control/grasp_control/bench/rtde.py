"""`grasp-bench rtde`: how often a bundle grasps through ur_rtde and the emulated controller, without ROS."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from grasp_control.arm.grasp_loop import Counts
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.rtde import RtdeConfig
from grasp_control.bench.measure import beside, load_per_core, show_rows, write_rows
from grasp_control.bench.settings import require_beginning, require_environments
from grasp_control.bundle import BundlePolicy, load_bundle
from grasp_control.config import MAX_EPISODES
from grasp_control.intervals import wilson_interval
from grasp_control.manifest import Expectation
from grasp_control.perform import PerformConfig, library_silenced, make_runner, perform
from grasp_sim.cli import require_at_least, require_at_most, require_path, run_command
from grasp_sim.errors import UserError
from grasp_sim.ur_emulator.server import FAULTS_PORT

HELP = """Grasp through ur_rtde, with each simulator behind an emulated controller in a process of its own.

Success is the simulator's word. Writes OUT.csv (a row per grasp). All runs in real time: on a machine that
does other things, setpoints come late and grasps fail that would not.

Example: grasp-bench rtde bundle=runs/both/bundle"""


@dataclass
class RtdeBenchConfig:
    """Settings of `grasp-bench rtde`."""

    bundle: str = MISSING
    """Folder of the policy bundle."""
    environments: list[str] = field(default_factory=lambda: ["robosuite-lift", "pybullet-lift"])
    """What stands behind the controller, one after the other."""
    episodes: int = 20
    """Grasps in each."""
    seed: int = 1000
    """Of the first start; grasp k begins from seed + k."""
    rate: int = 500
    """Hz of the controller, 125 or 500."""
    host: str = "127.0.0.3"
    """Address of the emulated controller."""
    safety: SafetyConfig = field(
        default_factory=lambda: SafetyConfig(gripper_max_age=0.2, velocity_max=3.0, acceleration_max=25.0)
    )
    """By default fast enough for the policy to be served as in training; a first run on a robot is slower."""
    out: str = "docs/benchmarks/rtde"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        """Check the ranges; the rate by making the settings of the arm."""
        require_path("bundle", self.bundle)
        require_environments(self.environments)
        require_at_least(self, {"episodes": 1, "seed": 0})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_beginning(self.out)
        RtdeConfig(host=self.host, rate=self.rate)


def run(arguments: Sequence[str]) -> int:
    """Run with `key=value` settings; returns the exit code."""
    return run_command(RtdeBenchConfig, measure, HELP, argv=arguments, program="grasp-bench rtde")


def measure(config: RtdeBenchConfig) -> None:
    """Run all, print the table, write the file."""
    policy = load_bundle(config.bundle, expect=Expectation())
    poses = f"{config.host}:30100"
    performing = PerformConfig(
        bundle=config.bundle,
        shadow=False,
        poses=poses,
        rtde=RtdeConfig(host=config.host, rate=config.rate),
        safety=config.safety,
    )
    rows, table = [], []
    for env in config.environments:
        found = []
        with _emulated(config, env, poses):
            for number in range(config.episodes):
                found.append({"env": env, "rate": config.rate, **_grasp(performing, policy)})
                print(f"{env} {number + 1}/{config.episodes}: {found[-1]['said']}", flush=True)
                _say(config.host, "unlock")
                _say(config.host, "reset")
        rows += found
        table.append(_summary(env, config, found))
    show_rows(f"Grasps through ur_rtde; load per core {load_per_core():.2f}", table)
    out = beside(Path(config.out), ".csv")
    write_rows(out, rows)
    print(f"Written: {out}")


def _grasp(config: PerformConfig, policy: BundlePolicy) -> dict[str, object]:
    runner = make_runner(config, policy)
    counts, lost = Counts(), ""
    try:
        with library_silenced():
            counts = perform(config, runner)
    except UserError as error:
        lost = str(error)
    state = json.loads(_say(config.rtde.host, "state"))
    outcome, asked = state["outcome"], state["asked"]
    return {
        "seed": outcome["seed"],
        "success": int(outcome["success"]),
        "said": lost or f"{runner.progress.outcome.value}: {runner.progress.message}",
        "actions": runner.progress.step,
        "cycles": counts.cycles,
        "limited": counts.limited,
        "held": counts.held,
        "reasons": " ".join(f"{key}:{count}" for key, count in counts.reasons.most_common()),
        "drops": outcome["drops"],
        "broken": int(outcome["broken"]),
        "first_step_rad": f"{asked['first_step']:.2e}",
        "velocity_rad_s": f"{asked['velocity']:.3f}",
        "acceleration_rad_s2": f"{asked['acceleration']:.3f}",
        "protective_stops": sum("protective stop:" in line for line in state["log"]),
        "controller": " | ".join(state["log"]),
    }


def _summary(env: str, config: RtdeBenchConfig, rows: list[dict[str, object]]) -> dict[str, object]:
    wins = sum(row["success"] == 1 for row in rows)
    low, high = wilson_interval(wins, len(rows))
    cycles = max(sum(int(str(row["cycles"])) for row in rows), 1)
    return {
        "env": env,
        "rate": config.rate,
        "success": f"{wins} of {len(rows)}",
        "95 %": f"{low:.0%} - {high:.0%}",
        "cycles limited": f"{sum(int(str(row['limited'])) for row in rows) / cycles:.1%}",
        "cycles held": f"{sum(int(str(row['held'])) for row in rows) / cycles:.1%}",
        "fastest rad/s": max(str(row["velocity_rad_s"]) for row in rows),
        "protective stops": sum(int(str(row["protective_stops"])) for row in rows),
    }


@contextmanager
def _emulated(config: RtdeBenchConfig, env: str, poses: str) -> Iterator[None]:
    settings = {"env": env, "seed": config.seed, "rate": config.rate, "host": config.host, "pose_to": poses}
    process = subprocess.Popen(
        [sys.executable, "-m", "grasp_sim.ur_emulator", *(f"{k}={v}" for k, v in settings.items())],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():  # it has said on stderr why
            raise UserError("the emulated controller did not start.")
        yield
    finally:
        process.kill()
        process.wait()


def _say(host: str, line: str) -> str:
    with socket.create_connection((host, FAULTS_PORT), timeout=10.0) as connection:
        connection.sendall(line.encode() + b"\n")
        return connection.makefile().readline()
