"""What an episode holds besides its columns, as JSON: metadata, and snapshot arrays in base64.

Other formats have no place for it; they carry this JSON in a file or a message of our own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.episode import DemoError, Episode, Metadata
from grasp_demos.storage import parse_metadata


class EpisodeHeader(NamedTuple):
    """Metadata and snapshot of an episode, with what else its format keeps there."""

    metadata: Metadata
    snapshot: dict[str, np.ndarray]
    rest: dict[str, Any]


def header_json(episode: Episode, **rest: object) -> str:
    """One line of JSON; every float is written so that it is read back exactly."""
    snapshot = {name: _array_json(np.asarray(value)) for name, value in episode.snapshot.items()}
    return json.dumps({"metadata": asdict(episode.metadata), "snapshot": snapshot, **rest}, allow_nan=False)


def parse_header(text: str | bytes) -> EpisodeHeader:
    """Inverse of `header_json`; raises DemoError saying what is wrong, for the caller to name the place."""
    try:
        values = json.loads(text)
        metadata = parse_metadata(values.pop("metadata"))
        snapshot = {str(name): _parse_array(value) for name, value in values.pop("snapshot", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DemoError(f"holds no header of an episode of this program ({error!r})") from error
    return EpisodeHeader(metadata, snapshot, values)


def parse_numbers(values: object, width: int | None, what: str) -> np.ndarray:
    """(width,) float64 of a list in JSON, of any width where it is None; raises DemoError naming it."""
    if isinstance(values, list) and all(type(value) in (int, float) for value in values):
        try:
            array = np.array(values, np.float64)
        except OverflowError:  # JSON has integers of any length.
            array = np.array([np.nan])
        if (width is None or len(array) == width) and np.isfinite(array).all():
            return array
    raise DemoError(f"holds {what} that is no list of {'' if width is None else f'{width} '}finite numbers")


def _array_json(array: np.ndarray) -> Mapping[str, object]:
    if array.dtype.kind not in "biuf":
        raise DemoError(f"a snapshot holds an array of type {array.dtype}; only numbers can be exported.")
    array = array.astype(array.dtype.newbyteorder("<"))
    content = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "base64": content}


def _parse_array(value: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(str(value["dtype"]))
    if dtype.kind not in "biuf":
        raise ValueError(f"a snapshot's array of type {dtype}")
    # The bytes are there already, so a shape that claims more is refused without allocating anything.
    return (
        np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype).reshape(value["shape"]).copy()
    )
