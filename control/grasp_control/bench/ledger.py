"""What a recorder has said that it wrote, and whether it is there after the recorder was killed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grasp_control.bench.recorder import digest
from grasp_demos.episode import DemoError, Episode
from grasp_demos.files import DISCARDED
from grasp_demos.reader import read_episode
from grasp_demos.validate import validate
from grasp_demos.writer import DatasetWriter

UNRECOVERED = re.compile(r"\.lock|discarded|episode_\d{6}\.(npz|npz\.tmp|log)")
"""What may lie in a data set whose recorder was killed."""
RECOVERED = re.compile(r"\.lock|discarded|episode_\d{6}\.npz")
"""What may lie in it once it was opened again."""
SET_ASIDE = re.compile(r"episode_\d{6}(\.\d+)?\.npz")
"""What may lie in its folder `discarded`."""


@dataclass
class Held:
    """An episode that is known to be in a data set."""

    digests: list[int]
    """Of its steps, see `recorder.digest`."""
    success: bool = False
    complete: bool = False


@dataclass
class Loss:
    """What was looked for after a kill, and what was found."""

    episodes: int = 0
    """Finished episodes that had been acknowledged."""
    episodes_found: int = 0
    """Of those, the ones that are there with every step and the last verdict."""
    steps: int = 0
    """Acknowledged steps of the unfinished episode."""
    steps_found: int = 0
    faults: list[str] = field(default_factory=list)
    """Every other expectation that failed."""

    @property
    def lost(self) -> int:
        """Episodes and steps."""
        return self.episodes - self.episodes_found + self.steps - self.steps_found


class Ledger:
    """What a data set must hold, by the words of the recorders that wrote into it."""

    def __init__(self) -> None:
        self.episodes: dict[int, Held] = {}
        """Finished or recovered, by their index."""
        self.aside: list[Held] = []
        """Those that were thrown away after they had been finished."""
        self.faults: list[str] = []
        """Words that contradict what the data set holds."""
        self.finished = 0
        """Episodes that were finished since the last `check`."""
        self.timings: list[dict[str, float]] = []
        """Of each finished episode: steps, s from its beginning to its end, s of them in the writer."""
        self._running: tuple[int, list[int]] | None = None
        self._pending: dict[str, Any] | None = None
        self._opened = False
        self._began = self._spent = 0.0

    @property
    def doing(self) -> str:
        """What the recorder is in the middle of; empty where it is between two calls of the writer."""
        return "" if self._pending is None else str(self._pending["what"])

    def take(self, message: dict[str, Any]) -> None:
        """Note one message of a recorder."""
        if message["event"] == "began":
            self._pending = message
            return
        self._pending, what, index = None, message["what"], message.get("index", -1)
        self._spent += message["seconds"]
        if what == "open":
            self._opened = True
        elif what == "begin":
            self._began, self._spent = message["at"] - message["seconds"], message["seconds"]
            if index != self.next_index:
                self.faults.append(f"recording went on with index {index} in place of {self.next_index}")
            self._running = index, []
        elif what == "rewrite":
            self.episodes[index].success = message["success"]
        elif what == "set_aside":
            self.aside.append(self.episodes.pop(index))
        elif self._running is not None:
            self._take_running(what, message)

    def _take_running(self, what: str, message: dict[str, Any]) -> None:
        assert self._running is not None
        index, digests = self._running
        if what == "append":
            digests.append(message["digest"])
            return
        self._running = None
        if what == "finish":
            self.episodes[index] = Held(digests, message["success"], message["complete"])
            self.finished += 1
            taken = {"recording_s": message["at"] - self._began, "writing_s": self._spent}
            self.timings.append({"steps": float(len(digests)), **taken})

    @property
    def next_index(self) -> int:
        """What the next recording must be numbered."""
        return max(self.episodes, default=-1) + 1

    def check(self, folder: Path, copy: Path) -> Loss:
        """Look for everything in `copy`, an unopened copy of `folder`, which is recovered here.

        Afterwards the ledger holds what was found, so that it is looked for after the next kill too.
        """
        loss = Loss(faults=self.faults)
        if folder.exists():
            loss.faults += _strange(folder, UNRECOVERED)
            if len(list(folder.glob("episode_*.log"))) > 1:
                loss.faults.append("more than one log")
        if self._opened:
            moving = self._pending["index"] if self._pending and self.doing == "set_aside" else -1
            loss.faults += [
                f"episode {index} cannot be read before recovery"
                for index in self.episodes
                if index != moving and not (folder / f"episode_{index:06d}.npz").is_file()
            ]
        with DatasetWriter(copy) as writer:
            loss.faults += _strange(copy, RECOVERED)
            found = _read(sorted(copy.glob("episode_*.npz")), loss.faults)
            episodes = {episode.metadata.index: episode for episode in found}
            aside = _read(sorted((copy / DISCARDED).glob("*")), loss.faults)
            if writer.next_index != max(episodes, default=-1) + 1:
                loss.faults.append(f"the next index is {writer.next_index}")
        held = {index: _held(episode) for index, episode in episodes.items()}
        thrown = [_held(episode) for episode in aside]
        self._check_finished(held, thrown, loss)
        self._check_running(held, loss)
        expected = {*self.episodes, *([self._running[0]] if self._running else [])}
        loss.faults += [f"episode {index} was never recorded" for index in held if index not in expected]
        self.episodes, self.aside, self.faults, self.finished = held, thrown, [], 0
        self._running = self._pending = None
        self._opened = False
        return loss

    def _check_finished(self, held: dict[int, Held], thrown: list[Held], loss: Loss) -> None:
        loss.episodes = len(self.episodes) + len(self.aside)
        left = list(thrown)
        for wanted in self.aside:
            if wanted in left:
                left.remove(wanted)
                loss.episodes_found += 1
        pending = self._pending or {}
        for index, wanted in self.episodes.items():
            allowed = [wanted]
            here = held.get(index)
            if pending.get("index") == index and pending["what"] == "rewrite":
                allowed.append(Held(wanted.digests, pending["success"], wanted.complete))
            if here in allowed:
                loss.episodes_found += 1
            elif pending.get("index") == index and pending["what"] == "set_aside" and wanted in left:
                left.remove(wanted)
                loss.episodes_found += 1
        if left:
            loss.faults.append(f"{len(left)} episodes were thrown away that nobody threw away")

    def _check_running(self, held: dict[int, Held], loss: Loss) -> None:
        """The unfinished episode: its acknowledged steps, or one more, and marked incomplete."""
        if self._running is None:
            return
        index, digests = self._running
        pending, here = self._pending or {}, held.get(index)
        if here is None and self.doing == "discard":
            return
        loss.steps = len(digests)
        if here is None:
            return
        allowed = [digests]
        if self.doing == "append":
            allowed.append([*digests, pending["digest"]])
        loss.steps_found = _common(here.digests, digests)
        if here.digests not in allowed:
            loss.faults.append(f"episode {index} holds {len(here.digests)} steps, not {len(digests)}")
        ended = Held(here.digests, pending.get("success", False), pending.get("complete", False))
        unfinished = Held(here.digests)
        if here != unfinished and not (self.doing == "finish" and here == ended):
            loss.faults.append(f"episode {index} is marked {here.success=}, {here.complete=}")


def _strange(folder: Path, allowed: re.Pattern[str]) -> list[str]:
    inside = [(path.name, allowed) for path in folder.iterdir()]
    inside += [(path.name, SET_ASIDE) for path in (folder / DISCARDED).glob("*")]
    return [f"{name} lies in the data set" for name, pattern in inside if not pattern.fullmatch(name)]


def _read(paths: Sequence[Path], faults: list[str]) -> list[Episode]:
    episodes = []
    for path in paths:
        try:
            episodes.append(read_episode(path))
        except DemoError as error:
            faults.append(str(error))
            continue
        faults += map(str, validate(episodes[-1]))
    return episodes


def _held(episode: Episode) -> Held:
    digests = [digest(*row) for row in zip(episode.states[1:], episode.executed_actions, strict=True)]
    return Held(digests, episode.metadata.success, episode.metadata.complete)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Steps from the beginning on that are the same."""
    length = min(len(first), len(second))
    return next((k for k in range(length) if first[k] != second[k]), length)
