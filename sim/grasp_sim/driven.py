"""A simulated arm that is stepped as a driver steps a real one: a joint target for every cycle of 2 or 8 ms.

Environments simulate whole control steps of 50 ms. Behind a robot's driver the target may change in every
cycle. Scene, task, state and judgement are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.contract import Command, GraspState
from grasp_sim.errors import UserError, find
from grasp_sim.judging import Judge
from grasp_sim.registry import names
from grasp_sim.scene import CONTROL_PERIOD, Start
from grasp_sim.simulators import find_simulator
from grasp_sim.tasks import Difficulty, find_task
from grasp_sim.threads import one_linear_algebra_thread

RATES = (125, 500)
"""Hz of the driver's cycle: CB3 and e-Series."""

_STILL = np.zeros(3)
_ROUNDING = 1e-9  # s by which a control step may seem to be incomplete


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an episode so far, as the simulator judges it."""

    seed: int
    success: bool = False
    """The object was lifted, as in the environment; stays so."""
    grasped: bool = False
    """Both fingers hold the object now."""
    slips: int = 0
    drops: int = 0
    broken: bool = False
    """The object broke; stays so."""
    sim_fault: bool = False
    """The simulator broke down; nothing moves until the next episode."""
    object_symmetry: int = 4
    """n-fold rotational symmetry about the vertical axis; 0 means any rotation looks the same."""

    @property
    def over(self) -> bool:
        """Nothing later changes the outcome: an environment would have ended here."""
        return self.success or self.broken or self.sim_fault


class DrivenSimulation:
    """A registered environment's scene in servo mode, moved by joint targets.

    Success, slips and drops are judged once per control step, as environments do, until the episode is over.
    """

    def __init__(self, env: str, rate: int) -> None:
        """`env`: registered name, `<simulator>-<task>`; `rate` in Hz, one of `RATES`."""
        if rate not in RATES:
            raise UserError(f"a driver's rate of {rate} Hz is not known; there are: {RATES[0]}, {RATES[1]}")
        simulator, task = find("environment", env, {name: name.split("-", 1) for name in names()})
        self.env, self.rate, self.period = env, rate, 1.0 / rate
        self.task = find_task(task)
        self._scene = find_simulator(simulator).make_scene("servo", self.task)
        self._judge = Judge(self._scene, self.task, ur5e.Kinematics())
        self._start: Start | None = None
        one_linear_algebra_thread()

    def reset(self, seed: int) -> GraspState:
        """Begin the episode that an environment's `reset(seed=seed)` begins; returns its true state."""
        self._start = start = self.task.sample(np.random.default_rng(seed), Difficulty())
        self._scene.reset(start)
        self._judge.begin(start)
        self.outcome = Outcome(seed, object_symmetry=start.object.symmetry)
        self._judged = 0  # control steps
        self.state, self._forces = self._judge.read()
        return self.state

    @property
    def start(self) -> Start:
        """What the episode began from."""
        if self._start is None:
            raise RuntimeError("DrivenSimulation was used before its first reset.")
        return self._start

    def cycle(self, target: np.ndarray, opening: float, force_limit: float) -> GraspState:
        """Simulate one cycle and return the true state after it.

        `target` (6,) rad, finite, is held for all of it. `opening` in m, `force_limit` in N: what the gripper
        is told; both are limited to what it can do. After a fault of the simulator the last good state stays.
        """
        if self._start is None:
            raise RuntimeError("DrivenSimulation.cycle before its first reset.")
        if self.outcome.sim_fault:
            return self.state
        opening = min(max(opening, 0.0), gripper.STROKE)
        force_limit = min(max(force_limit, gripper.FORCE_MIN), gripper.FORCE_MAX)
        self._scene.drive(target, Command(_STILL, 0.0, opening, force_limit), self.period)
        if self._scene.faulty:
            self.outcome = replace(self.outcome, sim_fault=True)
            return self.state
        self.state, self._forces = self._judge.read()
        if self.state.time >= (self._judged + 1) * CONTROL_PERIOD - _ROUNDING:
            self._judged += 1
            self._update_outcome()
        return self.state

    def _update_outcome(self) -> None:
        if self.outcome.over:
            return
        judged = self._judge.judge(self.state, self._forces)
        self.outcome = replace(
            self.outcome,
            success=judged.success,
            grasped=judged.grasped,
            slips=self.outcome.slips + judged.slip,
            drops=self.outcome.drops + judged.drop,
            broken=judged.broken,
        )

    def close(self) -> None:
        """Free what the simulator holds."""
        self._start = None
        self._scene.close()
