"""A report from a run's CSV files: whole, with gaps, and from nothing."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from grasp_control import figures
from grasp_control.metrics import MetricsWriter
from grasp_control.report import print_table, write_report
from grasp_control.summary import evaluation_points, summarise
from grasp_control.tables import read_stream

FIGURES = [
    *("success", "learning_curve", "schedules", "entropy", "hit_rate", "score_histogram", "sources"),
    *("constraint", "slips"),
]


def write_stream(run_dir, stream: str, rows: list[dict]) -> None:
    """The stream as a run that wrote only these rows leaves it."""
    (run_dir / f"{stream}.csv").unlink(missing_ok=True)
    with MetricsWriter(run_dir) as metrics:
        metrics.write_table(stream, rows)


def evaluation_rows(policy: str, successes: int, episodes: int, **more: float) -> list[dict]:
    return [
        {
            "policy": policy,
            "episode": n,
            "seed": n,
            "success": n < successes,
            "return": 1.0,
            "length": 52,
            "slip": 0,
        }
        | more
        for n in range(episodes)
    ]


@pytest.fixture
def run_dir(tmp_path):
    generator = np.random.default_rng(0)
    with MetricsWriter(tmp_path) as writer:
        for n in range(150):
            success = bool(generator.random() < n / 100)
            writer.write(
                "episodes",
                {
                    "env_step": 52 * (n + 1),
                    "episode": n,
                    "success": success,
                    "slip": n % 5 == 0,
                    "drop": n % 10 == 0,
                },
            )
        for step in (1000, 2000, 3000):
            shares = {"share_online": 0.4, "share_success": 0.4, "share_demo": 0.1, "share_slip": 0.1}
            row = {
                "env_step": step,
                "update": step,
                "entropy": 3000 / step,
                "hit_rate": 0.5,
                "memory_size": step,
            }
            told = dict.fromkeys((*figures.SHARES, "force_excess", "force_multiplier", "force_limit"), 0.5)
            writer.write(
                "train", row | shares | told | {"slips_total": 64, "retrieval_fallbacks": step // 3000}
            )
            bins = [{"env_step": step, "bin_low": b, "bin_high": b + 1.0, "count": step} for b in range(3)]
            writer.write_table("score_histogram", bins)
    write_stream(
        tmp_path, "evaluation", evaluation_rows("cloned", 7, 10) + evaluation_rows("exported", 8, 10)
    )
    return tmp_path


def test_a_whole_run_gets_every_figure_its_data_and_a_table(run_dir):
    (run_dir / "grasps.png").write_bytes(b"five pictures")
    report = write_report(run_dir, title="Lift", video=run_dir / "grasps.mp4")
    text = report.read_text()
    assert report == run_dir / "report" / "REPORT.md"
    assert text.startswith("# Lift\n")
    for name in FIGURES:
        assert (run_dir / "report" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"({name}.png)" in text
    assert "## Missing" not in text
    # 8 of 10 by Wilson: 49.0 % to 94.3 %.
    assert "| exported network | 80.0% | 49.0% - 94.3% | 8 of 10 | 1.000 | 52.0 | 0.0% |" in text
    assert text.index("| exported network") < text.index("| cloned policy")
    for explained in ("- exported network: the one network", "- cloned policy: the actors", "- slips: share"):
        assert explained in text
    assert "- hybrid policy:" not in text  # it was not evaluated
    assert "150 training episodes, 7800 environment steps." in text
    assert "- Slips: in 30 of 150 training episodes." in text
    assert "labelled as slip, each slip with the steps that led to it: 64." in text
    assert "answered at random: 1. Which ones depends on how busy the machine is" in text
    assert text.index("(../grasps.mp4)") < text.index("## Run")
    assert "](grasps.png)" in text
    assert (run_dir / "report" / "grasps.png").read_bytes() == b"five pictures"
    copied = run_dir / "report" / "data" / "episodes.csv"
    assert copied.read_bytes() == (run_dir / "episodes.csv").read_bytes()


def test_safeguards_that_acted_are_told_with_their_cause(run_dir):
    cause = "the mean return fell, from 0.9 to 0.1"
    write_stream(run_dir, "events", [{"env_step": 1500, "action": "roll back", "cause": cause}])
    text = write_report(run_dir).read_text()
    assert f"- Safeguard at step 1500: roll back, since {cause}." in text


def test_writing_a_report_again_replaces_it(run_dir):
    write_report(run_dir)
    (run_dir / "train.csv").unlink()
    text = write_report(run_dir).read_text()
    assert "grasps.mp4" not in text
    assert "Policy entropy: train.csv is not there." in text
    assert not (run_dir / "report" / "entropy.png").exists()


def test_what_is_missing_is_named(run_dir):
    write_stream(run_dir, "train", [{"env_step": 1, "entropy": 1.0, "hit_rate": float("nan")}])
    (run_dir / "evaluation.csv").unlink()
    (run_dir / "score_histogram.csv").write_text("env_step,bin_low,bin_high,count\n")
    text = write_report(run_dir).read_text()
    assert "No policy was evaluated." in text
    assert "- Success: evaluation.csv is not there." in text
    assert "- Memory hit rate: train.csv has no number in column hit_rate." in text
    assert "- Scores: score_histogram.csv has no rows." in text
    assert "train.csv has no column share_online, share_success, share_demo, share_slip." in text
    assert "(entropy.png)" in text


def test_a_run_that_wrote_nothing_gets_a_report_that_says_so(tmp_path):
    text = write_report(tmp_path).read_text()
    assert "The run wrote no data." in text
    assert text.count("is not there.") == len(FIGURES)


def test_the_last_evaluation_of_a_policy_counts(tmp_path):
    early = evaluation_rows("hybrid", 1, 10, env_step=1000)
    late = evaluation_rows("hybrid", 9, 10, env_step=2000)
    write_stream(tmp_path, "evaluation", late + early)
    (summary,) = summarise(tmp_path)
    assert (summary.successes, summary.episodes) == (9, 10)
    points = evaluation_points(read_stream(tmp_path, "evaluation"), last_step=5000.0)
    assert points == [("hybrid policy", 1000.0, 1, 10), ("hybrid policy", 2000.0, 9, 10)]


def test_an_evaluation_without_steps_lies_at_the_end_of_the_run(tmp_path):
    rows = evaluation_rows("exported", 9, 10) + evaluation_rows("second arm", 0, 5)
    write_stream(tmp_path, "evaluation", rows)
    points = evaluation_points(read_stream(tmp_path, "evaluation"), last_step=5000.0)
    assert points == [("exported network", 5000.0, 9, 10), ("second arm", 5000.0, 0, 5)]


def test_a_success_rate_of_none_and_of_all_can_be_drawn():
    figures.success_bars([("a", 0, 10), ("b", 10, 10)]).savefig(io.BytesIO())


def test_moving_average_by_hand():
    average = figures.moving_average(np.array([1.0, 0.0, np.nan, 1.0, 1.0]), width=3)
    assert average.tolist() == [1.0, 0.5, 0.5, 0.5, 1.0]
    assert np.isnan(figures.moving_average(np.array([np.nan, 2.0]), width=3)).tolist() == [True, False]


def test_rebinning_by_hand():
    edges, counts = np.array([0.0, 2.0, 4.0]), np.array([4.0, 1.0])
    wanted = np.array([-1.0, 1.0, 3.0, 5.0])
    assert figures.rebinned(edges, counts, wanted).tolist() == [2.0, 2.5, 0.5]


def test_scores_of_two_steps_are_drawn_in_the_same_bins():
    def bins(step: int, width: float) -> list[tuple[float, ...]]:
        return [(step, width * b, width * (b + 1), 1) for b in range(4)]

    columns = np.array([*bins(0, 0.25), *bins(9, 1.0)]).T
    histogram = dict(zip(("env_step", "bin_low", "bin_high", "count"), columns, strict=True))
    narrow, wide = (patch.get_data() for patch in figures.score_histogram(histogram).axes[0].patches)
    np.testing.assert_array_equal(narrow.edges, wide.edges)
    # Scores spread evenly from 0 to 1 are four times as dense as scores spread evenly from 0 to 4.
    assert narrow.values[0] == pytest.approx(4 * wide.values[0])
    assert narrow.values.sum() == wide.values.sum() == pytest.approx(1.0)


def test_the_table_shows_every_policy(run_dir):
    console = Console(file=io.StringIO(), width=120)
    print_table(summarise(run_dir), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "exported network" in shown
    assert "49.0% - 94.3%" in shown
    assert "cloned policy: the actors after imitating" in shown


def test_drawing_leaves_pyplot_alone(run_dir):

    code = (
        "import sys, grasp_control.report as r; r.write_report(sys.argv[1]); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(run_dir)], check=True)


def test_a_task_without_a_force_limit_gets_no_figure_of_the_constraint(run_dir):
    rows = [
        {"env_step": step, "force_excess": 0.0, "force_multiplier": 0.0, "force_limit": float("inf")}
        for step in (1, 2)
    ]
    write_stream(run_dir, "train", rows)
    text = write_report(run_dir, title="Lift").read_text()
    assert "no number in column force_limit" in text
    assert not (run_dir / "report" / "constraint.png").exists()


def test_safeguard_events_are_marked_once_for_each_action():
    train = {"env_step": np.array([1.0, 9.0]), **{name: np.array([0.1, 0.2]) for name in figures.SHARES}}
    events = {"env_step": np.array([2.0, 3.0, 4.0]), "action": ["roll back", "raise lambda", "roll back"]}
    axes = figures.schedules(train, events).axes[0]
    marked = [line.get_label() for line in axes.get_lines() if len(set(line.get_xdata())) == 1]
    assert [label for label in marked if str(label).startswith("safeguard")] == [
        "safeguard: roll back",
        "safeguard: raise lambda",
    ]
    assert len(marked) == 3
