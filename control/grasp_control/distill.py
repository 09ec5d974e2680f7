"""grasp-distill: make one memory-free network of a finished run's hybrid policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from omegaconf import MISSING

from grasp_control import progress
from grasp_control.build import generator, load_demonstrations, make_trainer, torch_generator
from grasp_control.bundle import export_bundle, require_bundle_or_nothing
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import MAX_EPISODES, DistillConfig, TrainConfig
from grasp_control.distillation import Distilled, distill
from grasp_control.evaluate import describe, evaluate_alone
from grasp_control.manifest import Manifest
from grasp_control.provenance import manifest_of
from grasp_control.rollout import EpisodeResult, episode_seeds
from grasp_control.run import RunFolder, load_config
from grasp_control.runtime.local import LocalTrainer
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_at_most, require_path, run_command
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UserError

DISTIL, PROVE = progress.numbered("Distil into one network", "Prove the exported network alone")

HELP = """Distil a run's hybrid policy (actors, retrieval, critics) into one network, exported as a bundle.

The student acts, the teacher says what it would have done; the student needs no memory at run time.
grasp-train does this at its end; this command does it again, with other settings or a later checkpoint.

Example:
  grasp-distill run=runs/robosuite-lift-servo-seed0 out=runs/bundle distill.updates=12000
"""


@dataclass
class DistillCommand:
    """Distil a run into one network."""

    run: str = MISSING
    """The folder of a run made by grasp-train."""
    out: str = MISSING
    """The bundle's folder; a bundle that is there is replaced."""
    episodes: int = 100
    """Fresh episodes on which the exported network is proven."""
    distill: DistillConfig = field(default_factory=DistillConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least(self, {"episodes": 1})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_path("run", self.run)
        require_path("out", self.out)


def main() -> int:
    """Entry point of `grasp-distill`."""
    return run_command(DistillCommand, run, HELP, program="grasp-distill")


def run(command: DistillCommand) -> None:
    """Load the run's newest checkpoint, distil, export, prove."""
    torch.set_num_threads(1)
    folder = Path(command.run)
    config = load_config(folder)
    config.out = str(folder)
    bundle = Path(command.out)
    require_bundle_or_nothing(bundle)  # before the work, not after it
    checkpoints = CheckpointStore(folder / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{folder} holds no checkpoint: let grasp-train out={folder} run first.")
    bundle.absolute().parent.mkdir(parents=True, exist_ok=True)
    env = registry.make(**vars(config.env), seed=config.seed)
    episodes = load_demonstrations(config, RunFolder.existing(config), env)
    trainer = make_trainer(config, env, episodes, [])
    trainer.resume(checkpoints.load_latest())
    print(f"Distilling {folder} as it was at environment step {trainer.env_steps}.")
    if not trainer.finished:
        print(
            f"It is unfinished: training ends at step {trainer.total_steps}; grasp-train goes on with it.",
            flush=True,
        )
    # Only now: the teacher's schedules end where its own training ended.
    config.distill = command.distill
    student, _ = distill_trainer(config, trainer, DISTIL)
    scale = env.unwrapped.action_scale  # type: ignore[attr-defined]
    manifest = manifest_of(config, folder, scale, env_steps=trainer.env_steps + command.distill.env_steps)
    seeds = episode_seeds(config.seed, "evaluate", command.episodes)
    print(describe(prove(bundle, student, manifest, config.env, seeds, PROVE)))
    print(f"Bundle: {bundle}")


def distill_trainer(config: TrainConfig, trainer: LocalTrainer, title: str) -> Distilled:
    """One network that does what actors, retrieval and critics do together; `title` is the bar's."""
    if not trainer.memory.success_rows:
        raise UserError(
            f"training found no success in {trainer.env_steps} environment steps, so nothing is distilled. "
            "Use what is not in use yet: demonstrations (demos.episodes=5), earlier runs (demos.runs), the "
            "dense reward, a curriculum (algo.curriculum.enabled=true algo.quiet_share=0.4), or more steps."
        )
    rng = generator(config.seed, "distillation")
    with progress.bar(title, config.distill.updates) as advance:
        return distill(
            config.distill,
            trainer.label,
            trainer.agent.normaliser,
            trainer.memory.sample_successes(config.distill.memory_rows, rng).windows,
            env=trainer.env,
            short_term=trainer.short_term,
            seed=config.seed,
            rng=rng,
            torch_generator=torch_generator(config.seed, "student"),
            on_update=advance,
        )


def prove(
    bundle: Path,
    student: torch.nn.Module,
    manifest: Manifest,
    env: EnvConfig,
    seeds: Sequence[int],
    title: str,
) -> list[EpisodeResult]:
    """Export the student, run the exported file alone, and write what it reached into its manifest."""
    export_bundle(bundle, student, manifest=manifest)
    with progress.bar(title, len(seeds)) as advance:
        results = evaluate_alone(bundle, env, seeds, advance)
    success = {"success_rate": sum(r.success for r in results) / len(results), "episodes": len(results)}
    export_bundle(bundle, student, manifest=replace(manifest, success=success))
    return results


if __name__ == "__main__":
    sys.exit(main())
