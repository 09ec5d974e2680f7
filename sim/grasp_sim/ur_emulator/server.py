"""The emulated controller on the network: one thread, one loop, one turn of it a cycle of the controller.

As on a controller, what arrives takes effect at the next cycle, and a client that does not read loses
packages and slows nobody down. ur_rtde deadlocks with an emulator in its own process: run this in another.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from grasp_sim.errors import UserError
from grasp_sim.ur_emulator import robotiq, texts
from grasp_sim.ur_emulator.controller import Controller
from grasp_sim.ur_emulator.packets import PacketError
from grasp_sim.ur_emulator.robotiq import UrcapGripper
from grasp_sim.ur_emulator.rtde_server import RtdeSession

RTDE_PORT, DASHBOARD_PORT, FAULTS_PORT = 30004, 29999, 29998
SCRIPT_PORTS = (30001, 30002, 30003)
POSE_PERIOD = 1.0 / 30.0
"""s between poses of the object."""
BACKLOG = 65536
"""Bytes a client may leave unread before packages for it are dropped."""
LONGEST_SCRIPT = 1_000_000
"""Bytes; ur_rtde's has 60,000."""
LATE = 0.02
"""s behind which the emulator gives up catching up; the robot's clock jumps over the rest."""


@dataclass
class Client:
    """One connection: what it says goes to `hear`, which answers bytes."""

    socket: socket.socket
    hear: Callable[[bytes], bytes]
    closed: Callable[[], None] = lambda: None
    rtde: RtdeSession | None = None
    unsent: bytearray = field(default_factory=bytearray)


class Server:
    """Ports of one emulated controller at one address; `serve` runs it."""

    def __init__(self, controller: Controller, host: str, pose_to: tuple[str, int] | None = None) -> None:
        """Open the ports at once; a client may connect from then on. `pose_to` gets the object's poses."""
        self.controller = controller
        self.gripper = UrcapGripper(controller.robot)
        self.faults = texts.Faults(controller)
        self.late = 0.0
        """s that the controller did nothing, since this computer was too slow."""
        self._claims: dict[str, RtdeSession] = {}
        self._clients: dict[socket.socket, Client] = {}
        self._selector = selectors.DefaultSelector()
        self._pose_to = pose_to
        self._poses = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._next_pose = 0.0
        ports = {
            RTDE_PORT: self._rtde_client,
            DASHBOARD_PORT: self._dashboard_client,
            robotiq.PORT: lambda s: Client(s, _lines(self.gripper.answer)),
            FAULTS_PORT: lambda s: Client(s, _lines(self.faults.answer)),
            **dict.fromkeys(SCRIPT_PORTS, self._script_client),
        }
        for port, make in ports.items():
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                raise UserError(
                    f"port {port} of {host} cannot be had ({error.strerror}): is another emulator running?"
                    " On loopback each address from 127.0.0.2 on is a robot of its own."
                ) from error
            listener.listen()
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, make)

    def serve(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Run in real time until `stopped`."""
        period, cycle = self.controller.period, 0
        due = time.monotonic()
        while not stopped():
            self._read()
            self.controller.step()
            self.gripper.step(period)
            self._send(cycle)
            self._report_pose()
            cycle += 1
            due += period
            ahead = due - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            elif ahead < -LATE:
                self.late -= ahead
                self.controller.time -= ahead
                due = time.monotonic()

    def close(self) -> None:
        """Give back every port and end every connection."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._poses.close()

    def _read(self) -> None:
        for key, _ in self._selector.select(timeout=0):
            if isinstance(key.data, Client):
                self._hear(key.data)
                continue
            with suppress(OSError):  # The client left again before it was let in.
                accepted, _ = key.fileobj.accept()  # type: ignore[union-attr]
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client = key.data(accepted)
                self._clients[accepted] = client
                self._selector.register(accepted, selectors.EVENT_READ, client)
                self._write(client, b"")

    def _hear(self, client: Client) -> None:
        try:
            received = client.socket.recv(BACKLOG)
            if received:
                self._write(client, client.hear(received))
                return
        except BlockingIOError:
            return
        except (OSError, PacketError) as error:
            self.controller.log.append(f"a connection was closed: {error}")
        self._close(client)

    def _send(self, cycle: int) -> None:
        values = self.controller.state()
        for client in list(self._clients.values()):
            package = b""
            if client.rtde is not None and not self.faults.frozen and len(client.unsent) < BACKLOG:
                package = client.rtde.data(cycle, values)
            if package or client.unsent:
                self._write(client, package)

    def _write(self, client: Client, message: bytes) -> None:
        client.unsent += message
        try:
            while client.unsent:
                del client.unsent[: client.socket.send(client.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(client)

    def _close(self, client: Client) -> None:
        if self._clients.pop(client.socket, None) is not None:
            self._selector.unregister(client.socket)
            client.socket.close()
            client.closed()

    def _report_pose(self) -> None:
        seen = self.controller.robot.object_seen() if self._pose_to else None
        if seen is None or self._pose_to is None or self.controller.time < self._next_pose:
            return
        self._next_pose = self.controller.time + POSE_PERIOD
        message = {
            "frame": "base_link",
            "position": seen.position.tolist(),
            "quaternion": seen.quaternion.tolist(),
            "size": seen.size.tolist(),
            "symmetry": seen.symmetry,
            "age": 0.0,
        }
        with suppress(OSError):  # Nobody listens.
            self._poses.sendto(json.dumps(message).encode(), self._pose_to)

    def _rtde_client(self, accepted: socket.socket) -> Client:
        session = RtdeSession(self.controller, self._claims)
        return Client(accepted, session.feed, session.close, session)

    def _dashboard_client(self, accepted: socket.socket) -> Client:
        hear = _lines(lambda line: texts.dashboard(self.controller, line))
        return Client(accepted, hear, unsent=bytearray(texts.GREETING.encode() + b"\n"))

    def _script_client(self, accepted: socket.socket) -> Client:
        script = bytearray()

        def hear(received: bytes) -> bytes:
            script.extend(received)
            if len(script) > LONGEST_SCRIPT:
                raise PacketError("a program without an end")
            if script.endswith(b"\nend\n") and b"\ndef " in b"\n" + script[:64]:
                self.controller.upload(script.decode("utf-8", "replace"))
                script.clear()
            return b""

        return Client(accepted, hear)


def _lines(answer: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Bytes in, the answers to whole lines out."""
    buffer = bytearray()

    def hear(received: bytes) -> bytes:
        buffer.extend(received)
        if len(buffer) > BACKLOG:
            raise PacketError("a line without an end")
        answers = b""
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            answers += answer(line.decode("ascii", "replace")).encode() + b"\n"
        return answers

    return hear
