"""A treasure hunt in a grid of 10 by 10 cells: the small world of the study of reward structures (R1, R6).

Shapes: S = 100 cells, in rows from the top; a cell is its number, or its (row, column).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from grasp_sim.errors import UserError, find
from grasp_sim.structures import NOISE, TRAP_LOSS, TRAP_LUCK, TRAP_WIN, Payment, Structure

MAP = (
    "ss........",
    "ss...#....",
    "....##..x.",
    "..........",
    ".#####....",
    "......#...",
    "..x...#...",
    "......#.T.",
    "......#...",
    "..........",
)
"""s: starts, T: the treasure, x: traps, #: walls."""
SIZE = 10
CELLS = SIZE * SIZE
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns by which the actions move: up, down, left, right."""

STEP_COST = 0.01
"""What a step costs under the dense earning."""
PROGRESS = 0.05
"""What a step towards the treasure earns there, and one away from it costs: a difference of potentials."""


def sparse(arrived: bool) -> float:
    """1 at the treasure, else 0."""
    return 1.0 if arrived else 0.0


def dense(before: int, after: int) -> float:
    """1 at the treasure; for every step a little for coming nearer, less a small cost.

    Args:
        before: steps from the treasure on the shortest way, before the step.
        after: the same after it; 0 at the treasure.
    """
    return PROGRESS * (before - after) - STEP_COST + sparse(after == 0)


@dataclass(frozen=True, slots=True)
class GridReward:
    """A named reward of the grid world."""

    name: str
    describe: str
    """One line for people, printed when an environment is built."""
    dense: bool
    """Whether steps earn densely."""
    structure: Structure


GRID_REWARDS = {
    reward.name: reward
    for reward in (
        GridReward("sparse", "sparse: 1 at the treasure, 0 on every other step", False, Structure.AT_ONCE),
        GridReward(
            "dense",
            f"dense: 1 at the treasure, {PROGRESS} for a step nearer to it, {-PROGRESS} for one away, "
            f"{-STEP_COST} for any",
            True,
            Structure.AT_ONCE,
        ),
        GridReward(
            "delayed",
            "delayed: as dense, but paid after `delay` steps, and what is left with the episode's end",
            True,
            Structure.DELAYED,
        ),
        GridReward(
            "noisy",
            f"noisy: as dense, with normal noise of {NOISE} on every step, and two traps that end the "
            f"episode and pay {TRAP_WIN:g} with probability {TRAP_LUCK} and else {TRAP_LOSS:g}",
            True,
            Structure.NOISY,
        ),
    )
}


def cells_of(kind: str) -> list[int]:
    """Cells of one kind on the map."""
    return [number for number, found in enumerate("".join(MAP)) if found == kind]


def moved(cell: int, action: int) -> int:
    """Where an action leads from a cell; into a wall or the edge, nowhere."""
    row, column = cell // SIZE + MOVES[action][0], cell % SIZE + MOVES[action][1]
    inside = 0 <= row < SIZE and 0 <= column < SIZE
    return row * SIZE + column if inside and MAP[row][column] != "#" else cell


def distances() -> np.ndarray:
    """(S,) steps from every cell to the treasure on the shortest way; -1 for a wall."""
    found = np.full(CELLS, -1)
    (treasure,) = cells_of("T")
    found[treasure] = 0
    queue = deque([treasure])
    while queue:
        cell = queue.popleft()
        for action in range(len(MOVES)):
            other = moved(cell, action)
            if found[other] < 0:
                found[other] = found[cell] + 1
                queue.append(other)
    return found


class GridEnv(gymnasium.Env):
    """Find the treasure: terminated there, and in a trap where there are traps; truncated at the horizon.

    Observation (S,) float32: 1 for the cell one is in. Actions: 0 up, 1 down, 2 left, 3 right. `info` holds
    success (bool) and cell (its number) after every step.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self, reward: str = "sparse", *, delay: int = 0, horizon: int = 60, seed: int | None = None
    ) -> None:
        if not isinstance(horizon, int) or horizon < 1:
            raise UserError(f"horizon is {horizon}; it must be a whole number of steps, at least 1")
        self.reward = find("reward", reward, GRID_REWARDS)
        self.delay, self.horizon = delay, horizon
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (CELLS,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self._np_random, self._np_random_seed = seeding.np_random(seed)
        self._payment = Payment(self.reward.structure, delay, horizon)
        self._starts = cells_of("s")
        self._traps = set(cells_of("x") if self.reward.structure is Structure.NOISY else ())
        self._distances = distances()
        self._cell, self._steps, self._over = self._starts[0], 0, True

    @property
    def describe(self) -> str:
        """One line that says what was built."""
        late = f"; delay {self.delay or 'to the end'}" if self.reward.structure is Structure.DELAYED else ""
        return f"Grid world of {SIZE} by {SIZE} cells, {self.horizon} steps. {self.reward.describe}{late}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin in one of the starts. The seed fixes it, the noise and the luck."""
        super().reset(seed=seed)
        self._cell = self._starts[int(self.np_random.integers(len(self._starts)))]
        self._payment.begin(int(self.np_random.integers(2**63)))
        self._steps, self._over = 0, False
        return self._observation(), {"cell": self._cell}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move by one cell."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over or was never started: call reset() first")
        before, self._cell = self._distances[self._cell], moved(self._cell, int(action))
        after = int(self._distances[self._cell])
        self._steps += 1
        success, trapped = after == 0, self._cell in self._traps
        terminated = success or trapped
        truncated = not terminated and self._steps >= self.horizon
        self._over = terminated or truncated
        earned = dense(int(before), after) if self.reward.dense else sparse(success)
        reward = self._payment.pay(earned, lured=trapped, over=self._over)
        info = {"success": success, "cell": self._cell}
        return self._observation(), reward, terminated, truncated, info

    def _observation(self) -> np.ndarray:
        observation = np.zeros(CELLS, np.float32)
        observation[self._cell] = 1.0
        return observation
