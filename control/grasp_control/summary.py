"""What an evaluation says about each policy: success with its interval, returns, lengths and slips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grasp_control.figures import Columns
from grasp_control.intervals import wilson_interval
from grasp_control.tables import STEP_COLUMN, read_stream
from grasp_sim.contract import POLICY_RATE_HZ

POLICY_LABELS = {
    "exported": "exported network",
    "hybrid": "hybrid policy",
    "cloned": "cloned policy",
}
"""In the order of the report. A policy of another name keeps its name and comes after these."""

POLICY_MEANINGS = {
    "exported": "the one network of the bundle run alone, distilled from the hybrid policy: the run's result",
    "hybrid": "actors, actions retrieved from memory and critics that choose among them, after training",
    "cloned": "the actors after imitating the demonstrations, before training: what training has to beat",
}

HEADINGS: tuple[str, ...] = (
    "policy",
    "success",
    "95 % interval",
    "successes",
    "mean return",
    "mean steps",
    "slips",
)
"""Column titles of the result table, for `PolicySummary.cells`."""


class PolicySummary(NamedTuple):
    """What an evaluation says about one policy."""

    policy: str
    env_step: float
    """Environment steps taken before it; NaN where the run did not say."""
    successes: int
    episodes: int
    low: float
    """Lower end of the success rate's 95 % Wilson interval."""
    high: float
    mean_return: float
    mean_length: float
    """Steps."""
    slip_share: float
    """Episodes in which the object slid in the fingers."""

    @property
    def label(self) -> str:
        """The policy's name for a reader."""
        return POLICY_LABELS.get(self.policy, self.policy)

    @property
    def share(self) -> float:
        """Success rate, in [0, 1]."""
        return self.successes / self.episodes

    def cells(self) -> tuple[str, ...]:
        """One formatted cell for each of `HEADINGS`."""
        return (
            self.label,
            f"{self.share:.1%}",
            f"{self.low:.1%} - {self.high:.1%}",
            f"{self.successes} of {self.episodes}",
            f"{self.mean_return:.3f}",
            f"{self.mean_length:.1f}",
            f"{self.slip_share:.1%}",
        )


def summarise(run_dir: str | Path) -> list[PolicySummary]:
    """The final evaluation of each policy: its rows with the largest `env_step`, all where there is none."""
    columns = read_stream(run_dir, "evaluation")
    summaries = []
    for policy, step, rows in _evaluations(columns, last_step=np.inf):
        successes, episodes = int(columns["success"][rows].sum()), int(rows.sum())
        low, high = wilson_interval(successes, episodes)
        means = [_mean(columns, name, rows) for name in ("return", "length", "slip")]
        summary = PolicySummary(
            policy, step if np.isfinite(step) else np.nan, successes, episodes, low, high, *means
        )
        if summaries and summaries[-1].policy == policy:  # Evaluations come in the order of their steps.
            summaries.pop()
        summaries.append(summary)
    return summaries


def explanations(summaries: Sequence[PolicySummary]) -> list[str]:
    """A line for each policy and for the columns that need one, to stand under the result table."""
    lines = [f"{s.label}: {POLICY_MEANINGS[s.policy]}." for s in summaries if s.policy in POLICY_MEANINGS]
    step = f"a step takes {1 / POLICY_RATE_HZ:g} s"
    return [*lines, f"slips: share of episodes in which the object slid in the fingers; {step}."]


def evaluation_points(columns: Columns, last_step: float) -> list[tuple[str, float, int, int]]:
    """(label, env_step, successes, episodes) of every evaluation of every policy.

    Rows without a step belong to the end of the run, `last_step`.
    """
    return [
        (POLICY_LABELS.get(policy, policy), step, int(columns["success"][rows].sum()), int(rows.sum()))
        for policy, step, rows in _evaluations(columns, last_step)
    ]


def _evaluations(columns: Columns, last_step: float) -> list[tuple[str, float, np.ndarray]]:
    """(policy, env_step, mask of its rows), policies in the order of POLICY_LABELS, steps ascending."""
    if "policy" not in columns or "success" not in columns:
        return []
    names = columns["policy"].tolist()
    steps = columns.get(STEP_COLUMN, np.full(len(names), np.nan))
    steps = np.where(np.isfinite(steps), steps, last_step)
    found = dict.fromkeys(names)
    policies = [name for name in POLICY_LABELS if name in found]
    policies += [name for name in found if name not in POLICY_LABELS]
    return [
        (policy, float(step), (columns["policy"] == policy) & (steps == step))
        for policy in policies
        for step in np.unique(steps[columns["policy"] == policy])
    ]


def _mean(columns: Columns, name: str, rows: np.ndarray) -> float:
    if name not in columns or not np.isfinite(columns[name][rows]).any():
        return float("nan")
    return float(np.nanmean(columns[name][rows]))
