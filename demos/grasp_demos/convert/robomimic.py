"""robomimic's HDF5 data sets (https://robomimic.github.io/docs/datasets/overview.html).

Exported demonstrations hold beside robomimic's keys a group `grasp_episode` with the whole `Episode`, so that
importing gives it back bit for bit. Demonstrations without that group are read by `robosuite_demos`.
T steps, S numbers of the simulator's state.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from grasp_demos.convert import robosuite_demos
from grasp_demos.convert.format import (
    Format,
    Imported,
    ImportSettings,
    begins_with,
    decide,
    load_package,
)
from grasp_demos.convert.hdf5 import Source, open_source
from grasp_demos.convert.robomimic_views import View, make_view
from grasp_demos.episode import DemoError, Episode
from grasp_demos.outputs import replacing
from grasp_demos.storage import ARRAYS, parse_metadata, step_dtype
from grasp_sim.contract import unpack_state

_MAGIC = b"\x89HDF\r\n\x1a\n"
_OWN = "grasp_episode"
_MEASURED = (
    "joint_positions",
    "joint_velocities",
    "tcp_position",
    "tcp_quaternion",
    "gripper_opening",
    "gripper_force",
    "object_position",
    "object_quaternion",
    "object_size",
)
"""Fields of `GraspState` written as observations; base frame, as measured."""


def matches(path: Path) -> bool:
    """Whether the path is an HDF5 file."""
    return begins_with(path, _MAGIC)


# ---- writing


def write(episodes: Sequence[Episode], path: Path) -> None:
    """Write episodes of one task, control mode, action scale and rate to one file.

    Successful, complete ones are in the mask `train` or, every tenth and at least one of several, `valid`.
    Raises DemoError when the episodes differ in what their actions mean, or lack what the format needs.
    """
    h5py = load_package("h5py", "the format robomimic")
    first = episodes[0].metadata
    for episode in episodes:
        for name in ("task", "control_mode", "action_scale", "rate_hz", "kind"):
            held, wanted = getattr(episode.metadata, name), getattr(first, name)
            if held != wanted:
                raise DemoError(
                    f"{episode} has {name} {held}, {episodes[0]} has {wanted}: export them to two files."
                )
    view = make_view(episodes[0])
    with replacing(path) as unfinished, h5py.File(unfinished, "w") as file:
        data = file.create_group("data")
        for number, episode in enumerate(episodes):
            _write_demo(data.create_group(f"demo_{number}"), episode, view)
        data.attrs["total"] = sum(map(len, episodes))
        for name, value in view.attributes.items():
            data.attrs[name] = value
        good = [f"demo_{n}" for n, episode in enumerate(episodes) if episode.is_demonstration]
        valid = good[9::10] or good[1:][-1:]
        for name, demos in (("train", [d for d in good if d not in valid]), ("valid", valid)):
            file[f"mask/{name}"] = np.array(demos, dtype="S")


def _write_demo(group: Any, episode: Episode, view: View) -> None:
    observations = {"policy_observation": episode.observations}
    states = [unpack_state(row) for row in episode.states]
    for name in _MEASURED:
        rows = np.array([getattr(state, name) for state in states])
        observations[name] = rows.reshape(len(rows), -1)
    shown = view.show(episode)
    for name, rows in (observations | shown.observations).items():
        group[f"obs/{name}"] = rows[:-1]
        group[f"next_obs/{name}"] = rows[1:]
    group["actions"] = shown.actions
    group["states"] = episode.simulator_states[:-1]
    group["rewards"] = episode.rewards
    group["dones"] = (episode.terminations | episode.truncations).astype(np.int64)
    group.attrs["num_samples"] = len(episode)
    group.attrs["success"] = episode.metadata.success
    if shown.model_file:
        group.attrs["model_file"] = shown.model_file
    own = group.create_group(_OWN)
    text = json.dumps(asdict(episode.metadata), allow_nan=False)
    own.attrs["metadata"] = text
    own.attrs["actions_crc32"] = _checksum("", {"actions": shown.actions})
    arrays = {name: getattr(episode, name) for name in ARRAYS}
    own.attrs["crc32"] = _checksum(text, arrays | dict(episode.snapshot))
    for name, values in arrays.items():
        own.create_dataset(name, data=values)
    snapshot = own.create_group("snapshot", track_order=True)
    for name, values in episode.snapshot.items():
        snapshot.create_dataset(name, data=values)


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> int:
    """CRC-32 of all numbers, their names, types and shapes: HDF5 itself would not notice a flipped bit."""
    total = zlib.crc32(text.encode(errors="replace"))
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        total = zlib.crc32(f"{name} {values.dtype.str} {values.shape}".encode(), total)
        total = zlib.crc32(values.tobytes(), total)
    return total


# ---- reading


def read(path: Path, settings: ImportSettings) -> Imported:
    """Every demonstration of a file, in the order of their numbers.

    Raises DemoError for a damaged file and for one whose actions cannot be taken as they are, naming
    demonstration, step and dimension.
    """
    with open_source(path) as source:
        demos = sorted(source.names("data"), key=_number)
        if not demos:
            raise DemoError(f"{path} holds no demonstrations: it has no group /data with demo_0 and so on.")
        own = [demo for demo in demos if source.has(f"data/{demo}/{_OWN}")]
        others = [demo for demo in demos if demo not in own]
        episodes = {demo: _read_own(source, demo, settings) for demo in own}
        warnings: list[str] = []
        if others:
            found, warnings = robosuite_demos.read(source, others, settings)
            episodes |= found
    return Imported([episodes[demo] for demo in demos if demo in episodes], warnings)


def _number(demo: str) -> tuple[int, str]:
    digits = demo.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() and len(digits) < 12 else -1, demo)


def _read_own(source: Source, demo: str, settings: ImportSettings) -> Episode:
    """The episode that `write` put below a demonstration."""
    group = f"data/{demo}/{_OWN}"
    where = f"{source.path} {group}"
    values = source.json(group, "metadata")
    if values is None:
        raise DemoError(f"{where} lacks its metadata.")
    try:
        metadata = parse_metadata(values)
    except (DemoError, TypeError) as error:
        raise DemoError(f"{where} {error}.") from error
    for name in ("task", "control_mode", "kind"):
        decide(name, getattr(settings, name), getattr(metadata, name), where)
    arrays = {}
    for name, array in _arrays(source, group):
        wanted = step_dtype(0)[name].base
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise DemoError(f"{where} holds {name} of type {array.dtype}; it must be {wanted}.")
        arrays[name] = array
    actions = source.array(f"data/{demo}/actions")
    if _checksum("", {"actions": actions}) != source.number(group, "actions_crc32"):
        raise DemoError(
            f"{source.path} data/{demo}: its actions were changed after the export, its {_OWN} was not: "
            "delete that group to import what the file holds now."
        )
    snapshot = {
        name: source.array(f"{group}/snapshot/{name}", narrow=False)
        for name in source.names(f"{group}/snapshot")
    }
    text = source.text(group, "metadata") or ""
    if _checksum(text, arrays | snapshot) != source.number(group, "crc32"):
        raise DemoError(f"{where} is damaged: its checksum does not match. Restore the file from a copy.")
    return Episode(metadata, snapshot=snapshot, **arrays)


def _arrays(source: Source, group: str) -> Iterator[tuple[str, np.ndarray]]:
    missing = [name for name in ARRAYS if not source.has(f"{group}/{name}")]
    if missing:
        raise DemoError(f"{source.path} {group} lacks {', '.join(missing)}.")
    for name in ARRAYS:
        yield name, source.array(f"{group}/{name}")


FORMAT = Format("robomimic", "HDF5 file of robomimic, robosuite or mimicgen", matches, read, write)
