"""Where LeRobot's data set format, version 3.0, has what an episode holds.

Shapes: T frames (steps), O observation dimension, A action dimension, S numbers of the simulator's state.

A frame is a transition: the observation it begins with, the action, what came of it. An episode has one
observation more than frames; it is the last frame's `next.observation.state`. What LeRobot has no name for
begins with `grasp.`, so that its policies, which take every `observation*` and `action*` feature, leave it
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from grasp_demos.episode import Episode
from grasp_demos.validate import state_names
from grasp_sim.contract import ACTION_NAMES, OBSERVATION_NAMES

VERSION = "v3.0"
CHUNK_FILES = 1000
"""Files of one chunk folder."""
FILE_MB = 100
"""Size at which the next data file is begun."""
INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
CHUNK_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/" + CHUNK_FILE
EPISODES = "meta/episodes/" + CHUNK_FILE
OURS = "meta/grasp_episodes.jsonl"
"""Our own file: one line an episode with metadata, snapshot and the final states."""


class Feature(NamedTuple):
    """One column of the frames."""

    dtype: str
    names: tuple[str, ...] | None
    """Of the columns of a vector; None for a single number."""
    values: Callable[[Episode], np.ndarray]
    """(T, len(names)), or (T,) for a single number."""

    @property
    def width(self) -> int:
        """Numbers in one frame."""
        return 1 if self.names is None else len(self.names)

    def info(self) -> dict[str, Any]:
        """Its entry in `info.json`."""
        return {
            "dtype": self.dtype,
            "shape": [self.width],
            "names": None if self.names is None else list(self.names),
        }


def episode_features(simulator_width: int) -> dict[str, Feature]:
    """The features that an episode fills; the simulator's state is left out where it has no numbers."""
    action, observation = ACTION_NAMES, OBSERVATION_NAMES
    features = {
        "observation.state": Feature("float32", observation, lambda e: e.observations[:-1]),
        "action": Feature("float32", action, lambda e: e.training_actions),
        "next.observation.state": Feature("float32", observation, lambda e: e.observations[1:]),
        "next.reward": Feature("float32", None, lambda e: e.rewards),
        "next.done": Feature("bool", None, lambda e: e.terminations | e.truncations),
        "next.terminated": Feature("bool", None, lambda e: e.terminations),
        "next.truncated": Feature("bool", None, lambda e: e.truncations),
        "next.success": Feature("bool", None, _success),
        "grasp.state": Feature("float64", state_names(), lambda e: e.states[:-1]),
        "grasp.intended_action": Feature("float32", action, lambda e: e.intended_actions),
        "grasp.requested_action": Feature("float32", action, lambda e: e.requested_actions),
        "grasp.executed_action": Feature("float32", action, lambda e: e.executed_actions),
        "grasp.slip": Feature("bool", None, lambda e: e.slips),
        "grasp.drop": Feature("bool", None, lambda e: e.drops),
        "grasp.actor": Feature("uint8", None, lambda e: e.actors),
    }
    if simulator_width:
        names = tuple(f"simulator_state_{column}" for column in range(simulator_width))
        features["grasp.simulator_state"] = Feature("float64", names, lambda e: e.simulator_states[:-1])
    return features


INDEX_FEATURES = {"timestamp": "float32"} | dict.fromkeys(
    ("frame_index", "episode_index", "index", "task_index"), "int64"
)
"""What every LeRobot data set holds besides, one number a frame."""


def index_columns(steps: int, episode: int, first: int, task: int, rate_hz: float) -> dict[str, np.ndarray]:
    """The (T,) columns of `INDEX_FEATURES`; `first` is the number of frames before this episode."""
    frames = np.arange(steps, dtype=np.int64)
    return {
        "timestamp": (frames / rate_hz).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(steps, episode, np.int64),
        "index": frames + first,
        "task_index": np.full(steps, task, np.int64),
    }


def _success(episode: Episode) -> np.ndarray:
    """Of the whole episode, said by its last frame."""
    last = np.arange(len(episode)) == len(episode) - 1
    return last & episode.metadata.success


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


class Statistics:
    """Statistics of one feature over a data set, from one episode at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: dict[str, np.ndarray] = {}

    def add(self, values: np.ndarray) -> dict[str, list]:
        """Take in an episode's (T, width) or (T,) values and return the statistics of these alone."""
        values = np.asarray(values, np.float64).reshape(len(values), -1)
        found = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
        found |= {name: np.quantile(values, share, axis=0) for name, share in _QUANTILES.items()}
        if not self._count:
            self._sums, self._count = dict(found), len(values)
        else:
            self._merge(found, len(values))
        return {name: value.tolist() for name, value in found.items()} | {"count": [len(values)]}

    def _merge(self, found: dict[str, np.ndarray], count: int) -> None:
        """All but the quantiles are exact; those of the whole are the episodes' weighted means."""
        held, total = self._sums, self._count + count
        mine, theirs = self._count / total, count / total
        between = held["mean"] - found["mean"]
        variance = mine * held["std"] ** 2 + theirs * found["std"] ** 2 + mine * theirs * between**2
        for name in ("mean", *_QUANTILES):
            held[name] = mine * held[name] + theirs * found[name]
        held["std"] = np.sqrt(variance)
        held["min"] = np.minimum(held["min"], found["min"])
        held["max"] = np.maximum(held["max"], found["max"])
        self._count = total

    def result(self) -> dict[str, list]:
        """Those of everything taken in."""
        return {name: value.tolist() for name, value in self._sums.items()} | {"count": [self._count]}
