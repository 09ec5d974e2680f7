"""MCAP files (https://mcap.dev) with ROS 2 messages."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from grasp_demos.convert.format import Format, Imported, ImportSettings, begins_with, load_package
from grasp_demos.convert.ros import import_messages
from grasp_demos.convert.ros_messages import Raw, episode_messages, typestore
from grasp_demos.episode import DemoError, Episode
from grasp_demos.files import require_regular
from grasp_demos.outputs import replacing
from grasp_demos.topics import Topics

MAX_CHUNK = 256 * 2**20
"""Bytes of one chunk, packed or unpacked: more is refused before it is unpacked."""
_MAGIC = b"\x89MCAP0\r\n"


def matches(path: Path) -> bool:
    """Whether the path is a file that begins as MCAP does."""
    return begins_with(path, _MAGIC)


def read(path: Path, settings: ImportSettings) -> Imported:
    """Every episode of a file; raises DemoError naming it and what is wrong."""
    return import_messages(raw_messages(Path(path), set(settings.topics.types())), Path(path), settings)


def write(episodes: Sequence[Episode], path: Path) -> None:
    """Write valid episodes to the new file `path`, which is absent or whole."""
    if path.exists():
        raise DemoError(f"{path} exists already: choose another file.")
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        _write(episodes, file)


def _write(episodes: Sequence[Episode], file: Any) -> None:
    writer = load_package("mcap.writer", "the format mcap").Writer(file)
    writer.start(profile="ros2", library="grasp-demos")
    schemas: dict[str, int] = {}
    channels: dict[str, int] = {}
    for topic, kind, time, data in episode_messages(episodes, Topics()):
        if kind not in schemas:
            definition, _ = typestore().generate_msgdef(kind, ros_version=2)
            schemas[kind] = writer.register_schema(name=kind, encoding="ros2msg", data=definition.encode())
        if topic not in channels:
            channels[topic] = writer.register_channel(topic, "cdr", schemas[kind])
        writer.add_message(channels[topic], log_time=time, publish_time=time, data=bytes(data))
    writer.finish()


def raw_messages(path: Path, topics: set[str]) -> Iterator[Raw]:
    """Messages of the topics in the order of the file; of other topics, the first, to say what there is.

    The file is read from front to back without its index, one chunk in memory. Raises DemoError where it is
    cut off or damaged, saying how to mend it.
    """
    errors = load_package("mcap.exceptions", "the format mcap")
    stream = load_package("mcap.stream_reader", "the format mcap")
    records = load_package("mcap.records", "the format mcap")
    schemas: dict[int, str] = {}
    channels: dict[int, Any] = {}
    seen: set[str] = set()
    ended = False
    try:
        require_regular(path)
        with open(path, "rb") as file:
            limit = min(MAX_CHUNK, os.fstat(file.fileno()).st_size)
            reader = stream.StreamReader(_Bounded(file, limit), emit_chunks=True, record_size_limit=limit)
            for outer in reader.records:
                ended = ended or isinstance(outer, records.Footer)
                inner = [outer]
                if isinstance(outer, records.Chunk):
                    inner = stream.breakup_chunk(_unpacked(outer), validate_crc=True)
                for record in inner:
                    if isinstance(record, records.Schema):
                        schemas[record.id] = record.name
                    elif isinstance(record, records.Channel):
                        channels[record.id] = record
                    elif isinstance(record, records.Message):
                        channel = channels[record.channel_id]
                        if channel.topic in topics or channel.topic not in seen:
                            seen.add(channel.topic)
                            kind = schemas.get(channel.schema_id, "")
                            if channel.message_encoding != "cdr" and channel.topic in topics:
                                encoding = channel.message_encoding
                                raise DemoError(f"has {channel.topic} in the encoding {encoding}, not cdr")
                            yield Raw(channel.topic, kind, record.log_time, record.data)
    except (
        errors.McapError,
        struct.error,
        LookupError,
        ArithmeticError,
        ValueError,
        OSError,
        RuntimeError,
    ) as error:
        raise DemoError(
            f"is damaged or cut off ({_line(error)}): `mcap recover` saves what is whole"
        ) from error
    if not ended:
        raise DemoError("is cut off before its end: `mcap recover` saves what is whole")


class _Bounded:
    """A file of which at most `limit` bytes are read at once: Python allocates what is asked for first."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int) -> bytes:
        if size > self._limit:
            raise ValueError(f"something in it claims {size} bytes")
        return self._file.read(size)


def _unpacked(chunk: Any) -> Any:
    """The chunk without compression; raises ValueError where it unpacks to more than it says or may."""
    if chunk.uncompressed_size > MAX_CHUNK:
        raise ValueError(f"a chunk of {chunk.uncompressed_size} bytes; at most {MAX_CHUNK} are read")
    # One byte more than promised is asked for, so that a bomb stops there.
    most = chunk.uncompressed_size + 1
    if chunk.compression == "zstd":
        package = load_package("zstandard", "a compressed MCAP file")
        try:
            with package.ZstdDecompressor().stream_reader(chunk.data) as content:
                data = content.read(most)
        except package.ZstdError as error:
            raise ValueError(str(error)) from error
    elif chunk.compression == "lz4":
        data = (
            load_package("lz4.frame", "a compressed MCAP file")
            .LZ4FrameDecompressor()
            .decompress(chunk.data, max_length=most)
        )
    elif chunk.compression == "":
        data = chunk.data
    else:
        raise ValueError(f"compression {chunk.compression!r}, which is not known")
    if len(data) != chunk.uncompressed_size:
        raise ValueError(f"a chunk that does not unpack to the {chunk.uncompressed_size} bytes it says")
    chunk.data, chunk.compression = data, ""
    return chunk


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]


FORMAT = Format("mcap", "MCAP file with the ROS 2 topics of an episode", matches, read, write)
