"""One grasp, cycle by cycle: measurements in, the setpoint that is safe to send out. No sockets, no clock.

Each cycle the safety filter decides what is sent. At the policy's rate the newest measurements become a
state, the policy's action and the servo's next target. Where anything is in doubt the arm holds and the grasp
stops.

Shapes: 6 joints in the order of `grasp_sim.ur5e.JOINT_NAMES`. m, rad, N; times are monotonic s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from grasp_control.arm.assembler import NotReady, StateAssembler
from grasp_control.arm.gripper import Grip
from grasp_control.arm.object_poses import ObjectPose
from grasp_control.arm.robotiq import GripReading
from grasp_control.arm.rtde import PLAYING, PROTECTIVE_STOP, Measured
from grasp_control.arm.runner import GraspRunner, Outcome
from grasp_control.arm.safety import SafetyFilter, Status, Verdict
from grasp_control.arm.setpoints import Executed, SetpointStream
from grasp_sim.contract import POLICY_RATE_HZ

PERIOD = 1.0 / POLICY_RATE_HZ
HOLD_TIMEOUT = 1.0
"""s that the safety filter may hold before the grasp is given up."""
_NS = 1e9


class Cycle(NamedTuple):
    """What comes of one cycle."""

    positions: np.ndarray | None
    """(6,) rad to send; None: nothing."""
    grip: Grip | None
    """For the gripper; None: nothing new."""
    verdict: Verdict


@dataclass
class Counts:
    """What the cycles of a grasp came to."""

    cycles: int = 0
    limited: int = 0
    held: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Cycles by the key of each reason that the safety filter gave."""


class GraspLoop:
    """Runs one grasp over an arm, a gripper and a source of poses that somebody else talks to."""

    def __init__(
        self,
        runner: GraspRunner,
        stream: SetpointStream,
        safety: SafetyFilter,
        assembler: StateAssembler,
        *,
        period: float = PERIOD,
        shadow: bool = False,
    ) -> None:
        """`period`: s of a policy step; `shadow`: nothing will be sent, so every target starts from where the
        arm is."""
        self.counts = Counts()
        self.last: Executed | None = None
        """What became of the newest action."""
        self._runner, self._stream, self._safety, self._assembler = runner, stream, safety, assembler
        self._period, self._shadow = period, shadow
        self._measured: Measured | None = None
        self._grip: GripReading | None = None
        self._epoch: int | None = None
        self._due = 0.0
        self._wanted: Grip | None = None
        self._holding_since: float | None = None
        self._verdict: Verdict | None = None

    def arm(self, measured: Measured) -> None:
        """A package of the arm's measurements."""
        self._measured = measured
        values = np.concatenate([measured.positions, measured.velocities])
        at = measured.received - measured.age
        self._assembler.joints(values, stamp=_stamp(at), received=measured.received)
        self._safety.measured(
            measured.positions, measured.velocities, stamp_age=measured.age, now=measured.received
        )
        self._safety.robot(
            # Without a program of ours there is none, and nothing is sent that it could fail to run.
            program_running=True if self._shadow else measured.runtime_state == PLAYING,
            protective_stop=measured.safety_mode == PROTECTIVE_STOP,
            speed_scaling=100.0 * measured.speed_scaling,
        )

    def gripper(self, reading: GripReading | None, now: float) -> None:
        """The gripper's newest reading."""
        if reading is None or reading is self._grip:
            return
        self._grip = reading
        self._assembler.gripper(
            (reading.opening, reading.force), stamp=_stamp(reading.measured), received=now
        )
        self._safety.gripper(reading.force, stamp_age=now - reading.measured, now=now)

    def object_seen(self, pose: ObjectPose | None, now: float) -> None:
        """A new measurement of the object."""
        if pose is None:
            return
        self._assembler.object_pose(
            [*pose.position, *pose.quaternion], stamp=_stamp(pose.measured), received=now
        )
        if pose.size is not None:
            self._assembler.object_size(pose.size.tolist())

    def problems(self, now: float) -> list[str]:
        """What a grasp still waits for: a line each; empty when it can begin."""
        return self._assembler.problems(clock=_stamp(now), now=now)

    def begin(self, now: float) -> None:
        """Begin the grasp. Raises NotReady while `problems` has any."""
        self._act(now, begin=True)
        self._due = now + self._period

    def step(self, now: float) -> Cycle:
        """One cycle; what to send."""
        if self._runner.progress.running:
            self._look_for_trouble(now)
        if self._runner.progress.running and self._holding_since is None and now >= self._due:
            self._due = max(self._due + self._period, now)
            self._act(now)
        if self._stream.ready and self._epoch is not None:
            self._safety.setpoint(self._stream.at(now)[0], epoch=self._epoch, stamp_age=0.0, now=now)
        verdict = self._safety.step(now)
        self._follow(verdict, now)
        grip, self._wanted = self._wanted, None
        return Cycle(verdict.positions, grip, verdict)

    def _act(self, now: float, *, begin: bool = False) -> None:
        try:
            state = self._assembler.assemble(clock=_stamp(now), now=now)
        except NotReady as reason:
            if begin:
                raise
            self._runner.stop(Outcome.STOPPED, str(reason))
            return
        if begin:
            action = self._runner.begin(state)
        else:
            assert self.last is not None
            action = self._runner.step(state, self.last.action)
        if action is None:
            return
        if self._shadow:
            self._stream.reset(state.joint_positions)
        self.last = self._stream.act(action, state.joint_positions, now, self._period)
        self._wanted = Grip(self.last.command.opening, self.last.command.force_limit)

    def trouble(self) -> str:
        """Why the robot cannot move now, or ""."""
        if self._measured is None:
            return ""
        fault = self._measured.fault()
        if not fault and not self._shadow and self._measured.runtime_state != PLAYING:
            fault = "the program on the robot's controller was stopped: begin anew"
        return fault

    def held_by(self) -> list[str]:
        """Why the safety filter does not let the arm move freely yet; empty when it does."""
        if self._verdict is None:
            return ["the safety filter has not run"]
        if self._verdict.status in (Status.WAITING, Status.RAMPING, Status.HOLD):
            said = [reason.text for reason in self._verdict.reasons]
            return said or [f"the safety filter is {self._verdict.status.name.lower()}"]
        return []

    def _look_for_trouble(self, now: float) -> None:
        """End the grasp where the robot cannot move, or is held for long."""
        trouble = self.trouble()
        if trouble:
            self._runner.stop(Outcome.STOPPED, trouble)
        elif self._holding_since is not None and now - self._holding_since > HOLD_TIMEOUT:
            self._runner.stop(Outcome.STOPPED, f"held for {HOLD_TIMEOUT:g} s: {'; '.join(self.held_by())}")

    def _follow(self, verdict: Verdict, now: float) -> None:
        """Keep to the filter's epoch, and remember since when it holds."""
        if verdict.epoch != self._epoch and self._measured is not None:
            self._stream.reset(self._measured.positions)
            self._epoch = verdict.epoch
        self._verdict = verdict
        holding = verdict.status in (Status.WAITING, Status.HOLD)
        if holding:
            self._holding_since = now if self._holding_since is None else self._holding_since
        else:
            self._holding_since = None
        if self._runner.progress.running:
            self.counts.cycles += 1
            self.counts.limited += verdict.status is Status.LIMITED
            self.counts.held += holding
            self.counts.reasons.update(reason.key for reason in verdict.reasons)


def _stamp(at: float) -> int:
    """Whole ns on the monotonic clock, which here is the one that everything is stamped with."""
    return int(at * _NS)
