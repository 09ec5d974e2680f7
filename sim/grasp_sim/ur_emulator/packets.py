"""RTDE, version 2, as bytes: packets, and the variables that a controller offers.

A packet is its size (uint16, the header included), its type (one character) and a payload, all big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

HEADER = struct.Struct(">HB")
PROTOCOL_VERSION = 2

VERSION_REQUEST = ord("V")
CONTROLLER_VERSION = ord("v")
TEXT = ord("M")
DATA = ord("U")
SETUP_OUTPUTS = ord("O")
SETUP_INPUTS = ord("I")
START = ord("S")
PAUSE = ord("P")

_FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT32": "I",
    "UINT64": "Q",
    "INT32": "i",
    "DOUBLE": "d",
    "VECTOR3D": "3d",
    "VECTOR6D": "6d",
    "VECTOR6INT32": "6i",
}
"""Format of the module struct by RTDE's name of the type."""
_COUNTS = {kind: int(form[0]) if form[0].isdigit() else 1 for kind, form in _FORMATS.items()}

REGISTERS = 48

OUTPUTS: dict[str, str] = {
    **dict.fromkeys(
        ("timestamp", "actual_execution_time", "speed_scaling", "target_speed_fraction"), "DOUBLE"
    ),
    **dict.fromkeys(("target_q", "target_qd", "target_qdd", "target_current", "target_moment"), "VECTOR6D"),
    **dict.fromkeys(("actual_q", "actual_qd", "actual_current", "joint_control_output"), "VECTOR6D"),
    **dict.fromkeys(("actual_TCP_pose", "actual_TCP_speed", "actual_TCP_force"), "VECTOR6D"),
    **dict.fromkeys(("target_TCP_pose", "target_TCP_speed", "ft_raw_wrench"), "VECTOR6D"),
    **dict.fromkeys(("joint_temperatures", "actual_joint_voltage", "payload_inertia"), "VECTOR6D"),
    **dict.fromkeys(("actual_tool_accelerometer", "payload_cog"), "VECTOR3D"),
    **dict.fromkeys(("actual_digital_input_bits", "actual_digital_output_bits"), "UINT64"),
    **dict.fromkeys(("robot_mode", "safety_mode"), "INT32"),
    **dict.fromkeys(("runtime_state", "robot_status_bits", "safety_status_bits"), "UINT32"),
    "joint_mode": "VECTOR6INT32",
    **dict.fromkeys(("actual_momentum", "actual_main_voltage", "actual_robot_voltage"), "DOUBLE"),
    **dict.fromkeys(("actual_robot_current", "payload"), "DOUBLE"),
    **dict.fromkeys((f"standard_analog_{way}{i}" for way in ("input", "output") for i in (0, 1)), "DOUBLE"),
    **{f"output_int_register_{i}": "INT32" for i in range(REGISTERS)},
    **{f"output_double_register_{i}": "DOUBLE" for i in range(REGISTERS)},
}
"""Type by name of what may be asked for."""

INPUTS: dict[str, str] = {
    "speed_slider_mask": "UINT32",
    "speed_slider_fraction": "DOUBLE",
    "external_force_torque": "VECTOR6D",
    **{f"input_int_register_{i}": "INT32" for i in range(REGISTERS)},
    **{f"input_double_register_{i}": "DOUBLE" for i in range(REGISTERS)},
}
"""Type by name of what may be written."""


class PacketError(ValueError):
    """What came in is no RTDE, or not what was agreed on."""


class Recipe:
    """An agreed list of variables, in which a data package's payload is written."""

    def __init__(self, number: int, names: Sequence[str], types: Sequence[str]) -> None:
        """`types`: RTDE's names, one for each of `names`."""
        self.number = number
        self._fields = [(name, _COUNTS[kind]) for name, kind in zip(names, types, strict=True)]
        self._struct = struct.Struct(">" + "".join(_FORMATS[kind] for kind in types))

    def pack(self, values: Mapping[str, object]) -> bytes:
        """A whole data package; what `values` lacks is sent as zeros."""
        flat: list[object] = []
        for name, count in self._fields:
            value = values.get(name)
            if count == 1:
                flat.append(0 if value is None else value)
            else:
                flat.extend([0] * count if value is None else value)  # type: ignore[arg-type]
        return packet(DATA, bytes([self.number]) + self._struct.pack(*flat))

    def unpack(self, payload: bytes) -> dict[str, object]:
        """Values by name of a data package's payload after the recipe's number."""
        if len(payload) != self._struct.size:
            raise PacketError(
                f"a data package of recipe {self.number} has {len(payload)} bytes of values;"
                f" it must have {self._struct.size}"
            )
        flat, values, cursor = self._struct.unpack(payload), {}, 0
        for name, count in self._fields:
            values[name] = flat[cursor] if count == 1 else flat[cursor : cursor + count]
            cursor += count
        return values


def packet(kind: int, payload: bytes) -> bytes:
    """Header and payload."""
    return HEADER.pack(HEADER.size + len(payload), kind) + payload


def take_packet(buffer: bytearray) -> tuple[int, bytes] | None:
    """Type and payload of the first packet, removed from `buffer`; None while it is not whole."""
    if len(buffer) < HEADER.size:
        return None
    size, kind = HEADER.unpack_from(buffer)
    if size < HEADER.size:
        raise PacketError(f"a packet of {size} bytes; the header alone has {HEADER.size}")
    if len(buffer) < size:
        return None
    payload = bytes(buffer[HEADER.size : size])
    del buffer[:size]
    return kind, payload


def names_of(text: bytes) -> list[str]:
    """The names in a list with commas; a last comma, as ur_rtde sends it, is none of them."""
    return [name for name in text.decode("ascii", "replace").split(",") if name]
