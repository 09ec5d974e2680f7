"""grasp-train: record demonstrations, train EMPO2, distil it into one network and prove it alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import torch

from grasp_control import progress
from grasp_control.build import generator, given_demonstrations, load_demonstrations, make_trainer
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import TrainConfig
from grasp_control.distill import distil
from grasp_control.earlier import load_earlier_runs
from grasp_control.evaluate import result_rows, success_note
from grasp_control.metrics import MetricsWriter
from grasp_control.networks import DistilledPolicy
from grasp_control.proof import Trial, prove
from grasp_control.provenance import manifest_of, training_of
from grasp_control.report import print_table, write_report
from grasp_control.rollout import episode_seeds, evaluate
from grasp_control.run import RunFolder
from grasp_control.runtime.local import LocalTrainer
from grasp_control.stopwatch import Stopwatch
from grasp_control.summary import summarise
from grasp_control.teachers import teacher_of
from grasp_control.types import Trajectory
from grasp_control.video import VideoError, render_grasps
from grasp_demos.episode import Episode
from grasp_sim import registry
from grasp_sim.cli import run_command

RECORD, CLONE, MEASURE_CLONED, TRAIN, MEASURE_HYBRID, DISTIL, PROVE = progress.numbered(
    "Record demonstrations",
    "Clone the demonstrations",
    "Evaluate the cloned policy",
    "Train EMPO2",
    "Evaluate the hybrid policy",
    "Distil into one network",
    "Prove the exported network alone",
)

HELP = """Train a grasp policy with EMPO2, from demonstrations to a proven network.

Records demonstrations with the scripted expert, trains, distils the hybrid policy (actors, retrieval,
critics) into one network, exports it as a bundle, runs the bundle alone on fresh episodes and writes a
report. The same command again resumes a run that was interrupted.

Examples:
  grasp-train
  grasp-train seed=1 env.control_mode=osc out=runs/osc-1
  grasp-train demos.runs=[runs/tour] demos.episodes=0 out=runs/further
  grasp-train env.name=pybullet-objects seeds=runs/programs demos.episodes=30
  grasp-train "demos.paths=[runs/mine,runs/other]" demos.episodes=30 out=runs/shown
  grasp-train algo.batch_size=2048 algo.warmup_steps=2048 out=runs/large
"""


def main() -> int:
    """Entry point of `grasp-train`."""
    return run_command(TrainConfig, train, HELP, program="grasp-train", resumes=True)


def train(config: TrainConfig) -> None:
    """The main job in the run's folder, which no other training may use meanwhile."""
    torch.set_num_threads(1)
    env = registry.make(**vars(config.env), seed=config.seed)
    run = RunFolder(config)
    # Demonstrations and runs that are given are checked before the folder is made.
    given = given_demonstrations(config, env, run)
    # A run that is resumed has what it began with in its checkpoint.
    earlier = [] if CheckpointStore(run.checkpoints).steps() else load_earlier_runs(config, env)
    with run.begin():
        if run.report.exists():
            print_table(summarise(run.path))
            print(f"{run.path} is finished: see {run.report}. Train anew with another seed=... or out=...")
            return
        stopwatch = Stopwatch(run.wall_s)
        episodes = load_demonstrations(config, run, env, RECORD, given)
        train_in(config, run, env, episodes, earlier, stopwatch)
        stopwatch.note()
        print(f"Wall time of all calls: {stopwatch.seconds / 60:.1f} min")


def train_in(
    config: TrainConfig,
    run: RunFolder,
    env: gymnasium.Env,
    episodes: Sequence[Episode],
    earlier: Sequence[Trajectory],
    stopwatch: Stopwatch,
) -> None:
    """The main job, top to bottom."""
    trainer = make_trainer(config, env, episodes, earlier)
    checkpoints = CheckpointStore(run.checkpoints)
    with MetricsWriter(run.path, resume(run, trainer, checkpoints), stopwatch) as metrics:
        train_hybrid(config, trainer, checkpoints, metrics)
        student = distil_trainer(config, trainer, metrics)
        manifest = manifest_of(
            [training_of(config, run.path.name)],
            control_mode=config.env.control_mode,
            scale=trainer.env.unwrapped.action_scale,  # type: ignore[attr-defined]
            context=config.context,
        )
        seeds = episode_seeds(config.seed, "evaluate", config.evaluation_episodes)
        _, [results] = prove(run.bundle, student, manifest, [Trial(config.env, seeds)], PROVE)
        metrics.replace_table("evaluation", result_rows("exported", config.env_steps, results))
    finish(config, run)


def resume(run: RunFolder, trainer: LocalTrainer, checkpoints: CheckpointStore) -> int:
    """Go on from the newest checkpoint; its step, or -1 where there is none.

    The folder is this run's: what stands there from before the first checkpoint is done again.
    """
    if not checkpoints.steps():
        return -1
    trainer.resume(checkpoints.load_latest())
    print(f"Resuming {run.path} at environment step {trainer.env_steps}.", flush=True)
    return trainer.env_steps


def train_hybrid(
    config: TrainConfig, trainer: LocalTrainer, checkpoints: CheckpointStore, metrics: MetricsWriter
) -> None:
    """Clone, if there is something to and no checkpoint shows that it was done, and train; the policy is
    measured after both."""
    if not checkpoints.steps():
        if trainer.memory.success_rows:
            clone(config, trainer)
            measure(config, trainer, MEASURE_CLONED, "cloned", metrics)
        trainer.save(checkpoints)
    learn(config, trainer, checkpoints, metrics)
    measure(config, trainer, MEASURE_HYBRID, "hybrid", metrics)


def clone(config: TrainConfig, trainer: LocalTrainer) -> None:
    """Behaviour cloning of the demonstrations: the policy that the first episodes are run with."""
    with progress.bar(CLONE, config.algo.cloning_updates) as advance:
        for _ in range(config.algo.cloning_updates):
            trainer.clone()
            advance()


def learn(
    config: TrainConfig, trainer: LocalTrainer, checkpoints: CheckpointStore, metrics: MetricsWriter
) -> None:
    """The training loop: one episode, then the updates it owes.

    What is due depends on the steps alone and is measured before a checkpoint is saved, so that a resumed run
    measures where one that was never stopped does.
    """
    if not trainer.finished:
        print(
            f"{TRAIN} takes {trainer.total_steps} of the run's {config.env_steps} environment steps; "
            f"{config.distill.env_steps} are for {DISTIL}.\n"
            "Its episodes carry exploration noise and starts that failed are repeated, so their success is "
            "below what the policy can do.",
            flush=True,
        )
    stats: dict[str, float] = {}
    recent: list[bool] = []
    steps, done = trainer.total_steps, trainer.env_steps
    with progress.bar(TRAIN, steps, done=done, steady_from=config.algo.warmup_steps) as advance:
        while not trainer.finished:
            before = trainer.env_steps
            result = trainer.sample_episode()
            recent = [*recent[-19:], result.success]
            metrics.write("episodes", trainer.episode_row(result))
            while trainer.updates_owed > 0:
                stats = trainer.learn()
            # Before anything is measured or saved, so that no checkpoint holds what is to be undone.
            for event in trainer.protect(checkpoints):
                metrics.write_table("events", [event])
                print(f"Step {event['env_step']}: {event['action']}, since {event['cause']}.")
            share = f"{sum(recent)}/{len(recent)} recent episodes"
            advance(total=trainer.env_steps, note=f"success with exploration noise {share}")
            now = trainer.env_steps
            if stats and (now // config.metrics_every > before // config.metrics_every or trainer.finished):
                metrics.write("train", trainer.metrics_row(stats))
            if now // config.curve_every > before // config.curve_every and not trainer.finished:
                seeds = episode_seeds(config.seed, "curve", config.curve_episodes)
                results = evaluate(trainer.env, trainer.hybrid, trainer.short_term, seeds)
                metrics.replace_table("evaluation", result_rows("hybrid", now, results))
            if now // config.checkpoint_every > before // config.checkpoint_every or trainer.finished:
                metrics.write_table("score_histogram", trainer.histogram_rows())
                trainer.save(checkpoints)


def measure(
    config: TrainConfig, trainer: LocalTrainer, title: str, name: str, metrics: MetricsWriter
) -> None:
    """Run the agent as it is, without noise, on the evaluation's episodes. Nothing is learned from them."""
    seeds = episode_seeds(config.seed, "evaluate", config.evaluation_episodes)
    with progress.bar(title, len(seeds)) as advance:
        results = evaluate(trainer.env, trainer.hybrid, trainer.short_term, seeds, lambda _: advance())
        advance(total=len(seeds), note=success_note(results))
    metrics.replace_table("evaluation", result_rows(name, trainer.env_steps, results))


def distil_trainer(config: TrainConfig, trainer: LocalTrainer, metrics: MetricsWriter) -> DistilledPolicy:
    """One network that does what actors, retrieval and critics do together."""
    rng = generator(config.seed, "distillation")
    rows = config.distill.memory_rows
    teacher = teacher_of(config, trainer, trainer.env, config.context, rows, rng)
    student, practice = distil(config.distill, [teacher], config.context, config.seed, rng, DISTIL)
    metrics.replace_table("distillation", result_rows("student", config.env_steps, practice))
    return student


def finish(config: TrainConfig, run: RunFolder) -> None:
    """Video, report and the table."""
    video: Path | None = None
    if config.video:
        print("Rendering a video of several grasps.")
        try:
            seeds = episode_seeds(config.seed, "video", 4)
            video = render_grasps(run.bundle, run.video, config.env, seeds)
        except VideoError as error:
            print(error)
    title = f"{config.env.name}, control mode {config.env.control_mode}, seed {config.seed}"
    report = write_report(run.path, title=title, video=video)
    print_table(summarise(run.path))
    print(f"Report: {report}\nBundle: {run.bundle}")


if __name__ == "__main__":
    sys.exit(main())
