"""`grasp-bench transfer`: policies in simulators they were not trained in, a stand-in for the reality gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grasp_control import progress
from grasp_control.bench.measure import beside, show_rows, write_rows
from grasp_control.bench.settings import require_beginning, require_environments
from grasp_control.bundle import load_bundle
from grasp_control.config import MAX_EPISODES
from grasp_control.evaluate import EvalConfig, run_bundle
from grasp_control.intervals import wilson_interval
from grasp_control.markdown import markdown
from grasp_control.rollout import episode_seeds
from grasp_sim.cli import require_at_least, require_at_most, run_command
from grasp_sim.config import EnvConfig

HELP = """Run policy bundles in several environments: a table of where trained against where tested.

Writes OUT.csv (a row per bundle and environment) and OUT.md (the table). Each bundle is run in its own
control mode; the same episodes for all.

Example:
  grasp-bench transfer bundles=[runs/a/bundle,runs/b/bundle] environments=[robosuite-lift,pybullet-lift]
"""


@dataclass
class TransferConfig:
    """Settings of `grasp-bench transfer`."""

    bundles: list[str] = field(default_factory=list)
    """Folders of policy bundles."""
    environments: list[str] = field(default_factory=lambda: ["robosuite-lift", "pybullet-lift"])
    """Environments to test in."""
    episodes: int = 100
    """Episodes of each bundle in each environment."""
    seed: int = 1000
    """Fixes the episodes; other than the runs' own seeds, the starts are new to every policy."""
    horizon: int = 100
    """Steps after which an episode has failed."""
    out: str = "docs/benchmarks/transfer"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        if not self.bundles:
            raise ValueError("bundles is empty: name at least one, as in bundles=[runs/a/bundle].")
        require_environments(self.environments)
        require_at_least(self, {"episodes": 1, "seed": 0, "horizon": 1})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_beginning(self.out)


def run(arguments: Sequence[str]) -> int:
    """Run with `key=value` settings; returns the exit code."""
    return run_command(TransferConfig, measure, HELP, argv=arguments, program="grasp-bench transfer")


def measure(config: TransferConfig) -> None:
    """Run all, print the table, write the files."""
    seeds = episode_seeds(config.seed, "transfer", config.episodes)
    manifests = {bundle: load_bundle(bundle, expect=None).manifest for bundle in config.bundles}
    rows: list[dict[str, object]] = []
    table: list[dict[str, object]] = []
    total = len(manifests) * len(config.environments) * config.episodes
    with progress.bar("Run the bundles", total) as advance:
        for bundle, manifest in manifests.items():
            line: dict[str, object] = {
                "policy": manifest.runs,
                "trained in": manifest.task,
            }
            for name in config.environments:
                env = EnvConfig(name=name, control_mode=manifest.control_mode, horizon=config.horizon)
                results = run_bundle(EvalConfig(bundle=bundle, env=env), seeds, lambda _: advance())
                wins = sum(result.success for result in results)
                low, high = wilson_interval(wins, len(results))
                line[f"in {name}"] = f"{wins}/{len(results)} ({low:.0%} to {high:.0%})"
                rows.append(
                    {
                        "policy": manifest.runs,
                        "seed": "+".join(str(run.seed) for run in manifest.training),
                        "train_env": manifest.task,
                        "test_env": name,
                        "control_mode": manifest.control_mode,
                        "successes": wins,
                        "episodes": len(results),
                        "mean_steps": sum(result.length for result in results) / len(results),
                        "episodes_with_slips": sum(result.slips > 0 for result in results),
                    }
                )
            table.append(line)
    show_rows("Success where tested", table)
    out = Path(config.out)
    write_rows(beside(out, ".csv"), rows)
    beside(out, ".md").write_text(markdown(table))
    print(f"Written: {out}.csv, {out}.md")
