"""The limits of the safety filter. The defaults are for a first run: well below what the UR5e can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite, isnan

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.scene import TABLE_HEIGHT


@dataclass
class SafetyConfig:
    """Limits, ages and times of `grasp_control.arm.safety.SafetyFilter`. Base frame: the robot's, z up."""

    rate_hz: float = 500.0
    """Cycles of the driver a second: 500 for an e-Series arm, 125 for a CB3."""
    velocity_max: float = 1.0
    """rad/s of every joint; the UR5e can do 3.14."""
    acceleration_max: float = 10.0
    """rad/s^2 of every joint, speeding up and braking; from 1 rad/s the arm then stops in 0.1 s."""
    step_max: float = 0.01
    """rad between two commands, whatever the rate."""
    position_margin: float = 0.05
    """rad kept from the UR5e's own joint limits."""
    workspace_min: list[float] = field(default_factory=lambda: [0.20, -0.45, -0.15])
    """m, least x, y, z of the TCP."""
    workspace_max: list[float] = field(default_factory=lambda: [0.90, 0.45, 0.50])
    """m, greatest x, y, z of the TCP."""
    floor_height: float = TABLE_HEIGHT + 0.001
    """m, height that TCP, fingertips and links stay above; the default is 1 mm above the simulated table."""
    singularity_min: float = 0.01
    """m^3, least manipulability |det J|; 0.033 at the home pose, 0 in a singularity."""
    self_collision_min: float = 0.01
    """m, least distance between parts of the arm; each is taken as a capsule around it."""
    grip_force_max: float = 150.0
    """N of measured grip force above which the arm holds."""
    measured_max_age: float = 0.05
    """s since the joints were measured above which the arm brakes."""
    setpoint_max_age: float = 0.04
    """s since the setpoint was made above which the arm brakes."""
    gripper_max_age: float = 0.05
    """s since the gripper was measured above which the arm brakes; .inf: not monitored."""
    future_max: float = 0.01
    """s that a stamp may lie in the future before it is refused."""
    cycle_gap_max: float = 0.05
    """s between two cycles above which the arm has stopped by itself and must start again."""
    require_program: bool = True
    """Move only after the robot has said that its program runs; false where no driver says so."""
    setpoint_jump_max: float = 0.4
    """rad between setpoint and command in any joint above which the setpoint is refused."""
    following_max: float = 0.1
    """rad between command and measured joint above which the arm is taken to be blocked."""
    following_lost: float = 0.3
    """rad between command and measured joint above which the arm is taken to be elsewhere."""
    following_release: float = 0.5
    """s that a blocked arm is held before the command gives in to where it is."""
    settle_time: float = 0.1
    """s that the measured joints must have rested before the command starts from them."""
    settle_tolerance: float = 0.002
    """rad that a resting joint may move."""
    ramp_time: float = 1.0
    """s over which the velocity limit grows from 0 after a start."""
    resume_delay: float = 1.0
    """s between the end of a pause or protective stop and the start."""
    lag_max: float = 0.02
    """rad that the command may be behind the setpoint before this is reported."""
    drift_gain: float = 2.0
    """1/s, of the velocity command: how fast the measured joints are drawn to the commanded ones."""
    drift_velocity_max: float = 0.05
    """rad/s, most that this adds to the velocity command."""

    def __post_init__(self) -> None:
        """Check every range."""
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not (_is_number(value) and low <= value <= high):
                raise ValueError(f"{name}={value!r} must be a number from {low:g} to {high:g}.")
        if not isinstance(self.require_program, bool):
            raise ValueError(f"require_program={self.require_program!r} must be true or false.")
        for name in ("workspace_min", "workspace_max"):
            corner = getattr(self, name)
            if not (
                isinstance(corner, list | tuple)
                and len(corner) == 3
                and all(_is_number(value) and isfinite(value) for value in corner)
            ):
                raise ValueError(f"{name}={corner!r} must be three numbers: x, y, z in m.")
        for axis, low, high in zip("xyz", self.workspace_min, self.workspace_max, strict=True):
            if high - low < 0.01:
                raise ValueError(
                    f"workspace_min={self.workspace_min} and workspace_max={self.workspace_max} leave no room"
                    f" along {axis}."
                )
        if self.workspace_max[2] - self.floor_height < 0.01:
            raise ValueError(
                f"floor_height={self.floor_height} is not below workspace_max={self.workspace_max}."
            )
        if self.following_lost < self.following_max:
            raise ValueError(
                f"following_lost={self.following_lost} must be at least following_max={self.following_max}."
            )
        if self.cycle_gap_max < 2.0 / self.rate_hz:
            raise ValueError(
                f"cycle_gap_max={self.cycle_gap_max} s must be at least two cycles of rate_hz={self.rate_hz}."
            )

    @property
    def period(self) -> float:
        """s per cycle."""
        return 1.0 / self.rate_hz

    @property
    def velocity_limit(self) -> float:
        """rad/s that no joint exceeds, by `velocity_max` and `step_max`."""
        return min(self.velocity_max, self.step_max * self.rate_hz)

    def joint_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest joint positions (6,) in rad."""
        return ur5e.POSITION_MIN + self.position_margin, ur5e.POSITION_MAX - self.position_margin


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("rate_hz", 10.0, 1000.0),
    ("velocity_max", 0.001, float(ur5e.VELOCITY_MAX.min())),
    ("acceleration_max", 0.1, float(ur5e.ACCELERATION_MAX.min())),
    ("step_max", 1e-5, 0.1),
    ("position_margin", 0.0, 1.0),
    ("floor_height", -2.0, 2.0),
    ("singularity_min", 0.001, 0.1),
    ("self_collision_min", 0.0, 0.2),
    ("grip_force_max", 1.0, gripper.FORCE_MAX * gripper.FORCE_SCALE_MAX),
    ("measured_max_age", 0.001, 1.0),
    ("setpoint_max_age", 0.001, 1.0),
    ("gripper_max_age", 0.001, inf),
    ("future_max", 0.0, 1.0),
    ("cycle_gap_max", 0.0, 1.0),
    ("setpoint_jump_max", 0.001, 3.0),
    ("following_max", 0.001, 1.0),
    ("following_lost", 0.001, 1.0),
    ("following_release", 0.0, 60.0),
    ("settle_time", 0.0, 10.0),
    ("settle_tolerance", 1e-5, 0.1),
    ("ramp_time", 0.0, 60.0),
    ("resume_delay", 0.0, 60.0),
    ("lag_max", 0.0, 1.0),
    ("drift_gain", 0.0, 20.0),
    ("drift_velocity_max", 0.0, 0.5),
)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)
