"""Rewards of grasping: one pure function each, chosen by name.

A reward judges the simulator's state after a step. It gets the state, whether the task is solved, and whether
both fingers hold the object (privileged: measured from contacts, not by the policy). That is what a step
earns; when and how reliably it is paid is the reward's structure (`grasp_sim.structures`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grasp_sim.contract import GraspState
from grasp_sim.errors import find
from grasp_sim.structures import NOISE, TRAP_LOSS, TRAP_LUCK, TRAP_WIN, Structure

RewardFunction = Callable[[GraspState, bool, bool], float]


def sparse(success: bool) -> float:
    """1 when the object is lifted, else 0."""
    return 1.0 if success else 0.0


WAITING = 0.008
"""Reward of a step on which the object is held and not lifted. At a discount of 0.99 waiting for ever is
worth a hundred times as much, 0.8, and so less than lifting."""


def dense(state: GraspState, success: bool, grasped: bool) -> float:
    """1 when the object is lifted, before that a little for reaching and holding it.

    Their proportion is that of robosuite's shaping of Lift: reaching up to 1, holding another 0.25. robosuite
    pays them in full on every step; as an episode ends here with success, waiting beside the object would
    then be worth more than lifting it.
    """
    if success:
        return 1.0
    distance = float(np.linalg.norm(state.object_position - state.tcp_position))
    reaching = 1.0 - float(np.tanh(10.0 * distance))
    return WAITING * (reaching + (0.25 if grasped else 0.0)) / 1.25


CLOSED = 0.005
"""m of opening below which the gripper holds nothing that a task offers."""


def lured(state: GraspState, grasped: bool) -> bool:
    """The gripper has closed on nothing: the trap of the noisy structure."""
    return state.gripper_opening < CLOSED and not grasped


@dataclass(frozen=True, slots=True)
class Reward:
    """A named reward. Calling it with (state, success, grasped) gives what the step earns."""

    name: str
    describe: str
    """One line for people, printed when an environment is built."""
    function: RewardFunction
    structure: Structure = Structure.AT_ONCE
    """When and how reliably it is paid."""

    def __call__(self, state: GraspState, success: bool, grasped: bool) -> float:
        return self.function(state, success, grasped)


def _sparse(state: GraspState, success: bool, grasped: bool) -> float:
    return sparse(success)


REWARDS: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward(
            "sparse",
            "sparse: 1 on the step that lifts the object, 0 on every other",
            _sparse,
        ),
        Reward("dense", "dense: reaching and holding pay a little every step, 1 when lifted", dense),
        Reward(
            "delayed",
            "delayed: as dense, but paid after `delay` steps, and what is left with the episode's end",
            dense,
            Structure.DELAYED,
        ),
        Reward(
            "noisy",
            f"noisy: as dense, with normal noise of {NOISE} on every step; closing the gripper on nothing is "
            f"a trap that pays {TRAP_WIN:g} with probability {TRAP_LUCK} and else {TRAP_LOSS:g}",
            dense,
            Structure.NOISY,
        ),
    )
}


def make_reward(name: str) -> Reward:
    """The reward registered as `name`; raises UnknownName listing what exists."""
    return find("reward", name, REWARDS)
