"""What the robot's sensors make of the true state: noise, latency and perception error for each source."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from grasp_sim import ur5e
from grasp_sim.contract import GraspState, pack_state, unpack_state
from grasp_sim.randomization import Drawn

_HISTORY = 24
"""States kept: the longest latency allowed (1 s) at 20 Hz, and a margin."""


class Sensors:
    """Turns true states into measured ones; call `measure` once per control step.

    Each source is read `latency` s late, between two control steps by linear interpolation, and its time
    stamp says so: the age of the object's pose in the observation is the real one. Noise is independent from
    step to step; the perception error of the object's pose is constant over an episode.
    """

    def __init__(self, kinematics: ur5e.Kinematics) -> None:
        self._kinematics = kinematics
        self._history: deque[GraspState] = deque(maxlen=_HISTORY)
        self.drawn = Drawn()
        """What holds for this episode."""
        self._exact = True
        self._seed, self._steps = 0, 0

    def reset(self, drawn: Drawn, noise_seed: int) -> None:
        """Start an episode; `noise_seed` fixes its noise."""
        self._history.clear()
        self._seed, self._steps = noise_seed, 0
        self._hold(drawn)

    def _hold(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self._exact = replace(drawn.without_physics(), action_delay=0) == Drawn()

    def measure(self, state: GraspState) -> GraspState:
        """The state as measured now, `state` being the true one."""
        self._history.append(state)
        if self._exact:
            return state
        drawn = self.drawn
        # A generator for each step, so that a snapshot needs two numbers to go on with the same noise.
        noise = np.random.default_rng([self._seed, self._steps]).standard_normal
        self._steps += 1
        arm = self._delayed(state.time - drawn.joint_latency)
        hand = self._delayed(state.time - drawn.gripper_latency)
        seen = self._delayed(state.time - drawn.object_latency)
        joints = arm.joint_positions + drawn.joint_noise * noise(ur5e.DOF)
        position, quaternion = self._kinematics.forward(joints)
        yaw = drawn.object_yaw_offset + drawn.object_yaw_noise * float(noise())
        offset = drawn.object_position_offset + drawn.object_position_noise * noise(3)
        return GraspState(
            joint_positions=joints,
            joint_velocities=arm.joint_velocities + drawn.joint_velocity_noise * noise(ur5e.DOF),
            tcp_position=position,
            tcp_quaternion=quaternion,
            gripper_opening=hand.gripper_opening + drawn.opening_noise * float(noise()),
            gripper_force=hand.gripper_force + drawn.force_noise * float(noise()),
            object_position=seen.object_position + offset,
            object_quaternion=turned(seen.object_quaternion, yaw),
            object_size=seen.object_size,
            object_symmetry=seen.object_symmetry,
            joint_time=state.time - drawn.joint_latency,
            gripper_time=state.time - drawn.gripper_latency,
            object_time=state.time - drawn.object_latency,
            time=state.time,
        )

    def _delayed(self, time: float) -> GraspState:
        """The true state at `time`; before the first one known, that one (the arm was at rest)."""
        states = self._history
        later = next((i for i, state in enumerate(states) if state.time >= time), len(states) - 1)
        if later == 0 or states[later].time <= time:
            return states[later]
        before, after = states[later - 1], states[later]
        return blend(before, after, (time - before.time) / (after.time - before.time))

    def save(self) -> dict[str, np.ndarray]:
        """Everything later measurements depend on."""
        return {
            "drawn": self.drawn.pack(),
            "history": np.stack([pack_state(state) for state in self._history]),
            "noise": np.array([self._seed, self._steps], dtype=np.int64),
        }

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Inverse of `save`."""
        self._history = deque((unpack_state(row) for row in saved["history"]), maxlen=_HISTORY)
        self._hold(Drawn.unpack(saved["drawn"]))
        self._seed, self._steps = (int(number) for number in saved["noise"])


def turned(quaternion: np.ndarray, yaw: float) -> np.ndarray:
    """(4,) xyzw of `quaternion` turned by `yaw` rad about the base frame's z axis."""
    x, y, z, w = quaternion
    sin, cos = np.sin(yaw / 2.0), np.cos(yaw / 2.0)
    return np.array([cos * x - sin * y, cos * y + sin * x, cos * z + sin * w, cos * w - sin * z])


def blend(before: GraspState, after: GraspState, share: float) -> GraspState:
    """The state `share` (0 to 1) of the way from `before` to `after`, for what sensors read."""

    def mix(name: str) -> np.ndarray:
        return (1.0 - share) * getattr(before, name) + share * getattr(after, name)

    first, second = before.object_quaternion, after.object_quaternion
    quaternion = (1.0 - share) * first + share * (second if first @ second >= 0 else -second)
    return replace(
        after,
        joint_positions=mix("joint_positions"),
        joint_velocities=mix("joint_velocities"),
        gripper_opening=float(mix("gripper_opening")),
        gripper_force=float(mix("gripper_force")),
        object_position=mix("object_position"),
        object_quaternion=quaternion / np.linalg.norm(quaternion),
    )
