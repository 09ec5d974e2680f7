"""The report of a training run: tables, figures and raw data in `<run>/report/`, readable as REPORT.md.

Everything is read from the run's CSV files, so a report can be written again at any time, and a run that was
stopped early gets a report of what there is, with a line for each part that is missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from grasp_control import figures
from grasp_control.figures import MOVING_AVERAGE_EPISODES, Columns, moving_average
from grasp_control.markdown import markdown
from grasp_control.summary import HEADINGS, PolicySummary, evaluation_points, explanations, summarise
from grasp_control.tables import STEP_COLUMN, read_stream
from grasp_control.video import filmstrip_path

STREAMS = ("evaluation", "episodes", "train", "score_histogram", "events")

TARGET_SUCCESS = 0.9


def print_table(summaries: Sequence[PolicySummary], console: Console | None = None) -> None:
    """Print the evaluation as a table on the terminal, and what its policies are."""
    table = Table(title="Evaluation")
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    for summary in summaries:
        table.add_row(*summary.cells())
    console = console or Console()
    console.print(table)
    console.print("\n".join(explanations(summaries)), highlight=False)


def write_report(run_dir: str | Path, title: str = "Training report", video: Path | None = None) -> Path:
    """Write `<run_dir>/report/` anew and answer the path of its REPORT.md.

    Args:
        run_dir: a run's folder with the streams of `STREAMS`; any of them may be missing.
        title: the report's heading.
        video: written by `video.render_grasps`, linked where it is; its filmstrip is copied.
    """
    run_dir = Path(run_dir)
    folder = run_dir / "report"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    streams = {name: read_stream(run_dir, name) for name in STREAMS}
    summaries = summarise(run_dir)

    pictures, missing = [], []
    for name, heading, draw in _figures(streams, summaries):
        try:
            figure = draw()
        except _MissingError as gap:
            missing.append(f"{heading}: {gap}")
            continue
        figure.savefig(folder / f"{name}.png")
        pictures.append(f"### {heading}\n\n![{heading}]({name}.png)")
    data = sorted(run_dir.glob("*.csv"))
    for path in data:
        shutil.copy2(path, folder / "data" / path.name)

    parts = [f"# {title}", "## Result", *_result(summaries)]
    if video is not None:
        strip = filmstrip_path(video)
        shutil.copy2(strip, folder)
        parts += ["## Grasps", f"![One grasp from its start to its end]({strip.name})"]
        link = f"[{video.name}]({os.path.relpath(video, folder)})"
        parts.append(f"One grasp of the exported network, from left to right; {link} shows several.")
    parts += _facts(streams)
    parts += ["## Figures", *pictures] if pictures else []
    parts += ["## Missing", "\n".join(f"- {line}" for line in missing)] if missing else []
    links = [f"- [{path.name}](data/{path.name})" for path in data]
    parts += ["## Data", "\n".join(links) or "The run wrote no data."]
    report = folder / "REPORT.md"
    report.write_text("\n\n".join(parts) + "\n")
    return report


class _MissingError(Exception):
    """The run holds no data for a figure."""


def _result(summaries: Sequence[PolicySummary]) -> list[str]:
    if not summaries:
        return ["No policy was evaluated."]
    rows = [dict(zip(HEADINGS, summary.cells(), strict=True)) for summary in summaries]
    return [markdown(rows, numbers=True).strip(), "\n".join(f"- {line}" for line in explanations(summaries))]


def _facts(streams: Mapping[str, Columns]) -> list[str]:
    """One list of what the run did, as far as its streams tell."""
    lines = []
    episodes, train = streams["episodes"], streams["train"]
    if _has_rows(episodes, STEP_COLUMN, "success"):
        steps, success = episodes[STEP_COLUMN], episodes["success"]
        lines.append(f"{len(success)} training episodes, {steps[-1]:.0f} environment steps.")
        window = min(len(success), MOVING_AVERAGE_EPISODES)
        lines.append(
            f"Success over the last {window} training episodes: {success[-window:].mean():.1%}. They carry "
            "exploration noise, and starts that failed are repeated, so this is below what the policy can do."
        )
        average = moving_average(success)
        reached = np.flatnonzero(average[MOVING_AVERAGE_EPISODES - 1 :] >= TARGET_SUCCESS)
        when = f"at step {steps[MOVING_AVERAGE_EPISODES - 1 + reached[0]]:.0f}" if len(reached) else "never"
        target = f"{TARGET_SUCCESS:.0%} success over {MOVING_AVERAGE_EPISODES} training episodes"
        lines.append(f"{target} first reached: {when}.")
    if _has_rows(episodes, "slip"):
        slip = episodes["slip"]
        lines.append(f"Slips: in {np.nansum(slip):.0f} of {len(slip)} training episodes.")
    for column, said in (
        ("slips_total", "Steps in memory labelled as slip, each slip with the steps that led to it: {:.0f}."),
        ("memory_size", "Steps in memory, demonstrations included: {:.0f}."),
        ("update", "Learner updates: {:.0f}."),
    ):
        if _has_rows(train, column):
            lines.append(said.format(train[column][-1]))
    if _has_rows(train, "retrieval_fallbacks"):
        late = train["retrieval_fallbacks"][-1]
        lines.append(f"Memory queries over the deadline, answered at random: {late:.0f}.")
        if late > 0:
            lines[-1] += " Which ones depends on how busy the machine is: the same run again differs."
    events = streams["events"]
    if _has_rows(events, "action"):
        rows = zip(events[STEP_COLUMN], events["action"], events["cause"], strict=True)
        lines += [f"Safeguard at step {step:.0f}: {action}, since {cause}." for step, action, cause in rows]
    return ["## Run", "\n".join(f"- {line}" for line in lines)] if lines else []


def _figures(
    streams: Mapping[str, Columns], summaries: Sequence[PolicySummary]
) -> list[tuple[str, str, Callable[[], Figure]]]:
    """(file name, heading, drawing function); a drawing function raises _MissingError without its data."""

    def needs(stream: str, columns: Sequence[str], draw: Callable[[Columns], Figure]) -> Callable[[], Figure]:
        def checked() -> Figure:
            _require(streams[stream], stream, columns)
            return draw(streams[stream])

        return checked

    def line(column: str, title: str, y_label: str, *, share: bool = False) -> Callable[[], Figure]:
        def draw(train: Columns) -> Figure:
            return figures.over_steps(train, column, title, y_label, share=share)

        return needs("train", (STEP_COLUMN, column), draw)

    def success(_: Columns) -> Figure:
        return figures.success_bars([(s.label, s.successes, s.episodes) for s in summaries])

    def learning(episodes: Columns) -> Figure:
        points = evaluation_points(streams["evaluation"], episodes[STEP_COLUMN][-1])
        return figures.learning_curve(episodes, points, streams["events"])

    def schedules(train: Columns) -> Figure:
        return figures.schedules(train, streams["events"])

    shares = tuple(f"share_{name}" for name in figures.SOURCE_COLORS)
    bins = (STEP_COLUMN, "bin_low", "bin_high", "count")
    return [
        ("success", "Success", needs("evaluation", ("policy", "success"), success)),
        ("learning_curve", "Learning curve", needs("episodes", (STEP_COLUMN, "success"), learning)),
        ("schedules", "Schedules", needs("train", (STEP_COLUMN, *figures.SHARES), schedules)),
        ("entropy", "Policy entropy", line("entropy", "Policy entropy", "entropy (nats)")),
        (
            "hit_rate",
            "Memory hit rate",
            line("hit_rate", "Memory hit rate", "share of retrieval-driven actions", share=True),
        ),
        ("score_histogram", "Scores", needs("score_histogram", bins, figures.score_histogram)),
        ("sources", "Share of each source", needs("train", (STEP_COLUMN, *shares), figures.source_shares)),
        (
            "constraint",
            "Grip-force constraint",
            needs("train", (STEP_COLUMN, *figures.CONSTRAINT, "force_limit"), figures.constraint),
        ),
        ("slips", "Slips", needs("episodes", (STEP_COLUMN, "slip"), figures.slip_counts)),
    ]


def _require(columns: Columns, stream: str, names: Sequence[str]) -> None:
    if not columns:
        raise _MissingError(f"{stream}.csv is not there.")
    absent = [name for name in names if name not in columns]
    if absent:
        raise _MissingError(f"{stream}.csv has no column {', '.join(absent)}.")
    if len(columns[names[0]]) == 0:
        raise _MissingError(f"{stream}.csv has no rows.")
    for name in names:
        if columns[name].dtype.kind == "f" and not np.isfinite(columns[name]).any():
            raise _MissingError(f"{stream}.csv has no number in column {name}.")


def _has_rows(columns: Columns, *names: str) -> bool:
    return all(name in columns and len(columns[name]) > 0 for name in names)
