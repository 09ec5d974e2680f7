"""What a stage says about itself, with a clock that the test turns."""

from __future__ import annotations

import math

import pytest

from grasp_control import progress
from grasp_control.progress import TimeLeft, bar, numbered


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, as [now]."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_follows_the_last_tenth_of_the_work():
    left = TimeLeft(100)
    assert math.isnan(left.seconds(0.0, 0))
    assert left.seconds(10.0, 10) == 90.0  # 1 s a step
    assert left.seconds(40.0, 20) == 240.0  # now 3 s a step, whatever the first ten took


def test_a_warm_up_gives_no_estimate_and_enters_none():
    left = TimeLeft(100, steady_from=30)
    assert math.isnan(left.seconds(1.0, 20))
    assert math.isnan(left.seconds(2.0, 30))
    assert left.seconds(7.0, 31) == 5.0 * 69


def test_a_log_file_gets_parts_with_commas_and_the_result_at_the_end(clock, capsys):
    (title,) = numbered("Work")
    with bar(title, 10) as advance:
        for done in range(1, 11):
            clock[0] = 25.0 * done
            advance(note=f"success {done} of {done}" if done > 8 else None)
    assert capsys.readouterr().out.splitlines() == [
        "[1/1] Work: 1/10, about 4 min left",
        "[1/1] Work: 2/10, about 3 min left",
        "[1/1] Work: 3/10, about 3 min left",
        "[1/1] Work: 4/10, about 2 min left",
        "[1/1] Work: 5/10, about 2 min left",
        "[1/1] Work: 6/10, about 2 min left",
        "[1/1] Work: 7/10, about 75 s left",
        "[1/1] Work: 8/10, about 50 s left",
        "[1/1] Work: 9/10, about 25 s left, success 9 of 9",
        "[1/1] Work: 10/10 in 250 s, success 10 of 10",
    ]


def test_short_work_gets_one_line_and_work_done_before_none(clock, capsys):
    with bar("Work", 4, done=2) as advance:
        advance()
        clock[0] = 3.0
        advance()
    with bar("More", 4, done=4):
        pass
    assert capsys.readouterr().out == "Work: 4/4 in 3 s\n"


def test_stages_are_numbered():
    assert numbered("Clone", "Train") == ["[1/2] Clone", "[2/2] Train"]
