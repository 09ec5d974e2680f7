"""grasp-programs: learn to write grasp programs with MAPO."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grasp_control import progress
from grasp_control.bench.measure import write_rows
from grasp_control.checkpoint import CheckpointStore, restore
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.grammar import Grammar
from grasp_control.mapo.learner import greedy_success
from grasp_control.mapo.policy import ProgramPolicy
from grasp_control.mapo.pool import make_executor
from grasp_control.mapo.training import Training
from grasp_control.markdown import markdown
from grasp_control.run import check_same, held
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command
from grasp_sim.errors import UserError
from grasp_sim.program_env import OBJECT_TASKS, OBJECTS, GraspPrograms
from grasp_sim.programs import Executor, Problem
from grasp_sim.simulators import SIMULATORS

HELP = """Learn to write grasp programs with MAPO: sequences of motion primitives that lift an object.

No demonstrations are needed: programs are tried on training objects, what lifts one is remembered, and the
policy learns to write programs for objects that it has never tried. The same command again resumes a run that
was interrupted, and with more executions goes on with one that has ended.

In OUT: checkpoints; programs.csv, the best program of every training object; programs.md, what the policy
writes for five held-out objects; executions.sqlite, what every program was worth.

Examples:
  grasp-programs
  grasp-programs objects=fragile executions=4000 out=runs/fragile-programs
  grasp-train env.name=pybullet-fragile seeds=runs/fragile-programs demos.episodes=30
"""

CHECKPOINTS = "checkpoints"
NOTHING_LEFT = 100
"""Updates in a row without a program to execute, after which there is nothing left to learn."""
SHOWN = 5
"""Held-out objects whose programs are shown."""
_FREE = ("executions", "every", "processes", "out")
"""Settings that may change when a run is resumed."""


@dataclass
class ProgramsConfig:
    """Settings of `grasp-programs`."""

    objects: str = OBJECTS.name
    """Task whose objects are lifted."""
    simulator: str = "pybullet"
    """Where programs are executed."""
    seed: int = 0
    """Fixes networks and exploration; the objects are always the same."""
    problems: int = 200
    """Training objects."""
    held_out: int = 100
    """Held-out objects."""
    executions: int = 6000
    """Programs executed, those tried before counted again."""
    every: int = 500
    """Executions between checkpoints, which are evaluated on the held-out objects."""
    processes: int = 0
    """Processes that execute programs beside the learner; 0: none, exactly repeatable."""
    out: str = "runs/programs"
    """Folder of the run."""
    # Programs take longer to execute than updates do, so there are as many of these as there can be.
    mapo: MAPOConfig = field(default_factory=lambda: MAPOConfig(problems=4))
    """Of the method."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_choice("objects", self.objects, OBJECT_TASKS)
        require_choice("simulator", self.simulator, SIMULATORS)
        counts = ("problems", "held_out", "executions", "every")
        require_at_least(self, dict.fromkeys(counts, 1) | {"seed": 0, "processes": 0})
        require_at_most(self, dict.fromkeys(counts, 10**7) | {"processes": 64})
        require_path("out", self.out)

    def settings(self) -> dict[str, Any]:
        """What a run that is resumed has to agree with."""
        return {name: value for name, value in asdict(self).items() if name not in _FREE}


def main() -> int:
    """Entry point of `grasp-programs`."""
    return run_command(ProgramsConfig, train, HELP, program="grasp-programs", resumes=True)


def train(config: ProgramsConfig) -> None:
    """Learn, and write what was found."""
    torch.set_num_threads(1)
    out = Path(config.out)
    store = CheckpointStore(out / CHECKPOINTS)
    with held(out):
        task = GraspPrograms(config.objects, config.simulator)
        problems = task.problems("train", config.problems)
        held_out = task.problems("held-out", config.held_out)
        executions = str(out / "executions.sqlite")
        rng = np.random.default_rng(config.seed)
        execute = make_executor(task, config.mapo.check_share, rng, executions)
        with Training(
            task,
            problems,
            config.mapo,
            config.seed,
            execute,
            processes=config.processes,
            make_task=partial(GraspPrograms, config.objects, config.simulator),
            store=executions,
        ) as training:
            if store.steps():
                state = store.load_latest().state
                check_same(config.settings(), state["settings"], out)
                training.load(state["training"])
            _learn(training, config, store, held_out, execute)
            _write(training, out, task, problems, held_out, execute)


def _learn(
    training: Training,
    config: ProgramsConfig,
    store: CheckpointStore,
    held_out: list[Problem],
    execute: Executor,
) -> None:
    done, idle = training.executions, 0
    with progress.bar("Learn to write programs", config.executions, done=done) as advance:
        while training.executions < config.executions and idle < NOTHING_LEFT:
            before = training.executions
            training.update()
            idle = 0 if training.executions > before else idle + 1
            if training.executions - done >= config.every or training.executions >= config.executions:
                done = training.executions
                store.save(done, {"settings": config.settings(), "training": training.state()})
                success = greedy_success(training.learner.policy, held_out, execute)
                solved = len(training.solved) / config.problems
                advance(total=done, note=f"{solved:.0%} of training, {success:.0%} of held-out objects")


def _write(
    training: Training,
    out: Path,
    task: GraspPrograms,
    problems: list[Problem],
    held_out: list[Problem],
    execute: Executor,
) -> None:
    best = [
        {
            "object": problems[number].key,
            "description": task.describe_problem(problems[number].key),
            "program": task.describe(program),
            "tokens": " ".join(map(str, program)),
        }
        for number, program in sorted(training.solved.items())
    ]
    if best:
        write_rows(out / "programs.csv", best)
    policy = training.learner.policy
    features = torch.from_numpy(np.stack([problem.features for problem in held_out]))
    lines = [
        {
            "object": task.describe_problem(problem.key),
            "program": task.describe(program),
            "lifted": "yes" if execute(problem.key, program) == 1.0 else "no",
        }
        for problem, program in list(zip(held_out, policy.write(features, None), strict=True))[:SHOWN]
        if program is not None
    ]
    (out / "programs.md").write_text(markdown(lines))
    success = greedy_success(policy, held_out, execute)
    different = sum(map(len, training.tried.values()))
    print(
        f"{training.executions:,} executions, {different:,} different ones: {len(best)} of {len(problems)}"
        f" training objects lifted, and {success:.1%} of {len(held_out)} held-out ones at the first try."
    )
    for line in lines:
        print(f"  {line['object']}: {line['program']} ({'lifted' if line['lifted'] == 'yes' else 'failed'})")
    print(f"Written: {out}/programs.csv, {out}/programs.md")


def load_policy(folder: Path) -> tuple[ProgramPolicy, GraspPrograms]:
    """The policy of a run, and the task that it writes programs for.

    Raises UserError where the folder holds no run of `grasp-programs`.
    """
    store = CheckpointStore(folder / CHECKPOINTS)
    if not store.steps():
        raise UserError(f"{folder} holds no run of grasp-programs: give the folder that it was told as out=.")
    state = store.load_latest().state
    settings = state.get("settings", {})
    if "objects" not in settings:
        raise UserError(f"{folder} holds a run, but not one of grasp-programs.")
    task = GraspPrograms(settings["objects"], settings["simulator"])
    features = len(task.problems("train", 1)[0].features)
    hidden = int(settings["mapo"]["hidden"])
    policy = ProgramPolicy(Grammar(task), features, torch.Generator(), hidden)
    restore({"policy": policy}, {"policy": state["training"]["parts"]["policy"]})
    return policy, task
