"""Checkpoints that survive being killed at any instant, and say so when they do not.

Layout: `<directory>/<sequence>-step-<step>/` with `state.json` (the tree of values), `tensors.safetensors`
and `arrays.safetensors` (its leaves), `extra/` (whatever the caller writes) and `checksums.json` (size and
SHA-256 of each other file). Nothing is pickled, so a checkpoint from elsewhere cannot run code. A directory
has one writer.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError

from grasp_control.durable import remove_directory, remove_partial, sha256_of, whole_directory
from grasp_control.state_tree import read_tree, write_tree
from grasp_sim.errors import UserError

SCHEMA_VERSION = 1
_CHECKSUMS = "checksums.json"
HELD = 3
"""Checkpoints that `hold_until` keeps for going back to."""
_NAME = re.compile(r"(\d{6,})-step-(\d+)")

logger = logging.getLogger(__name__)


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or does not fit what it is restored into."""


class Checkpoint(NamedTuple):
    """A checkpoint whose checksums have been verified."""

    step: int
    state: dict[str, Any]
    """As it was given to `CheckpointStore.save`; tensors are on the CPU."""
    extra: Path
    """Directory that the caller's `extra_files` filled; empty if there was none."""


class CheckpointStore:
    """The newest `keep` checkpoints of one run."""

    def __init__(self, directory: Path | str, keep: int = 5) -> None:
        """Take the run's checkpoint directory; it is created by the first save."""
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must be kept.")
        self.directory = Path(directory)
        self.keep = keep

    def steps(self) -> list[int]:
        """Steps of the checkpoints there are, in the order in which they were saved; none is verified."""
        return [step for _, step, _ in self._entries()]

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        extra_files: Callable[[Path], object] | None = None,
        *,
        hold_until: int | None = None,
    ) -> Path:
        """Write a checkpoint, whole or not at all, then delete those beyond the newest `keep`.

        Args:
            step: environment steps done, 0 or more. It may lie below an earlier one after a rollback: the
                newest checkpoint is the one saved last.
            state: nested dicts, lists and tuples of tensors, arrays, int, float, str, bool and None; raises
                TypeError naming any other value.
            extra_files: called with an empty directory to fill, for what is too large for `state`.
            hold_until: besides the newest, the `HELD` newest of those up to this step stay.

        Returns:
            The checkpoint's directory.
        """
        if step < 0:
            raise ValueError(f"step is {step}; it must be 0 or more.")
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_partial(self.directory)
        entries = self._entries()
        sequence = entries[-1][0] + 1 if entries else 0
        path = self.directory / f"{sequence:06d}-step-{step}"
        with whole_directory(path) as partial:
            (partial / "extra").mkdir()
            try:
                write_tree(partial, dict(state))
                if extra_files is not None:
                    extra_files(partial / "extra")
            except SafetensorError as error:  # what safetensors makes of a full disk
                raise CheckpointError(
                    f"{path} cannot be written ({error}): make room and give the same command again; the "
                    "checkpoints before it are whole."
                ) from error
            files = {
                str(file.relative_to(partial)): {"size": file.stat().st_size, "sha256": sha256_of(file)}
                for file in sorted(partial.rglob("*"))
                if file.is_file()
            }
            sums = {"schema_version": SCHEMA_VERSION, "step": step, "files": files}
            (partial / _CHECKSUMS).write_text(json.dumps(sums, indent=1))
        entries = self._entries()
        held = [] if hold_until is None else [e for e in entries if e[1] <= hold_until][-HELD:]
        for entry in entries[: -self.keep]:
            if entry not in held:
                remove_directory(entry[2])
        return path

    def load_latest(self) -> Checkpoint:
        """The newest usable checkpoint; each damaged one before it is passed over with a warning saying why.

        Raises CheckpointError with the newest one's reason when none is usable; nothing is warned of then.
        """
        return self._first_usable([path for _, _, path in reversed(self._entries())])

    def load_before(self, step: int, further: int = 0) -> Checkpoint:
        """The newest usable checkpoint of up to `step`, or the one `further` before it; as far back as there
        are any, and the oldest of all when none is that old. Errors and warnings as in `load_latest`."""
        entries = self._entries()
        earlier = [path for _, found, path in reversed(entries) if found <= step]
        earlier = earlier or [path for _, _, path in entries[:1]]
        return self._first_usable(earlier[further:] or earlier[-1:])

    def _first_usable(self, paths: Sequence[Path]) -> Checkpoint:
        reasons: list[str] = []
        for path in paths:
            try:
                found = _read(path)
            except CheckpointError as error:
                reasons.append(str(error))
            else:
                for reason in reasons:
                    logger.warning("checkpoint passed over for the one of step %d: %s", found.step, reason)
                return found
        if not reasons:
            raise CheckpointError(
                f"{self.directory} holds no checkpoint: give the directory of an earlier run."
            )
        newest = reasons[0].rstrip(".")
        raise CheckpointError(
            f"none of the {len(reasons)} checkpoints in {self.directory} is usable (the newest: {newest}): "
            "restore one from a copy, or start afresh in another folder."
        )

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of `step` that was saved last; CheckpointError if it is missing or damaged."""
        for _, found, path in reversed(self._entries()):
            if found == step:
                return _read(path)
        raise CheckpointError(f"{self.directory} holds no checkpoint of step {step}; it has {self.steps()}.")

    def _entries(self) -> list[tuple[int, int, Path]]:
        if not self.directory.is_dir():
            return []
        matches = ((_NAME.fullmatch(path.name), path) for path in self.directory.iterdir())
        return sorted((int(match[1]), int(match[2]), path) for match, path in matches if match)


def _read(path: Path) -> Checkpoint:
    """Verify and read one checkpoint; CheckpointError naming the file and the reason."""
    try:
        sums = json.loads((path / _CHECKSUMS).read_bytes())
        version, step, files = sums["schema_version"], sums["step"], sums["files"]
        expected = {name: (entry["size"], entry["sha256"]) for name, entry in files.items()}
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is half-written: it has no {_CHECKSUMS}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / _CHECKSUMS} is damaged ({type(error).__name__}: {error}).") from error
    except OSError as error:
        raise CheckpointError(f"{path / _CHECKSUMS} cannot be read ({error}).") from error
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {version!r}; this version reads {SCHEMA_VERSION}: "
            "resume with the version that wrote it."
        )
    if not path.name.endswith(f"-step-{step}"):
        raise CheckpointError(f"{path} says that its step is {step!r}: it was renamed or damaged.")
    for name, (size, digest) in expected.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing.")
        if file.stat().st_size != size:
            raise CheckpointError(f"{file} has {file.stat().st_size} bytes instead of {size}.")
        if sha256_of(file) != digest:
            raise CheckpointError(f"{file} was changed: its SHA-256 is not the one in {_CHECKSUMS}.")
    try:
        state = read_tree(path)
    except Exception as error:  # whatever a damaged checksum file let through: fall back, do not crash
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error}).") from error
    (path / "extra").mkdir(exist_ok=True)  # copying tools drop empty directories
    return Checkpoint(step, state, path / "extra")


Restorable = torch.nn.Module | torch.optim.Optimizer | torch.Generator | np.random.Generator


def capture(parts: Mapping[str, Restorable]) -> dict[str, Any]:
    """States of modules, optimisers and generators by name, as `CheckpointStore.save` takes them.

    The tensors are the live ones: save before the next update.
    """
    return {name: _state_of(part) for name, part in parts.items()}


def restore(parts: Mapping[str, Restorable], states: Mapping[str, Any]) -> None:
    """Put back what `capture` took, in place; CheckpointError if the names or the shapes differ."""
    if parts.keys() != states.keys():
        missing, extra = sorted(parts.keys() - states.keys()), sorted(states.keys() - parts.keys())
        raise CheckpointError(
            f"the checkpoint lacks {missing} and has {extra} that nothing asks for: "
            "resume with the configuration that wrote it."
        )
    for name, part in parts.items():
        state = states[name]
        try:
            if isinstance(part, np.random.Generator):
                part.bit_generator.state = state
            elif isinstance(part, torch.Generator):
                part.set_state(state)
            else:
                part.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(" ".join(str(error).splitlines()[:2]).split())  # torch: a line a tensor
            raise CheckpointError(
                f"{name} does not fit the checkpoint ({reason}): resume with the configuration that wrote it."
            ) from error


def _state_of(part: Restorable) -> Any:
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    if isinstance(part, torch.Generator):
        return part.get_state()
    return part.state_dict()
