"""Write the file of one episode so that it is always absent or whole."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from grasp_demos.episode import DemoError, Episode
from grasp_demos.npz import MAX_BYTES
from grasp_demos.outputs import naming
from grasp_demos.storage import episode_bytes, parse_episode


def write_episode(path: Path, episode: Episode) -> Episode:
    """Write an episode file so that `path` is always absent or whole; returns it with its `path` set.

    Raises DemoError, writing nothing, where what would be written could not be read back.
    """
    content = episode_bytes(episode)
    if len(content) > MAX_BYTES:
        raise DemoError(
            f"{path} would have {len(content) >> 20} MiB; at most {MAX_BYTES >> 20} MiB are read."
        )
    try:
        parse_episode(content)
    except DemoError as error:
        raise DemoError(f"{path} would be an episode that nobody can read: it {error}.") from error
    temporary = path.with_name(path.name + ".tmp")
    with naming(path):
        temporary.unlink(missing_ok=True)  # A link that lies there is not followed.
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # The rename itself.
        finally:
            os.close(folder)
    return replace(episode, path=path)
