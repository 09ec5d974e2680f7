"""Settings of EMPO2. The ids in brackets are those of docs/parts.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from grasp_control.empo2.curriculum import CurriculumConfig
from grasp_control.empo2.gate import GateConfig
from grasp_control.empo2.safeguards import SafeguardsConfig
from grasp_sim.cli import require_at_least, require_at_most, require_choice

MAX_BATCH = 1_000_000

_LIMITS = {
    "batch_size": MAX_BATCH,
    "imitation_batch": MAX_BATCH,
    "cloning_batch": MAX_BATCH,
    "cloning_updates": 100_000_000,
    "updates_per_step": 1000,
    "hidden_width": 16_384,
    "actors": 256,
    "critics": 256,
    "improvement_samples": 1024,
    "neighbours": 64,
    "target_neighbours": 64,
    "learning_rate": 1,
    "final_learning_rate": 1,
    "symmetry_angle": math.pi,
    "exploration_noise": 10,
    "force_noise": 10,
    "noise_exponent": 4,
    "slip_penalty": 1000,
    "force_safe_share": 1,
    "force_budget": 1000,
    "force_rate": 1000,
    "rnd_weight": 1000,
    "similarity_weight": 1000,
    "similarity_reach": 1000,
}
"""Beyond these, nothing is learned but the machine's memory is used up, or numbers overflow."""

_COUNTS = (
    "batch_size",
    "imitation_batch",
    "cloning_batch",
    "cloning_updates",
    "hidden_width",
    "actors",
    "critics",
    "improvement_samples",
    "neighbours",
    "target_neighbours",
    "training_horizon",
)


@dataclass
class EMPO2Config:
    """Settings of the EMPO2 agent and its learner."""

    batch_size: int = 1024
    """Rows per update [E16: 1024-4096]."""
    imitation_batch: int = 1024
    """Rows of successful episodes per update, drawn uniformly and shared out among the actors [E9]."""
    updates_per_step: float = 0.35
    """Learner updates per environment step."""
    warmup_steps: int = 1024
    """Environment steps with the cloned policy before the first update; at least `batch_size`."""
    cloning_updates: int = 2000
    """Behaviour-cloning updates on the demonstrations before the first environment step."""
    cloning_batch: int = 512
    """Rows per cloning update, shared out among the actors."""
    symmetry_angle: float = 0.5
    """rad; imitated rows are turned about the vertical axis by up to this angle. 0 switches it off."""
    precision: str = "fp32"
    """Of the learner's matrix products: 'fp32', or 'bf16', which takes less time on processors with it."""
    hidden_width: int = 256
    """Width of both hidden layers, actor and critics."""
    actors: int = 4
    """Members of the policy ensemble: one acts through a training episode, their mean is the policy."""
    critics: int = 3
    """Members of each critic ensemble [E7]."""
    learning_rate: float = 3e-4
    """Step size of all optimisers at the start; falls on a cosine to `final_learning_rate`."""
    final_learning_rate: float = 3e-5
    """Step size at the end of the run."""
    gradient_norm: float = 10.0
    """Clip of the policy's gradient norm."""
    target_rate: float = 0.02
    """Share of the online weights that the targets take over per update."""
    average_rate: float = 0.01
    """The same for the averaged policy, which acts and is distilled."""
    eta_start: float = 0.8
    """Weight of the conservative critic at the start [E7]."""
    eta_end: float = 0.2
    """Weight of the conservative critic at the end [E7]."""
    lambda_start: float = 0.3
    """KL coefficient at the start [E8]."""
    lambda_end: float = 0.1
    """KL coefficient at the end [E8]."""
    std_penalty_ratio: float = 10.0
    """How much harder the standard deviation is held than the mean [E8]."""
    epsilon: float = 0.1
    """E-step bound in nats on the improved distribution's KL from the target policy [E8]."""
    improvement_batch: int = 256
    """States per E-step."""
    fresh_share: float = 0.5
    """Share of these states that comes from the latest episodes, the fresh stratum [E9]."""
    improvement_samples: int = 2
    """Actions drawn from each actor of the target policy per state in the E-step."""
    neighbours: int = 4
    """Retrieved actions per state, in the E-step and when acting [E8, E10]."""
    retrieval_share: float = 0.3
    """Prior mass of the retrieved actions among the E-step's candidates [E8]."""
    advantage_scale: float = 0.05
    """Units of return by which a step of a successful episode must be worse than the policy's own action for
    its weight in imitation to fall to 1/e."""
    target_neighbours: int = 1
    """Retrieved actions per row for the exploratory critic's maximum [E7]."""
    memory_share_start: float = 0.9
    """Weight of the memory stratum (imitating successful rows) in the policy loss, at the start [E9]."""
    memory_share_end: float = 0.5
    """The same at the end [E9]."""
    memory_share_floor: float = 0.1
    """The weight is the policy's mass on successful rows, at least this, at most the schedule [E9, M2]."""
    imitation_std: float = 0.2
    """Width, in action units, of the likelihood under which successful rows are imitated."""
    exploration_noise: float = 0.4
    """Standard deviation, in action units, added to the intended motion and opening while training."""
    force_noise: float = 0.05
    """The same for the grip force, which is set and not steered: 0.05 is 5 N, more breaks what is fragile."""
    noise_exponent: float = 0.0
    """Colour of that noise: 0 is white, 1 is pink, which finds a grasp without demonstrations."""
    quiet_share: float = 0.0
    """Share of training episodes without noise. A curriculum goes by them alone if there are any: noise that
    finds a grasp also spoils many."""
    training_horizon: int = 70
    """Policy steps after which a training episode is cut as at a time-out (values are bootstrapped): a grasp
    takes about 40, and what has failed by then only uses up the step budget."""
    hard_start_share: float = 0.5
    """Share of training episodes that repeat a start whose last try failed (prioritised level replay)."""
    advantage_margin: float = 0.03
    """Smallest advantage on which all critics must agree before the policy's action is left [E10]."""
    choice_after_updates: int = 1000
    """Updates before the critics choose: an immature critic harms."""
    slip_penalty: float = 0.1
    """Return that an action's probability of a slip costs it where candidates are chosen [E15]."""
    force_safe_share: float = 0.75
    """Share of the force from which the task's objects break that is safe [E15]."""
    force_budget: float = 0.01
    """Mean excess over the safe force, as a share of it, that the policy may have [E15]."""
    force_rate: float = 0.01
    """Step size of the force constraint's multiplier per update [E15]."""
    rnd_weight: float = 0.6
    """Weight of the newness of a row in its score while rewards are very sparse [E14]."""
    similarity_weight: float = 1.0
    """Weight of the likeness to successful trajectories while rewards are very sparse [E14]."""
    similarity_reach: float = 4.0
    """Distance in the embedding at which the likeness has fallen to 0.6."""
    gate: GateConfig = field(default_factory=GateConfig)
    safeguards: SafeguardsConfig = field(default_factory=SafeguardsConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        if self.warmup_steps < self.batch_size:
            raise ValueError(
                f"algo.batch_size={self.batch_size} is larger than algo.warmup_steps={self.warmup_steps}: "
                f"the first batch could not be filled. Raise algo.warmup_steps or lower algo.batch_size."
            )
        if not 1 <= self.improvement_batch <= self.batch_size:
            raise ValueError(
                f"algo.improvement_batch={self.improvement_batch} must lie between 1 and "
                f"algo.batch_size={self.batch_size}."
            )
        require_at_least(self, dict.fromkeys(_COUNTS, 1), "algo.")
        require_at_most(self, _LIMITS, "algo.")
        for name in ("imitation_batch", "cloning_batch"):
            if getattr(self, name) < self.actors:
                raise ValueError(
                    f"algo.{name}={getattr(self, name)} is shared out among algo.actors={self.actors}: "
                    "it must be at least as large."
                )
        for name in (
            "updates_per_step",
            "learning_rate",
            "final_learning_rate",
            "gradient_norm",
            "imitation_std",
            "epsilon",
            "advantage_scale",
            "lambda_start",
            "lambda_end",
            "std_penalty_ratio",
            "force_safe_share",
            "similarity_reach",
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"algo.{name}={getattr(self, name)} must be positive.")
        require_choice("algo.precision", self.precision, ["fp32", "bf16"])
        for name in (
            "exploration_noise",
            "force_noise",
            "noise_exponent",
            "advantage_margin",
            "symmetry_angle",
            "choice_after_updates",
            "slip_penalty",
            "force_budget",
            "force_rate",
            "rnd_weight",
            "similarity_weight",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"algo.{name}={getattr(self, name)} must be finite and not negative.")
        for name in (
            "eta_start",
            "eta_end",
            "memory_share_start",
            "memory_share_end",
            "memory_share_floor",
            "fresh_share",
            "quiet_share",
            "target_rate",
            "average_rate",
            "hard_start_share",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"algo.{name}={getattr(self, name)} must lie between 0 and 1.")
        if not 0 <= self.retrieval_share < 1:
            raise ValueError(f"algo.retrieval_share={self.retrieval_share} must lie in [0, 1).")
