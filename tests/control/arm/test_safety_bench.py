"""`grasp-bench safety` measures what it says it does."""

import csv

import numpy as np
import pytest

from grasp_control.bench.safety import SITUATIONS, SafetyBenchConfig, measure


@pytest.mark.parametrize("rate", [125, 500])
def test_every_situation_is_really_entered(rate, tmp_path, capsys):
    out = tmp_path / "safety.csv"
    measure(SafetyBenchConfig(rate=rate, cycles=1000, out=str(out)))
    with out.open() as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "safety"]
    assert {row["name"] for row in rows} == set(SITUATIONS)
    for row in rows:
        if row["statistic"] == "share of cycles so":
            assert float(row["value"]) > 0.95, row["name"]
        else:
            assert np.isfinite(float(row["value"]))
            assert row["unit"] == "us"
    assert "Safety filter" in capsys.readouterr().out


def test_an_unknown_rate_is_refused():
    with pytest.raises(ValueError, match="rate"):
        SafetyBenchConfig(rate=100)
