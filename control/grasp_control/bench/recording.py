"""`grasp-bench recording`: what killed recorders lose, and how long large data sets take."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grasp_control.bench.data_set_times import measure_times, multiply
from grasp_control.bench.kills import PATIENCE, Plan, kill_all
from grasp_control.bench.measure import beside, load_per_core, show_rows, write_rows
from grasp_control.bench.recorder import CHANGED, RECORDED, WAYS
from grasp_control.bench.settings import require_beginning
from grasp_control.build import generator
from grasp_control.config import MAX_EPISODES
from grasp_control.markdown import markdown
from grasp_demos.episode import Episode
from grasp_demos.reader import read_usable
from grasp_sim.cli import require_at_least, require_at_most, run_command

HELP = """Kill recorders and look for everything they had acknowledged; time the check of a large data set.

Each recorder is a process of its own and records in pybullet-lift: the scripted expert, a scripted person who
also calls episodes failures and throws them away, or that person helping a policy. Half of them are killed
with SIGKILL after a random time; the others do it themselves within recovering, beginning, a step, finishing,
changing a verdict, setting aside or discarding: with a frame of the log or an episode's file cut anywhere, a
rename or a removal not done. Several recorders in turn go on in the same data set.

Afterwards every finished episode must be there, valid and with the steps and the verdict acknowledged; the
unfinished one must hold every acknowledged step, at most one more, and be marked incomplete; the next
recording must have the next index; nothing else may lie in the folder.

Writes OUT.csv (a row per kill), OUT_times.csv (a row per timing) and OUT.md (the tables). The exit code is 1
when anything was lost or otherwise than it should be; the column `faults` says what.

Example: grasp-bench recording kills=12 episodes=50 out=/tmp/recording"""


@dataclass
class RecordingBenchConfig:
    """Settings of `grasp-bench recording`."""

    kills: int = 100
    """Recorders that are started and killed."""
    per_data_set: int = 10
    """Recorders that go on in the same data set, one after the other."""
    longest: float = 1.0
    """s: those killed after a time are given at most this from the opening of the data set on."""
    episodes: int = 1000
    """Episodes of the data set whose check is timed, made from the recorded ones."""
    seed: int = 0
    """Fixes the times and moments of the kills, and the starts of the episodes."""
    out: str = "docs/benchmarks/recording"
    """Beginning of the names of the files written."""

    def __post_init__(self) -> None:
        require_at_least(self, {"kills": 1, "per_data_set": 1, "longest": 0.0, "episodes": 1, "seed": 0})
        require_at_most(self, {"kills": 100_000, "per_data_set": 1000, "longest": PATIENCE})
        require_at_most(self, {"episodes": MAX_EPISODES})
        require_beginning(self.out)


def run(arguments: Sequence[str]) -> int:
    """Measure with `key=value` settings; returns the exit code."""
    return run_command(RecordingBenchConfig, measure, HELP, argv=arguments, program="grasp-bench recording")


def measure(config: RecordingBenchConfig) -> int:
    """Kill, look, time, print the tables, write the files; 1 when an expectation failed."""
    load = load_per_core()
    plan = Plan(config.kills, config.per_data_set, config.longest, config.seed)
    with tempfile.TemporaryDirectory() as place:
        rows, timings = kill_all(plan, Path(place), generator(config.seed, "kills"))
        files = [(path.stat().st_size, way) for way in WAYS for path in Path(place).glob(f"{way}-*/*.npz")]
        recordings = _recordings(Path(place))
        times, wrong = [], ["no episode was finished, so none could be checked"]
        if recordings:
            steps = multiply(
                recordings, Path(place) / "large", config.episodes, generator(config.seed, "large")
            )
            times, wrong = measure_times(Path(place) / "large", steps)
    tables = {
        "Killed recorders, by the way of recording": [_summary(way, rows) for way in (*WAYS, "all")],
        "Killed recorders, by what they were doing": _moments(rows),
        "A recorded episode": [_cost(way, timings, files) for way in WAYS if timings[way]],
        f"A data set of {config.episodes} episodes": times,
    }
    for title, table in tables.items():
        if table:
            show_rows(title, table)
    out = Path(config.out)
    write_rows(beside(out, ".csv"), rows)
    if times:
        write_rows(beside(out, "_times.csv"), [{**row, "load_per_core": round(load, 2)} for row in times])
    beside(out, ".md").write_text(
        "\n".join(f"{t}:\n\n{markdown(table)}" for t, table in tables.items() if table)
    )
    print(f"Written: {out}.csv, {out}.md{f', {out}_times.csv' if times else ''}")
    faults = [f"kill {row['kill']}: {row['faults']}" for row in rows if row["faults"]] + wrong
    losses = [f"kill {row['kill']}, in {row['data_set']}: lost {row['lost']}" for row in rows if row["lost"]]
    lost = sum(int(str(row["lost"])) for row in rows)
    for line in [*losses, *faults][:20]:
        print(f"grasp-bench recording: {line}", file=sys.stderr)
    print(f"Lost: {lost}. Other faults: {len(faults)}.")
    return 1 if lost or faults else 0


def _recordings(place: Path) -> list[Episode]:
    """Everything complete, failures too."""
    folders = sorted(path for way in WAYS for path in place.glob(f"{way}-*") if any(path.glob("*.npz")))
    return [episode for folder in folders for episode in read_usable(folder)[0] if episode.metadata.complete]


def _summary(way: str, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    mine = [row for row in rows if way in (row["way"], "all")]

    def total(name: str) -> int:
        return sum(int(str(row[name])) for row in mine)

    return {
        "way": way,
        "kills": len(mine),
        "after a time": sum(row["killed"] == "after a time" for row in mine),
        "episodes finished": total("finished"),
        "looked for": total("episodes"),
        "found": total("episodes_found"),
        "steps of unfinished": total("steps"),
        "of them found": total("steps_found"),
        "lost": total("lost"),
        "other faults": sum(bool(row["faults"]) for row in mine),
    }


def _moments(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    counts = Counter((str(row["during"]), str(row["operation"]) or "a time") for row in rows)
    lost = Counter({key: 0 for key, _ in counts})
    for row in rows:
        lost[str(row["during"])] += int(str(row["lost"]))
    columns = ["a time", *dict.fromkeys(operation for _, operation in (*RECORDED, *CHANGED))]
    return [
        {"during": during, **{name: counts[during, name] for name in columns}, "lost": lost[during]}
        for during in sorted(lost)
    ]


def _cost(
    way: str, timings: dict[str, list[dict[str, float]]], files: Sequence[tuple[int, str]]
) -> dict[str, object]:
    mine = timings[way]
    mean = {name: float(np.mean([row[name] for row in mine])) for name in mine[0]}
    return {
        "way": way,
        "episodes": len(mine),
        "mean steps": round(mean["steps"], 1),
        "mean kB": round(float(np.mean([size for size, of in files if of == way])) / 1e3, 1),
        "s of recording": round(mean["recording_s"], 3),
        "s of them in the writer": round(mean["writing_s"], 4),
    }
