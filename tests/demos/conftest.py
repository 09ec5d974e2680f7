"""A small arm that behaves like the simulators' contract says, and made-up episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_demos.episode import ACTORS, Episode, Metadata
from grasp_sim.contract import (
    ActionScale,
    GraspState,
    decode,
    encode,
    executed_action,
    pack_state,
    unpack_state,
)
from grasp_sim.ur5e import HOME, Kinematics


class FakeArm:
    """A point gripper over a table: deltas are followed exactly, a cube between closed fingers is carried."""

    def __init__(self, horizon: int = 80) -> None:
        self.action_scale = ActionScale()
        self.control_mode = "servo"
        self.horizon = horizon
        self.fault_at: int | None = None

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def reset(self, *, seed: int | None = None):
        rng = np.random.default_rng(seed)
        self.numbers = np.zeros(8)  # tcp (3), opening, cube (3), steps
        self.numbers[:4] = 0.0, 0.0, 0.2, 0.085
        self.numbers[4:7] = *rng.uniform(-0.03, 0.03, 2), 0.02
        return encode(self._state()), {"state": self._state()}

    def step(self, action: np.ndarray):
        executed = executed_action(action)
        command = decode(executed, self.action_scale)
        tcp, cube, held = self.numbers[:3], self.numbers[4:7], self._held()
        move = command.delta_position.copy()
        move[2] = max(move[2], 0.01 - tcp[2])
        tcp += move
        if held:
            cube += move
        between = np.abs(tcp - cube).max() < 0.02
        self.numbers[3] = max(command.opening, 0.04 if between else 0.0)
        self.numbers[7] += 1
        steps = int(self.numbers[7])
        fault = steps == self.fault_at
        success = cube[2] > 0.06
        info = {
            "state": self._state(),
            "true_state": self._state(),
            "requested_action": np.array(action, np.float32),
            "executed_action": executed,
            "success": bool(success),
            "slip": False,
            "drop": held and not self._held(),
            "sim_fault": fault,
        }
        truncated = not success and (fault or steps >= self.horizon)
        return encode(info["state"]), float(success), bool(success), truncated, info

    def dynamic_state(self) -> np.ndarray:
        return self.numbers.copy()

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"numbers": self.numbers.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        self.numbers = snapshot["numbers"].copy()

    def _held(self) -> bool:
        return bool(np.abs(self.numbers[:3] - self.numbers[4:7]).max() < 0.02 and self.numbers[3] <= 0.04)

    def _state(self) -> GraspState:
        now = float(self.numbers[7]) / 20.0
        return GraspState(
            joint_positions=np.full(6, self.numbers[2]),
            joint_velocities=np.zeros(6),
            tcp_position=self.numbers[:3].copy(),
            tcp_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
            gripper_opening=float(self.numbers[3]),
            gripper_force=20.0 if self._held() else 0.0,
            object_position=self.numbers[4:7].copy(),
            object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
            object_size=np.full(3, 0.04),
            joint_time=now,
            gripper_time=now,
            object_time=now,
            time=now,
        )


class FakeExpert:
    """Goes to the cube, closes, lifts."""

    def reset(self) -> None:
        self.closing = 0

    def act(self, state: GraspState) -> np.ndarray:
        relative = state.object_position - state.tcp_position
        at_cube = np.abs(relative).max() < 0.01 or self.closing > 0
        self.closing += int(at_cube)
        move = np.array([0.0, 0.0, 0.5 if self.closing > 3 else 0.0]) if at_cube else relative / 0.0125
        return np.clip([*move, 0.0, -1.0 if at_cube else 1.0, 0.0], -1.0, 1.0).astype(np.float32)


def made_up_episode(steps: int = 4, index: int = 0, **changes: object) -> Episode:
    """A valid episode whose numbers follow from its index."""
    arm = FakeArm(horizon=steps)
    _, info = arm.reset(seed=index)
    snapshot, states, moving = arm.snapshot(), [info["state"]], [arm.dynamic_state()]
    rng = np.random.default_rng(index)
    intended = rng.uniform(-0.9, 0.9, (steps, 6)).astype(np.float32)
    requested = (intended + rng.normal(0.0, 0.5, (steps, 6))).astype(np.float32)
    for action in requested:
        states.append(arm.step(action)[4]["state"])
        moving.append(arm.dynamic_state())
    metadata = Metadata(
        "fake", "servo", ActionScale(), "human-like", seed=index, index=index, success=True, horizon=steps
    )
    return Episode(
        metadata=replace(metadata, **changes),  # type: ignore[arg-type]
        states=np.stack([pack_state(s) for s in states]),
        observations=np.stack([encode(s) for s in states]),
        intended_actions=intended,
        requested_actions=requested,
        executed_actions=np.clip(requested, -1.0, 1.0),
        rewards=np.zeros(steps, np.float32),
        terminations=np.zeros(steps, bool),
        truncations=np.arange(steps) == steps - 1,
        slips=np.zeros(steps, bool),
        drops=np.zeros(steps, bool),
        actors=np.full(steps, ACTORS.index("person"), np.uint8),
        simulator_states=np.stack(moving),
        snapshot=snapshot,
    )


def put_on_an_arm(
    episode: Episode, seed: int = 0, delays: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Episode:
    """The episode with random joint angles and velocities, and each source that late (s)."""
    rng, kinematics, states = np.random.default_rng(seed), Kinematics(), []
    for row in episode.states:
        state = unpack_state(row)
        joints = HOME + rng.normal(0.0, 0.1, 6)
        position, quaternion = kinematics.forward(joints)
        turn = rng.normal(size=4)
        states.append(
            replace(
                state,
                joint_positions=joints,
                joint_velocities=rng.normal(size=6),
                tcp_position=position,
                tcp_quaternion=quaternion,
                gripper_opening=float(rng.uniform(0.0, 0.085)),
                gripper_force=float(rng.uniform(0.0, 100.0)),
                object_quaternion=turn / np.linalg.norm(turn),
                joint_time=state.time - delays[0],
                gripper_time=state.time - delays[1],
                object_time=state.time - delays[2],
            )
        )
    return replace(
        episode,
        states=np.stack([pack_state(state) for state in states]),
        observations=np.stack([encode(state) for state in states]),
    )


@pytest.fixture
def arm() -> FakeArm:
    return FakeArm()


@pytest.fixture
def fake_expert() -> FakeExpert:
    return FakeExpert()


@pytest.fixture
def make_episode():
    return made_up_episode


@pytest.fixture
def on_an_arm():
    return put_on_an_arm
