"""A run's measurements on disk: one CSV, one JSON-lines file and TensorBoard scalars per stream.

A stream is a table such as `train`, `episodes` or `evaluation`. Its columns are fixed by its first row, so a
CSV never changes its meaning halfway down.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from torch.utils.tensorboard import SummaryWriter

from grasp_control.stopwatch import Stopwatch
from grasp_control.tables import (
    STEP_COLUMN,
    MetricsError,
    Value,
    drop_rows,
    header_of,
    json_value,
    plain_value,
    truncate_stream,
)
from grasp_sim.errors import UserError


class MetricsWriter:
    """Appends rows to a run's streams; every row is on disk when `write` returns.

    Args:
        run_dir: the run's folder; created when it is missing.
        resume_step: None for a new run, which refuses to touch streams that are already there. A number for
            a resumed run: rows with a larger `env_step`, written after the checkpoint was taken, are removed,
            and so is a half-written last line. Streams without that column are kept whole.
        stopwatch: noted with every row, so that the time of a call that is killed counts, too.
    """

    def __init__(
        self, run_dir: str | Path, resume_step: int | None = None, stopwatch: Stopwatch | None = None
    ) -> None:
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._resumed = resume_step is not None
        self._stopwatch = stopwatch
        self._columns: dict[str, list[str]] = {}
        self._rows_written: dict[str, int] = {}
        self._files: dict[str, tuple[IO[str], IO[str]]] = {}
        if resume_step is not None:
            for path in sorted(self.run_dir.glob("*.csv")):
                truncate_stream(path, resume_step)
        purge_step = None if resume_step is None else resume_step + 1
        self._scalars = SummaryWriter(str(self.run_dir / "tensorboard"), purge_step=purge_step)

    def write(self, stream: str, row: Mapping[str, Value]) -> None:
        """Append one row; its numbers also become TensorBoard scalars named `stream/column`."""
        self._append(stream, [row])
        numbers = {
            name: float(plain)
            for name, value in row.items()
            if not isinstance(plain := plain_value(value), str)
        }
        step = int(numbers.pop(STEP_COLUMN, self._rows_written[stream]))
        for name, number in numbers.items():
            self._scalars.add_scalar(f"{stream}/{name}", number, step)

    def write_table(self, stream: str, rows: Iterable[Mapping[str, Value]]) -> None:
        """Append rows that belong together, such as the bins of a histogram. They become no scalars."""
        self._append(stream, rows)

    def replace_table(
        self, stream: str, rows: Iterable[Mapping[str, Value]], same: Sequence[str] = ("policy", STEP_COLUMN)
    ) -> None:
        """As `write_table`, in place of rows that agree in the columns `same`.

        A stage that a kill made the run do again then counts once.
        """
        rows = list(rows)
        path = self.run_dir / f"{stream}.csv"
        if path.exists() and (self._resumed or stream in self._columns):
            for file in self._files.pop(stream, ()):
                file.close()
            drop_rows(path, same, rows)
        self._append(stream, rows)

    def close(self) -> None:
        """Flush and close every file."""
        for files in self._files.values():
            for file in files:
                file.close()
        self._files.clear()
        self._scalars.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, stream: str, rows: Iterable[Mapping[str, Value]]) -> None:
        for row in rows:
            if stream not in self._files:
                self._open(stream, list(row))
            columns = self._columns[stream]
            if set(row) != set(columns):
                missing, extra = sorted(set(columns) - set(row)), sorted(set(row) - set(columns))
                raise MetricsError(
                    f"a row of {stream!r} has the columns {columns}: missing {missing}, unknown {extra}."
                )
            plain = {name: plain_value(row[name]) for name in columns}
            table, lines = self._files[stream]
            csv.writer(table, lineterminator="\n").writerow(plain.values())
            lines.write(json.dumps({name: json_value(value) for name, value in plain.items()}) + "\n")
            self._rows_written[stream] += 1
        for file in self._files.get(stream, ()):
            file.flush()
        if self._stopwatch is not None:
            self._stopwatch.note()

    def _open(self, stream: str, columns: list[str]) -> None:
        path = self.run_dir / f"{stream}.csv"
        if path.exists() and not self._resumed and stream not in self._columns:
            raise UserError(
                f"{path} is there already: resume that run, choose another folder, or remove it first."
            )
        header = header_of(path)
        rows_there = 0
        if header:
            with path.open(newline="") as file:
                rows_there = sum(1 for _ in csv.reader(file)) - 1
        table = path.open("a", newline="")
        lines = path.with_suffix(".jsonl").open("a")
        if not header:
            csv.writer(table, lineterminator="\n").writerow(columns)
        self._columns[stream] = header or columns
        self._rows_written[stream] = rows_there
        self._files[stream] = (table, lines)
