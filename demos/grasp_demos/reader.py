"""Read episodes back. A damaged file is named and never hides the good ones beside it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from grasp_demos.episode import DemoError, Episode
from grasp_demos.files import require_regular, what_lies_beside
from grasp_demos.npz import MAX_BYTES
from grasp_demos.storage import parse_episode

EPISODE_NAME = "episode_{:06d}"
"""Stem of an episode's file, from its index."""


def read_episode(path: Path | str) -> Episode:
    """Read one episode file; raises DemoError naming it and what to do."""
    path = Path(path)
    try:
        data = _content(path)
    except FileNotFoundError:
        raise DemoError(f"{path} does not exist.{what_lies_beside(path)}") from None
    except IsADirectoryError:
        raise DemoError(
            f"{path} is a folder; name one episode file in it.{what_lies_beside(path / 'x')}"
        ) from None
    except OSError as error:
        raise DemoError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return replace(parse_episode(data), path=path)
    except DemoError as error:
        raise DemoError(f"{path} {error}. {_CURE}") from error
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        # The checksum holds, so another program wrote it.
        raise DemoError(f"{path} is no episode file of this program ({error}). {_CURE}") from error


def _content(path: Path) -> bytes:
    """The bytes of a file that can be an episode's; a device or a pipe might never end."""
    about = require_regular(path)
    if about.st_size > MAX_BYTES:
        raise DemoError(
            f"{path} has {about.st_size / 2**20:,.0f} MiB; an episode has at most {MAX_BYTES // 2**20} MiB."
            f" {_CURE}"
        )
    return path.read_bytes()


def read_dataset(path: Path | str) -> list[Episode]:
    """Every episode of a folder in the order of their indices, or the one of a file.

    Failures and incomplete episodes are among them: see `demonstrations`. Raises DemoError naming every
    damaged file, or when there is no episode at all.
    """
    episodes, errors = read_usable(path)
    if errors:
        damaged = " ".join(str(error) for error in errors)
        raise DemoError(f"{len(errors)} of {len(errors) + len(episodes)} episodes cannot be used: {damaged}")
    return episodes


def read_usable(path: Path | str) -> tuple[list[Episode], list[DemoError]]:
    """The good episodes of a data set, and one error for each damaged one.

    Raises DemoError when there is no episode file at all. A running recording (`.log`) is left out.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("episode_*.npz"), key=lambda p: (len(p.name), p.name))
    elif os.path.lexists(path):
        files = [path]
    else:
        raise DemoError(f"{path} does not exist.{what_lies_beside(path)}")
    if not files:
        running = len(list(path.glob("episode_*.log")))
        hint = f" It has {running} unfinished: recording into it again recovers them." if running else ""
        raise DemoError(
            f"{path} holds no episodes (episode_*.npz).{hint} grasp-record out={path} records some."
        )
    episodes: list[Episode] = []
    errors: list[DemoError] = []
    for file in files:
        try:
            episodes.append(read_episode(file))
        except DemoError as error:
            errors.append(error)
    return episodes, errors


def demonstrations(episodes: list[Episode]) -> list[Episode]:
    """Those that may be shown to a learner: complete and successful."""
    return [episode for episode in episodes if episode.is_demonstration]


_CURE = "Restore it from a copy, or delete it: the other episodes do not need it."
