"""A simulator's arm, gripper and object behind the emulated controller."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from grasp_sim import ur5e
from grasp_sim.driven import DrivenSimulation
from grasp_sim.gripper import FORCE_MIN, STROKE
from grasp_sim.ur_emulator.robots import ObjectSeen


class SimulatedRobot:
    """A `Robot` in a registered environment; each reset begins the episode of the next seed."""

    def __init__(self, env: str, rate: int, seed: int) -> None:
        """`env`: such as pybullet-lift; `rate`: Hz of the controller; `seed`: of the first episode."""
        self._simulation = DrivenSimulation(env, rate)
        self._next = seed
        self.reset()

    def follow(self, joints: np.ndarray, period: float) -> None:
        """See `Robot`; `period` is the simulation's own."""
        self._state = self._simulation.cycle(joints, self._wanted, self._force)

    def joints(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Robot`."""
        return self._state.joint_positions, self._state.joint_velocities

    def currents(self) -> np.ndarray:
        """See `Robot`; not simulated."""
        return np.zeros(ur5e.DOF)

    def grip(self, opening: float, force: float, speed: float) -> None:
        """See `Robot`; the speed is the simulated gripper's own."""
        self._wanted, self._force = opening, force

    def opening(self) -> float:
        """See `Robot`."""
        return self._state.gripper_opening

    def object_seen(self) -> ObjectSeen:
        """See `Robot`."""
        state = self._state
        return ObjectSeen(
            state.object_position, state.object_quaternion, state.object_size, state.object_symmetry
        )

    def reset(self) -> None:
        """See `Robot`."""
        self._state = self._simulation.reset(self._next)
        self._next += 1
        self._wanted, self._force = STROKE, FORCE_MIN

    def outcome(self) -> dict[str, object]:
        """See `Robot`."""
        return asdict(self._simulation.outcome)
