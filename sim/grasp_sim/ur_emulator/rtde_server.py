"""RTDE for the clients of one emulated controller: recipes agreed on, inputs taken in, data packages sent."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from grasp_sim.ur_emulator import packets
from grasp_sim.ur_emulator.controller import Controller
from grasp_sim.ur_emulator.packets import INPUTS, OUTPUTS, PacketError, Recipe, packet

VERSION = (5, 16, 0, 0)
"""PolyScope's, whose variables and script functions are stood for."""


@dataclass
class RtdeSession:
    """One connected client. Bytes in by `feed`, bytes out by its return value and `data`."""

    controller: Controller
    claims: dict[str, RtdeSession]
    """Input variables by name, each with the session that writes it: two clients cannot write the same."""
    _buffer: bytearray = field(default_factory=bytearray)
    _output: Recipe | None = None
    _inputs: dict[int, Recipe] = field(default_factory=dict)
    _every: int = 1
    _started: bool = False

    def feed(self, received: bytes) -> bytes:
        """Act on what came in; the answers. Raises PacketError when it is no RTDE: close the connection."""
        self._buffer += received
        answers = b""
        while (taken := packets.take_packet(self._buffer)) is not None:
            answers += self._answer(*taken)
        return answers

    def data(self, cycle: int, values: dict[str, object]) -> bytes:
        """The data package of a cycle; empty when none is due."""
        if not self._started or self._output is None or cycle % self._every:
            return b""
        return self._output.pack(values)

    def close(self) -> None:
        """Give back what this client writes; registers keep their values, as on a controller."""
        for name in [name for name, owner in self.claims.items() if owner is self]:
            del self.claims[name]

    def _answer(self, kind: int, payload: bytes) -> bytes:
        if kind == packets.DATA:
            recipe = self._inputs.get(payload[0]) if payload else None
            if recipe is None:
                raise PacketError("a data package names no recipe that was agreed on")
            self.controller.write(recipe.unpack(payload[1:]))
            return b""
        if kind == packets.VERSION_REQUEST:
            agreed = payload == struct.pack(">H", packets.PROTOCOL_VERSION)
            return packet(kind, bytes([agreed]))
        if kind == packets.CONTROLLER_VERSION:
            return packet(kind, struct.pack(">4I", *VERSION))
        if kind == packets.SETUP_OUTPUTS:
            return self._set_up_outputs(payload)
        if kind == packets.SETUP_INPUTS:
            return self._set_up_inputs(payload)
        if kind in (packets.START, packets.PAUSE):
            self._started = kind == packets.START
            return packet(kind, b"\x01")
        raise PacketError(f"packets of type {kind} are unknown")

    def _set_up_outputs(self, payload: bytes) -> bytes:
        if len(payload) < 8:
            raise PacketError("a set-up of outputs without a frequency")
        frequency = struct.unpack_from(">d", payload)[0]
        highest = 1.0 / self.controller.period
        if not 1.0 <= frequency <= highest * 1.001:
            raise PacketError(f"data was asked for at {frequency:g} Hz; it is sent at 1 to {highest:g} Hz")
        names = packets.names_of(payload[8:])
        types = [OUTPUTS.get(name, "NOT_FOUND") for name in names]
        if "NOT_FOUND" not in types:
            self._every = max(round(highest / frequency), 1)
            self._output = Recipe(1, names, types)
        return packet(packets.SETUP_OUTPUTS, b"\x01" + ",".join(types).encode())

    def _set_up_inputs(self, payload: bytes) -> bytes:
        names = packets.names_of(payload)
        types = []
        for name in names:
            taken = self.claims.get(name, self) is not self
            types.append("IN_USE" if taken else INPUTS.get(name, "NOT_FOUND"))
        number = 0
        if not {"IN_USE", "NOT_FOUND"} & set(types):
            number = len(self._inputs) + 1
            self._inputs[number] = Recipe(number, names, types)
            self.claims.update(dict.fromkeys(names, self))
        return packet(packets.SETUP_INPUTS, bytes([number]) + ",".join(types).encode())
