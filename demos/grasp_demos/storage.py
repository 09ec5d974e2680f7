"""The bytes of an episode: the step log while it is recorded, the file once it is finished.

Step log: frames of `<u32 length> <u32 CRC-32 of the payload> <payload>`. The first frame is the header (a
zipped set of arrays: metadata, first state and observation, snapshot), then one frame a step, then an end
frame. Appending never rewrites what is there, so a killed recorder loses at most the frame it was writing.

Episode file: a NumPy `.npz` that `numpy.load` opens, whose zip comment ends in the CRC-32 of all bytes before
it, so that any flipped bit and any cut is noticed.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, DemoError, Episode, Metadata, Step
from grasp_demos.npz import read_arrays
from grasp_sim.contract import (
    ACTION_DIM,
    CONTRACT_VERSION,
    OBSERVATION_DIM,
    STATE_WIDTH,
    ActionScale,
    pack_state,
)

_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "states": ("<f8", (STATE_WIDTH,)),
    "observations": ("<f4", (OBSERVATION_DIM,)),
    "intended_actions": ("<f4", (ACTION_DIM,)),
    "requested_actions": ("<f4", (ACTION_DIM,)),
    "executed_actions": ("<f4", (ACTION_DIM,)),
    "rewards": ("<f4", ()),
    "terminations": ("?", ()),
    "truncations": ("?", ()),
    "slips": ("?", ()),
    "drops": ("?", ()),
    "actors": ("u1", ()),
}
ARRAYS = (*_COLUMNS, "simulator_states")
"""The arrays of an episode, by their names in its file."""
STATES = ("states", "observations", "simulator_states")
"""Those with a row more than there are steps: the first is that of the beginning."""


def step_dtype(simulator_width: int) -> np.dtype:
    """One step of a log with S numbers of the simulator's state; `STATES` are those after the step."""
    fields = [(name, kind, shape) for name, (kind, shape) in _COLUMNS.items()]
    return np.dtype([("index", "<u4"), *fields, ("simulator_states", "<f8", (simulator_width,))])


_ANY_STEP = step_dtype(0)
_COMMENT = b"grasp-episode-1 crc32="
_FRAME = struct.Struct("<II")
_SNAPSHOT = "snapshot/"
_END = b"end:"
_END_TYPES = {"success": bool, "complete": bool, "note": str}
_ZIP = b"PK\x03\x04"
"""How a zip archive begins."""


class Header(NamedTuple):
    """What is known when an episode begins."""

    metadata: Metadata
    state: np.ndarray
    """(STATE_WIDTH,)."""
    observation: np.ndarray
    """(O,)."""
    simulator_state: np.ndarray
    """(S,); (0,) for a real arm."""
    snapshot: Mapping[str, np.ndarray]


class Log(NamedTuple):
    """What a step log holds up to its last whole frame."""

    header: Header
    steps: np.ndarray
    """(T,) of `step_dtype`."""
    ended: dict | None
    """Final `success`, `complete` and `note`, or None where the recording broke off."""
    damaged: bool
    """More is left unread than the one frame that a killed recorder can have cut."""


def frame(payload: bytes) -> bytes:
    """Wrap a payload with its length and checksum."""
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def header_bytes(header: Header) -> bytes:
    """Payload of a log's first frame; raises DemoError for a snapshot that is not made of numbers."""
    arrays = {
        "states": header.state[None],
        "observations": header.observation[None],
        "simulator_states": header.simulator_state[None],
    }
    return _zip_arrays(header.metadata, arrays, header.snapshot)


def step_bytes(index: int, step: Step, dtype: np.dtype) -> bytes:
    """Payload of a step's frame, `dtype` being the episode's `step_dtype`.

    Raises DemoError naming an array of the wrong width, or an actor that is none.
    """
    row = np.zeros((), dtype)
    row["index"] = index
    for name, value, width in (
        ("intended_actions", step.intended_action, ACTION_DIM),
        ("requested_actions", step.requested_action, ACTION_DIM),
        ("executed_actions", step.executed_action, ACTION_DIM),
        ("observations", step.observation, OBSERVATION_DIM),
        ("simulator_states", step.simulator_state, dtype["simulator_states"].shape[0]),
    ):
        if np.shape(value) != (width,):  # NumPy would broadcast a scalar without a word.
            raise DemoError(f"step {index}: {name} have shape {np.shape(value)}; it must be ({width},).")
        row[name] = value
    row["states"] = pack_state(step.state)
    for name in ("reward", "terminated", "truncated", "slip", "drop"):
        row[_COLUMN[name]] = getattr(step, name)
    if step.actor not in ACTORS:
        raise DemoError(f"step {index}: its actor is {step.actor!r}; it must be one of {', '.join(ACTORS)}.")
    row["actors"] = ACTORS.index(step.actor)
    return row.tobytes()


_COLUMN = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
_COLUMN |= {"slip": "slips", "drop": "drops"}


def end_bytes(changes: Mapping[str, object]) -> bytes:
    """Payload of a log's last frame: what the metadata's `success`, `complete` and `note` have become."""
    return _END + json.dumps(dict(changes)).encode()


def parse_log(data: bytes) -> Log | None:
    """Read a log up to its last whole frame; None where not even the header is whole.

    Raises DemoError, worded to follow a file's name, where this is no log, its header or end is damaged, or
    it is of another version, whose steps have another layout.
    """
    frames = list(_frames(data))
    if not frames:
        if not _can_be_cut_header(data):
            raise DemoError("is damaged at its beginning, or is no log of this program")
        return None
    first = frames[0]
    metadata, arrays, snapshot = _unzip_arrays(first)
    if metadata.contract_version != CONTRACT_VERSION:
        raise DemoError(
            f"was recorded under contract version {metadata.contract_version}, not {CONTRACT_VERSION}"
        )
    if "simulator_states" not in arrays:
        raise DemoError("was begun by an earlier version of this program, whose steps hold less")
    state, observation, simulator_state = _first_rows(arrays)
    header = Header(metadata, state, observation, simulator_state, snapshot)
    dtype = step_dtype(len(header.simulator_state))
    steps, ended = [], None
    read = _FRAME.size + len(first)
    for payload in frames[1:]:
        if payload.startswith(_END) and len(payload) != dtype.itemsize:
            ended = _parse_end(payload[len(_END) :])
            read += _FRAME.size + len(payload)
            break
        if len(payload) != dtype.itemsize:
            break
        row = np.frombuffer(payload, dtype)[0]
        if row["index"] != len(steps):
            break
        steps.append(row)
        read += _FRAME.size + len(payload)
    return Log(header, np.array(steps, dtype), ended, len(data) - read >= _FRAME.size + dtype.itemsize)


def _can_be_cut_header(data: bytes) -> bool:
    """Whether a recorder that was killed can have left this instead of a whole header."""
    if len(data) < _FRAME.size:
        return not data
    begins = data[_FRAME.size :][: len(_ZIP)]
    return len(data) < _FRAME.size + _FRAME.unpack_from(data)[0] and begins == _ZIP[: len(begins)]


def _first_rows(arrays: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    """The only row of each of `STATES`; raises DemoError where one has another shape or type."""
    for name in STATES:
        if name not in arrays:
            raise DemoError(f"lacks {name} in its header")
        kind, shape = _COLUMNS.get(name, ("<f8", arrays[name].shape[1:2]))
        if arrays[name].shape != (1, *shape) or not np.can_cast(arrays[name].dtype, kind, "same_kind"):
            held = f"{arrays[name].shape} {arrays[name].dtype}"
            raise DemoError(f"has {name} of {held} in its header; it must be {(1, *shape)} {np.dtype(kind)}")
        yield arrays[name][0]


def _parse_end(text: bytes) -> dict:
    """Inverse of `end_bytes`; raises DemoError where it says anything else, or of another type."""
    try:
        changes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DemoError(f"has an end that is no JSON ({error})") from error
    if not isinstance(changes, dict) or {n: type(v) for n, v in changes.items()} != _END_TYPES:
        wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in _END_TYPES.items())
        raise DemoError(f"has an end that does not give {wanted}")
    return changes


def build_episode(header: Header, steps: np.ndarray, **changes: object) -> Episode:
    """Put a header and (T,) steps together; `changes` replace fields of the metadata."""
    first = dict(zip(STATES, (header.state, header.observation, header.simulator_state), strict=True))
    columns = {
        name: np.concatenate([first[name][None], steps[name]]) if name in first else steps[name].copy()
        for name in ARRAYS
    }
    return Episode(replace(header.metadata, **changes), snapshot=header.snapshot, **columns)  # type: ignore[arg-type]


def episode_bytes(episode: Episode) -> bytes:
    """The content of an episode file."""
    arrays = {name: getattr(episode, name) for name in ARRAYS}
    return _zip_arrays(episode.metadata, arrays, episode.snapshot)


def parse_episode(data: bytes) -> Episode:
    """Inverse of `episode_bytes`; raises DemoError saying what is wrong, for the reader to add the file."""
    metadata, arrays, snapshot = _unzip_arrays(data)
    steps = len(np.atleast_1d(arrays.get("rewards", ())))
    if "actors" not in arrays:  # Written before these two were stored, by the scripted expert.
        arrays["actors"] = np.full(steps, ACTORS.index("expert"), np.uint8)
        arrays["simulator_states"] = np.zeros((steps + 1, 0))
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise DemoError(f"lacks {', '.join(missing)}; every episode needs {', '.join(ARRAYS)}")
    columns: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    for name, array in columns.items():
        wanted = _ANY_STEP[name].base
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise DemoError(f"holds {name} of type {array.dtype}; it must be {wanted}")
    return Episode(metadata, snapshot=snapshot, **columns)


def _frames(data: bytes) -> Iterator[bytes]:
    """Payloads up to the first one that is cut off or does not match its checksum."""
    cursor = 0
    while cursor + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, cursor)
        payload = data[cursor + _FRAME.size : cursor + _FRAME.size + length]
        if len(payload) != length or zlib.crc32(payload) != checksum:
            return
        yield payload
        cursor += _FRAME.size + length


def _zip_arrays(
    metadata: Metadata, arrays: Mapping[str, np.ndarray], snapshot: Mapping[str, np.ndarray]
) -> bytes:
    named = {"metadata": np.array(json.dumps(asdict(metadata), allow_nan=False)), **arrays}
    for name, value in snapshot.items():
        named[_SNAPSHOT + name] = np.asarray(value)
        if named[_SNAPSHOT + name].dtype.hasobject:
            raise DemoError(f"snapshot entry '{name}' is no array of numbers and cannot be stored.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = _COMMENT + b"0" * 8
        for name, array in named.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            # A fixed date: the same episode gives the same bytes.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_DEFLATED)
    content = buffer.getvalue()[:-8]
    return content + f"{zlib.crc32(content):08x}".encode()


def _unzip_arrays(data: bytes) -> tuple[Metadata, dict[str, np.ndarray], dict[str, np.ndarray]]:
    content, checksum = data[:-8], data[-8:]
    if not content.endswith(_COMMENT):
        reason = "is empty" if not data else "is cut off, or is no episode file"
        raise DemoError(f"{reason} ({len(data)} bytes)")
    if f"{zlib.crc32(content):08x}".encode() != checksum:
        raise DemoError("is damaged: its checksum does not match its content")
    arrays = read_arrays(data)
    if "metadata" not in arrays:
        raise DemoError("lacks metadata; every episode needs task, control mode, action scale and kind")
    metadata = parse_metadata(_json_object(arrays.pop("metadata")))
    snapshot = {n.removeprefix(_SNAPSHOT): arrays.pop(n) for n in list(arrays) if n.startswith(_SNAPSHOT)}
    return metadata, arrays, snapshot


def parse_metadata(values: dict) -> Metadata:
    """Inverse of `dataclasses.asdict`; raises DemoError naming what is missing or of the wrong type."""
    known = {f.name for f in fields(Metadata)}
    missing = [
        n for n in ("task", "control_mode", "action_scale", "kind", "contract_version") if n not in values
    ]
    if missing:
        raise DemoError(f"lacks metadata {', '.join(missing)}, without which its actions have no meaning")
    values["action_scale"] = _parse_scale(values["action_scale"])
    for field in fields(Metadata):
        wanted = _JSON_TYPES.get(str(field.type))
        if wanted is not None and field.name in values and type(values[field.name]) not in wanted:
            raise DemoError(f"holds {field.name} {values[field.name]!r}; it must be {field.type}")
    return Metadata(**{name: value for name, value in values.items() if name in known})


def _json_object(text: np.ndarray) -> dict:
    try:
        values = json.loads(str(text))
    except (ValueError, RecursionError) as error:  # The second from brackets nested without end.
        raise DemoError(f"holds metadata that is no JSON ({type(error).__name__}: {error})") from error
    if not isinstance(values, dict):
        raise DemoError(f"holds metadata that is a {type(values).__name__}; it must be named values")
    return values


def _parse_scale(values: object) -> ActionScale:
    names = [f.name for f in fields(ActionScale)]
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise DemoError(f"holds an action scale {values!r}; it must give {', '.join(names)}")
    for name, value in values.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise DemoError(f"holds an action scale's {name} of {value!r}; it must be a finite number")
    return ActionScale(**values)


_JSON_TYPES = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_JSON_TYPES |= {"Mapping[str, str]": (dict,)}
"""What a field of the metadata may be in the file, by its annotation."""
