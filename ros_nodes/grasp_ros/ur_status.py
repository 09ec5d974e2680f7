"""The latched status topics of the Universal Robots driver: their types, numbers and quality of service.

`ur_dashboard_msgs` comes with the driver. Where it is not installed, as on the wheels, `std_msgs/UInt8` with
the same numbers stands for its messages; then the simulated robot is the only one that publishes them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import UInt8

try:
    from ur_dashboard_msgs.msg import (  # pyright: ignore[reportMissingImports]
        RobotMode as RobotModeMessage,
    )
    from ur_dashboard_msgs.msg import (  # pyright: ignore[reportMissingImports]
        SafetyMode as SafetyModeMessage,
    )

    _FIELD = "mode"
except ImportError:
    RobotModeMessage = SafetyModeMessage = UInt8
    _FIELD = "data"

SPEED_SCALING = "/speed_scaling_state_broadcaster/speed_scaling"
"""std_msgs/Float64, percent."""
PROGRAM_RUNNING = "/io_and_status_controller/robot_program_running"
"""std_msgs/Bool, latched: the program that takes the driver's commands runs."""
ROBOT_MODE = "/io_and_status_controller/robot_mode"
"""`RobotModeMessage`, latched."""
SAFETY_MODE = "/io_and_status_controller/safety_mode"
"""`SafetyModeMessage`, latched."""

LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
"""Who comes later gets the last message too."""


class RobotMode(IntEnum):
    """Of ur_dashboard_msgs/RobotMode."""

    DISCONNECTED = 0
    CONFIRM_SAFETY = 1
    BOOTING = 2
    POWER_OFF = 3
    POWER_ON = 4
    IDLE = 5
    BACKDRIVE = 6
    RUNNING = 7
    UPDATING_FIRMWARE = 8


class SafetyMode(IntEnum):
    """Of ur_dashboard_msgs/SafetyMode."""

    NORMAL = 1
    REDUCED = 2
    PROTECTIVE_STOP = 3
    RECOVERY = 4
    SAFEGUARD_STOP = 5
    SYSTEM_EMERGENCY_STOP = 6
    ROBOT_EMERGENCY_STOP = 7
    VIOLATION = 8
    FAULT = 9
    VALIDATE_JOINT_ID = 10
    UNDEFINED = 11


def robot_mode_message(mode: RobotMode) -> Any:
    """The message of a robot mode."""
    return RobotModeMessage(**{_FIELD: int(mode)})


def safety_mode_message(mode: SafetyMode) -> Any:
    """The message of a safety mode."""
    return SafetyModeMessage(**{_FIELD: int(mode)})


def mode_of(message: Any) -> int:
    """The number that such a message holds, a `RobotMode` or `SafetyMode`, or one that neither knows."""
    return int(getattr(message, _FIELD))
