"""The Grasp action over real DDS, with a grasper that does as it is told."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy")
try:
    from grasp_msgs.action import Grasp
except ImportError:
    pytest.skip("grasp_msgs is not built; `make grasp-msgs` does it", allow_module_level=True)

from action_msgs.msg import GoalStatus
from rclpy.action.client import ActionClient

from grasp_control.arm.runner import Outcome, Progress
from grasp_ros import grasp_action
from grasp_ros.grasp_action import offer_grasp_action

IDLE = Progress(False, Outcome.NONE, "no grasp was asked for yet")


class Grasper:
    """Counts steps at 50 Hz, until it has done `steps`."""

    def __init__(self, host, steps: int = 20) -> None:
        self.steps, self.refusal, self.deaf, self.broken = steps, "", False, False
        self.now = IDLE
        self.begun: list[int] = []
        self.cancelled: list[tuple[str, int, int]] = []  # why, at which step, in which thread
        host.node.create_timer(0.02, self._tick)

    @property
    def progress(self) -> Progress:
        if self.broken:
            raise RuntimeError("no progress is known")
        return self.now

    def begin(self) -> str:
        if self.refusal:
            return self.refusal
        self.begun.append(threading.get_ident())
        self.now = Progress(True, Outcome.NONE, "", phase="approach")
        return ""

    def cancel(self, why: str) -> None:
        self.cancelled.append((why, self.now.step, threading.get_ident()))
        if not self.deaf:
            self.now = self.now._replace(running=False, outcome=Outcome.CANCELLED, message=why)

    def _tick(self) -> None:
        if not self.now.running:
            return
        step = self.now.step + 1
        self.now = self.now._replace(
            step=step, rise=0.01 * step, tcp_height=0.1 + step, opening=0.05, force=20.0
        )
        if step == self.steps:
            self.now = self.now._replace(running=False, outcome=Outcome.LIFTED, message="holds the object")


class Asker:
    """An action client that remembers the feedback."""

    def __init__(self, peer, wait_for) -> None:
        self.client = ActionClient(peer.node, Grasp, "/grasp")
        self.wait_for = wait_for
        self.feedback: list = []
        peer.start()
        wait_for(self.client.server_is_ready, 30)

    def ask(self, timeout: float = 0.0):
        sent = self.client.send_goal_async(
            Grasp.Goal(timeout=timeout), feedback_callback=lambda m: self.feedback.append(m.feedback)
        )
        return self.answer(sent)

    def answer(self, future, seconds: float = 20.0):
        self.wait_for(future.done, seconds)
        return future.result()

    def result(self, goal):
        answer = self.answer(goal.get_result_async())
        return answer.status, answer.result


@pytest.fixture
def scene(peer, wait_for):
    """The host's node, its grasper, and who asks."""
    host = peer("policy_server")
    grasper = Grasper(host)
    action = offer_grasp_action(host.node, grasper)
    host.start()
    yield host, grasper, Asker(peer("asker"), wait_for)
    action.close()


def test_a_goal_runs_tells_how_it_goes_and_ends_with_a_result(scene):
    host, grasper, asker = scene
    goal = asker.ask()
    assert goal.accepted
    status, result = asker.result(goal)
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert (result.success, result.outcome, result.message) == (True, "lifted", "holds the object")
    assert (result.steps, result.lifted, result.grip_force) == (20, pytest.approx(0.2), 20.0)
    steps = [feedback.step for feedback in asker.feedback]
    assert len(steps) >= 3  # 0.4 s at 10 Hz
    assert steps == sorted(steps)
    last = asker.feedback[-1]
    assert (last.phase, last.opening, last.force) == ("approach", 0.05, 20.0)
    assert last.tcp_height == pytest.approx(0.1 + last.step)
    assert grasper.begun == [host.thread_id]  # in the node's own thread
    assert asker.ask().accepted  # and the next one


def test_a_cancel_stops_the_grasp_in_the_middle(scene):
    host, grasper, asker = scene
    grasper.steps = 10**9
    goal = asker.ask()
    asker.wait_for(lambda: grasper.now.step > 3, 20)
    cancelled = asker.answer(goal.cancel_goal_async())
    assert len(cancelled.goals_canceling) == 1
    status, result = asker.result(goal)
    assert status == GoalStatus.STATUS_CANCELED
    assert (result.success, result.outcome) == (False, "cancelled")
    assert result.message == "cancelled by who asked for it"
    ((_, step, thread),) = grasper.cancelled
    assert (result.steps, thread) == (step, host.thread_id)


def test_a_second_goal_is_refused_and_the_first_goes_on(scene, capfd):
    _, grasper, asker = scene
    grasper.steps = 100
    first, second = asker.ask(), asker.ask()
    assert (first.accepted, second.accepted) == (True, False)
    assert "a grasp was refused: another goal is running: cancel it first" in capfd.readouterr().err
    assert asker.result(first)[0] == GoalStatus.STATUS_SUCCEEDED
    assert len(grasper.begun) == 1
    assert grasper.cancelled == []


@pytest.mark.parametrize(
    ("timeout", "refusal", "said"),
    [
        (float("nan"), "", "timeout=nan must be from 0"),
        (-1.0, "", "timeout=-1.0 must be from 0"),
        (1e9, "", "to 600 s"),
        (0.0, "the safety filter holds", "a grasp was refused: the safety filter holds"),
    ],
)
def test_what_cannot_begin_is_refused_and_the_log_says_why(scene, capfd, timeout, refusal, said):
    _, grasper, asker = scene
    grasper.refusal = refusal
    assert not asker.ask(timeout).accepted
    assert said in capfd.readouterr().err
    assert grasper.begun == []


def test_a_goals_own_timeout_ends_it(scene):
    _, grasper, asker = scene
    grasper.steps = 10**9
    status, result = asker.result(asker.ask(timeout=0.3))
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.success, result.outcome) == (False, "timed out")
    assert result.message == "not done within the 0.3 s of the goal"
    assert len(grasper.cancelled) == 1


def test_a_grasp_that_others_stop_is_aborted(scene):
    _, grasper, asker = scene
    grasper.steps = 10**9
    goal = asker.ask()
    grasper.cancel("stopped by ~/stop")
    status, result = asker.result(goal)
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.outcome, result.message) == ("cancelled", "stopped by ~/stop")


def test_a_grasper_that_does_not_stop_is_reported(scene, monkeypatch):
    _, grasper, asker = scene
    monkeypatch.setattr(grasp_action, "STOP_S", 0.3)
    grasper.steps, grasper.deaf = 10**9, True
    goal = asker.ask()
    asker.answer(goal.cancel_goal_async())
    status, result = asker.result(goal)
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.outcome, result.message) == ("stopped", "the grasp did not stop within 0.3 s")


def test_a_failing_grasper_is_stopped_and_the_goal_aborted(scene):
    _, grasper, asker = scene
    grasper.steps = 10**9
    goal = asker.ask()
    grasper.broken = True
    status, result = asker.result(goal)
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.success, result.outcome) == (False, "stopped")
    assert result.message == "the action failed: RuntimeError('no progress is known')"
    asker.wait_for(lambda: grasper.cancelled, 5)
    grasper.broken = False
    assert asker.ask().accepted


def test_a_busy_node_hears_no_goal_but_a_cancel_is_taken_at_once(scene, monkeypatch):
    host, grasper, asker = scene
    grasper.steps = 10**9
    goal = asker.ask()
    release = threading.Event()
    host.executor.create_task(release.wait)
    try:
        cancelled = asker.answer(goal.cancel_goal_async())
        assert len(cancelled.goals_canceling) == 1
        assert grasper.cancelled == []  # the node itself has not heard of it yet
    finally:
        release.set()
    assert asker.result(goal)[0] == GoalStatus.STATUS_CANCELED
    assert len(grasper.cancelled) == 1
    # A goal that the node cannot answer is refused, and does not begin later.
    monkeypatch.setattr(grasp_action, "ANSWER_S", 0.2)
    release.clear()
    host.executor.create_task(release.wait)
    assert not asker.ask().accepted
    release.set()
    done = threading.Event()
    host.executor.create_task(done.set)
    assert done.wait(10)
    assert len(grasper.begun) == 1


def test_without_grasp_msgs_the_node_says_so_and_goes_on(peer, monkeypatch, capfd):
    monkeypatch.setattr(grasp_action, "Grasp", None)
    assert offer_grasp_action(peer("policy_server").node, object()) is None
    assert "grasp_msgs is not installed, so there is no Grasp action" in capfd.readouterr().err
