"""`grasp-demos check`: name everything that is wrong with episodes, or remarkable about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grasp_demos.consistency import Consistency
from grasp_demos.episode import DemoError
from grasp_demos.files import Found, find_episodes
from grasp_demos.outputs import replacing, require_output, require_suffix
from grasp_demos.plausibility import MAX_GAP, implausible
from grasp_demos.reader import read_episode
from grasp_demos.validate import Defect, check_shapes, validate
from grasp_demos.words import printable, run_on_paths


class Finding(NamedTuple):
    """One thing wrong or remarkable."""

    file: str
    episode: int | None
    """Index by its metadata; None where it cannot be read."""
    step: int | None
    dimension: str | None
    problem: str
    severity: str
    """`error`: the episode is unusable. `warning`: worth a look."""

    def __str__(self) -> str:
        """One line for a person."""
        where = self.file if self.episode is None else f"{self.file}, episode {self.episode}"
        where += "" if self.step is None else f", step {self.step}"
        where += "" if self.dimension is None else f", {self.dimension}"
        return printable(f"{self.severity}: {where}: {self.problem}")


class Checked(NamedTuple):
    """The outcome of a check."""

    files: list[dict[str, object]]
    """One entry a file: what it holds and how many errors and warnings concern it."""
    findings: list[Finding]
    """In the order of the files."""

    @property
    def summary(self) -> dict[str, int]:
        """Numbers of files, episodes, steps, successes, errors and warnings."""
        severities = Counter(finding.severity for finding in self.findings)
        episodes = [entry for entry in self.files if entry["readable"]]
        return {
            "files": len(self.files),
            "episodes": len(episodes),
            "steps": sum(int(str(entry["steps"])) for entry in episodes),
            "successes": sum(entry["success"] is True for entry in episodes),
            "errors": severities["error"],
            "warnings": severities["warning"],
        }


@dataclass
class CheckConfig:
    """Settings of `grasp-demos check`."""

    task: str | None = None
    """Every episode must be of this task, such as robosuite-lift."""
    max_gap: float = MAX_GAP
    """Periods of the policy's rate between two states beyond which it is a gap."""
    warnings: bool = True
    """Show warnings; the report holds them in any case."""
    report: str | None = None
    """JSON file for everything found, such as check.json."""

    def __post_init__(self) -> None:
        if not self.max_gap >= 1.0:
            raise ValueError(f"max_gap={self.max_gap} must be at least 1, one period.")
        if self.report is not None:
            require_suffix("report", self.report, (".json",))


HELP = """\
Name everything that is wrong with episodes: file, episode, step and dimension, one line each.

Examples:
  grasp-demos check runs/demos                              a data set
  grasp-demos check runs/a runs/b/episode_000003.npz        several, and single files
  grasp-demos check runs/demos report=check.json            everything found as JSON too
  grasp-demos check runs/demos task=robosuite-lift          all of this task, or an error

An error makes an episode unusable: a damaged file, a value that is not finite, an action out of range or not
what was sent, a gap in time, joints beyond the UR5e's limits or speed, a TCP that is not where the joints put
it, an object that jumps, a success that the last step contradicts, a second copy in one data set. A warning
is worth a look and changes no exit code: an odd length, a recording that broke off, other versions than the
rest.

The exit code is 0 when nothing is wrong, 1 when something is, 2 when something is wrong with the request.
Nothing is changed or repaired.
"""


def check(found: Found, config: CheckConfig, on_file: Callable[[], None] = lambda: None) -> Checked:
    """Check files as configured; `on_file` is called after each."""
    consistency, findings, files = Consistency(), [], []
    places: dict[str, int | None] = {}
    for path in found.episodes:
        try:
            episode = read_episode(path)
        except DemoError as error:
            problem = str(error).removeprefix(f"{path} ").removeprefix(f"{path}: ")
            findings.append(Finding(str(path), None, None, None, problem, "error"))
            files.append({"file": str(path), "readable": False})
            on_file()
            continue
        metadata = episode.metadata
        defects = validate(episode)
        if not defects:  # What has no meaning is not asked what it could mean.
            defects = implausible(episode, max_gap=config.max_gap)
        if config.task is not None and metadata.task != config.task:
            defects.append(Defect(str(path), None, "task", f"is {metadata.task}, not {config.task}"))
        if next(check_shapes(episode), None) is None:
            consistency.add(episode)
        places[str(path)] = metadata.index
        findings += [_finding(defect, metadata.index) for defect in defects]
        files.append(
            {
                "file": str(path),
                "readable": True,
                "episode": metadata.index,
                "task": metadata.task,
                "source": metadata.source,
                "steps": len(episode.rewards) if episode.rewards.ndim else 0,
                "success": metadata.success,
                "complete": metadata.complete,
            }
        )
        on_file()
    findings += [_finding(defect, places[defect.episode]) for defect in consistency.defects()]
    order = {str(path): position for position, path in enumerate(found.episodes)}
    findings.sort(key=lambda finding: (order[finding.file], finding.severity))
    findings += [Finding(str(path), None, None, None, text, "warning") for path, text in found.remarks]
    counts = Counter((finding.file, finding.severity) for finding in findings)
    for entry in files:
        for severity in ("error", "warning"):
            entry[f"{severity}s"] = counts[str(entry["file"]), severity]
    return Checked(files, findings)


def _finding(defect: Defect, index: int | None) -> Finding:
    severity = "warning" if defect.warning else "error"
    return Finding(defect.episode, index, defect.step, defect.dimension, defect.problem, severity)


def check_command(paths: list[str], config: CheckConfig) -> int:
    """Check, print a line a finding and a summary, write the report."""
    found = find_episodes(paths)
    if config.report is not None:
        require_output("report", Path(config.report), [*paths, *found.episodes])
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking", total=len(found.episodes))
        checked = check(found, config, lambda: bar.advance(task))
    for finding in checked.findings:
        if config.warnings or finding.severity == "error":
            print(finding)
    summary = checked.summary
    print(", ".join(f"{count} {_SINGULAR[name] if count == 1 else name}" for name, count in summary.items()))
    if config.report is not None:
        write_report(Path(config.report), checked, config)
    return 1 if summary["errors"] else 0


_SINGULAR = {name: name[:-1] for name in ("files", "episodes", "steps", "errors", "warnings")}
_SINGULAR["successes"] = "success"


def write_report(path: Path, checked: Checked, config: CheckConfig) -> None:
    """Write everything as JSON; the file is the old one or whole."""
    content = {
        "summary": checked.summary,
        "settings": asdict(config),
        "files": checked.files,
        "findings": [finding._asdict() for finding in checked.findings],
    }
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def run_check(arguments: Sequence[str]) -> int:
    """Entry point of `grasp-demos check`."""
    return run_on_paths(CheckConfig, check_command, HELP, arguments, "grasp-demos check")
