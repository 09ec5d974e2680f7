"""A person records demonstrations, alone or by taking over from a policy.

One loop at the policy's rate. Between episodes the arm stands still and the person looks at the next start;
an episode runs until the environment ends it or the person does. The three actions of a step:
what a policy wants (intended; the person's own where there is none), what is asked for, what is sent.

In simulation the simulator judges success. A person can call a success a failure, because the grasp was
ugly; a person's success that the simulator did not see is stored as a failure with a note, since no reward
says what in it was good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

from grasp_demos.episode import Metadata, Step
from grasp_demos.recording import Arm
from grasp_demos.teleop.operator import OPENING, Intent, Operator, Status, action_of
from grasp_demos.teleop.results import Results, Summary
from grasp_demos.writer import DatasetWriter, Recording
from grasp_sim import scene
from grasp_sim.contract import GraspState

HAND_BACK_S = 0.5
"""s after the person's last motion until the policy acts again."""
REST_S = 0.5
"""s that the person has to rest before a motion begins an episode."""
FALLEN = scene.TABLE_HEIGHT - 0.1
"""m, height below which an object has left the table for good: the episode is over."""
LATE_SHARE = 0.1
"""Of the period: a step that begins later than that is counted."""


class Pilot(Protocol):
    """A policy that acts until the person takes over. `grasp_control.bundle.BundlePolicy` is one."""

    def reset(self, observation: np.ndarray) -> None: ...
    def act(self, observation: np.ndarray) -> np.ndarray: ...
    def observe(self, executed_action: np.ndarray, next_observation: np.ndarray) -> None: ...


class Pace:
    """Steps at a fixed rate. A late step is not made up for by a hurried one."""

    def __init__(
        self,
        rate_hz: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.clock = clock
        self.late = 0
        """Steps that began late."""
        self._sleep = sleep
        self._period = 1.0 / rate_hz
        self._next = clock()

    def start(self) -> None:
        """The next step is due now."""
        self._next = self.clock()

    def wait(self, *, counted: bool = True) -> None:
        """Return when the next step is due; a late one is only counted where it matters."""
        self._next += self._period
        ahead = self._next - self.clock()
        if ahead > 0.0:
            self._sleep(ahead)
        elif -ahead > LATE_SHARE * self._period:
            self.late += counted
            self._next = self.clock()


class Session:
    """Records into one data set until it holds enough demonstrations or the person stops."""

    def __init__(
        self,
        env: Arm,
        writer: DatasetWriter,
        metadata: Metadata,
        operator: Operator,
        *,
        wanted: int,
        held: int = 0,
        pilot: Pilot | None = None,
        force: float = 0.0,
        seed: int = 0,
        keep_failures: bool = True,
        pace: Pace | None = None,
    ) -> None:
        """
        Args:
            env: which the session resets and steps.
            writer: of the data set.
            metadata: of every episode; seed and time are set here.
            operator: the person; opened by the caller.
            wanted: demonstrations that the data set is to hold.
            held: those that it holds already.
            pilot: acts where the person does not; None leaves everything to the person.
            force: grip-force limit as an action in [-1, 1] while the person acts.
            seed: of the first episode's start; an episode that is thrown away is begun again.
            keep_failures: False throws failed episodes away.
            pace: 20 Hz by the clock on the wall by default.
        """
        self.env, self.writer, self.operator, self.pilot = env, writer, operator, pilot
        self._metadata, self._force = metadata, force
        self._wanted = wanted
        self._results = Results(writer, held=held, keep_failures=keep_failures)
        self._pace = pace or Pace(metadata.rate_hz)
        self._seed = seed
        self._info: dict[str, Any] = {}
        self._snapshot: dict[str, np.ndarray] = {}
        self._number = 1
        self._takes, self._acted_at = False, -np.inf

    def run(self) -> Summary:
        """Record. An exception, Ctrl-C among them, leaves the running episode stored as incomplete."""
        while self._results.held < self._wanted:
            observation, self._info = self.env.reset(seed=self._seed)
            self._snapshot, self._number = self.env.snapshot(), self.writer.next_index + 1
            self._takes, self._acted_at = False, -np.inf
            self.operator.begin(closed=False)
            if not self._await_start() or not self._record(observation):
                break
        return self._results.summary(late=self._pace.late)

    # ---- between episodes

    def _await_start(self) -> bool:
        """Stand still until the person begins; False where the person stops recording."""
        self._pace.start()
        acted_at = self._pace.clock()
        while True:
            intent = self.operator.poll(self._state)
            if intent.command == "quit":
                return False
            if intent.command in ("discard", "failure"):
                self._results.change_last(intent.command)
            if intent.command == "start":
                return True
            if intent.acting:
                # A motion begins an episode too, but neither one that a policy is to act in, nor is it what
                # is left of the motion that ended the last.
                now = self._pace.clock()
                if self.pilot is None and intent.present and now - acted_at >= REST_S:
                    return True
                acted_at = now
            self._show("ready", 0, 0)
            self._pace.wait(counted=False)

    # ---- an episode

    def _record(self, observation: np.ndarray) -> bool:
        """One episode; False where the person stops recording."""
        metadata = replace(
            self._metadata,
            seed=self._seed,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        recording = self.writer.begin(
            metadata, self._state, observation, self.env.dynamic_state(), self._snapshot
        )
        if self.pilot is not None:
            self.pilot.reset(observation)
        self._pace.start()
        slips = 0
        while True:
            intent = self.operator.poll(self._state)
            if intent.command in ("success", "failure", "discard", "quit"):
                return self._stop(recording, intent.command)
            if not intent.present:  # The simulation waits; nothing moves without somebody who sees it.
                self._show("paused", recording.steps, slips)
                self._pace.wait(counted=False)
                continue
            actor, intended, requested = self._choose(intent, observation)
            observation, reward, terminated, truncated, self._info = self.env.step(requested)
            if self._info["sim_fault"]:
                self._finish(recording, False, "the simulator's state became non-finite")
                return True
            if self.pilot is not None:
                self.pilot.observe(self._info["executed_action"], observation)
            recording.append(
                Step(
                    intended_action=intended,
                    requested_action=self._info["requested_action"],
                    executed_action=self._info["executed_action"],
                    reward=float(reward),
                    terminated=bool(terminated),
                    truncated=bool(truncated),
                    slip=bool(self._info["slip"]),
                    drop=bool(self._info["drop"]),
                    state=self._info["state"],
                    observation=observation,
                    actor=actor,
                    simulator_state=self.env.dynamic_state(),
                )
            )
            slips += bool(self._info["slip"] or self._info["drop"])
            self._show("recording", recording.steps, slips, actor)
            if terminated or truncated:
                success = bool(self._info["success"])
                reason = "" if success else "the object broke" if self._info.get("broken") else "time ran out"
                self._finish(recording, success, reason)
                return True
            if self._info["true_state"].object_position[2] < FALLEN:
                self._finish(recording, False, "the object fell off the table")
                return True
            self._pace.wait()

    def _choose(self, intent: Intent, observation: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
        """Who acts in this step; what the policy would do, where there is one; and what is done."""
        now = self._pace.clock()
        if intent.command == "take":
            self._takes = not self._takes
            self._acted_at = -np.inf
        if intent.acting:
            self._acted_at = now
        done = action_of(intent, self._force)
        if self.pilot is None:
            return "person", done, done
        proposed = self.pilot.act(observation)
        if self._takes or now - self._acted_at < HAND_BACK_S:
            return "person", proposed, done
        self.operator.follow(closed=bool(proposed[OPENING] < 0.0))
        return "policy", proposed, proposed

    def _stop(self, recording: Recording, command: str) -> bool:
        """The person ends the episode."""
        if not recording.steps:
            recording.discard()
            self._results.verdict = "nothing was recorded"
        elif command == "discard":
            self._results.discard(recording, "thrown away; the same start again")
        elif command == "quit":
            recording.finish(success=False, complete=False, note="the operator stopped recording")
        elif command == "failure":
            self._finish(recording, False, "called a failure by the operator")
        else:
            self._finish(recording, False, "called a success by the operator; the simulator saw none")
        return command != "quit"

    def _finish(self, recording: Recording, success: bool, note: str) -> None:
        self._results.finish(recording, success, note)
        self._seed += 1

    # ---- telling

    @property
    def _state(self) -> GraspState:
        return self._info["state"]

    def _show(self, phase: str, step: int, slips: int, actor: str = "person") -> None:
        self.operator.show(
            Status(
                phase=phase,
                state=self._state,
                snapshot=self._snapshot,
                episode=self._number,
                step=step,
                horizon=self.env.horizon,
                recorded=self._results.held,
                wanted=self._wanted,
                slips=slips,
                actor=actor,
                grasped=bool(self._info.get("grasped", False)),
                late=self._pace.late,
                verdict=self._results.verdict,
                takes_over=self.pilot is not None,
            )
        )
