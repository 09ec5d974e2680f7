"""The long-term memory as one safetensors file.

Only held rows are written. Every tensor's CRC-32 stands in the header; the file is written beside its final
name, flushed to the disk and renamed, so that a kill leaves the old file or the new one.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from grasp_control.memory.retrieval import EmbeddingSpace
from grasp_control.memory.store import LABELS
from grasp_sim.errors import UserError

if TYPE_CHECKING:
    from grasp_control.memory.long_term import LongTermMemory

FORMAT_VERSION = 2


class MemoryFileError(UserError):
    """A memory file is missing, damaged, or made for another memory."""


def save(memory: LongTermMemory, path: Path) -> None:
    """Write `memory` to `path`."""
    tensors = {name: np.ascontiguousarray(values) for name, values in _tensors(memory).items()}
    metadata = {
        "state": json.dumps(_state(memory)),
        "checksums": json.dumps({name: _checksum(values) for name, values in tensors.items()}),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    save_file(tensors, temporary, metadata)
    _flush(temporary)
    os.replace(temporary, path)
    _flush(path.parent)


def load(memory: LongTermMemory, path: Path) -> None:
    """Replace the contents of `memory` by those of `path`; on an error `memory` is unchanged."""
    tensors, state = _read(Path(path))
    for name, value in _shape(memory).items():
        if state["shape"].get(name) != value:
            raise MemoryFileError(
                f"memory file {path} has {name} {state['shape'].get(name)}, this memory {value}: "
                "load it with the settings it was saved with."
            )
    store, scorer = memory.store, memory.scorer
    labels = tensors["labels"].view(LABELS)[:, 0]
    slots = store.restore(labels["id"], state["generation"], tensors["free"])
    store.rows[slots, : store.width] = tensors["rows"]
    store.embeddings[slots] = tensors["embeddings"]
    store.labels[slots] = labels
    store.tree.assign(slots, tensors["priorities"])
    store.regroup()
    for name, value in state["scorer"].items():
        setattr(scorer, name, value)
    scorer.mean = tensors["scorer.mean"]
    for name, value in state["counters"].items():
        setattr(memory.counters, name, value)
    memory.eviction_threshold = state["eviction_threshold"]
    memory.rng.bit_generator.state = state["rng"]
    memory.space = EmbeddingSpace.empty(
        memory.encoder.restored(_part(tensors, "encoder."), state["encoder_version"]),
        store,
        store.embeddings,
        memory.config,
        memory.clock,
    )
    for name in ("successes", "slips"):
        getattr(memory.space, name).restore(_part(tensors, f"{name}."))
    for name, remembered in memory.remembered.items():
        remembered.restore(slots, _part(tensors, f"remembered.{name}."))


def _part(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _tensors(memory: LongTermMemory) -> dict[str, np.ndarray]:
    store = memory.store
    live = store.live_slots()
    # A memory that never released a row is full up to its length: slices instead of copies.
    held: Any = slice(0, len(live)) if len(live) and live[-1] == len(live) - 1 else live
    return {
        "free": store.remaining_free(),
        "rows": store.rows[held, : store.width],
        "embeddings": store.embeddings[held],
        "priorities": store.tree[live],
        "labels": store.labels[held].view(np.uint8).reshape(len(live), LABELS.itemsize),
        "scorer.mean": memory.scorer.mean,
        **{f"encoder.{name}": values for name, values in memory.encoder.state().items()},
        **{f"successes.{name}": values for name, values in memory.space.successes.state().items()},
        **{f"slips.{name}": values for name, values in memory.space.slips.state().items()},
        **{
            f"remembered.{kind}.{name}": values
            for kind, remembered in memory.remembered.items()
            for name, values in remembered.state(live).items()
        },
    }


def _state(memory: LongTermMemory) -> dict[str, Any]:
    scorer = memory.scorer
    return {
        "shape": _shape(memory),
        "generation": memory.store.generation,
        "encoder_version": memory.encoder.version,
        "eviction_threshold": memory.eviction_threshold,
        "counters": asdict(memory.counters),
        "scorer": {name: getattr(scorer, name) for name in ("mean_rows", "td_scale", "largest_td_term")},
        "rng": memory.rng.bit_generator.state,
    }


def _shape(memory: LongTermMemory) -> dict[str, int | str]:
    return {
        "format_version": FORMAT_VERSION,
        "capacity": memory.config.capacity,
        "window_width": memory.window_width,
        "action_dim": memory.action_dim,
        "embedding_dim": memory.config.embedding_dim,
        "encoder": memory.config.encoder,
    }


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if not path.is_file():
        raise MemoryFileError(f"memory file {path} does not exist.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            state, checksums = json.loads(metadata["state"]), json.loads(metadata["checksums"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise MemoryFileError(f"memory file {path} is damaged or no memory file ({error}).") from error
    damaged = [
        name for name in checksums if name not in tensors or _checksum(tensors[name]) != checksums[name]
    ]
    if damaged:
        raise MemoryFileError(f"memory file {path} is damaged: checksum of {', '.join(damaged)} is wrong.")
    return tensors, state


def _checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
