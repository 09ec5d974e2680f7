"""Whatever the safety filter is given, what it sends keeps every limit: checked by other means than its own.

The checker goes by MuJoCo's kinematics of the arm and by plain NumPy. It sees only what a driver would: the
commands in their order, and which measured positions had been told before.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grasp_control.arm.geometry import CAPSULES, PAIRS, TIPS
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import KINDS, Status
from grasp_control.arm.safety import SafetyFilter
from grasp_sim import ur5e

NAN, INF = float("nan"), float("inf")
MOVING = (Status.OK, Status.RAMPING, Status.LIMITED)


# ---- the checker


class Arm:
    """Frames of every link and of the TCP by MuJoCo, of many postures."""

    def __init__(self) -> None:
        kinematics = ur5e.Kinematics()
        self._model, self._data = kinematics._model, kinematics._data

    def frames(self, postures: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N, 8, 3) positions and (N, 8, 3, 3) turns of base, links and TCP, (N,) |det J|, of (N, 6) rad."""
        model, data = self._model, self._data
        positions, rotations = np.zeros((len(postures), 8, 3)), np.zeros((len(postures), 8, 3, 3))
        rotations[:, 0], determinants = np.eye(3), np.empty(len(postures))
        matrix = np.zeros((6, 6))
        for i, posture in enumerate(postures):
            data.qpos[:] = posture
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_jacSite(model, data, matrix[:3], matrix[3:], 0)
            positions[i, 1:7], rotations[i, 1:7] = data.xpos[1:7], data.xmat[1:7].reshape(6, 3, 3)
            positions[i, 7], rotations[i, 7] = data.site_xpos[0], data.site_xmat[0].reshape(3, 3)
            determinants[i] = abs(np.linalg.det(matrix))
        return positions, rotations, determinants


def points_to_segments(points: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(N,) distances of points from segments, all (N, 3)."""
    along = ends - starts
    share = np.clip(((points - starts) * along).sum(1) / (along**2).sum(1), 0.0, 1.0)
    return np.linalg.norm(points - starts - share[:, None] * along, axis=1)


def between_segments(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """(N,) distances: at an end of one of them, or where the common perpendicular meets both."""
    ends = [points_to_segments(a, c, d), points_to_segments(b, c, d)]
    ends += [points_to_segments(c, a, b), points_to_segments(d, a, b)]
    u, v = b - a, d - c
    normal = np.cross(u, v)
    square = (normal**2).sum(1)
    crossing = square > 1e-12
    safe = np.where(crossing, square, 1.0)
    s = (np.cross(c - a, v) * normal).sum(1) / safe
    t = (np.cross(c - a, u) * normal).sum(1) / safe
    inside = crossing & (s > 0) & (s < 1) & (t > 0) & (t < 1)
    apart = np.abs(((c - a) * normal).sum(1)) / np.sqrt(safe)
    return np.where(inside, apart, np.min(ends, axis=0))


def clearances_of(arm: Arm, postures: np.ndarray, config: SafetyConfig) -> dict[str, np.ndarray]:
    """(N,) by how far postures (N, 6) keep each kind of limit; negative where one is broken."""
    positions, rotations, determinants = arm.frames(postures)
    capsules = {capsule.name: capsule for capsule in CAPSULES}

    def place(frame: int, point: tuple[float, float, float]) -> np.ndarray:
        return positions[:, frame] + rotations[:, frame] @ np.array(point)

    tcp = positions[:, 7]
    box = np.minimum(tcp - config.workspace_min, config.workspace_max - tcp).min(1)
    heights = [place(7, tip)[:, 2] for tip in TIPS]
    for name in ("upper arm", "forearm", "wrist 1", "wrist 2", "wrist 3", "palm"):
        capsule = capsules[name]
        ends = [place(capsule.frame, end)[:, 2] - capsule.radius for end in (capsule.start, capsule.end)]
        heights += ends
    apart = []
    for one, other in PAIRS:
        first, second = capsules[one], capsules[other]
        distance = between_segments(
            place(first.frame, first.start),
            place(first.frame, first.end),
            place(second.frame, second.start),
            place(second.frame, second.end),
        )
        apart.append(distance - first.radius - second.radius)
    return {
        "workspace": box,
        "floor": np.min(heights, axis=0) - config.floor_height,
        "self_collision": np.min(apart, axis=0) - config.self_collision_min,
        "singularity": determinants - config.singularity_min,
    }


@dataclass
class Log:
    """What a driver saw, and what had been measured."""

    config: SafetyConfig
    positions: list[np.ndarray] = field(default_factory=list)
    velocities: list[np.ndarray] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    clock_lost: list[bool] = field(default_factory=list)
    measured: set[bytes] = field(default_factory=set)
    reasons: Counter = field(default_factory=Counter)


def check(log: Log, arm: Arm) -> None:
    """Fail if any command exceeded any limit."""
    config = log.config
    if not log.positions:
        return
    positions, velocities = np.array(log.positions), np.array(log.velocities)
    assert np.isfinite(positions).all()
    assert np.isfinite(velocities).all()
    margin = config.position_margin
    assert (positions >= ur5e.POSITION_MIN + margin - 1e-9).all()
    assert (positions <= ur5e.POSITION_MAX - margin + 1e-9).all()
    fastest = min(config.velocity_max, config.step_max * config.rate_hz)
    assert np.abs(velocities).max() <= fastest * (1 + 1e-9)
    turns = np.diff(np.vstack([np.zeros((1, 6)), velocities]), axis=0) * config.rate_hz
    assert np.abs(turns).max() <= config.acceleration_max * (1 + 1e-6), "acceleration of velocities"
    kept = clearances_of(arm, positions, config)
    epochs = np.array(log.epochs)
    assert (np.diff(epochs) >= 0).all()
    times = np.array(log.times)
    for i in np.flatnonzero(~np.isfinite(times)):
        times[i] = times[i - 1] if i else 0.0  # a call without a time took none
    starts = [0, *(np.flatnonzero(np.diff(epochs)) + 1), len(epochs)]
    for begin, end in pairwise(starts):
        path, rate = positions[begin:end], config.rate_hz
        # Before the first command of an epoch the arm rests on it.
        speeds = np.diff(np.vstack([path[:1], path]), axis=0) * rate
        assert np.abs(speeds).max() <= fastest * (1 + 1e-6), "velocity"
        accelerations = np.diff(np.vstack([np.zeros((1, 6)), speeds]), axis=0) * rate
        assert np.abs(accelerations).max() <= config.acceleration_max * (1 + 1e-6), "acceleration"
        known = path[0].tobytes() in log.measured
        moves = bool(np.abs(path - path[0]).max() > 0.0)
        statuses = log.statuses[begin:end]
        inside = not moves and not any(status in MOVING for status in statuses)
        for name, values in kept.items():
            # A command may stay outside only where the arm was found, without moving it.
            assert (inside and known) or values[begin:end].min() >= -1e-8, (name, values[begin:end].min())
        assert known or begin == 0 or np.array_equal(path[0], positions[begin - 1])
        assert known or begin > 0
        if begin > 0 and times[begin] - times[begin - 1] <= config.cycle_gap_max:
            # The command jumps only from rest.
            rests = epochs[begin - 1] != epochs[max(begin - 2, 0)] or begin == 1
            assert rests or np.array_equal(positions[begin - 1], positions[begin - 2]), "jump while moving"
            assert not velocities[begin - 1].any(), "jump while moving"
    lost = np.cumsum([0, *log.clock_lost])
    for cycles in (
        5,
        50,
    ):  # while there is a clock, commands come no faster than the driver takes them, but one
        if len(times) > cycles:
            taken = times[cycles:] - times[:-cycles]
            kept_time = lost[cycles + 1 :] == lost[: -cycles - 1]
            assert taken[kept_time].min(initial=INF) >= (cycles - 1.01) / config.rate_hz


# ---- the hostile world


def random_config(rng: np.random.Generator) -> SafetyConfig:
    """Any sensible limits, narrow ones among them."""
    rate = float(rng.choice([125.0, 500.0]))
    return SafetyConfig(
        rate_hz=rate,
        velocity_max=float(rng.choice([0.2, 1.0, 3.0])),
        acceleration_max=float(rng.choice([2.0, 10.0, 40.0])),
        step_max=float(rng.choice([0.002, 0.01, 0.1])),
        position_margin=float(rng.choice([0.0, 0.05])),
        workspace_min=[0.2, -0.45, -0.2] if rng.random() < 0.5 else [-0.9, -0.9, -0.2],
        workspace_max=[0.9, 0.45, 0.5] if rng.random() < 0.5 else [0.9, 0.9, 0.9],
        floor_height=float(rng.choice([-0.111, -0.05, 0.0])),
        singularity_min=float(rng.choice([0.002, 0.01, 0.02])),
        self_collision_min=float(rng.choice([0.0, 0.01, 0.03])),
        setpoint_jump_max=float(rng.choice([0.05, 0.4, 1.5])),
        gripper_max_age=float(rng.choice([0.05, INF])),
        settle_time=float(rng.choice([0.0, 0.02, 0.1])),
        ramp_time=float(rng.choice([0.0, 0.2])),
        resume_delay=float(rng.choice([0.0, 0.05, 0.2])),
        following_release=float(rng.choice([0.0, 0.1])),
        cycle_gap_max=max(0.05, 2.0 / rate),
    )


STRANGE_VECTORS = (
    None,
    "joints",
    [],
    [0.0] * 5,
    [0.0] * 7,
    [[0.0] * 6],
    np.zeros(6),
    np.full(6, NAN),
    np.array([0.1, 0.2, INF, 0.0, 0.0, 0.0]),
    [0.1, NAN, 0.0, 0.0, 0.0, 0.0],
    np.full(6, 1e300),
    np.full(6, -7.0),
    ["1", "2", "3", "4", "5", "x"],
    np.array([True] * 6),
)
STRANGE_TIMES = (NAN, INF, -INF, -1.0, 1e9, -0.02, 0.03, 0.2)


class World:
    """An arm that follows commands or does not, and everything that can go wrong around it."""

    def __init__(self, rng: np.random.Generator, arm: Arm) -> None:
        self.rng, self.config = rng, random_config(rng)
        self.filter = SafetyFilter(self.config)
        self.log = Log(self.config)
        self.calm = float(rng.choice([0.9, 0.98, 0.995, 0.999, 1.0]))
        """Probability that one thing in one cycle is as it should be."""
        self.now = self.latest = float(rng.uniform(0.0, 1e5))
        self.arm = ur5e.HOME + 0.02 * rng.standard_normal(6)
        if rng.random() < 0.6:
            anywhere = rng.uniform(-3.0, 3.0, (30, 6))
            inside = np.min(list(clearances_of(arm, anywhere, self.config).values()), axis=0) > 0.0
            if inside.any() or rng.random() < 0.1:
                self.arm = anywhere[int(inside.argmax())]
        self.lag = float(rng.choice([0.0, 0.5, 0.95]))
        self.blocked = False
        self.command: np.ndarray | None = None
        self.epoch = 0
        self.goal = self.arm.copy()
        self.direction = np.zeros(6)
        self.style = str(rng.choice(["smooth", "jumps", "noise", "down", "fixed"]))
        if rng.random() < 0.9:
            self.filter.robot(program_running=True)

    def strange(self) -> bool:
        return bool(self.rng.random() > self.calm)

    def cycle(self) -> None:
        rng, period = self.rng, self.config.period
        self.now += period
        now = self.now
        if self.strange():
            now += float(rng.choice([-0.5, -0.001, 0.0005, 0.001, 0.03, 0.3, NAN, INF]))
            if rng.random() < 0.3 and np.isfinite(now):
                self.now = now
        elif rng.random() < 0.2:
            now += float(rng.normal(0.0, 0.2 * period))
        self._tell_robot()
        self._tell_gripper(now)
        self._tell_measured(now)
        self._tell_setpoint(now)
        for _ in range(int(rng.integers(2, 5)) if self.strange() else 1):
            verdict = self.filter.step(now)
            self._record(verdict, now)
            self.latest = now if np.isfinite(now) else self.latest

    def _age(self) -> float:
        return float(self.rng.choice(STRANGE_TIMES)) if self.strange() else float(self.rng.uniform(0, 0.004))

    def _tell_robot(self) -> None:
        rng = self.rng
        if self.strange():
            self.filter.robot(
                program_running=rng.choice([True, True, False, None]),
                protective_stop=rng.choice([False, False, True, None]),
                speed_scaling=rng.choice([100.0, 30.0, 0.0, NAN, -5.0, 1e9]),
            )
        elif rng.random() < 0.05:
            self.filter.robot(program_running=True, protective_stop=False, speed_scaling=100.0)

    def _tell_gripper(self, now: float) -> None:
        if not self.strange():
            self.filter.gripper(float(self.rng.uniform(0, 100)), stamp_age=self._age(), now=now)
        elif self.rng.random() < 0.5:
            self.filter.gripper(
                float(self.rng.choice([NAN, INF, -INF, 151.0, 1e9])), stamp_age=self._age(), now=now
            )

    def _tell_measured(self, now: float) -> None:
        rng = self.rng
        if self.command is not None and not self.blocked:
            self.arm = self.arm + (1.0 - self.lag) * (self.command - self.arm)
        if self.strange():
            happens = rng.random()
            if happens < 0.2:
                self.blocked = not self.blocked
            elif happens < 0.25:  # moved by hand, perhaps out of the limits
                self.arm = self.arm + rng.normal(0.0, float(rng.choice([0.01, 0.2, 1.0])), 6)
                self.arm = np.clip(self.arm, -6.5, 6.5)
            elif happens < 0.5:
                return
            else:
                strange = STRANGE_VECTORS[int(rng.integers(len(STRANGE_VECTORS)))]
                self._note(strange)
                self.filter.measured(strange, strange, stamp_age=self._age(), now=now)
                return
        seen = self.arm + 1e-5 * rng.standard_normal(6)
        self._note(seen)
        speeds = np.full(6, NAN) if rng.random() < 0.5 else np.zeros(6)
        self.filter.measured(seen, speeds, stamp_age=self._age(), now=now)

    def _note(self, joints: object) -> None:
        with suppress(TypeError, ValueError):
            self.log.measured.add(np.array(joints, dtype=np.float64).tobytes())

    def _tell_setpoint(self, now: float) -> None:
        rng = self.rng
        epoch = self.epoch if not self.strange() else int(rng.integers(-2, 50))
        if self.strange():
            if rng.random() < 0.5:
                strange = STRANGE_VECTORS[int(rng.integers(len(STRANGE_VECTORS)))]
                if rng.random() < 0.3 and self.command is not None:
                    strange = self.command + 2.0 * np.pi * rng.integers(-1, 2, 6)
                self.filter.setpoint(strange, epoch=epoch, stamp_age=self._age(), now=now)
            return
        base = self.command if self.command is not None else self.arm
        if np.abs(self.goal - base).max() > 0.9 * self.config.setpoint_jump_max:
            self.goal = base.copy()
        if rng.random() < 0.01:
            self.direction = rng.normal(0.0, float(rng.choice([0.1, 0.5, 2.0, 10.0])), 6)
        if self.style == "smooth":
            self.goal = self.goal + self.direction * self.config.period
        elif self.style == "jumps":
            self.goal = base + rng.uniform(-1, 1, 6) * 0.99 * self.config.setpoint_jump_max
        elif self.style == "noise":
            self.goal = base + rng.normal(0.0, 0.02, 6)
        elif self.style == "down":  # shoulder and elbow press the tool into the table
            self.goal = base + np.array([0.1, 0.2, 0.1, -0.1, 0.0, 0.1]) * rng.uniform(-0.2, 1.0)
        self.filter.setpoint(self.goal, epoch=epoch, stamp_age=self._age(), now=now)

    def _record(self, verdict, now: float) -> None:
        log = self.log
        log.reasons.update(reason.key for reason in verdict.reasons)
        for reason in verdict.reasons:
            assert reason.key in KINDS
            assert reason.text
            assert "\n" not in reason.text
        assert verdict.status is Status.OK or verdict.status is Status.RAMPING or verdict.reasons
        self.epoch = verdict.epoch
        if verdict.positions is None:
            assert verdict.velocities is None
            return
        self.command = verdict.positions
        log.positions.append(verdict.positions)
        log.velocities.append(verdict.velocities)
        log.epochs.append(verdict.epoch)
        log.statuses.append(verdict.status)
        log.times.append(now)
        log.clock_lost.append(not (np.isfinite(now) and now >= self.latest))
        # What the caller does with its arrays must not matter.
        verdict.positions.flags.writeable = False


def run(seed: int, cycles: int, episode: int = 500) -> tuple[Counter, Counter, int]:
    """Episodes of hostile cycles, each checked; how often each status and reason came, and how many moved."""
    rng, arm = np.random.default_rng(seed), Arm()
    statuses, reasons, moved = Counter(), Counter(), 0
    for _ in range(cycles // episode):
        world = World(rng, arm)
        for _ in range(episode):
            world.cycle()
        check(world.log, arm)
        statuses.update(world.log.statuses)
        reasons.update(world.log.reasons)
        reasons.update(world.filter.refused)
        if len(world.log.positions) > 1:
            moved += int((np.abs(np.diff(np.array(world.log.positions), axis=0)).max(1) > 1e-6).sum())
    return statuses, reasons, moved


def test_no_limit_is_exceeded_in_20_000_hostile_cycles():
    statuses, _, moved = run(seed=0, cycles=20_000)
    assert moved > 2_000  # else it would prove nothing
    assert all(statuses[status] > 0 for status in Status)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_limit_is_exceeded_in_hostile_cycles():
    """HOSTILE_CYCLES=1000000 takes some minutes; do that where the filter was changed."""
    cycles = int(os.environ.get("HOSTILE_CYCLES", "200000"))
    statuses, reasons, moved = run(seed=7, cycles=cycles)
    assert moved > cycles // 10
    assert all(statuses[status] > 0 for status in Status)
    others = {"grip_command_invalid", "grip_command_limited", "rival_commander"}  # said by other parts
    assert set(KINDS) - others <= set(reasons), "never seen, so never tested"


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_limit_is_exceeded_by_any_sequence_of_messages(data):
    """Hypothesis chooses the order of calls and what is in them, odd numbers above all."""
    config = SafetyConfig(
        rate_hz=125.0, settle_time=0.0, resume_delay=0.0, ramp_time=0.0, gripper_max_age=INF
    )
    subject, log, now = SafetyFilter(config), Log(config), 0.0
    numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)
    near = st.floats(-0.4, 0.4)
    ages = st.one_of(st.just(0.0), numbers)
    subject.robot(program_running=True)
    for _ in range(data.draw(st.integers(1, 60))):
        base = log.positions[-1] if log.positions else ur5e.HOME
        call = data.draw(
            st.sampled_from(["step"] * 4 + ["setpoint"] * 4 + ["measured"] * 3 + ["odd", "robot"])
        )
        if call == "step":
            now = data.draw(st.one_of(st.just(now + 0.008), st.just(now + 0.008), numbers))
            verdict = subject.step(now)
            if verdict.positions is not None:
                log.positions.append(verdict.positions)
                log.velocities.append(verdict.velocities)
                log.epochs.append(verdict.epoch)
                log.statuses.append(verdict.status)
                log.times.append(now)
                log.clock_lost.append(True)  # times are checked by the other tests
            now = now if np.isfinite(now) else 0.0
        elif call == "setpoint":
            wanted = base + np.array(data.draw(st.lists(near, min_size=6, max_size=6)))
            subject.setpoint(wanted, epoch=subject.epoch, stamp_age=data.draw(ages), now=now)
        elif call == "measured":
            log.measured.add(np.array(base).tobytes())
            subject.measured(base, None, stamp_age=data.draw(ages), now=now)
        elif call == "odd":
            joints = np.array(data.draw(st.lists(numbers, min_size=6, max_size=6)))
            log.measured.add(joints.tobytes())
            subject.measured(joints, joints, stamp_age=data.draw(ages), now=now)
            subject.setpoint(joints, epoch=subject.epoch, stamp_age=data.draw(ages), now=now)
            subject.gripper(data.draw(numbers), stamp_age=data.draw(ages), now=now)
        else:
            subject.robot(
                program_running=data.draw(st.sampled_from([True, True, False, None])),
                speed_scaling=data.draw(st.one_of(st.just(100.0), numbers)),
            )
    check(log, Arm())


# ---- the checker itself


def log_of(path: np.ndarray, config: SafetyConfig) -> Log:
    """A driver's log of a path (N, 6) after a start at its first posture."""
    log = Log(config)
    for i, joints in enumerate(path):
        log.positions.append(joints)
        log.velocities.append(np.zeros(6))
        log.epochs.append(1)
        log.statuses.append(Status.OK)
        log.times.append(i * config.period)
        log.clock_lost.append(False)
    log.measured.add(path[0].tobytes())
    return log


def bent(distance: np.ndarray, cycles: int, period: float) -> np.ndarray:
    """(2 * cycles + 1, 6) from home over `distance` (6,) rad, speeding up evenly, then slowing down so."""
    share = np.concatenate([np.arange(1, cycles + 1), np.arange(cycles - 1, -1, -1)])
    return ur5e.HOME + np.vstack([np.zeros(6), np.cumsum(share)[:, None] / share.sum() * distance])


@pytest.mark.parametrize(
    ("distance", "cycles", "config", "fault"),
    [
        ((0.1, 0, 0, 0, 0, 0), 100, {}, ""),
        ((0.3, 0, 0, 0, 0, 0), 100, {}, "velocity"),
        ((0.02, 0, 0, 0, 0, 0), 15, {}, "acceleration"),
        ((0.05, 0, 0, 0, 0, 0), 100, {"workspace_max": [0.9, -0.02, 0.5]}, "workspace"),
        ((0, 0, 0, 0.1, 0, 0), 100, {"floor_height": 0.055}, "floor"),
        ((0, 0, 0, 0, 0.9, 0), 500, {"singularity_min": 0.0255}, "singularity"),
        ((0, 0, 0, 0, -0.1, 0), 100, {"self_collision_min": 0.048}, "self_collision"),
    ],
)
def test_the_checker_sees_each_kind_of_fault(distance, cycles, config, fault):
    settings_ = SafetyConfig(**config)
    log = log_of(bent(np.array(distance, dtype=float), cycles, settings_.period), settings_)
    if not fault:
        check(log, Arm())
        return
    with pytest.raises(AssertionError, match=fault):
        check(log, Arm())
