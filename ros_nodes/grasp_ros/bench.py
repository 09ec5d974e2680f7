"""`grasp-bench ros`: what the deployed stack does, on the simulated robot and over real middleware.

Parts: `grasps` (success by the exported bundle), `kills` (how soon the arm stands still when a node dies, and
who says why), `delay` (joint state to command, beside a bare echo).
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grasp_control.bench.measure import load_per_core, show_rows, write_rows
from grasp_control.bundle import load_bundle
from grasp_control.intervals import wilson_interval
from grasp_control.manifest import Expectation
from grasp_control.markdown import markdown
from grasp_ros.demo import BUNDLE, DemoConfig, stack_of
from grasp_ros.grasps import grasps, wait_until_ready
from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher, values_of
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
from grasp_sim.contract import unpack_state
from grasp_sim.errors import UserError

HELP = """Measure the ROS 2 nodes as processes over DDS: grasps, killed nodes, delays.

  grasps   success of the bundle, all nodes running, judged by the simulator
  kills    each node killed with SIGKILL in the middle of grasps: when the arm stood still, and who said why
  delay    joint state to command at the driver's side for minutes, beside the same with a bare echo in place
           of the stack

For honest delays let nothing else run; realtime=true asks for the real-time scheduler (needs the right to).
"""
PARTS = ("grasps", "kills", "delay")
STILL = 0.05
"""rad/s, joint speed below which the arm stands still."""
MOVING = 0.1
"""rad/s, joint speed that a kill must meet, or it says nothing."""
HOLD_S = 1.5
"""s watched after a kill."""


@dataclass
class RosBenchConfig:
    """Settings of `grasp-bench ros`."""

    parts: list[str] = field(default_factory=lambda: list(PARTS))
    """Which parts to measure."""
    bundle: str = str(BUNDLE)
    """Folder of the policy bundle."""
    environments: list[str] = field(default_factory=lambda: ["robosuite-lift", "pybullet-lift"])
    """Environments of the grasps; the first one is that of the kills too."""
    count: int = 20
    """Grasps in each environment."""
    kills: int = 5
    """Kills of each node."""
    rate: int = 500
    """Hz of the driver."""
    minutes: float = 5.0
    """Minutes for which delays are measured."""
    tables: bool = False
    """Measure nothing: make the tables again of the raw figures that are there."""
    realtime: bool = False
    """Run the servo and the safety filter under the real-time scheduler."""
    seed: int = 1000
    """Of the first start."""
    domain_id: int = 43
    """ROS domain of the nodes."""
    out: str = "docs/benchmarks/ros"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        """Check the choices and ranges."""
        for part in self.parts:
            require_choice("parts", part, PARTS)
        for name in self.environments:
            require_choice("environments", name, registry.names())
        if self.rate not in (125, 500):
            raise ValueError(f"rate={self.rate} must be 125 or 500.")
        if not 0.0 < self.minutes <= 600.0:
            raise ValueError(f"minutes={self.minutes} must be above 0 and at most 600.")
        require_at_least(self, {"count": 1, "kills": 1, "seed": 0, "domain_id": 0})
        require_at_most(self, {"count": 10_000, "kills": 10_000, "domain_id": 231})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(RosBenchConfig, measure, HELP, argv=arguments, program="grasp-bench ros")


def measure(config: RosBenchConfig) -> None:
    """Measure, print the tables and write them."""
    load_bundle(config.bundle, expect=Expectation())
    Path(config.out).parent.mkdir(parents=True, exist_ok=True)
    for part in config.parts:
        measure_part, summarise = _PARTS[part]
        raw = Path(f"{config.out}_{part}.csv")
        if not config.tables:
            rows = measure_part(config)
            for row in rows:
                row["load"] = round(load_per_core(), 2)
            write_rows(raw, rows)
        if not raw.is_file():
            raise UserError(f"{raw} is not there: measure it with parts=[{part}] first.")
        with raw.open(newline="") as file:
            shown = summarise(list(csv.DictReader(file)))
        show_rows(part, shown)
        Path(f"{config.out}_{part}.md").write_text(markdown(shown, numbers=True))
        print(f"Raw figures: {raw}, table: {config.out}_{part}.md")


def _stack(config: RosBenchConfig, env: str, folder: Path) -> Stack:
    stack = stack_of(
        DemoConfig(
            bundle=config.bundle, env=env, rate=config.rate, seed=config.seed, domain_id=config.domain_id
        ),
        folder,
    )
    if config.realtime:
        for name in ("safety", "servo"):
            parameters = dict(stack.parameters.get(name, {}))
            stack.parameters = {**stack.parameters, name: parameters | {"realtime_priority": 20}}
    return stack


Rows = list[dict[str, object]]
Texts = list[dict[str, str]]
"""Rows as a CSV file gives them back."""


def measure_grasps(config: RosBenchConfig) -> Rows:
    """A row for each grasp."""
    rows: Rows = []
    for env in config.environments:
        with tempfile.TemporaryDirectory() as folder:
            stack = _stack(config, env, Path(folder))
            with stack, Watcher(config.domain_id) as watcher:
                for number, grasp in enumerate(grasps(stack, watcher, config.count)):
                    rows.append({"env": env, "rate": config.rate, "grasp": number, **grasp._asdict()})
                    print(f"{env} {number + 1}/{config.count}: {grasp.outcome}: {grasp.message}", flush=True)
    return rows


def show_grasps(rows: Texts) -> Rows:
    """A row for each environment."""
    shown: Rows = []
    for env in dict.fromkeys(row["env"] for row in rows):
        mine = [row for row in rows if row["env"] == env]
        successes = sum(row["success"] == "True" for row in mine)
        low, high = wilson_interval(successes, len(mine))
        shown.append(
            {
                "environment": env,
                "driver Hz": mine[0]["rate"],
                "success": f"{successes} of {len(mine)}",
                "95 %": f"{low:.0%} to {high:.0%}",
                "median s": round(float(np.median([float(row["seconds"]) for row in mine])), 1),
            }
        )
    return shown


# ---- kills


def measure_kills(config: RosBenchConfig) -> Rows:
    """A row for each kill."""
    rng = np.random.default_rng(config.seed)
    rows: Rows = []
    for name in ("policy_server", "servo", "safety", "gripper_bridge"):
        for kill in range(config.kills):
            row = _kill(config, name, float(rng.uniform(0.3, 1.0)))
            while float(str(row["speed_before"])) < MOVING:
                row = _kill(config, name, float(rng.uniform(0.3, 1.0)))
            rows.append({"node": name, "kill": kill, **row})
            print(f"{name} {kill + 1}/{config.kills}: {row}", flush=True)
    return rows


def show_kills(rows: Texts) -> Rows:
    """A row for each node."""
    shown: Rows = []
    for name in dict.fromkeys(row["node"] for row in rows):
        mine = [row for row in rows if row["node"] == name]

        def column(key: str, mine: Texts = mine) -> np.ndarray:
            return np.array([float(row[key] or "nan") for row in mine])

        shown.append(
            {
                "killed": name,
                "kills": len(mine),
                "rad/s before, most": column("speed_before").max(),
                "last moving command ms, median": np.median(column("told_ms")).round(1),
                "most ": column("told_ms").max(),
                "arm still ms, median": np.median(column("still_ms")).round(1),
                "most": column("still_ms").max(),
                "first word ms, median": np.nanmedian(column("said_ms")).round(1),
                "said by": ", ".join(sorted(set(" ".join(row["said"] for row in mine).split()))),
            }
        )
    return shown


def _kill(config: RosBenchConfig, name: str, after: float) -> dict[str, object]:
    """Kill a node `after` s of a grasp; when the arm stood still, judged by the simulator's joints."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.npz"
        stack = _stack(config, config.environments[0], Path(folder))
        stack.parameters = {
            **stack.parameters,
            "sim_robot": {**stack.parameters["sim_robot"], "record": str(record)},
        }
        with stack, Watcher(config.domain_id) as watcher:
            wait_until_ready(stack, watcher)
            answer = watcher.call("/policy_server/start")
            if not answer.success:
                raise UserError(answer.message)
            end = time.monotonic() + after
            while time.monotonic() < end:
                watcher.spin()
            watcher.diagnostics.clear()
            killed = time.monotonic()
            stack.kill(name)
            told: dict[str, float] = {}
            while time.monotonic() < killed + HOLD_S:
                watcher.spin()
                for status in watcher.diagnostics:
                    if status.level[0] > 0 and not status.name.startswith(name):
                        told.setdefault(status.name.split(":")[0], time.monotonic() - killed)
                watcher.diagnostics.clear()
            running = values_of(watcher.grasp).get("running")
        recorded = np.load(record)
        times = recorded["times"]
        speeds = np.array([np.abs(unpack_state(row).joint_velocities).max() for row in recorded["states"]])
        moving = times[(speeds > STILL) & (times >= killed)]
        last = float(moving[-1] - killed) if len(moving) else 0.0
        before = speeds[(times > killed - 0.1) & (times < killed)]
        steps = np.abs(np.diff(recorded["targets"], axis=0)).max(axis=1) * config.rate
        told_to_move = times[1:][(steps > STILL) & (times[1:] >= killed)]
        return {
            "told_ms": round(1e3 * float(told_to_move[-1] - killed), 1) if len(told_to_move) else 0.0,
            "still_ms": round(1e3 * last, 1),
            "speed_before": round(float(before.max()), 3),
            "said": " ".join(sorted(told)),
            "said_ms": round(1e3 * min(told.values()), 1) if told else "",
            "grasp_running": running,
        }


# ---- delays


def measure_delay(config: RosBenchConfig) -> Rows:
    """A row for the echo and one for the stack."""
    rows: Rows = []
    for kind, nodes in (("echo", ("echo",)), ("stack", ("safety", "servo"))):
        with tempfile.TemporaryDirectory() as folder:
            stack = _stack(config, config.environments[0], Path(folder))
            record = str(Path(folder) / "record.npz")
            answering = nodes[0]
            parameters = {**stack.parameters.get(answering, {}), "record": record}
            stack.parameters, stack.nodes = {**stack.parameters, answering: parameters}, nodes
            minutes = min(config.minutes, 1.0) if kind == "echo" else config.minutes
            with stack:
                driven = _drive(stack, Path(folder) / "times.npz", config.rate, minutes)
                stack.check()
            answers = dict(np.load(record))
        rows.append({"answered by": kind, "rate": config.rate, **delay_row(driven, answers)})
    return rows


def show_delay(rows: Texts) -> Rows:
    """A column for each of both, and what the stack adds."""
    echo, stack = rows
    shown: Rows = []
    for key in echo:
        if key in ("answered by", "load"):
            continue
        added = f"{float(stack[key]) - float(echo[key]):.3f}" if key.endswith(" ms") else ""
        shown.append({"": key, "echo": echo[key], "stack": stack[key], "added": added})
    return shown


def _drive(stack: Stack, out: Path, rate: int, minutes: float) -> Mapping[str, np.ndarray]:
    command = [sys.executable, "-m", "grasp_ros.bench_driver", "--ros-args"]
    command += ["-p", f"out:={out}", "-p", f"rate:={rate}", "-p", f"seconds:={60.0 * minutes:.1f}"]
    subprocess.run(command, env=stack.environment, check=True)
    return dict(np.load(out))


def delay_row(driven: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray]) -> dict[str, object]:
    """How joint states were answered.

    `driven` holds published (S,) and received (R,), ns, commands (R, 6), and warm_up, the number of states to
    leave out; `answers` is a `CommandRecord`. A command answers the joint state whose stamp it was made with,
    the newest one then. Commands arrive in the order in which they were sent.
    """
    published = driven["published"][int(driven["warm_up"]) :]
    mine = answers["stamps"] >= published[0]
    stamps, sent = answers["stamps"][mine], answers["sent"][mine]
    first_of_each = np.unique(stamps, return_index=True)[1]  # a later one answers no new state
    inside = (sent - stamps)[first_of_each] * 1e-6
    shift = _shift(answers["commands"], driven["commands"])
    arrivals = np.full(len(answers["sent"]), np.nan)
    count = min(len(arrivals) - shift, len(driven["received"]))
    arrivals[shift : shift + count] = (
        driven["received"][:count] - answers["stamps"][shift : shift + count]
    ) * 1e-6
    around = arrivals[mine][first_of_each]
    row: dict[str, object] = {
        "joint states": len(published),
        "answered": len(first_of_each),
        "share": round(len(first_of_each) / len(published), 6),
        "without a new state": len(stamps) - len(first_of_each),
        "lost on the way": int(np.isnan(around).sum()),
    }
    around = around[np.isfinite(around)]
    for name, delays in (("state to command sent", inside), ("to the driver", around)):
        for label, quantile in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)):
            row[f"{name}, {label} ms"] = round(float(np.quantile(delays, quantile)), 3)
    return row


def _shift(sent: np.ndarray, received: np.ndarray) -> int:
    """How many of the commands `sent` (N, 6) went out before the first of those `received` (R, 6), which was
    not listening yet. Told by the moving commands, of which no two are alike."""
    moving = np.flatnonzero(np.abs(np.diff(received, axis=0)).max(axis=1) > 0.0)
    probe = received[moving[0] : moving[0] + 50]
    for begin in range(len(sent) - len(probe) + 1):
        if np.array_equal(sent[begin : begin + len(probe)], probe):
            return begin - int(moving[0])
    raise UserError("the commands that the driver got are not those that were sent")


_PARTS = {
    "grasps": (measure_grasps, show_grasps),
    "kills": (measure_kills, show_kills),
    "delay": (measure_delay, show_delay),
}
