"""grasp-eval: run a policy bundle alone, as it would be deployed, on fresh episodes. Never imports Torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from grasp_control import progress
from grasp_control.bundle import BundlePolicy, load_bundle
from grasp_control.config import MAX_EPISODES
from grasp_control.intervals import wilson_interval
from grasp_control.manifest import Expectation
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import EpisodeResult, episode_seeds, evaluate
from grasp_sim import registry
from grasp_sim.cli import overrides, require_at_least, require_at_most, require_path, run_command
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM
from grasp_sim.errors import UserError

HELP = """Run a policy bundle alone (onnxruntime, no Torch, no memory); print success with a 95 % interval.

Success is the simulator's word, by the task's own rule (robosuite's Lift: the cube's centre 4 cm above the
table). A bundle made for another control mode, robot, rate or action scale is refused.

Examples:
  grasp-eval bundle=runs/robosuite-lift-servo-seed0/bundle
  grasp-eval bundle=runs/osc/bundle env.control_mode=osc episodes=200 seed=7
"""


@dataclass
class EvalConfig:
    """Run a policy bundle alone on fresh episodes."""

    bundle: str = MISSING
    """The policy bundle's folder."""
    episodes: int = 100
    """Episodes; with fewer than 100 the interval is wide."""
    seed: int = 0
    """Fixes the episodes; the run's own seed gives the episodes of its report."""
    seeds: list[int] = field(default_factory=list)
    """Seeds of single episodes, instead of `episodes` and `seed`."""
    json: bool = False
    """Print one JSON object per episode, for programs, instead of the bar and the result."""
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least(self, {"episodes": 1, "seed": 0})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_path("bundle", self.bundle)
        if min(self.seeds, default=0) < 0:
            raise ValueError(f"seeds={self.seeds} must not be negative.")


def main() -> int:
    """Entry point of `grasp-eval`."""
    return run_command(EvalConfig, run, HELP, program="grasp-eval")


def run(config: EvalConfig) -> None:
    """Evaluate in this process."""
    seeds = config.seeds or episode_seeds(config.seed, "evaluate", config.episodes)
    if config.json:
        run_bundle(config, seeds, lambda result: print(json.dumps(result._asdict()), flush=True))
    else:
        with progress.bar("Run the bundle alone", len(seeds)) as advance:
            results = run_bundle(config, seeds, lambda _: advance())
        print(describe(results))
    if "torch" in sys.modules:
        raise RuntimeError("Torch was imported: what was measured is not what runs on the robot.")


def run_bundle(
    config: EvalConfig, seeds: Sequence[int], on_episode: Callable[[EpisodeResult], None]
) -> list[EpisodeResult]:
    """One episode for each seed with the bundle of `config`."""
    env = registry.make(**vars(config.env))
    scale = env.unwrapped.action_scale  # type: ignore[attr-defined]
    policy: BundlePolicy = load_bundle(
        config.bundle, expect=Expectation(control_mode=config.env.control_mode, action_scale=scale)
    )
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=policy.manifest.context)
    try:
        return evaluate(
            env, lambda window: (policy.act_batch(window[None])[0], False), short_term, seeds, on_episode
        )
    finally:
        env.close()


def evaluate_alone(
    bundle: Path, env: EnvConfig, seeds: Sequence[int], advance: progress.Advance
) -> list[EpisodeResult]:
    """Run a bundle in a process of its own, where neither Torch nor the training's memory exists.

    Raises UserError with that process's message when it fails.
    """
    settings = overrides({"bundle": bundle, "seeds": list(seeds), "json": True})
    settings += overrides(vars(env), "env.")
    command = [sys.executable, "-m", "grasp_control.evaluate", *settings]
    results = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("{"):
                results.append(EpisodeResult(**json.loads(line)))
                advance()
        errors = process.stderr.read().strip()
    if process.returncode != 0 or len(results) != len(seeds):
        raise UserError(
            f"the bundle's own run failed after {len(results)} of {len(seeds)} episodes: {errors}"
        )
    return results


def result_rows(
    policy: str, env_step: int, results: Iterable[EpisodeResult]
) -> list[dict[str, str | int | float]]:
    """Rows of evaluation.csv."""
    return [
        {
            "policy": policy,
            "env_step": env_step,
            "episode": number,
            "seed": result.seed,
            "success": int(result.success),
            "return": result.total_reward,
            "length": result.length,
            "slip": int(result.slips > 0),
            "drop": int(result.drops > 0),
            "broken": int(result.broken),
        }
        for number, result in enumerate(results)
    ]


def success_note(results: Sequence[EpisodeResult]) -> str:
    """Success in a few words, for the end of a stage."""
    return f"success {100 * sum(r.success for r in results) / len(results):.3g} % of {len(results)}"


def describe(results: Sequence[EpisodeResult]) -> str:
    """One line: success with its interval, length and slips."""
    wins, count = sum(r.success for r in results), len(results)
    low, high = wilson_interval(wins, count)
    length = sum(r.length for r in results) / count
    slips = sum(r.slips > 0 for r in results)
    return (
        f"success {wins / count:.1%} of {count} episodes (95 % interval {low:.1%} to {high:.1%}), "
        f"mean length {length:.1f} steps, slips in {slips} episodes"
    )


if __name__ == "__main__":
    sys.exit(main())
