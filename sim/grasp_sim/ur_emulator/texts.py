"""What the controller's text ports answer: the dashboard (29999), and the emulator's own port for faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from grasp_sim.ur_emulator.controller import Controller, Runtime, Safety
from grasp_sim.ur_emulator.rtde_server import VERSION

GREETING = "Connected: Universal Robots Dashboard Server"


def dashboard(controller: Controller, line: str) -> str:
    """The dashboard server's answer to a line."""
    words = line.strip().lower()
    playing = controller.runtime == Runtime.PLAYING
    fixed = {
        "polyscopeversion": "URSoftware " + ".".join(map(str, VERSION)),
        "get serial number": "20000000000",
        "get robot model": "UR5",
        "is in remote control": "true",
        "robotmode": "Robotmode: RUNNING",
        "running": f"Program running: {'true' if playing else 'false'}",
        "programstate": f"{controller.runtime.name} rtde_control",
        "safetymode": f"Safetymode: {controller.safety.name}",
        "safetystatus": f"Safetystatus: {controller.safety.name}",
        "close safety popup": "closing safety popup",
        "close popup": "closing popup",
        "quit": "Disconnected",
    }
    if words in fixed:
        return fixed[words]
    if words == "stop":
        controller.stop()
        return "Stopped"
    if words == "play":
        return "Starting program" if controller.play() else "Failed to execute: play"
    if words == "pause":
        controller.pause()
        return "Pausing program"
    if words == "unlock protective stop":
        controller.unlock()
        return "Protective stop releasing"
    return f"could not understand: '{line.strip()}'"


@dataclass
class Faults:
    """What a test or a person does to the emulated robot, by lines on a port of its own."""

    controller: Controller
    frozen: bool = False
    """RTDE sends nothing; connections stay open, and what comes in still counts."""

    def answer(self, line: str) -> str:
        """`state` answers JSON; the others `ok`, or which exist."""
        does: dict[str, Callable[[], object]] = {
            "protective stop": self.controller.protective_stop,
            "unlock": self.controller.unlock,
            "play": self.controller.play,
            "stop": lambda: self.controller.stop("on demand"),
            "freeze": lambda: setattr(self, "frozen", True),
            "thaw": lambda: setattr(self, "frozen", False),
            "reset": self._reset,
        }
        words = line.strip()
        if words == "state":
            return json.dumps(self.state())
        if words not in does:
            return f"there is no {words!r}; there are: state, {', '.join(does)}"
        does[words]()
        return "ok"

    def state(self) -> dict[str, object]:
        """What the emulated robot knows of itself."""
        controller = self.controller
        joints, velocities = controller.robot.joints()
        return {
            "time": controller.time,
            "runtime": controller.runtime.name,
            "safety": Safety(controller.safety).name,
            "joints": joints.tolist(),
            "velocities": velocities.tolist(),
            "opening": controller.robot.opening(),
            "asked": asdict(controller.asked),
            "outcome": controller.robot.outcome(),
            "log": controller.log[-20:],
        }

    def _reset(self) -> None:
        self.controller.stop("reset")
        self.controller.reset()
