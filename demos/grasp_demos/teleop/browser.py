"""A page in the browser: the live scene in three dimensions, and everything to record with.

The arm follows a handle that is dragged in the scene, buttons that are held down, or keys. `ScenePage` is the
view alone, for people who hold another device.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import viser

from grasp_demos.teleop.gate import Gate, locked_server, require_locked
from grasp_demos.teleop.operator import COMMANDS, Commands, Intent, KeyMotion, Operator, Status
from grasp_demos.teleop.sources import PageConfig
from grasp_sim import visuals
from grasp_sim.contract import ActionScale, GraspState, yaw_error, yaw_of
from grasp_sim.errors import UserError
from grasp_sim.objects import ObjectSpec

FAREWELL_S = 0.3
"""s that the page has to take in its last words."""
FARTHEST = 10.0
"""m from the base beyond which no handle can be meant."""
TEXT_PERIOD_S = 0.2
"""s between changes of the text; the scene moves at the policy's rate."""
HOLD_HZ = 20.0
"""Calls a second while a button on the page is held down."""
REACHED = (0.002, 0.02)
"""m and rad from which the dragged handle counts as reached."""

_MOTIONS: Mapping[str, tuple[str, int, int]] = {
    "forward": ("I", 0, 1),
    "back": ("K", 0, -1),
    "left": ("J", 1, 1),
    "right": ("L", 1, -1),
    "up": ("U", 2, 1),
    "down": ("O", 2, -1),
    "turn left": ("N", 3, 1),
    "turn right": ("M", 3, -1),
}
"""Buttons, with their key, axis and direction. W A S D Q E and the arrows move the viewer's camera."""
_KEYS: Mapping[str, str] = {
    **{"start": "B", "success": "1", "failure": "0", "discard": "delete", "take": "T", "quit": "X"},
}
"""Neither space nor enter: a browser takes them for a click on the button that was clicked last."""
_CAMERA, _CAMERA_TARGET = (-0.15, -0.85, 0.55), (0.48, 0.0, 0.02)
"""m: over the arm's shoulder, so that forward is away from the person and left is left."""


class ScenePage:
    """The view: arm, gripper, table and object, and the text beside them. Use as a context manager."""

    def __init__(self, config: PageConfig) -> None:
        self._config = config
        self._robot = visuals.RobotVisuals()
        self._nodes: dict[str, Any] = {}
        self._snapshot: Mapping[str, np.ndarray] | None = None
        self._spec: ObjectSpec | None = None
        self._object: tuple[ObjectSpec | tuple[float, ...], Any] | None = None
        self._told = -np.inf
        self._phase = ""

    def __enter__(self) -> Self:
        """Serve the page, and say where it is. Raises UserError where that cannot be done."""
        # It tells of every connection that breaks off; a person at a page breaks off many.
        logging.getLogger("websockets").setLevel(logging.CRITICAL)
        secret = secrets.token_urlsafe(32)
        with _quiet(), locked_server(secret):
            self.server: Any = viser.ViserServer(
                host="127.0.0.1", port=0, label="grasp-record", verbose=False
            )
        config = self._config
        try:
            require_locked(self.server.get_port())
            self._gate = Gate(config.host, config.port, config.token, self.server.get_port(), secret)
        except UserError:
            self._stop()
            raise
        host = "this machine" if config.host in ("", "0.0.0.0", "::") else config.host
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{self._gate.port}/"
        self._build(self.server)
        query = "?token=..." if config.token else ""
        print(f"Open {self.address}{query} in a browser.", flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._text.content = "### Recording has ended\n\nThis page can be closed."
        self.server.flush()
        time.sleep(FAREWELL_S)
        self._gate.close()
        self._stop()

    def _stop(self) -> None:
        with _quiet():
            self.server.stop()

    def _build(self, server: Any) -> None:
        """The scene without the object, and the text."""
        server.scene.set_up_direction("+z")
        server.initial_camera.position = _CAMERA
        server.initial_camera.look_at = _CAMERA_TARGET
        self._add("/table", visuals.table_mesh())
        for name, mesh in self._robot.meshes().items():
            self._nodes[name] = self._add(f"/robot/{name}", mesh)
        self._text = server.gui.add_markdown("")

    def _add(self, name: str, mesh: visuals.Mesh) -> Any:
        return self.server.scene.add_mesh_simple(
            name,
            mesh.vertices.astype(np.float32),
            mesh.faces.astype(np.uint32),
            color=mesh.colour,
            flat_shading=True,
            side="double",
        )

    def show(self, status: Status) -> None:
        """Move the scene to the state, and renew the text."""
        state = status.state
        with self.server.atomic():
            for name, pose in self._robot.poses(state).items():
                _place(self._nodes[name], pose)
            _place(self._object_node(status), visuals.object_pose(state))
        now = time.monotonic()
        if now - self._told >= TEXT_PERIOD_S or status.phase != self._phase:
            self._told, self._phase = now, status.phase
            self._text.content = self.text(status)

    def _object_node(self, status: Status) -> Any:
        """The object's node, made anew where it is another object."""
        if status.snapshot is not self._snapshot:  # read once an episode
            self._snapshot, self._spec = status.snapshot, visuals.start_object(status.snapshot)
        spec = self._spec
        key = spec if spec is not None else tuple(status.state.object_size.tolist())
        if self._object is None or self._object[0] != key:
            mesh = visuals.object_box(status.state.object_size) if spec is None else visuals.object_mesh(spec)
            self._object = key, self._add("/object", mesh)
        return self._object[1]

    def text(self, status: Status) -> str:
        """Markdown for the person."""
        return status_text(status)


class BrowserOperator(ScenePage):
    """A person at the page."""

    def __init__(
        self,
        config: PageConfig,
        scale: ActionScale,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config)
        self._scale, self._clock = scale, clock
        self._lock = threading.Lock()
        self._motion = KeyMotion(clock)
        self._commands = Commands()
        self._goal: tuple[np.ndarray, float] | None = None
        """Where the handle is while it is dragged: position (3,) in m and yaw in rad."""

    # ---- the page's controls; its callbacks come from other threads

    def _build(self, server: Any) -> None:
        super()._build(server)
        gui = server.gui
        self._buttons: dict[str, Any] = {}
        for name, text in COMMANDS.items():
            label = f"{name.capitalize()} ({_KEYS[name]})"
            self._buttons[name] = self._button(label, _KEYS[name], lambda name=name: self._say(name), text)
        self._button("Close or open the gripper (G)", "G", self._toggle)
        self._moving = gui.add_folder("Move (or drag the handle)")
        with self._moving:
            self._speed = gui.add_slider("speed", min=0.1, max=1.0, step=0.05, initial_value=0.6)
            self._button("Slower (Z)", "Z", lambda: self._change_speed(0.5))
            self._button("Faster (C)", "C", lambda: self._change_speed(2.0))
            for name, (key, axis, sign) in _MOTIONS.items():
                button = self._button(
                    f"{name.capitalize()} ({key})", key, lambda axis=axis, sign=sign: self._press(axis, sign)
                )
                button.on_hold(lambda _, axis=axis, sign=sign: self._press(axis, sign), callback_hz=HOLD_HZ)
        self._handle = server.scene.add_transform_controls("/handle", scale=0.12, depth_test=False)
        self._handle.on_update(self._drag)
        server.on_client_disconnect(self._left)

    def _button(self, label: str, key: str, act: Callable[[], None], hint: str | None = None) -> Any:
        """A button that a key presses too."""
        button = self.server.gui.add_button(label, hint=hint)
        button.on_click(lambda _: act())
        self.server.gui.add_command(label, hotkey=key).on_trigger(lambda _: act())
        return button

    def _say(self, command: str) -> None:
        with self._lock:
            self._commands.say(command)

    def _toggle(self) -> None:
        with self._lock:
            self._motion.toggle_gripper()

    def _change_speed(self, factor: float) -> None:
        self._speed.value = _speed_share(self._speed.value) * factor

    def _press(self, axis: int, sign: int) -> None:
        with self._lock:
            self._goal = None
            self._motion.press(axis, sign)

    async def _drag(self, event: Any) -> None:
        """The arm follows the handle while it is held, and no longer: letting go stops it."""
        numbers = np.array([*event.target.position, *event.target.wxyz], np.float64)
        held = event.phase != "end" and np.isfinite(numbers).all() and np.abs(numbers).max() < FARTHEST
        with self._lock:
            self._goal = (numbers[:3], yaw_of(numbers[[4, 5, 6, 3]])) if held else None

    async def _left(self, client: Any) -> None:
        """A page was closed, or its connection broke: whatever it was doing ends."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._goal = None
        self._commands.take()
        self._motion.begin(self._motion.closed)

    # ---- what the session asks

    def begin(self, closed: bool) -> None:
        """An episode starts."""
        with self._lock:
            self._forget()
            self._motion.begin(closed)

    def follow(self, closed: bool) -> None:
        """The policy closes or opens the fingers."""
        with self._lock:
            self._motion.follow(closed)

    def poll(self, state: GraspState) -> Intent:
        """What was asked on the page since the last call; nobody is present while no page is open."""
        with self._lock:
            self._motion.speed = _speed_share(self._speed.value)
            present = bool(self.server.get_clients())
            if not present:
                self._forget()
            intent = self._motion.intent(self._commands.take(), present=present)
            if self._goal is not None:
                intent = intent._replace(motion=self._towards(state, *self._goal), acting=True)
        return intent

    def _towards(self, state: GraspState, position: np.ndarray, yaw: float) -> np.ndarray:
        """Motion (4,) from the tool to the handle; zeros once it is there."""
        move = position - state.tcp_position
        turn = yaw - yaw_of(state.tcp_quaternion)
        turn = (turn + np.pi) % (2.0 * np.pi) - np.pi
        if np.linalg.norm(move) < REACHED[0] and abs(turn) < REACHED[1]:
            return np.zeros(4)
        # Half of the way in each step, at most: the servo's target leads the arm, which would swing past.
        motion = 0.5 * np.array([*(move / self._scale.position), turn / self._scale.yaw])
        return motion * min(1.0, self._motion.speed / max(np.abs(motion).max(), 1e-9))

    def show(self, status: Status) -> None:
        """Move the scene, and the handle with the tool unless it is being followed."""
        super().show(status)
        self._buttons["take"].visible = status.takes_over
        self._handle.visible = self._moving.visible = status.moves
        if self._goal is None:
            self._handle.position = status.state.tcp_position
            self._handle.wxyz = _about_z(yaw_of(status.state.tcp_quaternion))

    def text(self, status: Status) -> str:
        """Markdown for the person."""
        closed = ("closing" if self._motion.closed else "open") if status.moves else ""
        return status_text(status, "holds the object" if status.grasped else closed)


class Viewed:
    """Another device, with the page as a view of what it does."""

    def __init__(self, operator: Operator, page: ScenePage) -> None:
        self._operator, self._page = operator, page
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._page)
            opened.enter_context(self._operator)
            self._stack = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self, closed: bool) -> None:
        """An episode starts."""
        self._operator.begin(closed)

    def follow(self, closed: bool) -> None:
        """The policy closes or opens the fingers."""
        self._operator.follow(closed)

    def poll(self, state: GraspState) -> Intent:
        """What the device says."""
        return self._operator.poll(state)

    def show(self, status: Status) -> None:
        """On the device and on the page."""
        self._page.show(status)
        self._operator.show(status)


def status_text(status: Status, gripper: str = "") -> str:
    """Markdown of how things stand."""
    state = status.state
    heading = {
        "ready": f"Episode {status.episode}: press start"
        + ("" if status.takes_over or not status.moves else ", or just move"),
        "recording": f"Recording episode {status.episode}",
        "paused": f"Episode {status.episode} is held: no page is open",
    }[status.phase]
    x, y, z = 1000.0 * (state.object_position - state.tcp_position)
    lines = [
        f"### {heading}",
        f"**{status.recorded} of {status.wanted}** demonstrations",
        f"step {status.step}" + (f" of {status.horizon} at most" if status.horizon else ""),
        f"last: {status.verdict}" if status.verdict else "",
        f"object from the tool: x {x:+.0f} y {y:+.0f} z {z:+.0f} mm, turn {57.3 * yaw_error(state):+.0f} deg",
        f"gripper {round(1000 * state.gripper_opening)} mm, {state.gripper_force:.0f} N"
        + (f", {gripper}" if gripper else ""),
        f"{status.actor} acts" if status.takes_over and status.phase == "recording" else "",
        f"slips: {status.slips} steps" if status.slips else "",
        f"{status.late} late steps: the machine is too slow" if status.late else "",
    ]
    return "\n\n".join(line for line in lines if line)


def _speed_share(value: object) -> float:
    """A share of the largest step from whatever the page sent."""
    share = float(value) if isinstance(value, int | float) else 0.0
    return min(1.0, max(0.1, share)) if math.isfinite(share) else 0.1


def _about_z(yaw: float) -> np.ndarray:
    return np.array([np.cos(yaw / 2.0), 0.0, 0.0, np.sin(yaw / 2.0)])


def _place(node: Any, pose: visuals.Pose) -> None:
    node.position, node.wxyz = pose.position, pose.quaternion


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """viser tells of its server's beginning and end on the output, which is the command's own."""
    return contextlib.redirect_stdout(io.StringIO())
