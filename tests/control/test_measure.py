"""Names and files of the benchmarks' figures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from grasp_control.bench.measure import Figure, beside, write_csv, write_rows
from grasp_control.markdown import markdown


@pytest.mark.parametrize(
    ("out", "ending", "path"),
    [
        ("docs/lift", ".csv", "docs/lift.csv"),
        ("/tmp/v1.2", ".csv", "/tmp/v1.2.csv"),
        ("v1.2", "_episodes.csv", "v1.2_episodes.csv"),
    ],
)
def test_a_dot_in_a_name_is_part_of_it(out, ending, path):
    assert beside(Path(out), ending) == Path(path)


def test_rows_replace_a_file_only_once_they_are_complete(tmp_path):
    path = tmp_path / "deep" / "a.csv"
    write_rows(path, [{"n": 1, "name": "one, two"}, {"n": 2, "name": ""}])
    assert path.read_bytes() == b'n,name\n1,"one, two"\n2,\n'
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_rows(path, [{"n": 3, "name": ""}, {"n": 4, "other": ""}])
    assert path.read_bytes().startswith(b"n,name\n1")
    write_rows(path, [{"n": 5}])
    assert path.read_bytes() == b"n\n5\n"


def test_figures_are_written_below_the_machine_they_were_measured_on(tmp_path):
    path = tmp_path / "memory.csv"
    write_csv(path, [Figure("replay", "draw", 10, "wall p50", 0.5, "ms")], load=0.25)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["part", "name", "rows", "statistic", "value", "unit"]
    assert [row["part"] for row in rows] == ["machine"] * 3 + ["replay"]
    assert rows[2]["value"] == "0.25"
    assert rows[3] == {
        "part": "replay",
        "name": "draw",
        "rows": "10",
        "statistic": "wall p50",
        "value": "0.5",
        "unit": "ms",
    }


def test_a_table_in_markdown():
    rows = [{"run": "a", "won": 1}, {"run": "b", "won": 2}]
    assert markdown(rows) == "| run | won |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n"
    assert markdown(rows, numbers=True).splitlines()[1] == "| --- | ---: |"
