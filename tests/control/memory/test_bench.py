"""The benchmark command, at a size that only shows that it works."""

import csv

import numpy as np
import pytest

from grasp_control.bench import main
from grasp_control.bench.trajectories import CONTEXT, KINDS, STEPS, WIDTH, episode_arrays
from grasp_control.memory.window import episode_windows
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM


def test_memory_benchmark_prints_tables_and_writes_raw_figures(tmp_path, capsys):
    out = tmp_path / "sub" / "memory.csv"
    sizes = ["rows=6000", "retrieval_rows=[5200,21000]", "queries=20", "repeats=5", "batch=64"]
    assert main(["memory", *sizes, f"out={out}"]) == 0
    printed = capsys.readouterr().out
    assert "whole prioritised cycle" in printed
    assert "[ms]" in printed
    assert str(out) in printed.replace("\n", "")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    recall = {(row["part"], row["rows"]): float(row["value"]) for row in rows if "recall" in row["statistic"]}
    assert len(recall) == 2 * len(KINDS)
    assert all(value > 0.9 for value in recall.values())
    assert all(np.isfinite(float(row["value"])) for row in rows if row["part"] != "machine")


def test_encoder_benchmark_compares_what_is_retrieved(tmp_path, capsys):
    sizes = ["environments=[pybullet-lift]", "demos=4", "fitted=2", "splits=2", "betas=[0.5]", "updates=5"]
    assert main(["encoder", *sizes, "refresh_rows=5200", f"out={tmp_path / 'encoder'}"]) == 0
    assert "VAE, beta 0.5" in capsys.readouterr().out
    with (tmp_path / "encoder.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["encoder"], row["split"]) for row in rows] == [
        (name, split) for name in ("projection", "VAE, beta 0.5") for split in "01"
    ]
    assert all(0 < float(row["error"]) < 1 for row in rows)
    assert (tmp_path / "encoder.md").read_text().count("| projection |") == 2


@pytest.mark.parametrize(("words", "message"), [(["memry"], "Did you mean 'memory'"), (["x"], "Choices: ")])
def test_unknown_benchmark_names_the_known_ones(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_bad_sizes_are_quoted(capsys):
    assert main(["memory", "rows=10"]) == 2
    assert "rows=10" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_made_up_windows_have_the_layout_of_real_ones(kind):
    windows, actions = episode_arrays(kind, 2, np.random.default_rng(0))
    assert windows.shape == (2, STEPS + 1, WIDTH)
    newest = windows[1].reshape(STEPS + 1, CONTEXT, OBSERVATION_DIM + ACTION_DIM)[:, -1, :OBSERVATION_DIM]
    np.testing.assert_array_equal(windows[1], episode_windows(newest, actions[1], CONTEXT))
