"""Batches that pass between memory, agent and learner.

Shapes: T steps of an episode, B batch, Q queries, K neighbours, W flattened policy input (see
`memory.window`), A action dimension. All arrays are float32 unless said otherwise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from grasp_sim.contract import OBSERVATION_NAMES

FORCE_COLUMN = OBSERVATION_NAMES.index("gripper_force")
"""Of an observation: the measured grip force, N."""


class Source(IntEnum):
    """Where a memory row comes from."""

    ONLINE = 0
    """The agent's own episode, not successful."""
    SUCCESS = 1
    """The agent's own successful episode."""
    DEMO = 2
    """A successful demonstration."""
    SLIP = 3
    """The object slid or was dropped around this step; a negative example, whoever acted."""


class Trajectory(NamedTuple):
    """One finished episode as the memory takes it in."""

    windows: np.ndarray
    """(T + 1, W); the last one is the policy input at the true final observation."""
    actions: np.ndarray
    """(T, A), as executed."""
    intended_actions: np.ndarray
    """(T, A), before exploration noise; equal to `actions` where the intention is unknown."""
    rewards: np.ndarray
    """(T,)."""
    slips: np.ndarray
    """(T,) bool: the object slid in the fingers or was dropped during this step."""
    forces: np.ndarray
    """(T,) N, contact force after each step, of the finger that presses harder; of a recorded episode, the
    measured grip force, which is the mean of both."""
    terminated: bool
    """The episode ended in a terminal state; false at a time-out, where values are bootstrapped."""
    success: bool
    demonstration: bool | np.ndarray
    """All steps were demonstrated, or none; or (T,) bool, where a person took over from a policy."""
    gated: np.ndarray
    """(T,) bool: the executed action was driven by retrieval."""


class MemoryBatch(NamedTuple):
    """A sample of memory rows with n-step targets ready."""

    ids: np.ndarray
    """(B,) int64, to hand back with `LongTermMemory.update_scores`."""
    windows: np.ndarray
    """(B, W)."""
    actions: np.ndarray
    """(B, A), executed."""
    intended_actions: np.ndarray
    """(B, A)."""
    n_step_rewards: np.ndarray
    """(B,), discounted sum of up to n rewards."""
    discounts: np.ndarray
    """(B,), gamma^m for the bootstrap, 0 where the episode terminated within the n steps."""
    bootstrap_windows: np.ndarray
    """(B, W), the policy input m <= n steps later."""
    returns_to_go: np.ndarray
    """(B,), discounted return from this step to the end of the stored episode; minus infinity where it bounds
    nothing (`targets.returns_to_go`)."""
    peak_forces: np.ndarray
    """(B,) N, largest contact force within the same up to n steps."""
    successes: np.ndarray
    """(B,) bool: the row's episode succeeded."""
    sources: np.ndarray
    """(B,) int8, values of `Source`."""
    weights: np.ndarray
    """(B,), importance weights of prioritised sampling, largest 1."""


class Retrieved(NamedTuple):
    """Neighbours of Q queries among the rows of successful episodes."""

    ids: np.ndarray
    """(Q, K) int64; -1 where there is no neighbour."""
    actions: np.ndarray
    """(Q, K, A), the neighbours' intended actions, of slip rows the executed ones; zeros where `valid` is
    false."""
    returns: np.ndarray
    """(Q, K), the neighbours' returns-to-go; zeros where `valid` is false."""
    distances: np.ndarray
    """(Q, K), Euclidean in the embedding; inf where `valid` is false."""
    valid: np.ndarray
    """(Q, K) bool."""
    support: np.ndarray
    """(Q, K), 0 to 1: how much the successes near the query speak for the action against the slips there;
    zeros where `valid` is false."""

    @classmethod
    def nothing(cls, queries: int, neighbours: int, action_dim: int) -> Retrieved:
        """The answer that holds no neighbour."""
        shape = queries, neighbours
        return cls(
            np.full(shape, -1, np.int64),
            np.zeros((*shape, action_dim), np.float32),
            np.zeros(shape, np.float32),
            np.full(shape, np.inf, np.float32),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.float32),
        )
