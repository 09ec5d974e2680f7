"""One recorded episode: what was seen, what was wanted, what was asked and what was sent.

Shapes: T steps, O observation dimension, A action dimension, S numbers of the simulator's state (0 for a
real arm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grasp_sim.contract import CONTRACT_VERSION, POLICY_RATE_HZ, ActionScale, GraspState, unpack_state
from grasp_sim.errors import UserError

KINDS = ("clean", "human-like")
"""`clean`: the policy learns the action that was intended before noise. `human-like`: it learns the action
that was executed, noise included, since a person's hand gives no other."""


ACTORS = ("expert", "policy", "person")
"""Who chose an action: the scripted expert, a policy, a person. A step holds the position in this tuple."""


class DemoError(UserError):
    """A demonstration cannot be read, written, trusted or replayed; one line names the file and the cure."""


@dataclass(frozen=True)
class Metadata:
    """Where an episode comes from and what its numbers mean."""

    task: str
    """Name in the registry of environments, such as `robosuite-lift`."""
    control_mode: str
    """`servo` or a controller of the simulator's own."""
    action_scale: ActionScale
    kind: str
    """One of `KINDS`."""
    source: str = "expert"
    """What recorded it: `expert`, `keyboard`, `gamepad`, `browser`, `policy`, `ros`, or a format's name."""
    seed: int = 0
    """Seed of the environment's reset."""
    noise: float = 0.0
    """Standard deviation of the noise added to the expert's actions; 0 where a person acted."""
    horizon: int = 0
    """Steps until the environment's time-out; 0 where there is none."""
    rate_hz: float = POLICY_RATE_HZ
    contract_version: int = CONTRACT_VERSION
    success: bool = False
    """Judged by the simulator's state or the operator at the end of the episode."""
    complete: bool = True
    """False where the recording broke off and was recovered up to its last whole step."""
    index: int = 0
    """Position in its data set; also in the file's name."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the simulator and its libraries."""
    note: str = ""
    """The operator's remark, or why the recording broke off."""
    policy: str = ""
    """The policy bundle that acted, by its name and digest; empty where none did."""
    recorded_at: str = ""
    """When the recording began, ISO 8601 in UTC. Empty for the scripted expert, whose files are the
    same bytes whenever they are made."""


class Step(NamedTuple):
    """One step as it is appended to a recording."""

    intended_action: np.ndarray
    """(A,), before noise; where a person took over, what the policy would have done. The requested one where
    nothing else is known."""
    requested_action: np.ndarray
    """(A,), what the environment or arm was asked for."""
    executed_action: np.ndarray
    """(A,), what was sent after clipping to [-1, 1]."""
    reward: float
    terminated: bool
    truncated: bool
    slip: bool
    """The object slid in the fingers during this step."""
    drop: bool
    """The object was dropped during this step."""
    state: GraspState
    """After the step."""
    observation: np.ndarray
    """(O,), after the step, as the policy would have seen it."""
    actor: str
    """One of `ACTORS`: who chose the requested action."""
    simulator_state: np.ndarray
    """(S,) after the step; (0,) for a real arm."""


@dataclass(frozen=True)
class Episode:
    """A finished or recovered recording. Nothing is checked here: see `grasp_demos.validate`."""

    metadata: Metadata
    states: np.ndarray
    """(T + 1, STATE_WIDTH) float64, rows of `grasp_sim.contract.pack_state`."""
    observations: np.ndarray
    """(T + 1, O) float32, `encode` of `states`; the last row is the true final observation."""
    intended_actions: np.ndarray
    """(T, A) float32, before noise."""
    requested_actions: np.ndarray
    """(T, A) float32, as asked; may lie outside [-1, 1]."""
    executed_actions: np.ndarray
    """(T, A) float32, as sent."""
    rewards: np.ndarray
    """(T,) float32."""
    terminations: np.ndarray
    """(T,) bool."""
    truncations: np.ndarray
    """(T,) bool."""
    slips: np.ndarray
    """(T,) bool."""
    drops: np.ndarray
    """(T,) bool."""
    actors: np.ndarray
    """(T,) uint8, positions in `ACTORS`."""
    simulator_states: np.ndarray
    """(T + 1, S) float64, `Scene.dynamic_state`: what a playback shows without simulating again."""
    snapshot: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The simulator's state at the first observation, for replay; empty for a real arm."""
    path: Path | None = None
    """The file it was read from or written to."""

    def __len__(self) -> int:
        """T, the number of steps."""
        return len(self.executed_actions)

    @property
    def training_actions(self) -> np.ndarray:
        """(T, A), what a policy learns from this episode: intended if `clean`, else executed."""
        return self.intended_actions if self.metadata.kind == "clean" else self.executed_actions

    @cached_property
    def start(self) -> GraspState:
        """The state at the first observation."""
        return unpack_state(self.states[0])

    @property
    def is_demonstration(self) -> bool:
        """Whether it may be shown to a learner: recorded to its end, successful, and not a policy's alone."""
        shown = (self.actors != ACTORS.index("policy")).any()
        return bool(self.metadata.success and self.metadata.complete and shown)

    def __str__(self) -> str:
        """Name the episode for messages: its file if it has one, else its index."""
        return str(self.path) if self.path is not None else f"episode {self.metadata.index}"
