"""The typed configuration of every command. Field docstrings are what `--help` prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from grasp_control.empo2.config import EMPO2Config
from grasp_control.memory.config import MemoryConfig


@dataclass
class EnvConfig:
    """The environment."""

    name: str = "robosuite-lift"
    """Registered name; an unknown one lists what exists."""
    control_mode: str = "servo"
    """'servo', the same servo as on the real arm, or 'osc', robosuite's operational-space controller."""
    reward: str = "sparse"
    """Reward structure."""
    horizon: int = 100
    """Policy steps (20 Hz) until an episode times out."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.horizon < 1:
            raise ValueError(f"env.horizon={self.horizon} must be at least 1.")


@dataclass
class DemosConfig:
    """The demonstrations that seed the memory."""

    path: str = ""
    """An existing data set; empty records new ones with the scripted expert into the run's folder."""
    episodes: int = 5
    """Successful demonstrations used."""
    kind: str = "human-like"
    """'human-like' learns from the executed noisy action, as from a person's hand; 'clean' from the
    intended one."""
    noise: float = 0.15
    """Standard deviation, in action units, added to the expert's action while recording."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.episodes < 1:
            raise ValueError(f"demos.episodes={self.episodes} must be at least 1.")
        if self.kind not in ("human-like", "clean"):
            raise ValueError(f"demos.kind={self.kind!r} is unknown; there are 'human-like' and 'clean'.")


@dataclass
class DistillConfig:
    """Distillation of the hybrid policy into one network."""

    env_steps: int = 1000
    """Environment steps of on-policy distillation: the student acts, the teacher labels. They are part of
    the run's `env_steps`."""
    updates: int = 6000
    """Student updates in all."""
    batch_size: int = 256
    """Rows per update."""
    learning_rate: float = 1e-3
    """Step size at the start; falls to zero on a cosine."""
    memory_rows: int = 8192
    """Windows of successful episodes that the first labels are made on."""


@dataclass
class TrainConfig:
    """Train EMPO2, distil it into one network and prove that network alone."""

    seed: int = 0
    """Fixes demonstrations, networks, training and evaluation episodes."""
    out: str = ""
    """The run's folder; empty means runs/<env>-seed<seed>. An unfinished run there is resumed."""
    env_steps: int = 10_000
    """Environment steps of the whole run, distillation included."""
    context: int = 4
    """Observations in the policy's input, the newest of the short-term memory."""
    short_term_length: int = 16
    """Steps that the short-term memory holds."""
    evaluation_episodes: int = 100
    """Fresh episodes on which the exported network is proven."""
    checkpoint_every: int = 1000
    """Environment steps between checkpoints."""
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
        training = self.env_steps - self.distill.env_steps
        if training < self.algo.warmup_steps:
            raise ValueError(
                f"env_steps={self.env_steps} leaves {training} steps for training after "
                f"distill.env_steps={self.distill.env_steps}; algo.warmup_steps={self.algo.warmup_steps} "
                f"needs more. Raise env_steps or lower the other two."
            )
