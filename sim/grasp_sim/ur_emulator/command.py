"""grasp-emulate: a UR controller with a Robotiq gripper, on the network, for `grasp-perform` to try."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from grasp_sim.cli import require_at_least, run_command
from grasp_sim.ur_emulator.controller import Controller
from grasp_sim.ur_emulator.robots import FollowingJoints, Robot
from grasp_sim.ur_emulator.server import Server

HELP = """Stand for a Universal Robots controller with a Robotiq gripper on the network.

It speaks RTDE (port 30004), the script ports (30001 to 30003), the dashboard (29999) and the gripper's
socket (63352), so that ur_rtde, and with it `grasp-perform`, runs without a robot. On loopback every address
from 127.0.0.2 on is a robot of its own. Ctrl-C ends it.

Lines sent to port 29998 cause faults: "protective stop", "unlock", "play", "stop", "freeze" and "thaw" (RTDE
falls silent), "reset" (the next episode); "state" answers JSON.

Examples:
  grasp-emulate
  grasp-emulate env=pybullet-lift seed=7
"""


@dataclass
class EmulateConfig:
    """Stand for a UR controller on the network."""

    host: str = "127.0.0.2"
    """Address that the ports are opened at; one of this machine's own."""
    env: str = ""
    """Environment behind it, such as pybullet-lift; empty: joints that follow at once, and no object."""
    seed: int = 0
    """Of the environment's first episode; every reset begins the next."""
    rate: int = 500
    """Hz of the controller: 500 for an e-Series, 125 for a CB3."""
    pose_to: str = "127.0.0.1:30100"
    """UDP address that the object's pose is sent to 30 times a second, as by a perception."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.rate not in (125, 500):
            raise ValueError(f"rate={self.rate} must be 125 or 500.")
        require_at_least(self, {"seed": 0})
        address_of("pose_to", self.pose_to)


def address_of(key: str, text: str) -> tuple[str, int]:
    """Host and port of `host:port`; raises ValueError naming the setting `key`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{key}={text} must be a host and a port, such as 127.0.0.1:30100.")
    return host, int(port)


def main() -> int:
    """Entry point of `grasp-emulate`."""
    return run_command(EmulateConfig, run, HELP, program="grasp-emulate")


def _make_robot(config: EmulateConfig) -> Robot:
    if not config.env:
        return FollowingJoints()
    from grasp_sim.ur_emulator.simulated import SimulatedRobot  # loads a simulator

    return SimulatedRobot(config.env, config.rate, config.seed)


def run(config: EmulateConfig) -> None:
    """Serve until Ctrl-C."""
    robot = _make_robot(config)
    server = Server(
        Controller(robot, period=1.0 / config.rate), config.host, address_of("pose_to", config.pose_to)
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    behind = config.env or "joints that follow at once"
    print(f"A UR controller stands at {config.host}: {config.rate} Hz, {behind}.", flush=True)
    server.serve()
