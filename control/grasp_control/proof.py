"""The exported network alone on fresh episodes of every task that it learned, beside its teachers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from grasp_control import progress
from grasp_control.bundle import export_bundle
from grasp_control.evaluate import evaluate_alone, success_note
from grasp_control.manifest import Manifest
from grasp_control.rollout import EpisodeResult
from grasp_sim.config import EnvConfig

PROOF_FILE = "proof.csv"
"""In the bundle: every episode of the proof."""
MEAN_GOAL, LEAST_GOAL = 0.98, 0.95
"""Of the teachers' mean success, and of any single teacher's, what the network is to keep."""


class Trial(NamedTuple):
    """Episodes of the task of one run of the manifest."""

    env: EnvConfig
    seeds: Sequence[int]
    teacher: Sequence[EpisodeResult] = ()
    """What the run's own policy made of them; empty where nobody asked."""


def prove(
    bundle: Path, student: torch.nn.Module, manifest: Manifest, trials: Sequence[Trial], title: str
) -> tuple[Manifest, list[list[EpisodeResult]]]:
    """Export the student, run the exported file alone, and write what it reached into the bundle.

    Args:
        bundle: the bundle's folder.
        student: the network.
        manifest: of the bundle; its success is filled in.
        trials: one for each run of `manifest.training`.
        title: the bar's.

    Returns:
        The manifest with the figures, and the results of each trial.
    """
    export_bundle(bundle, student, manifest=manifest)
    with progress.bar(title, sum(len(trial.seeds) for trial in trials)) as advance:
        results = [evaluate_alone(bundle, trial.env, trial.seeds, advance) for trial in trials]
        flat = [result for reached in results for result in reached]
        advance(total=len(flat), note=success_note(flat))
    training = [
        replace(run, success=_figures([trial], [reached]))
        for run, trial, reached in zip(manifest.training, trials, results, strict=True)
    ]
    manifest = replace(manifest, training=tuple(training), success=_figures(trials, results))
    export_bundle(bundle, student, manifest=manifest, notes={PROOF_FILE: _table(manifest, trials, results)})
    return manifest, results


def shares(manifest: Manifest) -> tuple[float, float]:
    """The network's success as a share of its teachers': of their mean, and the least of any single one's."""
    pairs = [(run.success["success_rate"], run.success["teacher_success_rate"]) for run in manifest.training]
    ours, theirs = map(sum, zip(*pairs, strict=True))
    return share(ours, theirs), min(share(*pair) for pair in pairs)


def share(ours: float, theirs: float) -> float:
    """What the network keeps of one teacher's success."""
    return ours / theirs if theirs else 1.0  # a teacher that never succeeds asks for nothing


def _figures(trials: Sequence[Trial], results: Sequence[Sequence[EpisodeResult]]) -> dict[str, float]:
    """Success of the network over some trials, and of their teachers where these were measured."""
    ours = [result.success for reached in results for result in reached]
    theirs = [result.success for trial in trials for result in trial.teacher]
    figures: dict[str, float] = {"success_rate": sum(ours) / len(ours), "episodes": len(ours)}
    if theirs:
        figures["teacher_success_rate"] = sum(theirs) / len(theirs)
    return figures


def _table(manifest: Manifest, trials: Sequence[Trial], results: Sequence[Sequence[EpisodeResult]]) -> str:
    """Every episode as CSV; what the teacher made of it is empty where nobody asked."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = ("success", "length", "slips", "drops", "broken")
    writer.writerow(["run", "task", "seed", *columns, *(f"teacher_{name}" for name in columns)])
    for run, trial, reached in zip(manifest.training, trials, results, strict=True):
        for number, result in enumerate(reached):
            row: list[object] = [run.run_id, run.task, result.seed]
            for one in (result, trial.teacher[number] if trial.teacher else None):
                row += ["" if one is None else int(getattr(one, name)) for name in columns]
            writer.writerow(row)
    return file.getvalue()
