"""Streams on disk: fixed columns, resuming without rows from the future, and the Wilson interval."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from grasp_control.intervals import wilson_interval
from grasp_control.metrics import MetricsWriter
from grasp_control.tables import MetricsError, read_stream
from grasp_sim.errors import UserError


def test_rows_come_back_as_typed_columns(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("episodes", {"env_step": 52, "success": True, "return": np.float32(0.5), "task": "lift"})
        writer.write("episodes", {"env_step": 152, "success": False, "return": math.nan, "task": "lift, two"})
    columns = read_stream(tmp_path, "episodes")
    assert columns["env_step"].tolist() == [52.0, 152.0]
    assert columns["success"].tolist() == [1.0, 0.0]
    assert columns["return"][0] == 0.5
    assert math.isnan(columns["return"][1])
    assert columns["task"].tolist() == ["lift", "lift, two"]


def test_json_lines_are_strict_json(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", {"env_step": 1, "loss": math.nan, "bound": math.inf, "note": "warm"})
    line = (tmp_path / "train.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "env_step": 1,
        "loss": None,
        "bound": None,
        "note": "warm",
    }


def test_rows_are_on_disk_before_the_writer_closes(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write("train", {"env_step": 1, "loss": 0.5})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [0.5]
    writer.close()


def test_columns_may_come_in_any_order_but_must_be_the_same(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", {"env_step": 1, "loss": 0.5})
        writer.write("train", {"loss": 0.25, "env_step": 2})
        with pytest.raises(MetricsError, match=r"missing \['loss'\], unknown \['lost'\]"):
            writer.write("train", {"env_step": 3, "lost": 0.1})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [0.5, 0.25]


def test_a_cell_that_is_no_number_or_text_is_refused(tmp_path):
    with MetricsWriter(tmp_path) as writer, pytest.raises(MetricsError, match="ndarray"):
        writer.write("train", {"env_step": 1, "loss": np.zeros(2)})  # type: ignore[dict-item]


def test_a_new_run_does_not_write_into_an_old_one(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", {"env_step": 1, "loss": 0.5})
    with MetricsWriter(tmp_path) as writer, pytest.raises(UserError, match="resume that run"):
        writer.write("train", {"env_step": 1, "loss": 0.7})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [0.5]


def test_resuming_removes_rows_written_after_the_checkpoint(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in (1000, 2000, 3000):
            writer.write("train", {"env_step": step, "loss": step / 1000})
        writer.write("machine", {"cores": 2})
    with MetricsWriter(tmp_path, resume_step=2000) as writer:
        writer.write("train", {"env_step": 3000, "loss": 9.0})
        writer.write("machine", {"cores": 4})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [1.0, 2.0, 9.0]
    assert read_stream(tmp_path, "machine")["cores"].tolist() == [2.0, 4.0]
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [1.0, 2.0, 9.0]


@pytest.mark.parametrize("rest", ["3000,0.", "3000,0.25", "3000"])
def test_a_half_written_last_line_is_dropped(tmp_path, rest):
    (tmp_path / "train.csv").write_text("env_step,loss\n1000,1.0\n2000,2.0\n" + rest)
    assert read_stream(tmp_path, "train")["env_step"].tolist() == [1000.0, 2000.0]
    with MetricsWriter(tmp_path, resume_step=9000) as writer:
        writer.write("train", {"env_step": 9000, "loss": 3.0})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [1.0, 2.0, 3.0]


def test_resuming_over_a_half_written_header_starts_the_stream_anew(tmp_path):
    (tmp_path / "train.csv").write_text("env_st")
    with MetricsWriter(tmp_path, resume_step=0) as writer:
        writer.write("train", {"env_step": 1, "loss": 3.0})
    assert read_stream(tmp_path, "train")["loss"].tolist() == [3.0]


def test_a_missing_stream_reads_as_empty(tmp_path):
    assert read_stream(tmp_path, "train") == {}


def test_numbers_become_scalars_over_env_steps_and_tables_do_not(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write("train", {"env_step": 1000, "loss": 0.5, "phase": "warm"})
        writer.write_table("score_histogram", [{"env_step": 1000, "bin_low": 0.0, "count": 3}])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1000, 0.5)]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # By hand with z = 1.96, z^2 = 3.8416: 8 of 10 has centre 0.8 + 0.19208 = 0.99208, spread
        # 1.96 * sqrt(0.016 + 0.009604) = 0.31363, scale 1.38416.
        (8, 10, 0.4902, 0.9433),
        # 0 of 10: high = z^2 / (n + z^2) = 3.8416 / 13.8416.
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        # 90 of 100: centre 0.919208, spread 1.96 * sqrt(0.0009 + 0.00009604) = 0.061859, scale 1.038416.
        (90, 100, 0.8256, 0.9448),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_by_hand(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_interval_refuses_impossible_counts():
    with pytest.raises(ValueError, match="5 of 3"):
        wilson_interval(5, 3)


def test_a_stage_done_again_replaces_its_rows_and_no_others(tmp_path):
    def row(policy, step, success):
        return {"policy": policy, "env_step": step, "success": success}

    with MetricsWriter(tmp_path) as metrics:
        metrics.write_table("evaluation", [row("cloned", 0, 1), row("hybrid", 9, 0), row("hybrid", 5, 1)])
    with MetricsWriter(tmp_path, resume_step=9) as metrics:
        metrics.replace_table("evaluation", [row("hybrid", 9, 1), row("hybrid", 9, 1)])
        metrics.replace_table("evaluation", [row("hybrid", 9, 1), row("hybrid", 9, 0)])
    lines = (tmp_path / "evaluation.csv").read_text().splitlines()
    assert lines[1:] == ["cloned,0,1", "hybrid,5,1", "hybrid,9,1", "hybrid,9,0"]
    assert len((tmp_path / "evaluation.jsonl").read_text().splitlines()) == 4
