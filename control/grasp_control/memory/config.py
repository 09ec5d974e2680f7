"""Settings of the long-term memory, checked where they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grasp_control.memory.encoder import MAX_DIM, MIN_DIM
from grasp_sim.cli import require_at_most, require_choice

MIN_CAPACITY, MAX_CAPACITY = 100, 2_000_000
MAX_UPDATES = 1_000_000
ENCODERS = ("projection", "vae")

_MOST = {
    "n_step": 1000,
    "exact_below": MAX_CAPACITY,
    "index_threads": 256,
    "slip_lookback": 1000,
    "demo_bonus": 1000.0,
    "novelty_weight": 1000.0,
    "alpha": 10.0,
    "deadline_ms": 60_000.0,
    "vae_beta": 1000.0,
    "vae_updates": MAX_UPDATES,
    "refresh_every": 100_000_000,
}


@dataclass
class MemoryConfig:
    """Long-term memory (E2-E6, E15)."""

    capacity: int = 500_000
    """Rows (transitions) held at most, up to 2,000,000. Memory is committed as rows arrive."""
    n_step: int = 5
    """Rewards summed before the bootstrap."""
    gamma: float = 0.99
    """Discount per policy step."""
    demo_fraction: float = 0.1
    """Share of each batch drawn from demonstrations, when there are any."""
    slip_fraction: float = 0.05
    """Share of each batch drawn from slip rows, when there are any."""
    demo_bonus: float = 1.0
    """Added to a demonstration's score where its priority is formed: the raised priority of E15."""
    alpha: float = 0.6
    """Priority = (score + demo_bonus)^alpha; 0 is uniform sampling."""
    beta: float = 0.4
    """Exponent of the importance weights: 0 leaves the bias of priorities, 1 corrects it fully."""
    novelty_weight: float = 1.2
    """Weight of the trajectory's novelty in the score [E3]; 0 leaves surprise alone."""
    slip_lookback: int = 5
    """Steps before a slip that are tagged as slip rows with it."""
    slip_repulsion: float = 0.5
    """Distance, in action units, within which what led to a slip speaks against retrieved actions where it
    happened [E15]; 0 leaves it out."""
    fresh_episodes: int = 20
    """Latest episodes that make up the fresh stratum [E9]."""
    embedding_dim: int = 64
    """Dimensions of the trajectory feature z, 64-128."""
    encoder: str = "projection"
    """What makes z of a window [E4]: 'projection', standardised and projected at random; or 'vae', a
    variational autoencoder trained on the stored windows, which retrieves no better and is slower."""
    vae_beta: float = 0.001
    """Weight of the divergence from a normal distribution beside the squared error of the window."""
    vae_updates: int = 500
    """Minibatches of 256 windows on which a VAE is trained whenever it is fitted; they bound its time."""
    refresh_every: int = 2500
    """Environment steps between fits of the encoder to what the memory then holds, every row embedded anew;
    0 leaves it as it was fitted first."""
    exact_below: int = 20_000
    """Rows in a retrieval index below which search is exact."""
    retrieval: bool = True
    """Answer queries for neighbours; false leaves retrieval out of acting and learning."""
    deadline_ms: float = 50.0
    """A query that takes longer is answered with random rows, and counted."""
    index_threads: int = 1
    """OpenMP threads of FAISS, for the whole process. With Torch's threads beside them, 1 is fastest."""
    keep_share: float = 0.3
    """Share of the capacity that survives when a full memory is cut back."""
    demo_quota: float = 0.1
    """Share of the capacity held for demonstrations in a cut: up to it all survive, beyond it none."""
    slip_quota: float = 0.05
    """The same for slip rows."""

    def __post_init__(self) -> None:
        if not MIN_CAPACITY <= self.capacity <= MAX_CAPACITY:
            raise ValueError(
                f"memory.capacity {self.capacity} is outside {MIN_CAPACITY}-{MAX_CAPACITY} rows."
            )
        if not MIN_DIM <= self.embedding_dim <= MAX_DIM:
            raise ValueError(f"memory.embedding_dim {self.embedding_dim} is outside {MIN_DIM}-{MAX_DIM}.")
        require_choice("memory.encoder", self.encoder, ENCODERS)
        for name in ("n_step", "exact_below", "index_threads", "vae_updates", "fresh_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"memory.{name} must be at least 1, got {getattr(self, name)}.")
        require_at_most(self, _MOST, "memory.")
        for name in (
            *("novelty_weight", "slip_lookback", "slip_repulsion", "demo_bonus", "alpha"),
            *("vae_beta", "refresh_every"),
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"memory.{name} must be finite and not negative, got {getattr(self, name)}.")
        if not self.deadline_ms > 0:
            raise ValueError(f"memory.deadline_ms must be positive, got {self.deadline_ms}.")
        for name in ("gamma", "demo_fraction", "slip_fraction", "beta", "demo_quota", "slip_quota"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"memory.{name} must lie in 0-1, got {getattr(self, name)}.")
        if not 0 < self.keep_share < 1:
            raise ValueError(f"memory.keep_share must lie between 0 and 1, got {self.keep_share}.")
        if self.demo_fraction + self.slip_fraction > 1:
            raise ValueError(
                f"memory.demo_fraction {self.demo_fraction} and memory.slip_fraction {self.slip_fraction} "
                "are shares of one batch: together they must not exceed 1."
            )
        if self.demo_quota + self.slip_quota > self.keep_share:
            raise ValueError(
                f"memory.demo_quota {self.demo_quota} and memory.slip_quota {self.slip_quota} lie inside "
                f"memory.keep_share {self.keep_share}: together they must not exceed it."
            )
