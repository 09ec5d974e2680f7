"""LeRobot data sets, version 3.0 (https://huggingface.co/docs/lerobot/lerobot-dataset-v3).

What is read has to hold `grasp.state` and the three actions, as `lerobot_write` writes them: out of another
robot's observation no `GraspState` can be made, and `validate` would refuse what was guessed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.convert import lerobot_layout as layout
from grasp_demos.convert.format import Format, Imported, ImportSettings, decide
from grasp_demos.convert.lerobot_frames import read_frames
from grasp_demos.convert.lerobot_write import write
from grasp_demos.episode import DemoError, Episode, Metadata
from grasp_demos.files import require_regular
from grasp_demos.header import EpisodeHeader, parse_header, parse_numbers
from grasp_sim.contract import STATE_WIDTH, ActionScale, encode, unpack_state

MAX_FRAMES = 2_000_000
"""More are refused before anything is allocated: 28 hours at 20 Hz, about 2 GB."""
MAX_SIMULATOR_WIDTH = 10_000
_MAX_JSON = 16 * 2**20
_MAX_LINE = 256 * 2**20


def matches(path: Path) -> bool:
    """Whether the path is a folder with LeRobot's `meta/info.json`."""
    return (path / layout.INFO).is_file()


def read(path: Path, settings: ImportSettings) -> Imported:
    """Every episode of a data set, as it was exported.

    Where our own file below `meta/` is gone or does not fit an episode, the settings say its task, control
    mode and kind, and its last step is left out, whose state nobody knows; a warning says so.
    """
    path = Path(path)
    info = _read_info(path)
    features = _require_features(path, info)
    warnings: list[str] = []
    headers = _read_ours(path, warnings)
    episodes = []
    for index, columns in enumerate(read_frames(path, info.total_frames, features)):
        header = headers.get(index)
        if header is not None and header.rest.get("length") != len(columns["action"]):
            warnings.append(f"{path / layout.OURS}: line of episode {index} is of another length: not used.")
            header = None
        episodes.append(_episode(path, index, columns, header, settings, info, warnings))
    if len(episodes) != info.total_episodes:
        raise DemoError(
            f"{path / layout.INFO} claims {info.total_episodes} episodes; the data files hold "
            f"{len(episodes)}: get a whole copy."
        )
    return Imported([episode for episode in episodes if episode is not None], warnings)


class _Info(NamedTuple):
    total_episodes: int
    total_frames: int
    fps: float
    features: dict[str, Any]


def _read_info(path: Path) -> _Info:
    file = path / layout.INFO
    try:
        require_regular(file)
        if file.stat().st_size > _MAX_JSON:
            raise DemoError(f"{file} has {file.stat().st_size} bytes: that is no description of a data set.")
        values = json.loads(file.read_text(encoding="utf-8"))
        version = values.get("codebase_version")
        if not str(version).startswith("v3"):
            raise DemoError(f"{file} has version {version}; only v3 is read: convert it with LeRobot first.")
        info = _Info(values["total_episodes"], values["total_frames"], values["fps"], values["features"])
    except FileNotFoundError:
        raise DemoError(f"{path} is no LeRobot data set: it has no {layout.INFO}.") from None
    except (OSError, KeyError, ValueError, AttributeError, RecursionError) as error:
        raise DemoError(f"{file} cannot be read as the description of a data set: {error!r}.") from error
    whole = all(type(n) is int and n >= 0 for n in info[:2])
    if not whole or type(info.fps) not in (int, float) or not info.fps > 0 or type(info.features) is not dict:
        raise DemoError(f"{file} holds counts, fps or features of a wrong type: get a whole copy.")
    if info.total_frames > MAX_FRAMES:
        raise DemoError(
            f"{file} claims {info.total_frames} frames; at most {MAX_FRAMES} are read: split the data set."
        )
    if values.get("data_path") != layout.DATA:
        raise DemoError(f"{file} puts data at {values.get('data_path')!r}; version 3.0 has {layout.DATA!r}.")
    return info


def _require_features(path: Path, info: _Info) -> dict[str, layout.Feature]:
    """Those of an episode; raises DemoError naming the first that is missing or of another type or shape."""
    held = info.features.get("grasp.simulator_state")
    shape = held.get("shape") if isinstance(held, dict) else None
    width = shape[0] if isinstance(shape, list) and shape else 0
    if type(width) is not int or not 0 <= width <= MAX_SIMULATOR_WIDTH:
        raise DemoError(f"{path / layout.INFO}: grasp.simulator_state has shape [{width}]; that is refused.")
    features = layout.episode_features(width)
    for name, feature in features.items():
        if name not in info.features:
            raise DemoError(
                f"{path / layout.INFO} has no feature {name}: only data sets that grasp-demos export wrote "
                f"can be imported, since an episode needs {', '.join(features)}."
            )
        entry, wanted = info.features[name], feature.info()
        for key in ("dtype", "shape", "names"):
            there = entry.get(key) if isinstance(entry, dict) else None
            if there != wanted[key]:
                raise DemoError(f"{path / layout.INFO}: {name} has {key} {there}; it must be {wanted[key]}.")
    return features


def _read_ours(path: Path, warnings: list[str]) -> dict[int, EpisodeHeader]:
    """The lines of our own file by their episode's index."""
    file, headers = path / layout.OURS, {}
    if os.path.lexists(file):
        require_regular(file)
    else:
        warnings.append(
            f"{file} is missing: metadata, snapshots and the last step of every episode are lost."
        )
        return headers
    with open(file, "rb") as lines:
        for number in range(MAX_FRAMES):
            line = lines.readline(_MAX_LINE)
            if not line:
                break
            try:
                header = parse_header(line)
            except DemoError as error:
                raise DemoError(
                    f"{file}, line {number + 1} {error}: get a whole copy or delete it."
                ) from error
            index = header.rest.get("episode_index")
            if type(index) is not int or index in headers:
                raise DemoError(f"{file}, line {number + 1} has episode_index {index!r}: get a whole copy.")
            headers[index] = header
    return headers


def _episode(
    path: Path,
    index: int,
    columns: dict[str, np.ndarray],
    header: EpisodeHeader | None,
    settings: ImportSettings,
    info: _Info,
    warnings: list[str],
) -> Episode | None:
    """Put an episode together; None where nothing is left of it."""
    where = f"{path}, episode {index}"
    observations = np.concatenate([columns["observation.state"], columns["next.observation.state"][-1:]])
    if not np.array_equal(observations[1:], columns["next.observation.state"], equal_nan=True):
        raise DemoError(f"{where}: next.observation.state is not the next frame's observation.state.")
    states = columns["grasp.state"]
    moving = columns.get("grasp.simulator_state", np.zeros((len(states), 0)))
    steps = len(states)
    if header is None:
        steps -= 1
        warnings.append(f"{where}: its last step was left out, since the state after it is not in the file.")
        if steps == 0:
            return None
        metadata = _assumed(where, settings, info, bool(columns["next.success"][-1]))
        snapshot, observations = {}, observations[:-1]
    else:
        metadata, snapshot = _held_metadata(where, header, settings), header.snapshot
        try:
            final = parse_numbers(header.rest.get("final_state"), STATE_WIDTH, "a final state")
            final_moving = header.rest.get("final_simulator_state")
            states = np.concatenate([states, final[None]])
            last = parse_numbers(final_moving, moving.shape[1], "a final simulator state")
            moving = np.concatenate([moving, last[None]])
        except DemoError as error:
            raise DemoError(f"{path / layout.OURS}: episode {index} {error}.") from error
        if np.isfinite(final).all() and not np.array_equal(encode(unpack_state(final)), observations[-1]):
            raise DemoError(
                f"{path / layout.OURS}: episode {index}: its final state is not that of the data."
            )
    episode = Episode(
        metadata,
        states=states,
        observations=observations,
        intended_actions=columns["grasp.intended_action"][:steps],
        requested_actions=columns["grasp.requested_action"][:steps],
        executed_actions=columns["grasp.executed_action"][:steps],
        rewards=columns["next.reward"][:steps],
        terminations=columns["next.terminated"][:steps],
        truncations=columns["next.truncated"][:steps],
        slips=columns["grasp.slip"][:steps],
        drops=columns["grasp.drop"][:steps],
        actors=columns["grasp.actor"][:steps],
        simulator_states=moving,
        snapshot=snapshot,
    )
    if not np.array_equal(episode.training_actions, columns["action"][:steps], equal_nan=True):
        learnt = "grasp.intended_action" if metadata.kind == "clean" else "grasp.executed_action"
        raise DemoError(f"{where}: action is not {learnt}, which a {metadata.kind} episode teaches.")
    return episode


def _held_metadata(where: str, header: EpisodeHeader, settings: ImportSettings) -> Metadata:
    for name in ("task", "control_mode", "kind"):
        decide(name, getattr(settings, name), getattr(header.metadata, name), where)
    return header.metadata


def _assumed(where: str, settings: ImportSettings, info: _Info, success: bool) -> Metadata:
    """Metadata of an episode without a line of its own."""
    task, control_mode, kind = (
        decide(name, getattr(settings, name), "", where) for name in ("task", "control_mode", "kind")
    )
    return Metadata(
        task,
        control_mode,
        ActionScale(),
        kind,
        source="lerobot",
        rate_hz=float(info.fps),
        success=False,
        complete=False,
        note="the last step is not in the file" + ("; it was successful" if success else ""),
    )


FORMAT = Format("lerobot", "folder of a LeRobot data set v3 (Parquet)", matches, read, write)
