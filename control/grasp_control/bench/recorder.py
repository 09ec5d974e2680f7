"""A recorder to be killed, run as `python -m grasp_control.bench.recorder FOLDER WAY SEED PIPE MOMENT`.

It records without end, in one of `WAYS`, with the unchanged writer, and tells through a pipe what it is about
to do and what it has done: one JSON object a line. What it said was done must be there whenever it is killed.
"""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grasp_control.bench.scripted import Clock, ScriptedPerson, ScriptedPilot
from grasp_demos import episode_file
from grasp_demos import writer as writing
from grasp_demos.episode import Metadata
from grasp_demos.reader import read_usable
from grasp_demos.record import RecordConfig, record
from grasp_demos.teleop.session import Pace, Session
from grasp_demos.writer import DatasetWriter, Recording
from grasp_sim import registry
from grasp_sim.config import EnvConfig
from grasp_sim.contract import pack_state
from grasp_sim.expert import ScriptedExpert

ENVIRONMENT = "pybullet-lift"
ENDLESS = 1_000_000
"""Episodes wanted; the recorder is killed long before."""
RECORDED = (
    *(("open", "file"), ("open", "rename"), ("open", "remove"), ("begin", "frame"), ("append", "frame")),
    *(("finish", "frame"), ("finish", "file"), ("finish", "rename"), ("finish", "remove")),
)
"""What can be interrupted however an episode is recorded: a call of the writer, and in it writing a frame of
the log, writing an episode's file, a rename, a removal. Opening does any of it only after a kill."""
CHANGED = (("rewrite", "file"), ("rewrite", "rename"), ("set_aside", "rename"), ("discard", "remove"))
"""What can be interrupted besides where a person records."""


class Moment(NamedTuple):
    """Where a recorder kills itself."""

    call: str
    """Of `RECORDED` or `CHANGED`; empty leaves it to the parent to kill."""
    operation: str = ""
    occurrence: int = 0
    """How many of these operations in such calls are let through before."""
    share: float = 0.0
    """Of the bytes that are still written, in [0, 1); renames and removals are not done at all."""


def digest(state: np.ndarray, executed_action: np.ndarray) -> int:
    """CRC-32 of a step's state (STATE_WIDTH,) and executed action (A,), as an episode holds them."""
    action = np.asarray(executed_action, np.float32)
    return zlib.crc32(action.tobytes(), zlib.crc32(np.asarray(state, np.float64).tobytes()))


# ---- telling


def acknowledge(pipe: int) -> Callable[[], str]:
    """Make the writer say in `pipe` what it begins and has done; what is returned names the running call."""
    running, doing = 0, ""

    def say(event: str, what: str, **values: object) -> None:
        message = {"event": event, "what": what, "at": time.perf_counter()} | values
        os.write(pipe, (json.dumps(message) + "\n").encode())

    def told(owner: type, name: str, describe: Callable[..., Mapping[str, object]]) -> None:
        method = getattr(owner, name)
        what = "open" if name == "__init__" else name

        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            values = describe(*arguments, **named)
            nonlocal doing
            say("began", what, **values)
            doing = what
            before = time.perf_counter()
            result = method(*arguments, **named)
            seconds, doing = time.perf_counter() - before, ""
            say("done", what, **values, seconds=seconds)
            return result

        setattr(owner, name, call)

    def begin(writer: DatasetWriter, *_: object, **__: object) -> dict[str, object]:
        nonlocal running
        running = writer.next_index
        return {"index": running}

    def append(_: Recording, step: Any) -> dict[str, object]:
        return {"index": running, "digest": digest(pack_state(step.state), step.executed_action)}

    def finish(_: Recording, *, success: bool, complete: bool = True, **__: object) -> dict[str, object]:
        return {"index": running, "success": success, "complete": complete}

    told(DatasetWriter, "__init__", lambda *_: {})
    told(DatasetWriter, "begin", begin)
    told(
        DatasetWriter, "rewrite", lambda _, e, success, **__: {"index": e.metadata.index, "success": success}
    )
    told(DatasetWriter, "set_aside", lambda _, e: {"index": e.metadata.index})
    told(Recording, "append", append)
    told(Recording, "finish", finish)
    told(Recording, "discard", lambda _: {"index": running})
    return lambda: doing


# ---- being killed


def arm_trap(folder: Path, moment: Moment, doing: Callable[[], str]) -> None:
    """Kill this process in the middle of an operation on the files of `folder`."""
    left = moment.occurrence

    def due(operation: str, path: object) -> bool:
        nonlocal left
        asked = (doing(), operation) == (moment.call, moment.operation)
        if not asked or not str(path).startswith(str(folder)):
            return False
        left -= 1
        return left < 0

    def before(event: str, arguments: tuple) -> None:
        operation = {"os.rename": "rename", "os.remove": "remove"}.get(event)
        if operation is not None and due(operation, arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    class Torn(io.BufferedWriter):
        def write(self, content: Any, /) -> int:
            operation = "frame" if str(self.name).endswith(".log") else "file"
            if due(operation, self.name):
                super().write(content[: int(moment.share * len(content))])
                super().flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(content)

    def opened(path: Path, mode: str) -> Any:
        return Torn(io.FileIO(path, mode.replace("b", ""))) if "b" in mode else open(path, mode)

    sys.addaudithook(before)
    for module in (writing, episode_file):  # those that write logs, and episodes' files
        module.__dict__["open"] = opened


# ---- recording


def record_expert(folder: Path, seed: int) -> None:
    """`grasp-record source=expert`, failed tries kept."""
    env = EnvConfig(name=ENVIRONMENT)
    record(RecordConfig(episodes=ENDLESS, seed=seed, out=str(folder), keep_failures=True, env=env))


def record_person(folder: Path, seed: int, takes_over: bool = False) -> None:
    """`grasp-record source=keyboard` or `source=policy`, without waiting for the clock on the wall."""
    env: Any = registry.make(ENVIRONMENT, horizon=120)
    expert = ScriptedExpert(env.action_scale, env.control_mode, env.task.grip_force)
    source = "policy" if takes_over else "keyboard"
    metadata = Metadata(
        ENVIRONMENT, env.control_mode, env.action_scale, "human-like", source, horizon=env.horizon
    )
    clock = Clock()
    with DatasetWriter(folder) as writer:
        held = read_usable(folder)[0] if any(folder.glob("episode_*.npz")) else []
        first = max([seed, *(episode.metadata.seed + 1 for episode in held)])
        person = ScriptedPerson(expert, first, takes_over)
        Session(
            env,
            writer,
            metadata,
            person,
            wanted=ENDLESS,
            pilot=ScriptedPilot(person) if takes_over else None,
            force=expert.force,
            seed=first,
            pace=Pace(metadata.rate_hz, clock, clock.sleep),
        ).run()


WAYS: Mapping[str, Callable[[Path, int], None]] = {
    "expert": record_expert,
    "person": record_person,
    "take-over": functools.partial(record_person, takes_over=True),
}
"""The ways to record."""


def main(folder: str, way: str, seed: str, pipe: str, moment: str) -> None:
    """Record until killed."""
    doing = acknowledge(int(pipe))
    chosen = Moment(*json.loads(moment))
    if chosen.call:
        arm_trap(Path(folder), chosen, doing)
    WAYS[way](Path(folder), int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
