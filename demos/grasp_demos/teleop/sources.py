"""The ways to record: who acts, and with which device.

Adding a device: a file beside this one with an `Operator`, and an entry in `OPERATORS`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from grasp_demos.teleop.operator import Operator
from grasp_demos.teleop.session import Pilot
from grasp_sim.contract import ActionScale
from grasp_sim.errors import UserError

LOOPBACK = "127.0.0.1"


@dataclass
class PageConfig:
    """The page in the browser."""

    host: str = LOOPBACK
    """Address that the page is served on. Any but the loopback address needs `token`."""
    port: int = 8080
    """Port of the page; 0 takes a free one."""
    token: str = ""
    """Who opens the page must give this word, as in http://host:port/?token=word: 16 letters, digits, - or _
    at least."""
    show: bool = True
    """Keyboard and gamepad: serve the page too, as a view of the scene."""

    def __post_init__(self) -> None:
        """Check the numbers; nothing is served to others without a token."""
        if not 0 <= self.port <= 65535:
            raise ValueError(f"page.port={self.port} must be from 0 to 65535.")
        if self.token and not re.fullmatch(r"[A-Za-z0-9_-]{16,128}", self.token):
            raise ValueError(
                "page.token must be 16 to 128 letters, digits, - or _: whoever guesses it moves the arm."
            )
        if not self.token and self.host not in (LOOPBACK, "localhost", "::1"):
            raise ValueError(
                f"page.host={self.host} lets other machines open the page, which moves the arm: give"
                " page.token=... too, 16 characters at least."
            )


class Devices(NamedTuple):
    """What devices are made from."""

    page: PageConfig
    gamepad: str
    """Device file of the gamepad; empty takes the first that is found."""
    scale: ActionScale


def _keyboard(devices: Devices) -> Operator:
    from grasp_demos.teleop.keyboard import KeyboardOperator

    return _viewed(KeyboardOperator(), devices)


def _gamepad(devices: Devices) -> Operator:
    from grasp_demos.teleop.gamepad import GamepadOperator

    return _viewed(GamepadOperator(devices.gamepad), devices)


def _browser(devices: Devices) -> Operator:
    return _page_module().BrowserOperator(devices.page, devices.scale)


def _viewed(operator: Operator, devices: Devices) -> Operator:
    """The device with the page beside it, if that is wanted."""
    if not devices.page.show:
        return operator
    module = _page_module()
    return module.Viewed(operator, module.ScenePage(devices.page))


def _page_module() -> Any:
    try:
        return importlib.import_module("grasp_demos.teleop.browser")
    except ModuleNotFoundError as error:
        if error.name not in ("viser", "websockets"):
            raise
        raise UserError(
            f"the page needs {error.name}: pip install -c requirements.lock -e '.[teleop]', or make install;"
            " page.show=false goes without it."
        ) from error


OPERATORS: Mapping[str, Callable[[Devices], Operator]] = {
    "keyboard": _keyboard,
    "gamepad": _gamepad,
    "browser": _browser,
}
"""Devices by name, each made from the settings; what it needs is imported then."""

PILOTS = "grasp_demos.pilots"
"""Entry points of what may act while a person may take over: `load(path, control_mode, action_scale)` gives a
`Pilot` and its name for the episodes."""


def load_pilot(name: str, path: str, control_mode: str, action_scale: ActionScale) -> tuple[Pilot, str]:
    """What acts, and its name for the episodes. Raises UserError where no installed package offers it."""
    found = list(entry_points(group=PILOTS, name=name))
    if not found:
        raise UserError(
            f"no installed package offers the pilot {name!r} (entry points {PILOTS}): install this one again"
            " with make install."
        )
    return found[0].load()(path, control_mode, action_scale)
