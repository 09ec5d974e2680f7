"""One grasp by a policy bundle: begin, one step for each policy period, and how it ended.

What it says of success is what the robot's own sensors show, for the person and for whoever asked for the
grasp. A simulator judges by its own state.

Shapes: A action dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from grasp_control.bundle import BundlePolicy
from grasp_sim.contract import POLICY_RATE_HZ, GraspState, encode
from grasp_sim.errors import UnknownName
from grasp_sim.tasks import STANDARD_HALF_SIZE, STANDARD_HEIGHT, find_task

MAX_TIMEOUT = 600.0
"""s."""
_USUAL_LIFT = 0.05
"""m, of most tasks."""


@dataclass
class GraspConfig:
    """When a grasp is over."""

    timeout: float = 8.0
    """s after which a grasp that has not succeeded is given up."""
    lift_height: float = 0.0
    """m that the object must rise, held, for the grasp to be done; 0 takes that of the bundle's task."""
    hold_force: float = 2.0
    """N of measured grip force from which the object counts as held."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 < self.timeout <= MAX_TIMEOUT:
            raise ValueError(f"grasp.timeout={self.timeout} must be above 0 and at most {MAX_TIMEOUT:g} s.")
        if not 0.0 <= self.lift_height <= 1.0:
            raise ValueError(f"grasp.lift_height={self.lift_height} must be from 0 to 1 m.")
        if not (math.isfinite(self.hold_force) and self.hold_force > 0.0):
            raise ValueError(f"grasp.hold_force={self.hold_force} must be above 0 N.")


class Outcome(Enum):
    """How a grasp ended."""

    NONE = "none"  # none has ended yet
    LIFTED = "lifted"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # something was wrong


class Progress(NamedTuple):
    """How the present or the last grasp stands."""

    running: bool
    outcome: Outcome
    message: str
    """One line: why it ended, or why it could not go on."""
    step: int = 0
    """Actions given so far."""
    phase: str = "idle"
    """'idle', 'approach', 'close' or 'lift'."""
    rise: float = 0.0
    """m that the object has risen since the beginning."""
    tcp_height: float = 0.0
    """m, base frame."""
    opening: float = 0.0
    """m between the fingertips."""
    force: float = 0.0
    """N, measured."""


def lift_of(task_name: str) -> float:
    """m that an object must rise in a bundle's task, such as pybullet-slippery; the usual for another."""
    try:
        task = find_task(task_name.split("-", 1)[-1])
    except UnknownName:
        return _USUAL_LIFT
    return STANDARD_HEIGHT - STANDARD_HALF_SIZE[0] if task.standard_lift else task.lift


class GraspRunner:
    """Runs the policy of a bundle through one grasp after the other."""

    def __init__(
        self, policy: BundlePolicy, config: GraspConfig, period: float = 1.0 / POLICY_RATE_HZ
    ) -> None:
        """`period`: s of a policy step."""
        self.policy = policy
        self._lift = config.lift_height or lift_of(policy.manifest.task)
        self._config = config
        self._most = math.ceil(config.timeout / period - 1e-9)
        self._start_height = 0.0
        self.progress = Progress(False, Outcome.NONE, "no grasp was asked for yet")

    def begin(self, state: GraspState) -> np.ndarray:
        """The first action (A,) in [-1, 1] of a new grasp. Raises ContractError for a state that is not
        finite."""
        observation = encode(state)
        self.policy.reset(observation)
        self._start_height = float(state.object_position[2])
        self.progress = Progress(True, Outcome.NONE, "")
        action = self.policy.act(observation)
        self._note(state, action)
        return action

    def step(self, state: GraspState, executed: np.ndarray) -> np.ndarray | None:
        """The next action (A,), or None when the grasp is over, as `progress` says.

        Args:
            state: the present one.
            executed: (A,), the action that was sent since the last state.
        """
        observation = encode(state)
        self.policy.observe(executed, observation)
        held = state.gripper_force >= self._config.hold_force
        rise = float(state.object_position[2]) - self._start_height
        if held and rise >= self._lift:
            return self._end(
                Outcome.LIFTED, f"holds the object {rise:.3f} m up with {state.gripper_force:.0f} N"
            )
        if self.progress.step >= self._most:
            return self._end(Outcome.TIMED_OUT, f"not lifted within {self._config.timeout:g} s")
        action = self.policy.act(observation)
        self._note(state, action)
        return action

    def stop(self, outcome: Outcome, why: str) -> None:
        """End a running grasp; nothing happens where none is."""
        if self.progress.running:
            self._end(outcome, why)

    def _end(self, outcome: Outcome, message: str) -> None:
        self.progress = self.progress._replace(running=False, outcome=outcome, message=message, phase="idle")

    def _note(self, state: GraspState, action: np.ndarray) -> None:
        held = state.gripper_force >= self._config.hold_force
        phase = "lift" if held else "close" if action[4] < 0.0 else "approach"
        self.progress = self.progress._replace(
            step=self.progress.step + 1,
            phase=phase,
            rise=float(state.object_position[2]) - self._start_height,
            tcp_height=float(state.tcp_position[2]),
            opening=state.gripper_opening,
            force=state.gripper_force,
        )
