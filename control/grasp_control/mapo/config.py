"""Settings of program learning. The ids in brackets are those of docs/parts.md."""

from __future__ import annotations

from dataclasses import dataclass

from grasp_sim.cli import require_at_least, require_at_most, require_choice

METHODS = ("mapo", "reinforce", "marginal-likelihood", "hard-em")


@dataclass
class MAPOConfig:
    """Settings of MAPO and of the methods that it is compared with, which share all but the loss."""

    method: str = "mapo"
    """mapo; reinforce; marginal-likelihood; hard-em [M1, M5]."""
    clip: float = 0.5
    """Least weight of a problem's memory that is not empty, alpha; 0 leaves the estimate unbiased [M2]. The
    paper's 0.1 learns more slowly here (`grasp-bench mapo`)."""
    systematic: bool = True
    """Explore what was not tried before; else draw from the policy [M3]."""
    remember: bool = True
    """Keep what was found; else each update has only its own finds for a memory."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    problems: int = 16
    """Problems per update."""
    explored: int = 1
    """Programs explored for each of them."""
    drawn: int = 1
    """Programs drawn from the policy for each, outside of the memory [M1]."""
    memory: int = 32
    """Programs that are kept for each problem, the best."""
    false_positives: float = 1e-3
    """Share of untried programs that are taken for tried [M3]."""
    check_share: float = 0.01
    """Share of the executions that are made twice to notice chance."""
    learning_rate: float = 1e-3
    """Of Adam."""
    gradient_norm: float = 5.0
    """Clip of the gradient's norm."""
    hidden: int = 256
    """Width of the policy's layers."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_choice("method", self.method, METHODS)
        require_at_least(self, {"problems": 1, "explored": 0, "drawn": 0, "memory": 1, "hidden": 1})
        limits = {"problems": 100_000, "explored": 1000, "drawn": 1000, "memory": 10_000, "hidden": 16_384}
        require_at_most(self, {**limits, "entropy": 10, "gradient_norm": 1000})
        for name in ("clip", "check_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 to 1.")
        for name in ("learning_rate", "false_positives"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name}={getattr(self, name)} must be between 0 and 1.")
        if not self.entropy >= 0.0:
            raise ValueError(f"entropy={self.entropy} must not be negative.")
        if not self.gradient_norm > 0.0:
            raise ValueError(f"gradient_norm={self.gradient_norm} must be positive.")
        if self.method in ("mapo", "reinforce") and self.drawn == 0:
            raise ValueError(f"method={self.method} learns from drawn programs: drawn=0 leaves none.")
        if self.method != "reinforce" and self.explored + self.drawn == 0:
            raise ValueError("explored=0 and drawn=0: no program would ever be tried.")
