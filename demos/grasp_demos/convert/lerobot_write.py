"""Write episodes as a LeRobot data set, one episode in memory at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grasp_demos.convert import lerobot_layout as layout
from grasp_demos.convert.format import load_package
from grasp_demos.episode import DemoError, Episode
from grasp_demos.header import header_json


def write(episodes: Sequence[Episode], path: Path) -> None:
    """Write valid episodes of one rate to the new folder `path`, which is absent or whole.

    Raises DemoError when the rates or the widths of the simulator's state differ, or when `path` exists.
    """
    if path.exists():
        raise DemoError(f"{path} exists already: choose another folder.")
    rate = _same(episodes, "rate_hz", [e.metadata.rate_hz for e in episodes])
    if rate != round(rate):
        raise DemoError(f"the episodes have {rate} steps a second; LeRobot's fps is a whole number.")
    width = _same(episodes, "width of the simulator's state", [e.simulator_states.shape[1] for e in episodes])
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with _Writer(temporary, width, round(rate)) as writer:
            for episode in episodes:
                writer.add(episode)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _same(episodes: Sequence[Episode], what: str, values: list[Any]) -> Any:
    for episode, value in zip(episodes, values, strict=True):
        if value != values[0]:
            raise DemoError(
                f"{episode} has {what} {value} and {episodes[0]} has {values[0]}; a LeRobot data set "
                "has one: export them separately."
            )
    return values[0]


class _Writer:
    """A data set that is being written; a context manager, whose end writes the summaries."""

    def __init__(self, path: Path, simulator_width: int, fps: int) -> None:
        self._arrow = load_package("pyarrow", "the format lerobot")
        self._parquet = load_package("pyarrow.parquet", "the format lerobot")
        self._path, self._fps = path, fps
        self._features = layout.episode_features(simulator_width)
        dtypes = {name: feature.dtype for name, feature in self._features.items()} | layout.INDEX_FEATURES
        widths = {name: f.width for name, f in self._features.items() if f.names and f.width > 1}
        self._schema = self._arrow.schema(
            [(name, self._arrow_type(dtype, widths.get(name))) for name, dtype in dtypes.items()]
        )
        self._statistics = {name: layout.Statistics() for name in dtypes}
        self._tasks: dict[str, int] = {}
        self._frames, self._count = 0, 0
        self._file: tuple[int, int] = (0, 0)  # chunk and file
        self._bytes = 0
        self._data: Any = None
        self._episodes: Any = None

    def __enter__(self) -> _Writer:
        (self._path / "meta").mkdir(parents=True)
        self._ours = open(self._path / layout.OURS, "w", encoding="utf-8")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for file in (self._data, self._episodes, self._ours):
            if file is not None:
                file.close()
        if kind is None:
            self._finish()

    def add(self, episode: Episode) -> None:
        """Append one episode."""
        task = self._tasks.setdefault(episode.metadata.task, len(self._tasks))
        steps = len(episode)
        columns = {name: feature.values(episode) for name, feature in self._features.items()}
        columns |= layout.index_columns(steps, self._count, self._frames, task, self._fps)
        table = self._arrow.table(
            [self._arrow_array(columns[field.name], field.type) for field in self._schema], self._schema
        )
        self._open_file(table.nbytes)
        self._data.write_table(table)
        row: dict[str, Any] = {
            "episode_index": self._count,
            "tasks": [episode.metadata.task],
            "length": steps,
            "data/chunk_index": self._file[0],
            "data/file_index": self._file[1],
            "dataset_from_index": self._frames,
            "dataset_to_index": self._frames + steps,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        for name, values in columns.items():
            found = self._statistics[name].add(values)
            row |= {f"stats/{name}/{key}": value for key, value in found.items()}
        self._add_row(row)
        line = header_json(
            episode,
            episode_index=self._count,
            length=steps,
            final_state=episode.states[-1].tolist(),
            final_simulator_state=episode.simulator_states[-1].tolist(),
        )
        self._ours.write(line + "\n")
        self._count, self._frames = self._count + 1, self._frames + steps

    def _open_file(self, size: int) -> None:
        """Go on to the next data file where this one would grow beyond the format's size."""
        if self._data is not None and self._bytes + size > layout.FILE_MB * 2**20:
            self._data.close()
            self._data, self._bytes = None, 0
            chunk, file = self._file
            self._file = (chunk + 1, 0) if file + 1 == layout.CHUNK_FILES else (chunk, file + 1)
        if self._data is None:
            path = self._path / layout.DATA.format(chunk_index=self._file[0], file_index=self._file[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data = self._parquet.ParquetWriter(path, self._schema, write_page_checksum=True)
        self._bytes += size

    def _add_row(self, row: dict[str, Any]) -> None:
        table = self._arrow.Table.from_pylist([row])
        if self._episodes is None:
            path = self._path / layout.EPISODES.format(chunk_index=0, file_index=0)
            path.parent.mkdir(parents=True)
            self._episodes = self._parquet.ParquetWriter(path, table.schema)
        self._episodes.write_table(table)

    def _finish(self) -> None:
        features = {name: feature.info() for name, feature in self._features.items()}
        features |= {
            name: {"dtype": dtype, "shape": [1], "names": None}
            for name, dtype in layout.INDEX_FEATURES.items()
        }
        info = {
            "codebase_version": layout.VERSION,
            "robot_type": "ur5e",
            "total_episodes": self._count,
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": layout.CHUNK_FILES,
            "data_files_size_in_mb": layout.FILE_MB,
            "video_files_size_in_mb": 200,
            "fps": self._fps,
            "splits": {"train": f"0:{self._count}"},
            "data_path": layout.DATA,
            "video_path": None,
            "features": features,
        }
        statistics = {name: found.result() for name, found in self._statistics.items()}
        for name, content in ((layout.INFO, info), (layout.STATS, statistics)):
            (self._path / name).write_text(json.dumps(content, indent=4), encoding="utf-8")
        self._write_tasks()

    def _write_tasks(self) -> None:
        """The tasks are the index of a pandas frame; without pandas, its description is written here."""
        column = {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        number = {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
        pandas = {
            "index_columns": ["task"],
            "column_indexes": [],
            "columns": [
                {"name": "task_index", "field_name": "task_index", **number},
                {"name": "task", "field_name": "task", **column},
            ],
            "creator": {"library": "pyarrow", "version": self._arrow.__version__},
            "pandas_version": "2.0.0",
        }
        indices = self._arrow.array(list(self._tasks.values()), self._arrow.int64())
        table = self._arrow.table({"task_index": indices, "task": list(self._tasks)})
        table = table.replace_schema_metadata({"pandas": json.dumps(pandas)})
        self._parquet.write_table(table, self._path / layout.TASKS)

    def _arrow_type(self, dtype: str, width: int | None) -> Any:
        single = self._arrow.from_numpy_dtype(np.dtype(dtype))
        return single if width is None else self._arrow.list_(single, width)

    def _arrow_array(self, values: np.ndarray, wanted: Any) -> Any:
        if not self._arrow.types.is_fixed_size_list(wanted):
            return self._arrow.array(np.ascontiguousarray(values.reshape(-1)), wanted)
        flat = self._arrow.array(np.ascontiguousarray(values).reshape(-1), wanted.value_type)
        return self._arrow.FixedSizeListArray.from_arrays(flat, wanted.list_size)
