"""Where a source was silent for too long.

Shapes: N messages of a stream, K ticks. Times are whole nanoseconds (int64).
"""

from __future__ import annotations

import numpy as np

from grasp_demos.streams import NS, Stream


def latest(times: np.ndarray, ticks: np.ndarray) -> np.ndarray:
    """(K,) position of the last of the increasing `times` at or before each tick; -1 where there is none."""
    return np.searchsorted(times, ticks, side="right") - 1


def stale(stream: Stream, ticks: np.ndarray, limit: float) -> np.ndarray:
    """(K,) bool: there is no message yet, or the latest is `limit` s older than the source's usual delay."""
    used = latest(stream.received, ticks)
    age = ticks - stream.stamps[used] - stream.delay()
    return (used < 0) | (age > limit * NS)


def without_command(command: Stream, ticks: np.ndarray, limit: float) -> np.ndarray:
    """(K,) bool: no command answers this state, or the one that is held is more than `limit` s old."""
    used = latest(command.stamps, ticks)
    bad = (used < 0) | (ticks - command.stamps[used] > limit * NS)
    bad[-1] = False  # Nothing is done any more at the last state.
    return bad


def runs(good: np.ndarray) -> list[tuple[int, int]]:
    """(begin, end) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]])))
    return [(int(begin), int(end)) for begin, end in zip(edges[::2], edges[1::2], strict=True)]


def gap_lines(topic: str, ticks: np.ndarray, bad: np.ndarray, first: int, limit: float) -> list[str]:
    """A line for every run of `bad` ticks (K,); times count from `first` ns."""
    lines = []
    for begin, end in runs(bad):
        length = (ticks[min(end, len(ticks) - 1)] - ticks[begin]) / NS
        at = (ticks[begin] - first) / NS
        lines.append(
            f"{topic}: gap: nothing new within {limit:g} s at {at:.3f} s, for {length:.3f} s: the episode "
            "is split."
        )
    return lines


def late_lines(topic: str, ticks: np.ndarray, late: np.ndarray, first: int) -> list[str]:
    """A line for every tick that came late, `late` (K - 1,) saying which."""
    return [
        f"{topic}: gap: no tick for {(ticks[k + 1] - ticks[k]) / NS:.3f} s at "
        f"{(ticks[k] - first) / NS:.3f} s: the episode is split."
        for k in np.flatnonzero(late)
    ]
