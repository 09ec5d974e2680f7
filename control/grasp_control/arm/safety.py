"""The last guard before the driver: what it lets through keeps every limit, whatever it is given.

Whoever owns the filter tells it what was measured and what is wanted, calls `step` once per cycle of the
driver and sends what that answers. The commands of one epoch, taken one cycle apart, never exceed the limits
of position, velocity, acceleration, workspace, floor, self-collision and singularity of `SafetyConfig` (see
`grasp_control.arm.motion`). When in doubt the arm brakes, stands still, and `Verdict.reasons` say why.

Standing still means the last command again, never the measured position, which would let the arm creep. The
command jumps to the measured position only where that moves nothing: when the arm rests and a new start is
needed. Each such jump raises the epoch. A start needs a pose inside the limits. If the arm was put outside of
them during a pause, the command is still set to where it rests, since a robot that resumes repeats its last
command; it then stays there, WAITING, until a person has brought it back. Only beyond the joints' range the
command stays what it was: such an arm has to be jogged back before its program resumes.

Joints: (6,), in the order of `ur5e.JOINT_NAMES`. Times: s of one monotonic clock.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from grasp_control.arm import geometry, motion
from grasp_control.arm.heard import Heard
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import Reason, Status
from grasp_sim import ur5e

MARGIN = 0.001
"""m of clearance that checked postures have, so that few of them prove a whole way."""
MANIPULABILITY_MARGIN = 0.02
"""The same of the manipulability, as a share of its limit."""
CLOSING = 25.0
"""1/s: how fast the tool may approach a plane, per m from it."""
_PAUSES = ("program_unknown", "program_stopped", "protective_stop", "speed_zero")
_JITTER = 0.5
"""Of a cycle, by which a call may come early."""


class Verdict(NamedTuple):
    """What to send, and why."""

    positions: np.ndarray | None
    """(6,) rad, for a position or trajectory controller. None: send nothing (not started yet, or called more
    than once in a cycle)."""
    velocities: np.ndarray | None
    """(6,) rad/s, for a velocity controller: the positions' derivative and a small correction of drift."""
    status: Status
    reasons: tuple[Reason, ...]
    """Empty if the arm moves as asked."""
    epoch: int
    """Number of the last jump to the measured position; setpoints made in another one are refused."""


class SafetyFilter:
    """Turns setpoints into commands. One thread at a time; pure, without a clock or messages of its own."""

    def __init__(self, config: SafetyConfig | None = None) -> None:
        self.config = config = config or SafetyConfig()
        self.epoch = 0
        self._heard = Heard(config)
        self._last_target = np.zeros(ur5e.DOF)
        self._joints: np.ndarray | None = None  # the last command, None before the first start
        self._velocities = np.zeros(ur5e.DOF)  # rad per cycle
        self._output = np.zeros(ur5e.DOF)  # rad/s, the last velocity command
        self._restart: Reason | None = None  # why a new start is needed, once there was a first
        self._start_at = -inf
        self._blocked_since = inf
        self._ramp_from = -inf
        self._last_step = self._due = -inf
        self._last = Verdict(None, None, Status.WAITING, (), 0)
        self._prepare()

    def _prepare(self) -> None:
        """The limits as numbers for the compiled functions, and these compiled, or it would cost a cycle."""
        config = self.config
        self._fastest = config.velocity_limit * config.period * (1.0 - 1e-9)  # rad per cycle
        self._slowing = np.full(ur5e.DOF, config.acceleration_max * config.period**2 * (1.0 - 1e-6))
        self._low, self._high = config.joint_range()
        corners = [
            corner for pair in zip(config.workspace_min, config.workspace_max, strict=True) for corner in pair
        ]
        self._limits = np.array(
            [*corners, config.floor_height, config.singularity_min, config.self_collision_min],
            dtype=np.float64,
        )
        self._full_margins = np.full(geometry.COUNT, MARGIN)
        self._full_margins[geometry.SINGULARITY] = MANIPULABILITY_MARGIN * config.singularity_min
        self._margins = self._full_margins.copy()
        self._clearances = np.empty(geometry.COUNT)
        self._limited = np.zeros(3, dtype=np.int64)
        self._outside(ur5e.HOME)
        for away in (0.0, 10.0):  # an easy and a hard one
            self._advance(ur5e.HOME.copy(), np.zeros(ur5e.DOF), ur5e.HOME + away, np.zeros(ur5e.DOF), 1e-3)
        motion.brake(np.zeros(ur5e.DOF), self._slowing, np.empty(ur5e.DOF))
        self._margins = self._full_margins.copy()

    # ---- what it is told

    def measured(
        self, positions: np.ndarray, velocities: np.ndarray | None = None, *, stamp_age: float, now: float
    ) -> None:
        """Joints (6,) rad as measured `stamp_age` s before `now`. Velocities (6,) rad/s, if finite, help to
        see whether the arm rests."""
        self._heard.measured(positions, velocities, stamp_age=stamp_age, now=now)

    def setpoint(self, positions: np.ndarray, *, epoch: int, stamp_age: float, now: float) -> None:
        """Joints (6,) rad that are wanted now, made in `epoch`."""
        epochs = (epoch, self.epoch)
        self._heard.setpoint(positions, self._joints, epoch=epochs, stamp_age=stamp_age, now=now)

    def gripper(self, force: float, *, stamp_age: float, now: float) -> None:
        """Measured grip force in N."""
        self._heard.gripper(force, stamp_age=stamp_age, now=now)

    def robot(
        self,
        *,
        program_running: bool | None = None,
        protective_stop: bool | None = None,
        speed_scaling: float | None = None,
    ) -> None:
        """What the robot says of itself; None leaves it as it was. Speed scaling in percent, as the driver
        publishes it; it scales the velocity limit."""
        self._heard.robot(program_running, protective_stop, speed_scaling)

    @property
    def moved(self) -> float:
        """rad from the last command from which an arm was moved in a gap: a driver that began anew meanwhile
        would go there in one cycle."""
        return self.config.velocity_limit * self.config.period

    @property
    def refused(self) -> dict[str, int]:
        """Messages not taken so far, by key of the reason."""
        return self._heard.refused

    # ---- one cycle

    def step(self, now: float) -> Verdict:
        """The command of this cycle; `now` in s. At most one per cycle, or none is answered."""
        if not (isfinite(now) and now >= self._last_step):
            lost = self._lose_clock(now)
            if not isfinite(now):
                self._last = self._hold([lost], self._last_step)
                return self._last
        if now < self._due - _JITTER * self.config.period:
            return self._last._replace(positions=None, velocities=None)
        gap = now - self._last_step
        self._due = max(self._due + self.config.period, now + _JITTER * self.config.period)
        self._last_step = now

        if self._joints is not None and isfinite(gap) and gap > self.config.cycle_gap_max:
            self._last = self._go_on_from_rest(gap, now)
            return self._last
        pause, unseen = self._heard.pause(), self._heard.unseen(now)
        if pause is not None:
            self._need_start(pause, now + self.config.resume_delay)
        elif unseen is None:
            self._check_following(now)
        if self._joints is None or self._restart is not None:
            obstacles = self._start(now, pause, unseen)
            self._last = self._hold(obstacles, now) if obstacles else self._verdict(Status.RAMPING, ())
        else:
            faults = [*self._faults(now), *([unseen] if unseen else [])]
            self._last = self._hold(faults, now) if faults else self._move(now)
        return self._last

    def _lose_clock(self, now: float) -> Reason:
        """All ages are worthless: start again with what comes from now on."""
        self._heard.forget()
        self._blocked_since = inf
        lost = Reason("clock_back", f"the clock went from {self._last_step:.3f} s to {now:.3f} s")
        if isfinite(now):
            self._last_step = self._due = self._ramp_from = now
        self._need_start(lost, self._last_step + self.config.resume_delay)
        return lost

    def _go_on_from_rest(self, gap: float, now: float) -> Verdict:
        """After so many missed cycles the arm has stopped on the last command by itself. What follows begins
        there, at rest, as another sequence of commands; from where it is, if it was moved meanwhile. A
        velocity controller went on with the last one, and is braked from it."""
        output = self._output
        self._place(self._command)
        self._output = output
        self._follow_with_velocity(now, resting=True)
        self._ramp_from = now
        away = np.abs(self._heard.joints - self._command)
        if self._heard.sees(now) and away.max() > self.moved:
            self._need_start(_following("arm_elsewhere", away, self.moved), max(self._start_at, now))
        text = f"{gap:.3f} s passed between two cycles; at most {self.config.cycle_gap_max:g} s is allowed"
        return self._verdict(Status.HOLD, (Reason("cycle_gap", text),))

    def _faults(self, now: float) -> list[Reason]:
        """Why the arm must hold, besides the measured joints."""
        following = None
        if self._blocked_since < inf:
            away = np.abs(self._heard.joints - self._command)
            following = _following("following_error", away, self.config.following_max)
        found = (self._heard.setpoint_fault(now), following, self._heard.gripper_fault(now))
        return [reason for reason in found if reason is not None]

    def _check_following(self, now: float) -> None:
        if self._joints is None or self._restart is not None:
            self._blocked_since = inf
            return
        away = np.abs(self._heard.joints - self._joints)
        worst = float(away.max())
        if worst <= self.config.following_max:
            self._blocked_since = inf
            return
        self._blocked_since = min(self._blocked_since, now)
        if worst > self.config.following_lost:
            reason = _following("arm_elsewhere", away, self.config.following_lost)
            self._need_start(reason, now + self.config.following_release)
        elif now - self._blocked_since >= self.config.following_release:
            self._need_start(_following("arm_elsewhere", away, self.config.following_max), now)

    # ---- starting

    def _need_start(self, reason: Reason, earliest: float) -> None:
        self._start_at = earliest
        if self._joints is not None:
            self._restart = reason

    def _start(self, now: float, pause: Reason | None, unseen: Reason | None) -> list[Reason]:
        """Start from the measured joints if that may be; else why not."""
        reasons = [reason for reason in (pause, unseen) if reason is not None]
        if self._restart is not None and self._restart.key not in _PAUSES:
            reasons.append(self._restart)
        if unseen is not None:
            return reasons
        measured = self._heard.joints
        if not self._heard.rests:
            text = f"the arm has not rested for {self.config.settle_time:g} s yet"
            return reasons or [Reason("arm_moving", text)]
        waiting = pause is None and now < self._start_at
        if waiting:
            reasons.append(Reason("resume_delay", f"the arm may start in {self._start_at - now:.1f} s"))
        outside = self._outside(measured)
        if outside is not None:
            reasons.append(outside)
        if self._velocities.any() or self._output.any():  # still braking
            return reasons or [Reason("arm_moving", "the last command is still braking")]
        if pause is None and not waiting and outside is None:
            self._place(measured)
            self._restart, self._blocked_since, self._ramp_from = None, inf, now
            return []
        if self._joints is not None and not waiting and self._may_rest_at(measured):
            self._place(measured)
        return reasons

    def _may_rest_at(self, joints: np.ndarray) -> bool:
        """Whether the command is to be moved to a resting arm that may not start there yet."""
        return bool(
            np.abs(joints - self._command).max() > self.config.settle_tolerance
            and (joints >= self._low).all()
            and (joints <= self._high).all()
        )

    def _place(self, joints: np.ndarray) -> None:
        self.epoch += 1
        self._joints = joints.copy()
        self._velocities[:] = 0.0
        self._output = np.zeros(ur5e.DOF)
        self._last_target = joints.copy()
        self._heard.forget_setpoint()
        # Margins are what proofs of a way are made of, not limits: where there is less room, less has to do.
        geometry.clearances(joints, self._limits, self._clearances)
        np.clip(self._clearances, 0.0, self._full_margins, out=self._margins)

    def _outside(self, joints: np.ndarray) -> Reason | None:
        """Which limit a posture breaks; fills `_clearances`."""
        beyond = np.maximum(self._low - joints, joints - self._high)
        if beyond.max() > 0.0:
            worst = int(beyond.argmax())
            text = (
                f"{ur5e.JOINT_NAMES[worst]} is at {joints[worst]:.3f} rad; from {self._low[worst]:.3f} to"
                f" {self._high[worst]:.3f} rad is allowed"
            )
            return Reason("start_outside", text)
        geometry.clearances(joints, self._limits, self._clearances)
        worst = int(self._clearances.argmin())
        if self._clearances[worst] >= 0.0:
            return None
        kind, what = geometry.CONSTRAINTS[worst]
        text = f"{kind}: {what} is {-self._clearances[worst]:.4f} {_unit(worst)} beyond the limit"
        return Reason("start_outside", text)

    # ---- moving and holding

    def _move(self, now: float) -> Verdict:
        config = self.config
        target, target_motion = self._heard.target, self._heard.target - self._last_target
        self._last_target = target
        ramp = (
            1.0 if config.ramp_time <= 0.0 else min(max((now - self._ramp_from) / config.ramp_time, 0.0), 1.0)
        )
        fastest = self._fastest * ramp * self._heard.speed
        if np.abs(target_motion).max() > self._fastest:  # a step, not a motion
            target_motion = np.zeros(ur5e.DOF)
        self._advance(self._command, self._velocities, target, target_motion, fastest)
        reasons = self._limitations(target, fastest, ramp)
        status = Status.LIMITED if reasons else Status.RAMPING if ramp < 1.0 else Status.OK
        self._follow_with_velocity(now, resting=False)
        return self._verdict(status, tuple(reasons))

    def _advance(
        self,
        joints: np.ndarray,
        velocities: np.ndarray,
        target: np.ndarray,
        target_motion: np.ndarray,
        fastest: float,
    ) -> None:
        motion.advance(
            joints,
            velocities,
            target,
            target_motion,
            fastest,
            self._slowing,
            CLOSING * self.config.period,
            self._low,
            self._high,
            self._limits,
            self._margins,
            self._full_margins,
            self._limited,
        )

    def _limitations(self, target: np.ndarray, fastest: float, ramp: float) -> list[Reason]:
        """Why the last motion is not what was asked."""
        constraint, joint, fast = (int(value) for value in self._limited)
        reasons = []
        if joint >= 0 or constraint >= geometry.COUNT:
            joint = joint if joint >= 0 else constraint - geometry.COUNT
            text = (
                f"{ur5e.JOINT_NAMES[joint]} is wanted at {target[joint]:.3f} rad; from {self._low[joint]:.3f}"
                f" to {self._high[joint]:.3f} rad is allowed"
            )
            reasons.append(Reason("joint_limit", text))
        elif constraint == motion.UNPROVEN:
            reasons.append(Reason("unproven", "no safe way to brake was found in time; slowed down"))
        elif constraint != motion.CLEAR:
            kind, what = geometry.CONSTRAINTS[constraint]
            unit = _unit(constraint)
            geometry.clearances(self._command, self._limits, self._clearances)
            text = f"{what}: {max(self._clearances[constraint], 0.0):.4f} {unit} from the limit"
            reasons.append(Reason(kind, text))
        lag = float(np.abs(target - self._command).max())
        if not reasons and ramp >= 1.0 and lag > self.config.lag_max:
            if fast:
                text = (
                    f"{fastest / self.config.period:.3f} rad/s reached; the setpoint is {lag:.3f} rad ahead"
                )
                reasons.append(Reason("velocity_limit", text))
            else:
                text = (
                    f"{self.config.acceleration_max:g} rad/s^2 reached; the setpoint is {lag:.3f} rad ahead"
                )
                reasons.append(Reason("acceleration_limit", text))
        return reasons

    @property
    def _command(self) -> np.ndarray:
        assert self._joints is not None, "asked for the command before the first start"
        return self._joints

    def _hold(self, reasons: list[Reason], now: float) -> Verdict:
        """Brake, or stand still."""
        if self._joints is None:
            return self._verdict(Status.WAITING, tuple(reasons))
        if self._velocities.any():
            slower = np.empty(ur5e.DOF)
            motion.brake(self._velocities, self._slowing, slower)
            self._joints += slower
            self._velocities[:] = slower
        resting = not self._velocities.any()
        if resting:
            self._ramp_from = now
        self._last_target = self._command.copy()
        self._follow_with_velocity(now, resting)
        waiting = any(reason.key == "start_outside" for reason in reasons)
        return self._verdict(Status.WAITING if waiting else Status.HOLD, tuple(reasons))

    def _follow_with_velocity(self, now: float, resting: bool) -> None:
        """The velocity command: what the positions do, and back to them if the arm has drifted from them."""
        config = self.config
        wanted = self._velocities / config.period
        if self._heard.sees(now) and not resting:
            most = config.drift_velocity_max
            drift = config.drift_gain * (self._command - self._heard.joints)
            wanted = wanted + np.clip(drift, -most, most)
        change = self._slowing / config.period
        wanted = np.clip(wanted, self._output - change, self._output + change)
        self._output = np.clip(wanted, -config.velocity_limit, config.velocity_limit)

    def _verdict(self, status: Status, reasons: tuple[Reason, ...]) -> Verdict:
        if self._joints is None:
            return Verdict(None, None, status, reasons, self.epoch)
        return Verdict(self._joints.copy(), self._output.copy(), status, reasons, self.epoch)


def _following(key: str, away: np.ndarray, most: float) -> Reason:
    worst = ur5e.JOINT_NAMES[int(away.argmax())]
    return Reason(key, f"{worst} is {away.max():.3f} rad from its command; at most {most:g} rad is allowed")


def _unit(constraint: int) -> str:
    return "m^3" if constraint == geometry.SINGULARITY else "m"
