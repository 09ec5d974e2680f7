"""rosbag2 folders, with MCAP or SQLite storage."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from grasp_demos.convert import mcap_file
from grasp_demos.convert.format import Format, Imported, ImportSettings, load_package
from grasp_demos.convert.ros import MAX_BYTES, import_messages
from grasp_demos.convert.ros_messages import Raw, episode_messages, typestore
from grasp_demos.episode import DemoError, Episode
from grasp_demos.files import require_regular
from grasp_demos.topics import Topics

_METADATA = "metadata.yaml"
_MAX_METADATA = 4 * 2**20
_VERSION = 9
"""Of the metadata, as ROS 2 writes it since Jazzy."""


def matches(path: Path) -> bool:
    """Whether the path is a folder with rosbag2's metadata, or one file of SQLite storage."""
    return (path / _METADATA).is_file() or (path.suffix == ".db3" and path.is_file())


def read(path: Path, settings: ImportSettings) -> Imported:
    """Every episode of a bag, whichever storage it has; raises DemoError naming it and what is wrong."""
    path = Path(path)
    return import_messages(_raw_messages(path, set(settings.topics.types())), path, settings)


def write(episodes: Sequence[Episode], path: Path, storage: str = "mcap") -> None:
    """Write valid episodes to the new folder `path`, which is absent or whole; storage mcap or sqlite3."""
    if path.exists():
        raise DemoError(f"{path} exists already: choose another folder.")
    rosbag2 = load_package("rosbags.rosbag2", "the format rosbag2")
    # The bag's files are named after its folder, so it is the folder above that is temporary.
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        plugin = rosbag2.StoragePlugin[storage.upper()]
        with rosbag2.Writer(temporary / path.name, version=_VERSION, storage_plugin=plugin) as writer:
            connections: dict[str, Any] = {}
            for topic, kind, time, data in episode_messages(episodes, Topics()):
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, kind, typestore=typestore())
                writer.write(connections[topic], time, data)
        os.replace(temporary / path.name, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _raw_messages(path: Path, topics: set[str]) -> Iterator[Raw]:
    files = _files(path) if path.is_dir() else [path]
    for file in files:
        if file.suffix == ".mcap":
            yield from mcap_file.raw_messages(file, topics)
        elif file.suffix == ".db3":
            yield from _sqlite_messages(file, topics)
        else:
            raise DemoError(f"has storage in {file.name}; only .mcap and .db3 are read: `ros2 bag convert`")


def _files(path: Path) -> list[Path]:
    """The files that the metadata names, all of them inside the folder."""
    file = path / _METADATA
    try:
        require_regular(file)
        if file.stat().st_size > _MAX_METADATA:
            raise DemoError(f"has a {_METADATA} of {file.stat().st_size} bytes; that is refused")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        information = content["rosbag2_bagfile_information"]
        names, compression = information["relative_file_paths"], information.get("compression_mode")
    except FileNotFoundError:
        raise DemoError(f"has no {_METADATA}: `ros2 bag reindex` makes it") from None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        reason = " ".join(repr(error).split())[:200]
        raise DemoError(f"has a {_METADATA} that cannot be read ({reason}): `ros2 bag reindex`") from error
    if compression:
        raise DemoError(f"is compressed by {compression}: unpack it with `ros2 bag convert`")
    if not isinstance(names, list) or not names:
        raise DemoError(f"has a {_METADATA} that names no files: `ros2 bag reindex`")
    files = []
    for name in names:
        inside = isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")
        if not inside or (path / name).is_symlink():
            raise DemoError(f"names the file {name!r}, which is outside of it: refused")
        if not (path / name).is_file():
            raise DemoError(f"lacks the file {name} that its {_METADATA} names: get a whole copy")
        files.append(path / name)
    return files


def _sqlite_messages(file: Path, topics: set[str]) -> Iterator[Raw]:
    """Likewise for one file of SQLite storage, a row in memory at a time."""
    for tail in ("", "-journal", "-wal", "-shm"):  # SQLite opens those beside it, too.
        beside = file.with_name(file.name + tail)
        if not tail or os.path.lexists(beside):
            require_regular(beside)
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise DemoError(f"cannot be opened: {file.name}: {error}") from error
    try:
        # No row may be longer, however it comes about.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"topics", "messages"} <= tables:
            raise DemoError(
                f"has no tables topics and messages in {file.name}: that is no storage of rosbag2"
            )
        kinds: dict[int, tuple[str, str]] = {}
        for number, name, kind, encoding in connection.execute(
            "SELECT id, name, type, serialization_format FROM topics"
        ):
            if type(name) is not str or type(kind) is not str:
                raise DemoError(f"has a topic without a name or type in {file.name}")
            if name in topics and encoding != "cdr":
                raise DemoError(f"has {name} in the encoding {encoding}, not cdr")
            kinds[number] = (name, kind)
            if name not in topics:
                yield Raw(name, kind, 0, b"")
        wanted = [number for number, (name, _) in kinds.items() if name in topics]
        marks = ",".join("?" * len(wanted))
        rows = connection.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({marks}) ORDER BY id", wanted
        )
        for number, time, data in rows:
            if type(time) is not int or type(data) is not bytes:
                raise DemoError(f"has a row of a wrong type in {file.name}")
            yield Raw(*kinds[number], time, data)
    except (sqlite3.Error, ArithmeticError, ValueError) as error:
        raise DemoError(f"is damaged or cut off: {file.name}: {error}") from error
    finally:
        connection.close()


FORMAT = Format("rosbag2", "folder of a ROS 2 bag (MCAP storage)", matches, read, write)
SQLITE = Format(
    "rosbag2-sqlite3", "folder of a ROS 2 bag with SQLite storage", lambda _: False, read,
    partial(write, storage="sqlite3"),
)  # fmt: skip
"""Written by this name; read, whatever the storage, by the other."""
