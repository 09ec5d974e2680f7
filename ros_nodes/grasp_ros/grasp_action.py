"""The Grasp action: asks for a grasp, tells how it goes, stops it, and says how it ended.

It lives on a node and in a thread of its own, so that a cancel is heard whatever the node that grasps does.
Without grasp_msgs (see `make grasp-msgs`) there is no action, and the services of the node remain.
"""

from __future__ import annotations

import importlib
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.executors import ExternalShutdownException
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.task import Future

from grasp_control.arm.runner import MAX_TIMEOUT, Outcome, Progress
from grasp_ros.spin import steady_timer


def _action_type() -> Any:
    """The action's type, None where grasp_msgs was not built. Its source folder can be imported, empty."""
    try:
        return importlib.import_module("grasp_msgs.action").Grasp
    except (ImportError, AttributeError):
        return None


Grasp = _action_type()
TICK_S = 0.02
"""s between two looks at the grasp."""
FEEDBACK_TICKS = 5
"""Looks from one feedback to the next: 10 Hz."""
ANSWER_S = 1.0
"""s in which the node must say whether it begins."""
STOP_S = 2.0
"""s in which a grasp that was told to stop must have ended; then the goal is given up as it is."""


class Grasper(Protocol):
    """What performs grasps. `begin` and `cancel` are called in its node's thread, `progress` in another."""

    def begin(self) -> str:
        """Begin a grasp; why not, where it cannot begin, else ""."""
        ...

    def cancel(self, why: str) -> None:
        """End the grasp that runs, if one does."""
        ...

    @property
    def progress(self) -> Progress:
        """How the present or the last grasp stands."""
        ...


class GraspAction:
    """Offers the action for one grasper, one goal at a time. `close` it before its node."""

    def __init__(self, node: Node, grasper: Grasper, name: str) -> None:
        """Use `offer_grasp_action`. `name` is the action's, as the node resolves it."""
        self._grasper = grasper
        self._host = node
        self._log = node.get_logger().get_child("grasp_action")
        # Arguments of the process, such as a new name for its node, are meant for that node alone.
        self._node = Node(
            f"{node.get_name()}_action",
            namespace=node.get_namespace(),
            context=node.context,
            use_global_arguments=False,
            start_parameter_services=False,
            enable_rosout=False,
        )
        self._busy = False
        self._stop_why, self._stop_at = "", math.inf
        self._sleepers: list[Future] = []
        self._server = ActionServer(
            self._node,
            Grasp,
            node.resolve_service_name(name),
            execute_callback=self._execute,
            goal_callback=self._on_goal,
            cancel_callback=self._on_cancel,
        )
        self._timer = steady_timer(self._node, TICK_S, self._wake)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._spin, name="grasp_action")
        self._thread.start()

    def close(self) -> None:
        """Offer the action no more. The node ends what it does by itself."""
        self._closing.set()
        self._thread.join()
        self._server.destroy()
        self._node.destroy_node()

    def _on_goal(self, goal: Any) -> GoalResponse:
        """Begins the grasp: a goal that is accepted runs."""
        if not (math.isfinite(goal.timeout) and 0.0 <= goal.timeout <= MAX_TIMEOUT):
            why = f"timeout={goal.timeout} must be from 0 (the node's own) to {MAX_TIMEOUT:g} s"
        elif self._busy:
            why = "another goal is running: cancel it first"
        else:
            why = self._begin()
        if why:
            self._log.warning(f"a grasp was refused: {why}")
            return GoalResponse.REJECT
        self._busy, self._stop_why, self._stop_at = True, "", math.inf
        return GoalResponse.ACCEPT

    def _begin(self) -> str:
        """Begin in the node's own thread; why not, where it cannot begin."""
        lock, answers, given_up = threading.Lock(), queue.SimpleQueue[str](), False

        def begin() -> None:
            with lock:  # either it is begun, or it was given up before
                if not given_up:
                    answers.put(self._grasper.begin())

        if not self._post(begin):
            return "the node is not running yet"
        try:
            return answers.get(timeout=ANSWER_S)
        except queue.Empty:
            pass
        with lock:
            given_up = True
        return f"the node did not answer within {ANSWER_S:g} s" if answers.empty() else answers.get()

    def _post(self, act: Callable[[], None]) -> bool:
        """Let the node's executor do that; whether it has one."""
        executor = self._host.executor
        if executor is None:
            return False
        executor.create_task(act)
        return True

    def _on_cancel(self, goal: Any) -> CancelResponse:
        self._stop(Outcome.CANCELLED.value, "cancelled by who asked for it")
        return CancelResponse.ACCEPT

    def _stop(self, outcome: str, why: str) -> None:
        if not self._stop_why:
            self._stop_why, self._stop_at = outcome, time.monotonic()
            self._post(lambda: self._grasper.cancel(why))

    async def _execute(self, goal: Any) -> Any:
        """Follows the grasp to its end. Asleep in between, so that the executor hears a cancel."""
        try:
            progress = await self._follow(goal, time.monotonic())
        except Exception as error:
            why = f"the action failed: {error!r}"
            self._log.error(f"{why}\n{traceback.format_exc()}")
            self._stop(Outcome.STOPPED.value, why)
            goal.abort()
            return Grasp.Result(outcome=Outcome.STOPPED.value, message=why)
        finally:
            self._busy = False
        return self._result(goal, progress)

    async def _follow(self, goal: Any, began: float) -> Progress:
        limit = goal.request.timeout or math.inf
        ticks = 0
        while True:
            progress, now = self._grasper.progress, time.monotonic()
            if not progress.running or now - self._stop_at > STOP_S:
                return progress
            if now - began > limit:
                self._stop(Outcome.TIMED_OUT.value, f"not done within the {limit:g} s of the goal")
            if ticks % FEEDBACK_TICKS == 0:
                goal.publish_feedback(
                    Grasp.Feedback(
                        step=progress.step,
                        phase=progress.phase,
                        tcp_height=progress.tcp_height,
                        opening=progress.opening,
                        force=progress.force,
                    )
                )
            ticks += 1
            sleeper = Future()
            self._sleepers.append(sleeper)
            await sleeper

    def _wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.set_result(None)

    def _result(self, goal: Any, progress: Progress) -> Any:
        success = progress.outcome is Outcome.LIFTED and not progress.running
        outcome, message = progress.outcome.value, progress.message
        if progress.running:
            outcome, message = Outcome.STOPPED.value, f"the grasp did not stop within {STOP_S:g} s"
        elif progress.outcome is Outcome.CANCELLED and self._stop_why:
            outcome = self._stop_why
        if success:
            goal.succeed()
        elif goal.is_cancel_requested and not progress.running:
            goal.canceled()
        else:
            goal.abort()
        self._log.info(f"{outcome}: {message}")
        return Grasp.Result(
            success=success,
            outcome=outcome,
            message=message,
            steps=progress.step,
            lifted=progress.rise,
            grip_force=progress.force,
        )

    def _spin(self) -> None:
        executor = EventsExecutor(context=self._node.context)
        executor.add_node(self._node)
        try:
            while not self._closing.is_set() and self._node.context.ok():
                executor.spin_once(timeout_sec=0.1)
        except (ExternalShutdownException, RuntimeError):
            if self._node.context.ok():  # otherwise ROS was shut down under a callback
                raise
        finally:
            executor.shutdown()


def offer_grasp_action(node: Node, grasper: Grasper, name: str = "grasp") -> GraspAction | None:
    """The action `name` for a grasper; None, and a line in the log, where grasp_msgs is not installed."""
    if Grasp is None:
        node.get_logger().info(
            "grasp_msgs is not installed, so there is no Grasp action (`make grasp-msgs` builds it, or colcon"
            " in a ROS distribution); the services remain"
        )
        return None
    return GraspAction(node, grasper, name)
