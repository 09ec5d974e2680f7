"""What the study says about its hypotheses, in plain words, and what to look at where memory disappoints.

A claim that one arm is better is confirmed where the 95 % interval of the difference lies above 0, refuted
where it lies below. A claim that it is not worse, or gains nothing, is confirmed where the interval excludes
more than `MARGIN`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grasp_control.bootstrap import Estimate, difference, improvement
from grasp_control.cells import Row
from grasp_control.study.series import Series, find_series

FEWEST = 5
"""Seeds without which nothing is called confirmed or refuted: a bootstrap of fewer is too sure of itself."""
MARGIN = 0.05
"""Return below which a difference is of no interest."""
LOW_HITS, SWINGS, DISAGREEMENT = 0.5, 0.1, 0.5
"""From these on something is worth a look: hit rate, standard deviation of the return within the last quarter
of a run, and the range of the final return over the seeds."""

Line = dict[str, object]


def compare(ours: Series, theirs: Series) -> tuple[Estimate, Estimate]:
    """Differences of the interquartile means: over the whole run, and over its last quarter."""
    return difference(ours.whole, theirs.whole), difference(ours.final, theirs.final)


def better_of(one: Series, other: Series) -> Series:
    """By the return over the whole run."""
    return one if one.whole.mean() >= other.whole.mean() else other


def in_words(series: Sequence[Series]) -> list[str]:
    """A sentence or two for each task and structure with memory on and off."""
    said = []
    for env, structure in dict.fromkeys((one.env, one.structure) for one in series):
        off, on, adaptive, kept = (
            find_series(series, env, structure, name) for name in ("off", "on", "adaptive", "on+filter")
        )
        if not (off and on):
            continue
        whole, final = compare(on, off)
        text = f"{env}, {structure}: over the whole run memory {_word(whole)}, at the end it {_word(final)}."
        if kept:
            text += f" With the filter it {_word(compare(kept, off)[1])} at the end."
        if adaptive:
            best = better_of(on, off)
            change = _word(compare(adaptive, best)[0])
            text += f" Against the better of the two, {best.memory}, the adaptive gate {change}."
        fewest = min(len(one.seeds) for one in (off, on, adaptive, kept) if one)
        said.append(text if fewest >= FEWEST else f"{text} {fewest} seeds are too few to settle it.")
    return said


def _word(change: Estimate) -> str:
    if change.low > 0.0:
        return f"helps ({change.value:+.2f})"
    if change.high < 0.0:
        return f"harms ({change.value:+.2f})"
    if change.low > -MARGIN and change.high < MARGIN:
        return f"makes no difference ({change.value:+.2f})"
    return f"makes no clear difference ({change.value:+.2f})"


def verdicts(series: Sequence[Series]) -> list[Line]:
    """A line for each hypothesis of each task and structure that was run."""
    lines: list[Line] = []
    for env, structure in dict.fromkeys((one.env, one.structure) for one in series):
        arms = {one.memory: one for one in series if (one.env, one.structure) == (env, structure)}
        fewest = min(len(one.seeds) for one in arms.values())
        for claim, found, evidence in _hypotheses(structure, arms):
            verdict = found if fewest >= FEWEST else f"open with {fewest} seeds: {found} so far"
            lines.append(
                {
                    "task": env,
                    "structure": structure,
                    "claim": claim,
                    "verdict": verdict,
                    "evidence": evidence,
                }
            )
    return lines


def _hypotheses(structure: str, arms: dict[str, Series]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    off, on, adaptive, kept = (arms.get(name) for name in ("off", "on", "adaptive", "on+filter"))
    if on and off:
        whole, final = compare(on, off)
        if structure in ("sparse", "delayed"):
            found.append(("memory learns faster and better", _better(whole), _told(on, off, whole, final)))
        elif structure == "dense":
            found.append(("memory gains nothing, or loses", _no_gain(whole), _told(on, off, whole, final)))
        else:
            found.append(
                ("unfiltered memory is worse late", _better(_turned(final)), _told(on, off, whole, final))
            )
    if kept and on:
        whole, final = compare(kept, on)
        found.append(("a filter mends it", _better(final), _told(kept, on, whole, final)))
    if adaptive and on and off:
        best = better_of(on, off)
        whole, final = compare(adaptive, best)
        verdict = _not_below(whole, final)
        claim = f"the adaptive gate is not below the better of on and off, here {best.memory}"
        found.append((claim, verdict, _told(adaptive, best, whole, final)))
    return found


def _better(change: Estimate) -> str:
    return "confirmed" if change.low > 0.0 else "refuted" if change.high < 0.0 else "undecided"


def _no_gain(change: Estimate) -> str:
    return "refuted" if change.low > 0.0 else "confirmed" if change.high < MARGIN else "undecided"


def _not_below(*changes: Estimate) -> str:
    if any(change.high < 0.0 for change in changes):
        return "refuted"
    return "confirmed" if all(change.low > -MARGIN for change in changes) else "undecided"


def _turned(change: Estimate) -> Estimate:
    return Estimate(-change.value, -change.high, -change.low)


def _told(ours: Series, theirs: Series, whole: Estimate, final: Estimate) -> str:
    chance = improvement(ours.whole, theirs.whole)
    return (
        f"{ours.memory} less {theirs.memory}: {whole.written('+.2f')} over the run, "
        f"{final.written('+.2f')} in its last quarter; {ours.memory} is better with probability "
        f"{chance.written('.2f')}"
    )


def diagnostics(series: Sequence[Series], memory_rows: Sequence[Row]) -> list[Line]:
    """What is known to go wrong with a memory, where it shows in the measurements."""
    last = {
        (row["env"], row["structure"], row["memory"], int(row["seed"])): row
        for row in sorted(memory_rows, key=lambda row: int(row["env_steps"]))
    }
    lines: list[Line] = []
    for one in series:
        own = {seed: last.get((one.env, one.structure, one.memory, seed)) for seed in one.seeds}
        for sign, text in _signs(one, find_series(series, one.env, one.structure, "off"), own):
            line: Line = {"task": one.env, "structure": one.structure, "memory": one.memory}
            lines.append(line | {"sign": sign, "what was measured": text})
    return lines


def _signs(one: Series, off: Series | None, own: dict[int, Row | None]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    hits = one.hit_rate[np.isfinite(one.hit_rate)]
    rate = f"{hits.mean():.2f}" if len(hits) else "none"
    if off and one is not off and compare(one, off)[1].high < 0.0:
        entropies = [float(np.nanmean(each.entropy[:, -each.late :])) for each in (one, off)]
        spread = "it does not settle" if entropies[0] > entropies[1] else "it has settled too early"
        found.append(
            (
                "on but worse than off",
                f"late entropy {entropies[0]:.2f} against {entropies[1]:.2f} nats ({spread}), hit rate "
                f"{rate}",
            )
        )
    rows = {seed: row for seed, row in own.items() if row is not None}
    empty = [seed for seed, row in rows.items() if one.memory != "off" and float(row["rows"] or 0) == 0]
    if empty:
        found.append(
            ("no success in memory", f"seeds {_listed(empty)}: nothing was found that could be remembered")
        )
    if len(hits) and hits.mean() < LOW_HITS:
        distances = [float(row["distance"]) for row in rows.values() if row["distance"]]
        far = (
            f"{np.mean(distances):.2f} cells away on average at the end"
            if distances
            else "at unknown distance"
        )
        found.append(
            ("low hit rate", f"{rate}; what was retrieved lay {far}: near, yet wrong, if that is below 1")
        )
    swings = one.returns[:, -one.late :].std(axis=1).mean()
    if swings > SWINGS:
        written = [
            [float(row[name]) for name in ("write_low", "write_median", "write_high")]
            for row in rows.values()
            if row["write_low"]
        ]
        shown = [f"{value:.2f}" for value in np.mean(written, axis=0)] if written else []
        of = (
            f"returns of the last 100 writes: {', '.join(shown)} (least, middle, largest)"
            if shown
            else "no writes"
        )
        found.append(("late oscillation", f"standard deviation {swings:.2f} within a run; {of}"))
    if float(np.ptp(one.final)) > DISAGREEMENT:
        worst, best = one.seeds[int(one.final.argmin())], one.seeds[int(one.final.argmax())]
        low = [seed for seed, value in zip(one.seeds, one.final, strict=True) if value < one.final.max() / 2]
        found.append(
            (
                "seeds disagree",
                f"from {one.final.min():.2f} (seed {worst}) to {one.final.max():.2f} (seed {best}); below "
                f"half of the best: {_listed(low)}",
            )
        )
    return found


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
