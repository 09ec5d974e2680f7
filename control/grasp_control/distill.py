"""grasp-distill: make one memory-free network of the hybrid policies of finished runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from omegaconf import MISSING

from grasp_control import progress
from grasp_control.bench.measure import show_rows
from grasp_control.build import generator, torch_generator
from grasp_control.bundle import require_bundle_or_nothing
from grasp_control.config import MAX_EPISODES, DistillConfig
from grasp_control.distillation import Distilled, Teacher, distill
from grasp_control.evaluate import success_note
from grasp_control.intervals import wilson_interval
from grasp_control.manifest import Manifest
from grasp_control.proof import LEAST_GOAL, MEAN_GOAL, PROOF_FILE, Trial, prove, share, shares
from grasp_control.provenance import manifest_of, training_of
from grasp_control.teachers import TaughtRun, common_control_mode, distinct_names, load_run
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_at_most, require_path, run_command
from grasp_sim.env import ACTION_SCALES

DISTIL, MEASURE, PROVE = progress.numbered(
    "Distil into one network", "Evaluate the teachers", "Prove the exported network alone"
)

HELP = """Distil the policies of finished runs (actors, retrieval, critics) into one network, a bundle.

The student acts in the environment of each teacher, the teacher says what it would have done; the student
needs no memory at run time. Each run is a teacher as its newest checkpoint has it, with its own normaliser
and window; the student's window is as long as the longest. Then the exported file alone is run on fresh
episodes of every task, and the teachers on the same. grasp-train does this at its end for its own run.

The student is not told which task it is given. Where teachers want different grip forces in what looks the
same, distill.force_expectile below 0.5 makes it begin with the gentler one and tighten when it sees the
object slip. That takes more practice, and distill.size_noise, or it knows the objects it practised on by
their measures. For four teachers, slippery and fragile objects among them, these were good:
  distill.force_expectile=0.01 distill.size_noise=0.005 distill.memory_rows=2000 distill.env_steps=10000
  distill.updates=4000

Distillation begins again when it was stopped; a bundle at out= stays until the new network is exported.

A bundle has one control mode. Teachers of the other one label as they are, since an action of 1 moves the
tool about as far in both; name the bundle's with control_mode=.

Examples:
  grasp-distill teachers=[runs/robosuite-lift-servo-seed0] out=runs/bundle distill.updates=12000
  grasp-distill teachers=[runs/lift,runs/objects,runs/fragile] out=runs/all
"""


@dataclass
class DistillCommand:
    """Distil runs into one network."""

    teachers: list[str] = MISSING
    """The folders of finished runs made by grasp-train, as in [runs/lift,runs/objects]."""
    out: str = MISSING
    """The bundle's folder; a bundle that is there is replaced."""
    control_mode: str = ""
    """Of the bundle; needed only where the teachers' differ."""
    seed: int = 0
    """Fixes the student's first weights and what it is shown; its episodes follow from the runs' seeds."""
    episodes: int = 100
    """Fresh episodes of each teacher's task on which the exported network and the teacher are measured."""
    distill: DistillConfig = field(default_factory=DistillConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least(self, {"episodes": 1, "seed": 0})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_path("out", self.out)
        if not self.teachers:
            raise ValueError("teachers is empty: name at least one run, as in teachers=[runs/lift].")
        folders = [Path(teacher).resolve() for teacher in self.teachers]
        if len(set(folders)) < len(folders):
            raise ValueError(f"teachers={self.teachers} names the same run twice.")
        if self.control_mode and self.control_mode not in registry.CONTROL_MODES:
            modes = ", ".join(registry.CONTROL_MODES)
            raise ValueError(f"control_mode={self.control_mode} is not known. Choices: {modes}.")


def main() -> int:
    """Entry point of `grasp-distill`."""
    return run_command(DistillCommand, run, HELP, program="grasp-distill")


def run(command: DistillCommand) -> None:
    """Load the runs' newest checkpoints, distil, measure the teachers, export, prove."""
    torch.set_num_threads(1)
    bundle = Path(command.out)
    require_bundle_or_nothing(bundle)  # before the work, not after it
    runs = [load_run(Path(teacher)) for teacher in command.teachers]
    mode = command.control_mode or common_control_mode(runs)
    context = max(run.config.context for run in runs)
    for one in runs:
        print(f"Distilling {one.folder} as it was at environment step {one.trainer.env_steps}.")
    rng = generator(command.seed, "distillation")
    rows = command.distill.memory_rows
    teachers = [one.teacher(mode, context, rows, rng) for one in runs]
    bundle.absolute().parent.mkdir(parents=True, exist_ok=True)
    distilled = distil(command.distill, teachers, context, command.seed, rng, DISTIL)
    trials = measure_teachers(runs, mode, command.episodes)
    steps = command.distill.env_steps
    names = distinct_names([one.folder for one in runs])
    manifest = manifest_of(
        [
            training_of(one.config, name, env_steps=one.trainer.env_steps + steps)
            for one, name in zip(runs, names, strict=True)
        ],
        control_mode=mode,
        scale=ACTION_SCALES[mode],
        context=context,
    )
    manifest, _ = prove(bundle, distilled.student, manifest, trials, PROVE)
    describe(manifest)
    print(f"Bundle: {bundle}\nEvery episode: {bundle / PROOF_FILE}")


def measure_teachers(runs: Sequence[TaughtRun], control_mode: str, episodes: int) -> list[Trial]:
    """Each run's own policy on the episodes on which the network will be measured."""
    trials: list[Trial] = []
    with progress.bar(MEASURE, episodes * len(runs)) as advance:
        for one in runs:
            seeds = one.evaluation_seeds(episodes)
            results = one.measure(seeds, lambda _: advance())
            trials.append(Trial(one.env_config(control_mode), seeds, results))
        flat = [result for trial in trials for result in trial.teacher]
        advance(total=len(flat), note=success_note(flat))
    return trials


def distil(
    config: DistillConfig,
    teachers: Sequence[Teacher],
    context: int,
    seed: int,
    rng: np.random.Generator,
    title: str,
) -> Distilled:
    """One network, fixed by `seed` and `rng`, that does what the teachers do; `title` is the bar's."""
    with progress.bar(title, config.updates * len(teachers)) as advance:
        return distill(
            config,
            teachers,
            context=context,
            rng=rng,
            torch_generator=torch_generator(seed, "student"),
            on_update=advance,
        )


def describe(manifest: Manifest) -> None:
    """Print what became of each teacher's success, and whether it is what distillation is to keep."""
    rows = []
    for run in [*manifest.training, None]:
        figures = manifest.success if run is None else run.success
        ours, theirs, count = (
            figures["success_rate"],
            figures["teacher_success_rate"],
            int(figures["episodes"]),
        )
        low, high = wilson_interval(round(ours * count), count)
        rows.append(
            {
                "task": "all" if run is None else run.task,
                "teacher": "" if run is None else f"{run.run_id} ({run.control_mode})",
                "episodes": count,
                "teacher's success": f"{theirs:.1%}",
                "network's success": f"{ours:.1%} ({low:.0%} to {high:.0%})",
                "kept": f"{share(ours, theirs):.2%}",
            }
        )
    show_rows("The network alone beside its teachers, on the same episodes", rows)
    mean, least = shares(manifest)
    for name, value, goal in (
        ("the teachers' mean success", mean, MEAN_GOAL),
        ("each teacher's, the least", least, LEAST_GOAL),
    ):
        verdict = "reached" if value >= goal else "missed: see grasp-distill --help"
        print(f"Kept of {name}: {value:.2%} (goal {goal:.0%}, {verdict})")


if __name__ == "__main__":
    sys.exit(main())
