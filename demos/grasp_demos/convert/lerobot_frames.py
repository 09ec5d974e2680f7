"""The frames of a LeRobot data set out of its Parquet files, checked before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grasp_demos.convert import lerobot_layout as layout
from grasp_demos.convert.format import load_package
from grasp_demos.convert.parquet_check import BATCH, check
from grasp_demos.episode import DemoError
from grasp_demos.files import require_regular


def read_frames(
    path: Path, claimed: int, features: dict[str, layout.Feature]
) -> Iterator[dict[str, np.ndarray]]:
    """Columns (T, width) of one episode after the other, reading a batch of rows at a time.

    Raises DemoError when the files do not hold as many frames as `claimed`, or other columns than asked for.
    """
    arrow = load_package("pyarrow", "the format lerobot")
    parquet = load_package("pyarrow.parquet", "the format lerobot")
    files = sorted(path.glob("data/chunk-*/file-*.parquet"))
    held: list[dict[str, np.ndarray]] = []
    current, rows = 0, 0
    try:
        for file in files:
            require_regular(file)
        opened = [(file, parquet.ParquetFile(file, page_checksum_verification=True)) for file in files]
        total = sum(content.metadata.num_rows for _, content in opened)
        if total != claimed:
            raise DemoError(
                f"{path / layout.INFO} claims {claimed} frames; the {len(files)} data files hold "
                f"{total}: get a whole copy."
            )
        for file, content in opened:
            _check_columns(arrow, file, content, features)
        widths = {name: feature.width for name, feature in features.items()}
        problem = check(files, widths | dict.fromkeys(layout.INDEX_FEATURES, 1))
        if problem:
            raise DemoError(f"{path}: the data files cannot be read: {problem}: get a whole copy.")
        for file, content in opened:
            for batch in content.iter_batches(
                BATCH, use_threads=False, columns=[*features, *layout.INDEX_FEATURES]
            ):
                columns = {name: _to_numpy(arrow, batch, name, features) for name in batch.schema.names}
                if not np.array_equal(columns["index"], np.arange(rows, rows + len(batch))):
                    raise DemoError(f"{file}: index does not count the frames from {rows} on.")
                rows += len(batch)
                numbers = columns["episode_index"]
                for number in np.unique(numbers):
                    if number != current:
                        if number != current + 1 or not held:
                            raise DemoError(f"{file}: episode {number} follows upon episode {current}.")
                        yield _joined(file, held)
                        held, current = [], int(number)
                    mine = numbers == number
                    held.append({name: values[mine] for name, values in columns.items()})
    except (arrow.ArrowException, OSError, ValueError) as error:
        where = f"{path}: the data files" if not files else f"{path / 'data'}: a file"
        raise DemoError(
            f"{where} cannot be read as Parquet ({' '.join(str(error).split())[:200]}): get a whole copy."
        ) from error
    if held:
        yield _joined(path, held)


def _check_columns(arrow: Any, file: Path, content: Any, features: dict[str, layout.Feature]) -> None:
    """Refuse other types before anything is read."""
    schema = content.schema_arrow
    wanted = {name: (feature.dtype, feature.width) for name, feature in features.items()}
    wanted |= {name: (dtype, 1) for name, dtype in layout.INDEX_FEATURES.items()}
    for name, (dtype, width) in wanted.items():
        if name not in schema.names:
            raise DemoError(f"{file} has no column {name}.")
        there, single = schema.field(name).type, arrow.from_numpy_dtype(np.dtype(dtype))
        is_list = arrow.types.is_list(there) or arrow.types.is_fixed_size_list(there)
        fits = there.value_type == single if is_list and width > 1 else there == single
        if not fits:
            raise DemoError(f"{file}: column {name} has type {there}; it must be {width} times {single}.")


def _to_numpy(arrow: Any, batch: Any, name: str, features: dict[str, layout.Feature]) -> np.ndarray:
    array = batch.column(batch.schema.names.index(name))
    width = features[name].width if name in features else 1
    if arrow.types.is_list(array.type) or arrow.types.is_fixed_size_list(array.type):
        array = array.flatten()
    values = array.to_numpy(zero_copy_only=False)
    return values.reshape(-1, width) if name in features and features[name].names else values


def _joined(file: Path, pieces: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    if not np.array_equal(columns["frame_index"], np.arange(len(columns["frame_index"]))):
        raise DemoError(
            f"{file}: frame_index of episode {columns['episode_index'][0]} does not count its frames."
        )
    return columns
