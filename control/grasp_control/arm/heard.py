"""What the safety filter knows of robot and setpoint, and what of it stands against moving.

The newest usable message of each kind counts; what is refused is named until a usable one comes
(`grasp_control.arm.inputs`).
"""

from __future__ import annotations

from math import inf, isfinite, isnan

import numpy as np

from grasp_control.arm.inputs import Source, joint_vector, shortly
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import Reason
from grasp_sim import ur5e


class Heard:
    """Joints: (6,) rad. Times: s of one monotonic clock; `stamp_age`: of a message's content on arrival."""

    def __init__(self, config: SafetyConfig) -> None:
        self._config = config
        self.refused: dict[str, int] = {}
        """Messages not taken so far, by key of the reason."""
        self._measured = Source("measured", config.future_max)
        self._setpoint = Source("setpoint", config.future_max)
        self._gripper = Source("gripper", config.future_max)
        for source in self._sources:
            source.refused = self.refused
        self.joints = np.zeros(ur5e.DOF)
        """As measured last; meaningless until the first."""
        self._anchor, self._rests_since = np.full(ur5e.DOF, inf), inf
        self.target = np.zeros(ur5e.DOF)
        """The last setpoint."""
        self._force = 0.0
        self._program: bool | None = None
        self._protective_stop = False
        self.speed = 1.0
        """The robot's speed scaling, from 0 to 1."""

    @property
    def _sources(self) -> tuple[Source, Source, Source]:
        return self._measured, self._setpoint, self._gripper

    # ---- taking messages

    def measured(
        self, positions: np.ndarray, velocities: np.ndarray | None, *, stamp_age: float, now: float
    ) -> None:
        """Take measured joints and, if finite, their rad/s."""
        joints = joint_vector(positions)
        if joints is None:
            self._measured.refuse("invalid", f"not six finite numbers: {shortly(positions)}")
            return
        if not joints.any():
            self._measured.refuse("zeros", "all joint positions are exactly 0")
            return
        if not self._measured.timely(stamp_age, now, self._config.measured_max_age):
            if self._measured.fault is not None and self._measured.fault.key == "measured_back":
                # Two publish joints, one of them with stamps ahead, and only one is heard: whether it is the
                # arm that rests is not known, and the command must not jump to where another one does.
                self._anchor, self._rests_since = np.full(ur5e.DOF, inf), now
            return
        self.joints = joints
        speeds = joint_vector(velocities) if velocities is not None else None
        fastest = self._config.settle_tolerance / max(self._config.settle_time, 0.01)
        if np.abs(joints - self._anchor).max() > self._config.settle_tolerance or (
            speeds is not None and np.abs(speeds).max() > fastest
        ):
            self._anchor, self._rests_since = joints, now

    def setpoint(
        self,
        positions: np.ndarray,
        command: np.ndarray | None,
        *,
        epoch: tuple[int, int],
        stamp_age: float,
        now: float,
    ) -> None:
        """Take a setpoint beside the present command, None before the first start. `epoch`: the one in which
        it was made, and the present one."""
        made, present = epoch
        if command is None or made != present:
            self._setpoint.refuse("epoch", f"made in epoch {made}; the present one is {present}")
            return
        joints = joint_vector(positions)
        if joints is None:
            self._setpoint.present = False
            self._setpoint.refuse("invalid", f"not six finite numbers: {shortly(positions)}")
            return
        away = np.abs(joints - command)
        most = self._config.setpoint_jump_max
        if away.max() > most:
            self._setpoint.present = False
            rest = np.abs((away + np.pi) % (2.0 * np.pi) - np.pi)
            key = "jump" if rest.max() > most else "wrapped"
            worst = ur5e.JOINT_NAMES[int(away.argmax())]
            turns = "" if key == "jump" else ", that is by whole turns"
            self._setpoint.refuse(
                key,
                f"{worst} is {away.max():.3f} rad from its command{turns}; at most {most:g} rad is allowed",
            )
            return
        if self._setpoint.timely(stamp_age, now, self._config.setpoint_max_age):
            self.target = joints

    def gripper(self, force: float, *, stamp_age: float, now: float) -> None:
        """Take a measured grip force in N."""
        if not isfinite(force):
            self._gripper.present = False
            self._gripper.refuse("invalid", f"the grip force is {force} N")
        elif self._gripper.timely(stamp_age, now, self._config.gripper_max_age):
            self._force = force

    def robot(
        self, program_running: bool | None, protective_stop: bool | None, speed_scaling: float | None
    ) -> None:
        """Take what the robot says of itself; None leaves it as it was. Speed scaling in percent."""
        if program_running is not None:
            self._program = bool(program_running)
        if protective_stop is not None:
            self._protective_stop = bool(protective_stop)
        if speed_scaling is not None:
            self.speed = 0.0 if isnan(speed_scaling) else min(max(speed_scaling / 100.0, 0.0), 1.0)

    def forget(self) -> None:
        """As if no message had come: their times are worthless."""
        for source in self._sources:
            source.forget()
        self._anchor, self._rests_since = np.full(ur5e.DOF, inf), inf

    def forget_setpoint(self) -> None:
        """The setpoint was made for another start."""
        self._setpoint.forget()

    # ---- what stands against moving

    @property
    def rests(self) -> bool:
        """Whether the measured joints have stayed where they are for `settle_time`."""
        return self._measured.arrived - self._rests_since >= self._config.settle_time

    def sees(self, now: float) -> bool:
        """Whether the measured joints are of now."""
        return self._measured.present and self._measured.age(now) <= self._config.measured_max_age

    def pause(self) -> Reason | None:
        """Why the robot takes no commands."""
        if self._protective_stop:  # first, since it stops the program too
            return Reason("protective_stop", "the robot is in a protective stop")
        if self._program is None and self._config.require_program:
            return Reason("program_unknown", "the robot has not said whether its program runs")
        if self._program is False:
            return Reason("program_stopped", "the program on the robot does not run")
        if self.speed <= 0.0:
            return Reason("speed_zero", "the robot's speed scaling is 0 %")
        return None

    def unseen(self, now: float) -> Reason | None:
        """Why the measured joints cannot be relied on."""
        if self.sees(now):
            return None
        if not self._measured.present:
            return self._measured.fault or Reason("no_measured", "no joint positions have arrived")
        return self._measured.fault or _stale(self._measured, now, self._config.measured_max_age)

    def setpoint_fault(self, now: float) -> Reason | None:
        """Why there is nothing to follow."""
        most = self._config.setpoint_max_age
        if not self._setpoint.present:
            return self._setpoint.fault or Reason("no_setpoint", "no setpoint has come since the start")
        if self._setpoint.age(now) > most:
            return self._setpoint.fault or _stale(self._setpoint, now, most)
        return None

    def gripper_fault(self, now: float) -> Reason | None:
        """What is wrong with the grip."""
        most = self._config.gripper_max_age
        if not self._gripper.present:
            missing = Reason("gripper_stale", "no state of the gripper has arrived") if most < inf else None
            return self._gripper.fault or missing
        if self._gripper.age(now) > most:
            return self._gripper.fault or _stale(self._gripper, now, most)
        if self._force > self._config.grip_force_max:
            text = f"{self._force:.1f} N; at most {self._config.grip_force_max:g} N is allowed"
            return Reason("grip_force", text)
        return None


def _stale(source: Source, now: float, most: float) -> Reason:
    return Reason(f"{source.name}_stale", f"{source.age(now):.3f} s old; at most {most:g} s is allowed")
