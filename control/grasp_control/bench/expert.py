"""`grasp-bench expert`: how often the scripted expert succeeds, per task, simulator and control mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grasp_control import progress
from grasp_control.bench.measure import beside, show_rows, write_rows
from grasp_control.bench.settings import require_beginning, require_environments
from grasp_control.config import MAX_EPISODES
from grasp_control.intervals import wilson_interval
from grasp_control.markdown import markdown
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_at_most, run_command
from grasp_sim.env import GraspEnv
from grasp_sim.expert import perform

HELP = """Run the scripted expert in every environment and control mode.

Writes OUT.csv (a row per episode) and OUT.md (the table).

Example: grasp-bench expert environments=[pybullet-objects] episodes=20 out=/tmp/expert"""


@dataclass
class ExpertBenchConfig:
    """Settings of `grasp-bench expert`."""

    environments: list[str] = field(default_factory=registry.names)
    """Environments, each in both control modes."""
    episodes: int = 100
    """Episodes of each."""
    horizon: int = 150
    """Steps after which an episode has failed."""
    seed: int = 0
    """Seed of the first episode; episode k has seed + k, the same start in every simulator."""
    out: str = "docs/benchmarks/expert"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        require_environments(self.environments)
        require_at_least(self, {"episodes": 1, "horizon": 1, "seed": 0})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_beginning(self.out)


def run(arguments: Sequence[str]) -> int:
    """Run with `key=value` settings; returns the exit code."""
    return run_command(ExpertBenchConfig, measure, HELP, argv=arguments, program="grasp-bench expert")


def measure(config: ExpertBenchConfig) -> None:
    """Run all, print the table, write the files."""
    episodes: list[dict[str, object]] = []
    table: list[dict[str, object]] = []
    modes = [(name, mode) for name in config.environments for mode in registry.CONTROL_MODES]
    with progress.bar("Run the expert", len(modes) * config.episodes) as advance:
        for name, mode in modes:
            env = registry.make(name, control_mode=mode, horizon=config.horizon)
            rows = []
            for number in range(config.episodes):
                rows.append({"env": name, "control_mode": mode, **run_episode(env, config.seed + number)})
                advance()
            env.close()
            episodes += rows
            table.append(_summary(name, mode, rows))
    show_rows("Scripted expert", table)
    out = Path(config.out)
    write_rows(beside(out, ".csv"), episodes)
    beside(out, ".md").write_text(markdown(table))
    print(f"Written: {out}.csv, {out}.md")


def run_episode(env: GraspEnv, seed: int) -> dict[str, object]:
    """One episode of the expert, without noise."""
    infos = [info for _, info in perform(env, seed)]
    thing, last = infos[0]["start"].object, infos[-1]
    return {
        "seed": seed,
        "object": thing.name,
        "width_m": round(thing.grasp_width, 4),
        "mass_kg": round(thing.mass, 3),
        "friction": round(thing.friction, 3),
        "success": int(last["success"]),
        "steps": len(infos),
        "slips": sum(info["slip"] for info in infos),
        "broken": int(last["broken"]),
        "sim_fault": int(last["sim_fault"]),
    }


def _summary(name: str, mode: str, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    wins = sum(row["success"] == 1 for row in rows)
    low, high = wilson_interval(wins, len(rows))
    return {
        "environment": name,
        "control mode": mode,
        "success": f"{wins}/{len(rows)}",
        "95 % interval": f"{low:.0%} to {high:.0%}",
        "mean steps": f"{sum(int(str(row['steps'])) for row in rows) / len(rows):.0f}",
        "episodes with slips": sum(int(str(row["slips"])) > 0 for row in rows),
    }
