"""Could a UR5e have moved like that? What a roboticist asks before trusting a recording to an arm.

`grasp_demos.validate` comes first: an episode with defects of form is not asked. What makes an episode
unusable is an error, what is merely remarkable a warning. The tolerances leave room for the noise, latency
and perception errors that a recording may hold.

Shapes: T steps, N = T + 1 states. Metres, radians, seconds, base frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from grasp_demos.episode import Episode
from grasp_demos.validate import Defect, count_of, state_names
from grasp_sim import registry, ur5e
from grasp_sim.scene import TABLE_CENTRE, TABLE_HALF_SIZE, TABLE_HEIGHT

MAX_GAP = 3.0
"""Periods of the policy's rate between two states from which the step between them means something else."""
REMARKABLE_GAP = 1.5
"""Periods from which a step is remarkable, as is one shorter than a period divided by this."""
RATE_TOLERANCE = 0.1
"""Share by which the median step may differ from the period that the metadata says."""
MAX_AGE = 0.5
"""s that joints and gripper may be older than the state they are in. The object's age is an observation."""
JOINT_TOLERANCE = 0.02
"""rad, for the noise of measured joints."""
SPEED_MARGIN = 1.05
"""Factor on the joints' greatest speed, for stamps that are not exact."""
TCP_TOLERANCE, TCP_TURN_TOLERANCE = 0.002, 0.02
"""m and rad between the recorded TCP pose and that of the recorded joints."""
UNIT_TOLERANCE = 1e-3
"""Of a quaternion's length."""
OBJECT_SPEED, FALL_SPEED = 3.0, 10.0
"""m/s sideways or upwards, and downwards, beyond which an object does not move but jump."""
OBJECT_TOLERANCE = 0.02
"""m, for the noise of a perceived position."""
TABLE_TOLERANCE = 0.01
"""m that an object's centre may be perceived below the table's top."""
OPENING_TOLERANCE = 0.02
"""m beyond closed and fully open."""
FEW_STEPS = 5
"""Fewer are remarkable: a quarter of a second at 20 Hz is no grasp."""


def implausible(episode: Episode, *, max_gap: float = MAX_GAP) -> list[Defect]:
    """What a UR5e at a table could not have done, or would hardly; empty for a recording as it should be.

    Args:
        episode: without defects of form.
        max_gap: periods of the policy's rate that may lie between two states.
    """
    with np.errstate(over="ignore"):  # Numbers may be finite and absurd.
        return _all(episode, max_gap)


def _all(episode: Episode, max_gap: float) -> list[Defect]:
    return [
        *_check_rate(episode, max_gap),
        *_check_sources(episode),
        *_check_joints(episode),
        *_check_kinematics(episode),
        *_check_quaternions(episode),
        *_check_gripper(episode),
        *_check_object(episode),
        *_check_outcome(episode),
        *_check_length(episode),
    ]


def _column(episode: Episode, name: str) -> np.ndarray:
    """(N,), or (N, width) for a vector's name."""
    columns = _columns(name)
    values = episode.states[:, columns]
    return values[:, 0] if values.shape[1] == 1 else values


@cache
def _columns(name: str) -> slice:
    held = [k for k, full in enumerate(state_names()) if full.partition("[")[0] == name]
    return slice(held[0], held[-1] + 1)


def _first(
    episode: Episode, bad: np.ndarray, dimension: str | None, problem: str, *, warning: bool = False
) -> Iterator[Defect]:
    """One defect at the first true entry of `bad`; with how many share it."""
    steps = np.flatnonzero(bad)
    if len(steps):
        text = f"{problem}{count_of(len(steps))}"
        yield Defect(str(episode), int(steps[0]), dimension, text, warning)


def _check_rate(episode: Episode, max_gap: float) -> Iterator[Defect]:
    change, period = np.diff(_column(episode, "time")), 1.0 / episode.metadata.rate_hz
    gaps = change > max_gap * period
    if gaps.any():
        first = change[gaps][0]
        text = f"{first:.3f} s pass until the next state, {first / period:.1f} periods of {period:.3f} s"
        yield from _first(episode, gaps, "time", f"{text}; more than {max_gap:g} is a gap")
    typical = float(np.median(change))
    if abs(typical / period - 1.0) > RATE_TOLERANCE:
        hertz = 1.0 / typical if typical > 0.0 else np.inf
        text = f"is {episode.metadata.rate_hz:g}, but the stamps tell {hertz:.1f} Hz"
        yield Defect(str(episode), None, "rate_hz", text)
        return
    uneven = ((change > REMARKABLE_GAP * period) & ~gaps) | (change < period / REMARKABLE_GAP)
    if uneven.any():
        text = f"{change[uneven][0]:.3f} s pass until the next state, where the period is {period:.3f} s"
        yield from _first(episode, uneven, "time", text, warning=True)


def _check_sources(episode: Episode) -> Iterator[Defect]:
    now = _column(episode, "time")
    for name in ("joint_time", "gripper_time", "object_time"):
        age = now - _column(episode, name)
        early = age < -1e-6
        if early.any():
            text = f"was measured {-age[early][0]:.6f} s after the state that holds it: the clocks differ"
            yield from _first(episode, early, name, text, warning=True)
        old = age > MAX_AGE
        if old.any() and name != "object_time":
            text = f"was measured {age[old][0]:.2f} s before the state that holds it"
            yield from _first(episode, old, name, text, warning=True)


def _check_joints(episode: Episode) -> Iterator[Defect]:
    positions, speeds = _column(episode, "joint_positions"), _column(episode, "joint_velocities")
    passed = np.maximum(np.diff(_column(episode, "joint_time")), 0.0)
    moved = np.abs(np.diff(positions, axis=0))
    for joint, name in enumerate(ur5e.JOINT_NAMES):
        low, high = ur5e.POSITION_MIN[joint], ur5e.POSITION_MAX[joint]
        fastest = ur5e.VELOCITY_MAX[joint]
        angle, speed = positions[:, joint], speeds[:, joint]
        outside = (angle < low - JOINT_TOLERANCE) | (angle > high + JOINT_TOLERANCE)
        if outside.any():
            text = f"is at {angle[outside][0]:.3f} rad, outside the UR5e's {low:.3f} to {high:.3f}"
            yield from _first(episode, outside, name, text)
        allowed = SPEED_MARGIN * fastest * passed + JOINT_TOLERANCE
        jump = moved[:, joint] > allowed
        if jump.any():
            held, most = moved[jump, joint][0], allowed[jump][0]
            text = f"moves {held:.3f} rad until the next state, more than the {most:.3f} it can in that time"
            yield from _first(episode, jump, name, text)
        fast = np.abs(speed) > SPEED_MARGIN * fastest
        if fast.any():
            text = f"is measured at {speed[fast][0]:.2f} rad/s; the UR5e's limit is {fastest:.2f}"
            yield from _first(episode, fast, name, text, warning=True)
    if len(episode) >= FEW_STEPS and np.ptp(positions, axis=0).max() == 0.0:
        yield Defect(str(episode), None, "joint_positions", "never change: was the arm connected?", True)


def _check_kinematics(episode: Episode) -> Iterator[Defect]:
    poses = [_kinematics().forward(row) for row in _column(episode, "joint_positions")]
    away = np.linalg.norm(_column(episode, "tcp_position") - [place for place, _ in poses], axis=1)
    apart = away > TCP_TOLERANCE
    if apart.any():
        text = f"is {away[apart][0] * 1000.0:.1f} mm from where the joints put it"
        yield from _first(episode, apart, "tcp_position", text)
    recorded = _column(episode, "tcp_quaternion")
    length = np.linalg.norm(recorded, axis=1)
    cosine = np.abs(np.sum(recorded * [turn for _, turn in poses], axis=1)) / np.maximum(length, 1e-9)
    angle = 2.0 * np.arccos(np.clip(cosine, 0.0, 1.0))
    turned = (angle > TCP_TURN_TOLERANCE) & (np.abs(length - 1.0) <= UNIT_TOLERANCE)
    if turned.any():
        text = f"is turned by {angle[turned][0]:.3f} rad from what the joints say"
        yield from _first(episode, turned, "tcp_quaternion", text)


@cache
def _kinematics() -> ur5e.Kinematics:
    """One for all episodes: making it takes longer than an episode's poses. Not for several threads."""
    return ur5e.Kinematics()


def _check_quaternions(episode: Episode) -> Iterator[Defect]:
    for name in ("tcp_quaternion", "object_quaternion"):
        length = np.linalg.norm(_column(episode, name), axis=1)
        bad = np.abs(length - 1.0) > UNIT_TOLERANCE
        if bad.any():
            yield from _first(episode, bad, name, f"has length {length[bad][0]:.4g}; it must be 1")


def _check_gripper(episode: Episode) -> Iterator[Defect]:
    opening, widest = _column(episode, "gripper_opening"), episode.metadata.action_scale.opening
    bad = (opening < -OPENING_TOLERANCE) | (opening > widest + OPENING_TOLERANCE)
    if bad.any():
        text = f"is {opening[bad][0]:.4g} m; the gripper opens 0 to {widest:g}"
        yield from _first(episode, bad, "gripper_opening", text)


def _check_object(episode: Episode) -> Iterator[Defect]:
    size, symmetry = _column(episode, "object_size"), _column(episode, "object_symmetry")
    flat = (size <= 0.0).any(axis=1)
    if flat.any():
        text = f"is {size[flat][0].tolist()} m; every side must be positive"
        yield from _first(episode, flat, "object_size", text)
    odd = (symmetry < 0.0) | (symmetry != np.trunc(symmetry))
    if odd.any():
        text = f"is {symmetry[odd][0]:g}; it must be a whole number from 0 on"
        yield from _first(episode, odd, "object_symmetry", text)
    for name, values in (("object_size", size), ("object_symmetry", symmetry)):
        changed = np.diff(values, axis=0).reshape(len(episode), -1).any(axis=1)
        text = "changes until the next state: it is another object"
        yield from _first(episode, changed, name, text, warning=True)
    place = _column(episode, "object_position")
    passed = np.maximum(np.diff(_column(episode, "object_time")), 0.0)
    moved = np.diff(place, axis=0)
    up_or_aside = np.linalg.norm(np.c_[moved[:, :2], np.maximum(moved[:, 2], 0.0)], axis=1)
    jump = (up_or_aside > OBJECT_SPEED * passed + OBJECT_TOLERANCE) | (
        -moved[:, 2] > FALL_SPEED * passed + OBJECT_TOLERANCE
    )
    jump &= place[:-1, 2] > TABLE_HEIGHT - TABLE_TOLERANCE  # What has fallen off falls faster and faster.
    if jump.any():
        far, long = np.linalg.norm(moved[jump][0]), passed[jump][0]
        text = f"jumps {far:.3f} m until the next state, within {long:.3f} s"
        yield from _first(episode, jump, "object_position", text)
    if episode.metadata.task in registry.names():  # Another place's table may stand anywhere.
        yield from _check_table(episode, place)


def _check_table(episode: Episode, place: np.ndarray) -> Iterator[Defect]:
    below = TABLE_HEIGHT - place[:, 2]
    over = (np.abs(place[:, :2] - TABLE_CENTRE) < TABLE_HALF_SIZE).all(axis=1)
    sunk = (below > TABLE_TOLERANCE) & over
    if sunk.any():
        text = f"has its centre {below[sunk][0] * 1000.0:.1f} mm below the table's top"
        yield from _first(episode, sunk, "object_position", text)
    text = "is beside the table and below its top: it fell off"
    fell = (below > TABLE_TOLERANCE) & ~over
    yield from _first(episode, fell, "object_position", text, warning=True)


def _check_outcome(episode: Episode) -> Iterator[Defect]:
    last, metadata = len(episode) - 1, episode.metadata
    terminated, reward = bool(episode.terminations[-1]), float(episode.rewards[-1])
    judged = bool(episode.snapshot)  # By the simulator; elsewhere the operator's word may stand against it.
    if metadata.success and not terminated:
        yield Defect(str(episode), last, "success", "is set, but the last step did not terminate", not judged)
    elif metadata.success and reward <= 0.0:
        text = f"is set, but the last reward is {reward:g}"
        yield Defect(str(episode), last, "success", text, not judged)
    why = f": {metadata.note}" if metadata.note else ""
    if not metadata.success and metadata.complete and terminated and reward >= 1.0:
        # An operator may call an ugly success a failure, and a failure is shown to no learner.
        text = f"is not set, but the last step terminated with reward {reward:g}{why}"
        yield Defect(str(episode), last, "success", text, True)
    if not metadata.complete:
        yield Defect(str(episode), last, "complete", f"is false, the recording broke off{why}", True)
    elif judged and not (terminated or episode.truncations[-1] or metadata.success or metadata.note):
        yield Defect(str(episode), last, None, "is the last, but neither terminates nor truncates", True)


def _check_length(episode: Episode) -> Iterator[Defect]:
    steps, horizon = len(episode), episode.metadata.horizon
    if steps < FEW_STEPS and episode.metadata.complete:
        yield Defect(str(episode), None, None, f"has only {steps} steps", True)
    if horizon and steps > horizon:
        yield Defect(str(episode), None, "horizon", f"is {horizon}, but there are {steps} steps", True)
    executed = episode.executed_actions
    if steps >= FEW_STEPS and np.ptp(executed, axis=0).max() == 0.0:
        yield Defect(str(episode), None, "executed_actions", "never change over the whole episode", True)
