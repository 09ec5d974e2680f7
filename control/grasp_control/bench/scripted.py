"""A person and a policy that follow a script, to record with where nobody is.

Shapes: A action dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grasp_demos.teleop.operator import NOTHING, OPENING, Intent, Status
from grasp_sim.contract import GraspState
from grasp_sim.expert import ScriptedExpert


class Clock:
    """Time that passes only by sleeping, so that a session takes no longer than its work."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """s."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.now += seconds


class ScriptedPerson:
    """Grasps like the scripted expert, through intents, and uses every command that a person has.

    In turn an episode is kept, called a failure afterwards, thrown away afterwards, thrown away while it
    runs, called a failure while it runs. With a policy, the person moves the arm in steps 8 to 11 alone.
    """

    def __init__(self, expert: ScriptedExpert, first: int, helps: bool) -> None:
        self.state: GraspState
        self.expert = expert
        self._helps = helps
        self._running = False
        self._script = self._play(first)

    def __enter__(self) -> ScriptedPerson:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass

    def begin(self, closed: bool) -> None:
        """The next episode is prepared, so the last is over."""
        self.expert.reset()
        self._running = False

    def follow(self, closed: bool) -> None:
        """The policy moves the fingers."""

    def poll(self, state: GraspState) -> Intent:
        """The next wish of the script."""
        self.state = state
        return next(self._script)

    def show(self, status: Status) -> None:
        """The script needs no telling."""

    def _play(self, turn: int) -> Iterator[Intent]:
        while True:
            after = ("", "failure", "discard", "", "")[turn % 5]
            during = ("", "", "", "discard", "failure")[turn % 5]
            yield NOTHING._replace(command="start")
            step, self._running = 0, True
            while self._running:
                yield NOTHING._replace(command=during) if during and step == 20 else self._move(step)
                step += 1
            if after:
                yield NOTHING._replace(command=after)
            turn += 1

    def _move(self, step: int) -> Intent:
        if self._helps and not 8 <= step < 12:
            return NOTHING
        action = self.expert.act(self.state)
        return Intent(action[:4], bool(action[OPENING] < 0.0), True)


class ScriptedPilot:
    """Acts as a policy that knows how to grasp."""

    def __init__(self, person: ScriptedPerson) -> None:
        self._person = person

    def reset(self, observation: np.ndarray) -> None:
        """An episode starts."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        """The action (A,)."""
        return self._person.expert.act(self._person.state)

    def observe(self, executed_action: np.ndarray, next_observation: np.ndarray) -> None:
        """Nothing is remembered."""
