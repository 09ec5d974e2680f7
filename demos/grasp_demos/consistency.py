"""Do the episodes of one data set belong together? Duplicates, odd ones out, names that say something else.

A data set is a folder. Only a few numbers of each episode are kept, so any number of them can be compared.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from grasp_demos.episode import Episode, Metadata
from grasp_demos.storage import ARRAYS
from grasp_demos.validate import Defect
from grasp_demos.writer import SAME_IN_A_DATASET

USUALLY_SAME = ("kind", "source", "horizon", "noise", "versions", "policy")
"""What the episodes of one data set mostly share; others are allowed, and worth a look."""
ODD_LENGTH = 4.0
"""Factor on the median number of steps of the data set's successes, and its inverse."""
ENOUGH = 5
"""Successes from which a median means something."""

_NAME = re.compile(r"episode_(\d{6,})\.npz")


class _Seen(NamedTuple):
    """What is kept of an episode."""

    name: str
    folder: Path | None
    metadata: Metadata
    steps: int


class Consistency:
    """Takes episodes one after the other; `defects` says what does not fit."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []
        self._by_content: dict[bytes, _Seen] = {}
        self._copies: list[Defect] = []

    def add(self, episode: Episode) -> None:
        """Remember an episode, and whether its content was there already."""
        folder = None if episode.path is None else episode.path.resolve().parent
        seen = _Seen(str(episode), folder, episode.metadata, len(episode))
        self._seen.append(seen)
        first = self._by_content.setdefault(_digest(episode), seen)
        if first is not seen:
            # In one data set it would be learnt from twice; a copy elsewhere is a backup.
            text = f"holds the same episode as {first.name}"
            self._copies.append(Defect(seen.name, None, None, text, warning=first.folder != folder))

    def defects(self) -> list[Defect]:
        """Everything that does not fit, by data set."""
        found = list(self._copies)
        groups: dict[Path | None, list[_Seen]] = defaultdict(list)
        for seen in self._seen:
            groups[seen.folder].append(seen)
        for group in groups.values():
            found += [*_check_metadata(group), *_check_names(group), *_check_lengths(group)]
        return found


def _digest(episode: Episode) -> bytes:
    """Of what was recorded; the metadata may differ between copies."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ARRAYS:
        array = getattr(episode, name)
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def _check_metadata(group: list[_Seen]) -> Iterator[Defect]:
    for name in (*SAME_IN_A_DATASET, *USUALLY_SAME):
        values = [str(getattr(seen.metadata, name)) for seen in group]
        if len(set(values)) == 1:
            continue
        counts = Counter(values)
        most, count = counts.most_common(1)[0]
        warning, told = name in USUALLY_SAME, {most}
        for seen, value in zip(group, values, strict=True):
            if value in told:
                continue
            text = f"is {value or 'empty'}; {count} of the data set's {len(group)} have {most or 'none'}"
            if warning:  # Said once for all that share it: a data set of two halves is no defect of each.
                told.add(value)
                text += f" ({counts[value]} episodes)" if counts[value] > 1 else ""
            yield Defect(seen.name, None, name, text, warning)


def _check_names(group: list[_Seen]) -> Iterator[Defect]:
    holders: dict[int, list[str]] = defaultdict(list)
    for seen in group:
        holders[seen.metadata.index].append(seen.name)
    for seen in group:
        index, others = seen.metadata.index, [n for n in holders[seen.metadata.index] if n != seen.name]
        named = _NAME.fullmatch(Path(seen.name).name)
        if seen.folder is None or (named and int(named[1]) == index):
            continue
        if named:
            text = f"is {index} inside, {int(named[1])} by the file's name"
            text += f"; {Path(others[0]).name} is {index} too" if others else ""
            yield Defect(seen.name, None, "index", text, warning=True)
        else:
            text = "is not named episode_NNNNNN.npz: nothing that reads the folder finds it"
            yield Defect(seen.name, None, None, text, warning=True)


def _check_lengths(group: list[_Seen]) -> Iterator[Defect]:
    successes = [seen for seen in group if seen.metadata.success and seen.metadata.complete]
    if len(successes) < ENOUGH:
        return
    middle = median(seen.steps for seen in successes)
    for seen in successes:
        if not middle / ODD_LENGTH <= seen.steps <= middle * ODD_LENGTH:
            text = f"has {seen.steps} steps; half of the data set's successes have at most {middle:g}"
            yield Defect(seen.name, None, None, text, warning=True)
