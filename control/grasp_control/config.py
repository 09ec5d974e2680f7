"""The typed configuration of every command. Field docstrings are what `--help` prints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from grasp_control.empo2.config import MAX_BATCH, EMPO2Config
from grasp_control.memory.config import MAX_CAPACITY, MemoryConfig
from grasp_control.memory.window import MAX_LENGTH, MIN_LENGTH
from grasp_sim.cli import require_at_least, require_at_most
from grasp_sim.config import EnvConfig

MAX_ENV_STEPS = 100_000_000
MAX_EPISODES = 1_000_000


@dataclass
class DemosConfig:
    """The demonstrations and earlier runs that seed the memory."""

    paths: list[str] = field(default_factory=list)
    """Data sets (folders) and episodes (files) to learn from, in this order; the run keeps copies of what it
    uses. Empty records new ones with the scripted expert."""
    episodes: int = 5
    """Successful demonstrations used, of those in `paths` the first; with 0 the agent begins with `runs`
    alone, or with nothing."""
    kind: str = "human-like"
    """'human-like' learns from the executed noisy action, as from a person's hand; 'clean' from the
    intended one."""
    noise: float = 0.15
    """Standard deviation, in action units, added to the expert's action while recording."""
    runs: list[str] = field(default_factory=list)
    """Folders of earlier runs of the same task, whose successful episodes EMPO2's memory begins with too."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least(self, {"episodes": 0}, "demos.")
        if self.paths and not self.episodes:
            raise ValueError(
                f"demos.episodes=0 leaves demos.paths={self.paths} without a use: set one of them."
            )
        for name in ("paths", "runs"):
            named = getattr(self, name)
            if len(set(named)) < len(named):
                raise ValueError(f"demos.{name}={named} names the same twice.")
        if not 0 <= self.noise <= 1:
            raise ValueError(f"demos.noise={self.noise} must lie between 0 and 1.")
        require_at_most(self, {"episodes": MAX_EPISODES}, "demos.")
        if self.kind not in ("human-like", "clean"):
            raise ValueError(f"demos.kind={self.kind!r} is unknown; there are 'human-like' and 'clean'.")


@dataclass
class DistillConfig:
    """Distillation of the hybrid policy into one network."""

    env_steps: int = 1000
    """Environment steps of on-policy distillation for each teacher: the student acts, the teacher labels. In
    grasp-train they are part of the run's `env_steps`."""
    updates: int = 6000
    """Student updates for each teacher."""
    batch_size: int = 256
    """Rows per update."""
    learning_rate: float = 1e-3
    """Step size at the start; falls to zero on a cosine."""
    memory_rows: int = 8192
    """Windows of successful episodes of each teacher that the first labels are made on."""
    size_noise: float = 0.0
    """m, standard deviation by which the student sees objects and heights off, so that it does not know an
    object, and with it the task, by its measures."""
    force_expectile: float = 0.5
    """Which grip force the student learns where the same window is labelled with several: 0.5 their mean,
    towards 0 the gentlest."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least(self, {"updates": 1, "batch_size": 1, "memory_rows": 1, "env_steps": 0}, "distill.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"distill.learning_rate={self.learning_rate} must be positive.")
        require_at_least(self, {"size_noise": 0.0}, "distill.")
        require_at_most(self, {"size_noise": 0.05}, "distill.")
        if not 0 < self.force_expectile < 1:
            raise ValueError(f"distill.force_expectile={self.force_expectile} must lie between 0 and 1.")
        limits = {"updates": MAX_ENV_STEPS, "env_steps": MAX_ENV_STEPS, "batch_size": MAX_BATCH}
        require_at_most(self, limits | {"memory_rows": MAX_CAPACITY, "learning_rate": 1}, "distill.")


@dataclass
class TrainConfig:
    """Train EMPO2, distil it into one network and prove that network alone."""

    seed: int = 0
    """Fixes demonstrations, networks, training and evaluation episodes."""
    out: str = ""
    """The run's folder; empty means runs/<env>-<control_mode>-seed<seed>. An unfinished run is resumed."""
    seeds: str = ""
    """Folder of a run of grasp-programs, whose policy performs the demonstrations instead of the scripted
    expert."""
    env_steps: int = 10_000
    """Environment steps of the whole run, distillation included."""
    context: int = 4
    """Observations in the policy's input, the newest of the short-term memory."""
    short_term_length: int = 16
    """Steps that the short-term memory holds."""
    evaluation_episodes: int = 100
    """Fresh episodes on which the exported network is proven."""
    curve_every: int = 2000
    """Environment steps between noise-free evaluations for the learning curve; not learned from."""
    curve_episodes: int = 30
    """Episodes of each of them."""
    checkpoint_every: int = 1000
    """Environment steps between checkpoints, to one of which training rolls back after a collapse [E13]."""
    metrics_every: int = 250
    """Environment steps between rows of train.csv."""
    video: bool = True
    """Render a video of several grasps into the report where software rendering works."""
    env: EnvConfig = field(default_factory=EnvConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    algo: EMPO2Config = field(default_factory=EMPO2Config)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        counts = ("evaluation_episodes", "curve_every", "curve_episodes", "checkpoint_every", "metrics_every")
        require_at_least(self, dict.fromkeys(counts, 1) | {"seed": 0})
        require_at_most(
            self,
            {
                "env_steps": MAX_ENV_STEPS,
                "evaluation_episodes": MAX_EPISODES,
                "curve_episodes": MAX_EPISODES,
            },
        )
        if not MIN_LENGTH <= self.short_term_length <= MAX_LENGTH:
            raise ValueError(
                f"short_term_length={self.short_term_length} must lie between {MIN_LENGTH} and {MAX_LENGTH}."
            )
        if not 1 <= self.context <= self.short_term_length:
            raise ValueError(
                f"context={self.context} must lie between 1 and short_term_length={self.short_term_length}."
            )
        if self.seeds and (self.demos.paths or not self.demos.episodes):
            raise ValueError(
                f"seeds={self.seeds} performs demonstrations, and demos.paths={self.demos.paths} with"
                f" demos.episodes={self.demos.episodes} ask for none: leave out seeds, or demos.paths."
            )
        training = self.env_steps - self.distill.env_steps
        if training < self.algo.warmup_steps:
            raise ValueError(
                f"env_steps={self.env_steps} leaves {training} steps for training after "
                f"distill.env_steps={self.distill.env_steps}; algo.warmup_steps={self.algo.warmup_steps} "
                f"needs more. Raise env_steps or lower the other two."
            )
