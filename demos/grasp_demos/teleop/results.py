"""What became of the episodes of a session, and what the person thinks of the last one afterwards."""

from __future__ import annotations

from typing import NamedTuple

from grasp_demos.episode import Episode
from grasp_demos.writer import DatasetWriter, Recording


class Summary(NamedTuple):
    """What a session recorded."""

    successes: int
    failures: int
    """Kept, marked as failures; they are never shown to a learner."""
    discarded: int
    late: int
    """Steps that began late: the machine was too slow for the rate."""


class Results:
    """Ends episodes as the person says, and keeps count."""

    def __init__(self, writer: DatasetWriter, *, held: int, keep_failures: bool) -> None:
        self.held = held
        """Demonstrations that the data set holds."""
        self.verdict = ""
        """How the last episode ended, for the person."""
        self._writer, self._keep_failures = writer, keep_failures
        self._last: Episode | None = None
        self._counts = {"successes": 0, "failures": 0, "discarded": 0}

    def summary(self, late: int) -> Summary:
        """The counts, with the steps that began late."""
        return Summary(**self._counts, late=late)

    def finish(self, recording: Recording, success: bool, note: str) -> Episode | None:
        """End an episode as a success, or as a failure for the reason `note`; None where it is not kept."""
        if success:
            self._last = recording.finish(success=True)
            self.held += self._last.is_demonstration
            self._counts["successes"] += 1
            self.verdict = f"success: episode {self._last.metadata.index}, {len(self._last)} steps"
            if not self._last.is_demonstration:
                self.verdict += ", but nobody took over: it does not count"
        elif self._keep_failures and recording.steps:
            self._last = recording.finish(success=False, note=note)
            self._counts["failures"] += 1
            self.verdict = f"failure ({note}): episode {self._last.metadata.index} is kept as one"
        else:
            self.discard(recording, f"failure ({note}): thrown away")
            self._last = None
        return self._last

    def break_off(self, recording: Recording, note: str) -> None:
        """End an episode as incomplete, for the reason `note`."""
        self._last = recording.finish(success=False, complete=False, note=note)
        self._counts["failures"] += 1
        index, steps = self._last.metadata.index, len(self._last)
        self.verdict = f"broken off ({note}): the {steps} steps of episode {index} are kept as incomplete"

    def discard(self, recording: Recording, verdict: str) -> None:
        """Throw a running episode away."""
        recording.discard()
        self._counts["discarded"] += 1
        self.verdict = verdict

    def change_last(self, command: str, note: str = "called a failure by the operator") -> None:
        """Throw the last episode away (`discard`), or call it a failure for the reason `note` (`failure`)."""
        last, self._last = self._last, None
        if last is None:
            self.verdict = "there is no episode to change"
            return
        name = f"episode {last.metadata.index}"
        self.held -= last.is_demonstration
        self._counts["successes" if last.metadata.success else "failures"] -= 1
        if command == "discard":
            self._writer.set_aside(last)
            self._counts["discarded"] += 1
            self.verdict = f"{name} was thrown away"
        else:
            self._writer.rewrite(last, success=False, note=note)
            self._counts["failures"] += 1
            self.verdict = f"{name} is a failure now"
