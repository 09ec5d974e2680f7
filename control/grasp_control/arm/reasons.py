"""Everything that keeps the arm from moving as asked: one table, for diagnostics and documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """What became of the last cycle."""

    WAITING = "waiting"  # nothing to start from yet: no command, or one that keeps the arm where it is
    RAMPING = "ramping"  # moving, the velocity limit still growing after a start
    OK = "ok"
    LIMITED = "limited"  # moving, but slower or less far than asked
    HOLD = "hold"  # braking, then standing still


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of reason."""

    status: Status
    """What it leads to."""
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the arm does not move as asked."""

    key: str
    """Of `KINDS`."""
    text: str
    """One line: what, the limit, the value."""


KINDS: dict[str, Kind] = {
    # ---- before the arm may start
    "no_measured": Kind(
        Status.WAITING,
        "No joint positions have arrived.",
        "Start the driver; check the topic's name and that all six joints are in the message.",
    ),
    "measured_zeros": Kind(
        Status.WAITING,
        "All six measured joints are exactly 0: the driver publishes this before it has data.",
        "Wait. If it stays, check the driver's connection to the robot.",
    ),
    "measured_invalid": Kind(
        Status.HOLD,
        "The measured joints are not six finite numbers.",
        "Look at the driver's joint states.",
    ),
    "measured_stale": Kind(
        Status.HOLD,
        "The measured joints are too old, by their arrival or by their stamp.",
        "Check that the driver runs, the network, and that the clocks agree.",
    ),
    "measured_future": Kind(
        Status.HOLD,
        "The measured joints are stamped in the future.",
        "Synchronise the clocks of the computers.",
    ),
    "measured_back": Kind(
        Status.HOLD,
        "The measured joints are stamped earlier than those before.",
        "Look for a second publisher of joint states, or a clock that was set back.",
    ),
    "arm_moving": Kind(
        Status.WAITING,
        "The arm is moving by itself; a start waits until it rests.",
        "Wait, or stop what moves it.",
    ),
    "start_outside": Kind(
        Status.WAITING,
        "The arm stands outside the limits; the filter does not move it from there.",
        "Jog it back inside with the pendant, or correct the limit that is named.",
    ),
    "program_unknown": Kind(
        Status.WAITING,
        "The robot has not said whether its program runs.",
        "Start the driver's status broadcaster, or set require_program=false where there is none.",
    ),
    # ---- pauses
    "program_stopped": Kind(
        Status.HOLD,
        "The program on the robot does not run.",
        "Press play on the pendant (External Control).",
    ),
    "protective_stop": Kind(
        Status.HOLD,
        "The robot is in a protective stop.",
        "Find out what the arm touched, clear it, then unlock the stop on the pendant.",
    ),
    "speed_zero": Kind(
        Status.HOLD,
        "The robot's speed scaling is 0.",
        "Raise the speed slider; look for an active safeguard.",
    ),
    "resume_delay": Kind(
        Status.HOLD,
        "A pause has ended; the arm starts again after a delay, from where it is.",
        "Wait.",
    ),
    # ---- setpoints
    "no_setpoint": Kind(
        Status.HOLD,
        "No setpoint has come since the last start.",
        "Start the servo and the policy server.",
    ),
    "setpoint_stale": Kind(
        Status.HOLD,
        "The setpoint is too old, by its arrival or by its stamp.",
        "Check that servo and policy server run and keep up.",
    ),
    "setpoint_future": Kind(
        Status.HOLD,
        "The setpoint is stamped in the future.",
        "Synchronise the clocks of the computers.",
    ),
    "setpoint_back": Kind(
        Status.HOLD,
        "The setpoint is stamped earlier than the one before.",
        "Look for a second publisher of setpoints.",
    ),
    "setpoint_invalid": Kind(
        Status.HOLD,
        "The setpoint is not six finite numbers.",
        "Look at the servo's log.",
    ),
    "setpoint_epoch": Kind(
        Status.HOLD,
        "The setpoint was made before the last start.",
        "Usually passes within a cycle; else restart the servo.",
    ),
    "setpoint_jump": Kind(
        Status.HOLD,
        "The setpoint is far from the present command.",
        "Whatever makes setpoints must start from the measured joints and go on in small steps.",
    ),
    "setpoint_wrapped": Kind(
        Status.HOLD,
        "The setpoint is the present posture plus or minus whole turns.",
        "Make setpoints from the measured joints, without wrapping angles to +-pi.",
    ),
    # ---- arm and gripper
    "following_error": Kind(
        Status.HOLD,
        "The arm does not follow the command: blocked, or too slow.",
        "Look for contact. The command gives in to where the arm is after following_release.",
    ),
    "arm_elsewhere": Kind(
        Status.HOLD,
        "The arm is not where it was commanded; a new start from where it is is needed.",
        "Look for contact, another active controller, or a hand that moved the arm.",
    ),
    "cycle_gap": Kind(
        Status.HOLD,
        "The filter was not called for some cycles, so the arm has stopped by itself.",
        "Relieve the computer: close programs, use a real-time priority, lower the rate.",
    ),
    "clock_back": Kind(
        Status.HOLD,
        "The clock went back or is not a number, so no age can be trusted.",
        "Use a monotonic clock; with simulated time, restart after the simulator was reset.",
    ),
    "grip_force": Kind(
        Status.HOLD,
        "The measured grip force is above the limit.",
        "Open the gripper; lower the force it is commanded.",
    ),
    "gripper_invalid": Kind(
        Status.HOLD,
        "The measured grip force is not a finite number.",
        "Look at the gripper's driver.",
    ),
    "gripper_stale": Kind(
        Status.HOLD,
        "The gripper's state is missing or too old.",
        "Check the gripper bridge, or set gripper_max_age=.inf where there is none.",
    ),
    "gripper_future": Kind(
        Status.HOLD,
        "The gripper's state is stamped in the future.",
        "Synchronise the clocks of the computers.",
    ),
    "gripper_back": Kind(
        Status.HOLD,
        "The gripper's state is stamped earlier than the one before.",
        "Look for a second publisher of the gripper's state.",
    ),
    "rival_commander": Kind(
        Status.HOLD,
        "Another node commands the arm's driver. Nothing is sent; zeros to a velocity controller.",
        "End the other one. One that was killed counts for up to 20 s.",
    ),
    # ---- limits of the motion
    "velocity_limit": Kind(
        Status.LIMITED,
        "A joint would exceed the velocity limit.",
        "None needed. After the first runs velocity_max may be raised.",
    ),
    "acceleration_limit": Kind(
        Status.LIMITED,
        "The command is behind the setpoint, which moves more abruptly than the acceleration limit allows.",
        "None needed. After the first runs acceleration_max may be raised.",
    ),
    "joint_limit": Kind(
        Status.LIMITED,
        "A joint would leave its range.",
        "Turn the tool the other way; check position_margin.",
    ),
    "workspace": Kind(
        Status.LIMITED,
        "The TCP would leave the workspace box.",
        "Check that the object lies inside; check workspace_min and workspace_max.",
    ),
    "floor": Kind(
        Status.LIMITED,
        "TCP, fingertips or a link would go below the floor.",
        "Check the table's height and floor_height.",
    ),
    "singularity": Kind(
        Status.LIMITED,
        "The arm would come close to a singularity.",
        "Move the object closer or further away.",
    ),
    "self_collision": Kind(
        Status.LIMITED,
        "Two parts of the arm would come too close.",
        "Move the object away from the base.",
    ),
    "unproven": Kind(
        Status.LIMITED,
        "So close to a limit and so fast that a safe way to brake was not found in time; slowed down.",
        "None needed.",
    ),
    # ---- commands of the gripper
    "grip_command_invalid": Kind(
        Status.HOLD,
        "The gripper's command is not two finite numbers; the last one stays.",
        "Look at what commands the gripper.",
    ),
    "grip_command_limited": Kind(
        Status.LIMITED,
        "The gripper's command is outside its range and was limited.",
        "None needed; check force_max where more force is wanted.",
    ),
}
"""Every kind of reason by key."""


def markdown() -> str:
    """The table for docs/deployment.md."""
    lines = ["| diagnostic | leads to | meaning | what to do |", "| --- | --- | --- | --- |"]
    for key, kind in KINDS.items():
        lines.append(f"| `{key}` | {kind.status.name} | {kind.meaning} | {kind.remedy} |")
    return "\n".join(lines) + "\n"
