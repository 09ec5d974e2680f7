"""Write a data set of episodes so that being killed costs at most the step being written.

A data set is a folder. A running episode is an append-only `episode_000003.log`; when it ends, its
`episode_000003.npz` is written beside it (temporary file, fsync, rename) and the log is removed. Opening the
folder again finishes what a killed recorder left: a log with its end frame becomes the episode it was, one
without becomes an episode of its whole steps marked incomplete.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from grasp_demos.episode import DemoError, Episode, Metadata, Step
from grasp_demos.episode_file import write_episode
from grasp_demos.files import DISCARDED
from grasp_demos.outputs import naming
from grasp_demos.reader import EPISODE_NAME, read_episode
from grasp_demos.recovery import recover
from grasp_demos.storage import (
    Header,
    build_episode,
    end_bytes,
    frame,
    header_bytes,
    step_bytes,
    step_dtype,
)
from grasp_sim.contract import GraspState, pack_state

_INDEXED = re.compile(r"episode_(\d{6,})\.")
__all__ = ["SAME_IN_A_DATASET", "DatasetWriter", "Recording", "write_episode"]

SAME_IN_A_DATASET = ("contract_version", "task", "control_mode", "action_scale", "rate_hz")
"""What all episodes of one data set share, since their actions would mean different things otherwise."""


class DatasetWriter:
    """The one writer of a data set; a context manager.

        with DatasetWriter(Path("runs/demos")) as writer:
            recording = writer.begin(metadata, state, observation, env.dynamic_state(), env.snapshot())
            recording.append(step)
            episode = recording.finish(success=True)

    Leaving the block with an episode unfinished stores it as incomplete; one without a step is thrown away.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the folder, and recover what a killed recorder left in it.

        Raises DemoError when `path` is a file or another recorder has the folder open.
        """
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise DemoError(f"{self.path} is a file; a data set is a folder: choose another name.")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _open_lock(self.path / ".lock")  # Released by the system if we are killed.
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise DemoError(
                f"{self.path} is open in another recorder: stop that one or choose another folder."
            ) from None
        self.warnings = recover(self.path)
        """One line for everything that was recovered or set aside at opening."""
        self._recording: Recording | None = None
        self._common: Metadata | None = None

    @property
    def next_index(self) -> int:
        """One more than the largest index in any file's name, so that no name is used twice."""
        found = [int(m.group(1)) for p in self.path.iterdir() if (m := _INDEXED.match(p.name))]
        return max(found, default=-1) + 1

    def begin(
        self,
        metadata: Metadata,
        state: GraspState,
        observation: np.ndarray,
        simulator_state: np.ndarray,
        snapshot: Mapping[str, np.ndarray],
    ) -> Recording:
        """Start an episode at its first state, observation (O,) and simulator state (S,); sets its index.

        Raises DemoError when one is running, or when the data set holds episodes of another task, control
        mode, action scale, rate or contract version.
        """
        if self._recording is not None and self._recording.running:
            raise DemoError(f"{self.path}: finish the running episode before beginning another.")
        self._check_same(metadata)
        index = self.next_index
        metadata = replace(metadata, index=index, success=False, complete=False)
        header = Header(
            metadata,
            pack_state(state),
            np.asarray(observation, np.float32),
            np.asarray(simulator_state, np.float64),
            snapshot,
        )
        self._recording = Recording(self.path / f"{EPISODE_NAME.format(index)}.log", header)
        return self._recording

    def rewrite(self, episode: Episode, *, success: bool, note: str) -> Episode:
        """Change a finished episode's verdict, as an operator does on second thoughts."""
        changed = replace(episode.metadata, success=success, note=_joined(episode.metadata.note, note))
        return write_episode(self._own(episode), replace(episode, metadata=changed))

    def set_aside(self, episode: Episode) -> Path:
        """Move a finished episode into the folder `discarded`, where no reader looks; returns where."""
        path = self._own(episode)
        folder = self.path / DISCARDED
        folder.mkdir(exist_ok=True)
        for number in itertools.count():
            aside = folder / (f"{path.stem}.{number}{path.suffix}" if number else path.name)
            if not aside.exists():
                return path.rename(aside)
        raise AssertionError("unreachable")

    def _own(self, episode: Episode) -> Path:
        """Where a finished episode of this data set lies."""
        if episode.path is None or episode.path.parent != self.path or not episode.path.is_file():
            raise DemoError(f"{episode} is no episode of {self.path}.")
        return episode.path

    def add(self, episode: Episode) -> Episode:
        """Write a finished episode under the next free index; returns it with its index and path.

        Raises DemoError when the data set holds episodes of another sort, as `begin` does.
        """
        self._check_same(episode.metadata)
        index = self.next_index
        episode = replace(episode, metadata=replace(episode.metadata, index=index))
        return write_episode(self.path / f"{EPISODE_NAME.format(index)}.npz", episode)

    def close(self) -> None:
        """Store a running episode as incomplete, unless it has no step, and let the folder go."""
        try:
            if self._recording is not None and self._recording.running:
                if self._recording.steps:
                    self._recording.finish(success=False, complete=False, note="the recorder was stopped")
                else:
                    self._recording.discard()
        finally:
            self._lock.close()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_same(self, metadata: Metadata) -> None:
        if self._common is None:
            for path in sorted(self.path.glob("episode_*.npz")):
                try:
                    self._common = read_episode(path).metadata
                    break
                except DemoError as error:  # Reading reports it; it must not stop a recording.
                    self.warnings.append(str(error))
        self._common = self._common or metadata
        for name in SAME_IN_A_DATASET:
            held, asked = getattr(self._common, name), getattr(metadata, name)
            if held != asked:
                raise DemoError(
                    f"{self.path} holds episodes with {name} {held}, not {asked}: choose another folder."
                )


class Recording:
    """One running episode."""

    def __init__(self, log: Path, header: Header) -> None:
        self._path = log
        self._header = header
        self._dtype = step_dtype(len(header.simulator_state))
        self._steps: list[np.ndarray] = []
        payload = header_bytes(header)
        self._file = open(log, "xb")  # noqa: SIM115  (closed by finish or discard)
        self._write(payload)

    @property
    def running(self) -> bool:
        """Whether steps can be appended."""
        return not self._file.closed

    @property
    def steps(self) -> int:
        """Steps appended so far."""
        return len(self._steps)

    def append(self, step: Step) -> None:
        """Append one step; once this returns, killing the process does not lose it.

        Raises DemoError naming an array of the wrong width, leaving the recording as it was.
        """
        payload = step_bytes(len(self._steps), step, self._dtype)
        self._write(payload)
        self._steps.append(np.frombuffer(payload, self._dtype)[0])

    def finish(self, *, success: bool, complete: bool = True, note: str = "") -> Episode:
        """End the episode, write its file and return it.

        Args:
            success: by the simulator's state or the operator's word.
            complete: False when it broke off.
            note: why it ended; stands behind the operator's remark.
        """
        remark = _joined(self._header.metadata.note, note)
        changes = {"success": success, "complete": complete, "note": remark}
        self._write(end_bytes(changes))
        self._file.close()
        episode = build_episode(self._header, np.array(self._steps, self._dtype), **changes)
        episode = write_episode(self._path.with_suffix(".npz"), episode)
        self._path.unlink()
        return episode

    def discard(self) -> None:
        """Throw the episode away, as an operator does with a failed try."""
        self._file.close()
        self._path.unlink()

    def _write(self, payload: bytes) -> None:
        # Flushed to the system, not to the disk: it survives the process, which is what gets killed.
        with naming(self._path):
            self._file.write(frame(payload))
            self._file.flush()


def _joined(*remarks: str) -> str:
    return "; ".join(remark for remark in remarks if remark)


def _open_lock(path: Path) -> IO[bytes]:
    """Open the file of the lock, made if need be: never through a link, and no content is touched."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise DemoError(f"{path} is no file of this program: delete it.") from error
        raise
    return os.fdopen(number, "rb")
