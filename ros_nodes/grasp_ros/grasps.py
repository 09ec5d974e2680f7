"""Grasps by the whole stack on the simulated robot, one after the other, judged by the simulator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from std_srvs.srv import Trigger

from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher, values_of
from grasp_sim.errors import UserError

READY_S = 180.0
"""s until the stack is ready; the first start of all compiles the safety filter."""


class Grasp(NamedTuple):
    """One grasp."""

    success: bool
    """The simulator's word."""
    outcome: str
    """The policy server's."""
    message: str
    seconds: float
    steps: int


def grasps(stack: Stack, watcher: Watcher, count: int) -> Iterator[Grasp]:
    """Perform grasps, each from a new start; UserError where the stack does not become ready."""
    for number in range(count):
        if number:
            new_episode(stack, watcher)
        else:
            wait_until_ready(stack, watcher)
        began, watcher.grasp = time.monotonic(), None
        _require(watcher.call("/policy_server/start"))
        stack.wait_for(lambda: _spin(watcher) and _ended(watcher), "the grasp did not end", 60.0)
        seconds, values = time.monotonic() - began, values_of(watcher.grasp)
        settle = time.monotonic() + 0.3
        while time.monotonic() < settle:  # the simulator's judgement of the last steps
            watcher.spin()
        assert watcher.grasp is not None
        yield Grasp(
            bool(watcher.outcome.get("success")),
            values["outcome"],
            watcher.grasp.message,
            seconds,
            int(values["step"]),
        )


def new_episode(stack: Stack, watcher: Watcher) -> None:
    """Bring a new object and the arm back to its start, and wait until the stack is ready again."""
    before = values_of(watcher.safety).get("epoch", "")
    _require(watcher.call("/sim_robot/reset"))
    wait_until_ready(stack, watcher, after_epoch=before)


def wait_until_ready(stack: Stack, watcher: Watcher, after_epoch: str = "") -> None:
    """Until the safety filter lets motion through, in another epoch than `after_epoch`, and the policy server
    has what it needs."""

    def ready() -> bool:
        watcher.spin()
        values = values_of(watcher.safety)
        moves = values.get("status") in ("OK", "LIMITED") and values["epoch"] != after_epoch
        return moves and _says_ready(watcher)

    watcher.diagnostics.clear()
    watcher.safety = None
    stack.wait_for(ready, "the safety filter or the policy server is not ready", READY_S)


def _says_ready(watcher: Watcher) -> bool:
    said = [status for status in watcher.diagnostics if status.name.startswith("policy_server")]
    return bool(said) and said[-1].message.startswith("ready")


def _spin(watcher: Watcher) -> bool:
    watcher.spin()
    return True


def _ended(watcher: Watcher) -> bool:
    return values_of(watcher.grasp).get("running") == "False"


def _require(response: Trigger.Response) -> None:
    if not response.success:
        raise UserError(response.message)
