"""A person records what something else does with a robot: a teach pendant, a teleoperation, a policy server.

The person says when an episode begins and what became of it; everything else comes from the robot's topics,
through the functions that import a bag with the same messages. There is no simulator, so success is the
operator's word, and the last reward is 1 on success.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from grasp_demos.episode import DemoError, Metadata, Step
from grasp_demos.incremental import Resampler, finished
from grasp_demos.teleop.operator import Operator, Status
from grasp_demos.teleop.results import Results, Summary
from grasp_demos.teleop.session import Pace
from grasp_demos.validate import validate
from grasp_demos.watch import Receiver, Watch
from grasp_demos.writer import DatasetWriter, Recording
from grasp_sim.contract import GraspState, encode
from grasp_sim.ur5e import HOME, Kinematics

_ENDS = ("success", "failure", "discard", "quit")


class TopicSession:
    """Records into one data set until it holds enough demonstrations or the person stops."""

    def __init__(
        self,
        receiver: Receiver,
        watch: Watch,
        writer: DatasetWriter,
        metadata: Metadata,
        operator: Operator,
        *,
        wanted: int,
        held: int = 0,
        keep_failures: bool = True,
        pace: Pace | None = None,
    ) -> None:
        """
        Args:
            receiver: hears the topics; opened by the caller.
            watch: a fresh one.
            writer: of the data set.
            metadata: of every episode, its horizon included; the time is set here.
            operator: the person; opened by the caller.
            wanted: demonstrations that the data set is to hold.
            held: those that it holds already.
            keep_failures: False throws failed episodes away; those that broke off are kept.
            pace: of asking for messages and commands; the policy's rate by default.
        """
        self._receiver, self._watch, self._writer, self._operator = receiver, watch, writer, operator
        self._metadata, self._wanted = metadata, wanted
        self._results = Results(writer, held=held, keep_failures=keep_failures)
        self._pace = pace or Pace(metadata.rate_hz)
        self._state = _nothing_seen()
        self._asked: int | None = None
        self._resampler: Resampler | None = None
        self._recording: Recording | None = None
        self._next: Step | None = None
        self._steps = 0
        self._resting = ""
        self._stop = False

    def run(self) -> Summary:
        """Record. An exception, Ctrl-C among them, leaves the running episode stored as incomplete."""
        self._pace.start()
        while self._results.held < self._wanted and not self._stop:
            since = None if self._resampler is None else self._resampler.since
            self._watch.take(self._receiver.take(), since=since)
            command = self._operator.poll(self._state).command
            if self._asked is None:
                self._wait(command)
            else:
                self._follow(command)
            self._show()
            self._pace.wait()
        return self._results.summary(late=0)

    # ---- between episodes

    def _wait(self, command: str) -> None:
        state = self._watch.state()
        self._state = state or self._state
        if command == "quit":
            self._stop = True
        elif command in ("discard", "failure"):
            self._results.change_last(command)
        elif command == "start":
            missing = self._watch.missing()
            if missing:
                self._results.verdict = f"not begun: {missing[0]}"
                return
            self._watch.clear()
            self._asked = self._watch.now
            self._results.verdict = ""
            self._operator.begin(closed=False)

    # ---- an episode

    def _follow(self, command: str) -> None:
        """An episode was asked for, or is running."""
        assert self._asked is not None
        end = command if command in _ENDS else ""
        fault = self._watch.fault
        try:
            if self._resampler is None and fault is None:
                self._resampler = self._watch.begin(self._begun(), self._asked)
            if self._resampler is None:
                if end or fault:
                    self._over("nothing was recorded" + (f": {fault.line}" if fault else ""))
                    self._stop = end == "quit"
                return
            until = self._watch.now if fault is None else min(fault.received - 1, self._watch.now)
            messages = self._watch.recorded(self._resampler.since, until)
            advance = self._resampler.advance(messages, until, end=bool(end or fault))
        except DemoError as error:  # Such as clocks that differ: the robot's affair, which can be mended.
            self._end("", str(error))
            return
        for step in advance.steps[: self._metadata.horizon - self._steps]:
            self._append(step)
        self._resting = advance.resting
        problem = advance.problem or (fault.line if fault else "")
        if not problem and not end and self._steps >= self._metadata.horizon:
            end = "time"
        if problem or end:
            self._end(end, problem)

    def _begun(self) -> Metadata:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return replace(self._metadata, recorded_at=now)

    def _append(self, step: Step) -> None:
        """Write the step before this one: the last of an episode gets the operator's verdict."""
        assert self._resampler is not None
        assert self._resampler.start is not None
        if self._recording is None:
            start = self._resampler.start
            self._recording = self._writer.begin(self._begun(), start, encode(start), np.zeros(0), {})
        elif self._next is not None:
            self._recording.append(self._next)
        self._next, self._state = step, step.state
        self._steps += 1

    def _end(self, end: str, problem: str) -> None:
        """End the episode as the person says, or as broken off where there is a problem."""
        recording, last = self._recording, self._next
        self._stop = end == "quit"
        if recording is None or last is None:
            self._over("nothing was recorded" + (f": {problem}" if problem else ""))
            return
        if end == "discard":
            self._results.discard(recording, "thrown away")
        elif problem or end == "quit":
            recording.append(last)
            self._results.break_off(recording, problem or "the operator stopped recording")
        else:
            success = end == "success"
            recording.append(finished(last, success))
            reason = "time ran out" if end == "time" else "called a failure by the operator"
            episode = self._results.finish(recording, success, reason)
            if episode is not None and success and (defects := validate(episode)):
                self._results.change_last("failure", f"cannot be learnt from: {defects[0]}")
                self._results.verdict = f"a failure: it cannot be learnt from: {defects[0]}"
        self._over(self._results.verdict)

    def _over(self, verdict: str) -> None:
        self._results.verdict = verdict
        self._asked = self._resampler = self._recording = self._next = None
        self._steps, self._resting = 0, ""

    # ---- telling

    def _show(self) -> None:
        lines = self._watch.missing() if self._asked is None else []
        if self._asked is not None and self._resampler is None:
            lines = [self._watch.missing_commands()]
        elif self._resting:
            lines = [f"{self._resting}; say what became of the episode"]
        waiting = f"waiting: {'; '.join(lines)}" if any(lines) else ""
        self._operator.show(
            Status(
                phase="ready" if self._asked is None else "recording",
                state=self._state,
                snapshot={},
                episode=self._writer.next_index + (self._recording is None),
                step=self._steps,
                horizon=self._metadata.horizon,
                recorded=self._results.held,
                wanted=self._wanted,
                slips=0,
                actor="person",
                grasped=False,
                late=0,
                verdict=". ".join(part for part in (self._results.verdict, waiting) if part),
                moves=False,
            )
        )


def _nothing_seen() -> GraspState:
    """What is shown until something is heard: the arm at home, and no object."""
    position, quaternion = Kinematics().forward(HOME)
    return GraspState(
        joint_positions=HOME,
        joint_velocities=np.zeros(6),
        tcp_position=position,
        tcp_quaternion=quaternion,
        gripper_opening=0.0,
        gripper_force=0.0,
        object_position=position,
        object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
        object_size=np.full(3, 0.001),
    )
