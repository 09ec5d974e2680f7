"""A stream of measurements on disk: `<stream>.csv` and the same rows as `<stream>.jsonl` in the run's folder.

The CSV is the truth; the JSON lines are for tools that prefer them. Files are only ever replaced whole.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

STEP_COLUMN = "env_step"
"""The column that places a row in time: environment steps taken so far, over all workers."""

Value = float | int | bool | str | np.generic
"""What a cell may hold. Booleans are written as 0 and 1; NaN and infinity become null in the JSON lines."""


class MetricsError(ValueError):
    """A row does not fit its stream: a fault of the program that wrote it."""


def read_stream(run_dir: str | Path, stream: str) -> dict[str, np.ndarray]:
    """Columns of a stream, empty when it does not exist. Number columns are float64 (empty cells are NaN),
    others are arrays of str. A half-written last line is left out."""
    path = Path(run_dir) / f"{stream}.csv"
    if not path.exists():
        return {}
    columns, rows = _read_rows(path)
    return {name: _column([row[index] for row in rows]) for index, name in enumerate(columns)}


def plain_value(value: Value) -> float | int | str:
    """The built-in number or text that stands for a cell; raises MetricsError on anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise MetricsError(f"a cell must be a number, a boolean or a string; received {type(value).__name__}.")


def json_value(value: float | int | str) -> float | int | str | None:
    """The cell as strict JSON takes it: NaN and infinity are no JSON numbers."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _column(cells: list[str]) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else math.nan for cell in cells], dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=np.str_)


def header_of(path: Path) -> list[str]:
    """The columns of a CSV, empty when there is no file or no header yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def _read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and complete rows. The writer ends a row with a newline, so a text without one was cut off."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    rows = list(csv.reader(io.StringIO(whole, newline="")))
    if not rows:
        return [], []
    return rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]


def truncate_stream(path: Path, resume_step: int) -> None:
    """Drop a half-written last line and, where there is a step column, the rows beyond `resume_step`."""
    columns, rows = _read_rows(path)
    if not columns:
        path.unlink()
        path.with_suffix(".jsonl").unlink(missing_ok=True)
        return
    if STEP_COLUMN in columns:
        index = columns.index(STEP_COLUMN)
        rows = [row for row in rows if float(row[index]) <= resume_step]
    _replace(path, columns, [dict(zip(columns, row, strict=True)) for row in rows])


def drop_rows(path: Path, same: Sequence[str], rows: Iterable[Mapping[str, Value]]) -> None:
    """Drop from a stream the rows that agree with one of `rows` in all the columns `same`."""
    columns, held = _read_rows(path)
    if not columns:
        return
    gone = {tuple(str(plain_value(row[name])) for name in same) for row in rows}
    indices = [columns.index(name) for name in same]
    kept = [row for row in held if tuple(row[i] for i in indices) not in gone]
    _replace(path, columns, [dict(zip(columns, row, strict=True)) for row in kept])


def _replace(path: Path, columns: list[str], rows: list[dict[str, float | int | str]]) -> None:
    """Write the CSV and its JSON lines beside the old ones and swap them in whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table, lines = path.with_suffix(".csv.new"), path.with_suffix(".jsonl.new")
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    with lines.open("w") as file:
        for row in rows:
            typed = {name: json_value(_typed(row[name])) for name in columns}
            file.write(json.dumps(typed) + "\n")
    os.replace(table, path)
    os.replace(lines, path.with_suffix(".jsonl"))


def _typed(cell: float | int | str) -> float | int | str:
    """A cell read back from a CSV as the number it was; text stays text."""
    if not isinstance(cell, str):
        return cell
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
