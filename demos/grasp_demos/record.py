"""`grasp-record`: record demonstrations into a data set."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grasp_demos.episode import KINDS
from grasp_demos.recording import record_expert
from grasp_sim import registry
from grasp_sim.cli import require_choice, require_path, run_command
from grasp_sim.config import EnvConfig

__all__ = ["RecordConfig", "main", "record", "record_expert"]

SOURCES = ("expert",)


@dataclass
class RecordConfig:
    """Settings of `grasp-record`."""

    source: str = "expert"
    """Who acts: expert (the scripted grasper)."""
    kind: str = "human-like"
    """What a policy will learn from it. human-like: the executed action, noise included, as a person's hand
    would give. clean: the intended action before noise, which is easier to learn from."""
    episodes: int = 5
    """Successful demonstrations wanted in the data set; those already there count."""
    noise: float = 0.15
    """Standard deviation of the Gaussian noise added to each dimension of the action (range -1 to 1)."""
    seed: int = 0
    """Seed of the first try; try k uses seed + k. The same seed gives the same demonstrations."""
    keep_failures: bool = False
    """Store failed tries too, marked as failures; they are never used as demonstrations."""
    note: str = ""
    """Remark stored with each episode."""
    out: str = "runs/demos"
    """Folder of the data set; recording into an existing one goes on where it stopped."""
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        require_path("out", self.out)
        require_choice("source", self.source, SOURCES)
        require_choice("kind", self.kind, KINDS)
        if self.episodes < 1:
            raise ValueError(f"episodes={self.episodes} must be at least 1.")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative.")
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(
                f"noise={self.noise} must lie between 0 and 1, the action's own range being -1 to 1."
            )


HELP = """\
Record demonstrations of a grasp into a data set, one checksummed file an episode.

Examples:
  grasp-record                                              five human-like demonstrations into runs/demos
  grasp-record episodes=20 out=runs/demos20                 twenty, elsewhere
  grasp-record kind=clean noise=0.3 out=runs/clean          the undisturbed intention is learnt
  grasp-record env.name=pybullet-objects out=runs/objects   another simulator and task

It may be stopped at any time: finished episodes are safe, and the same command goes on where it stopped.
Then: grasp-replay path=runs/demos checks them in the simulator.
"""


def record(config: RecordConfig) -> int:
    """Record as configured and say what was recorded."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    new, failed = 0, 0
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"building {config.env.name}", total=config.episodes)
        env: Any = registry.make(**vars(config.env), seed=config.seed)

        def show(held: int, failures: int) -> None:
            nonlocal new, failed
            new, failed = new + int(failures == failed), failures
            tail = f", {failures} failed" if failures else ""
            bar.update(task, completed=min(held, config.episodes), description=f"recording{tail}")

        done = record_expert(
            env,
            config.out,
            task=config.env.name,
            episodes=config.episodes,
            rng=np.random.default_rng(config.seed),
            noise=config.noise,
            kind=config.kind,
            seed=config.seed,
            keep_failures=config.keep_failures,
            note=config.note,
            progress=show,
        )
        bar.update(task, completed=len(done), description="recorded")
    steps = sum(len(episode) for episode in done)
    kept = "kept" if config.keep_failures else "thrown away"
    tail = f"; {failed} tries failed and were {kept}" if failed else ""
    print(
        f"{config.out} holds {len(done)} {config.kind} demonstrations ({steps} steps), "
        f"{new} of them new{tail}."
    )
    return 0


def main() -> int:
    """Entry point of `grasp-record`."""
    return run_command(RecordConfig, record, HELP, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
