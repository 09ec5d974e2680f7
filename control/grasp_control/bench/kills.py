"""Start recorders, kill them, and look for what they had acknowledged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grasp_control import progress
from grasp_control.bench.ledger import Ledger
from grasp_control.bench.recorder import CHANGED, RECORDED, WAYS, Moment

PATIENCE = 60.0
"""s until the moment at which a recorder kills itself must have come."""
OCCURRENCES = {"open": 1, "append": 100}
"""Calls that are let through before the fatal one are fewer than this; than 3 of the others."""


class Plan(NamedTuple):
    """How many recorders are killed, and when."""

    kills: int
    per_data_set: int
    """Recorders that go on in the same data set."""
    longest: float
    """s from the opening on within which those are killed that do not kill themselves."""
    seed: int
    """Of the episodes' starts."""


def kill_all(
    plan: Plan, place: Path, rng: np.random.Generator
) -> tuple[list[dict[str, object]], dict[str, list[dict[str, float]]]]:
    """A row per kill, and what finished episodes cost by the way of recording."""
    rows: list[dict[str, object]] = []
    timings: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    ledgers: dict[Path, Ledger] = {}
    with progress.bar("Kill recorders", plan.kills) as advance:
        for kill in range(plan.kills):
            way = list(WAYS)[kill % len(WAYS)]
            folder = place / f"{way}-{kill // len(WAYS) // plan.per_data_set}"
            ledger = ledgers.setdefault(folder, Ledger())
            delay, moment = float(rng.uniform(0.0, plan.longest)), Moment("")
            if rng.random() < 0.5:
                moment = draw_moment(way, rng)
                # There may be nothing to recover; everything else comes about.
                delay = delay if moment.call == "open" else PATIENCE
            fault = record_and_kill(folder, way, plan.seed, delay, moment, ledger)
            during = ledger.doing or "between"
            rows.append({"kill": kill, "way": way, "data_set": folder.name, "during": during})
            rows[-1] |= _how(delay, moment if moment.call == during else Moment("")) | _look(
                folder, ledger, fault
            )
            timings[way] += ledger.timings
            ledger.timings = []
            advance()
    return rows, timings


def draw_moment(way: str, rng: np.random.Generator) -> Moment:
    """Any operation of any call that this way of recording makes, each as likely."""
    possible = RECORDED if way == "expert" else (*RECORDED, *CHANGED)
    call, operation = possible[rng.integers(len(possible))]
    return Moment(call, operation, int(rng.integers(OCCURRENCES.get(call, 3))), float(rng.random()))


def record_and_kill(folder: Path, way: str, seed: int, delay: float, moment: Moment, ledger: Ledger) -> str:
    """Record until killed, `delay` s after the opening or at `moment`; returns what went wrong."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "grasp_control.bench.recorder", str(folder), way, str(seed), str(write)]
    with (
        tempfile.TemporaryFile() as said,
        os.fdopen(read) as messages,
        subprocess.Popen(
            [*command, json.dumps(moment)], pass_fds=[write], stdout=subprocess.DEVNULL, stderr=said
        ) as process,
    ):
        os.close(write)
        timers = [threading.Timer(2.0 * PATIENCE, process.kill)]
        timers[0].start()
        try:
            for line in messages:
                if not line.endswith("\n"):  # It was killed while it said so.
                    break
                if len(timers) == 1:
                    timers.append(threading.Timer(delay, process.kill))
                    timers[1].start()
                ledger.take(json.loads(line))
            code = process.wait()
        finally:
            process.kill()
            for timer in timers:
                timer.cancel()
        if code == -signal.SIGKILL:
            return ""
        said.seek(0)
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"the recorder ended with {code} before it was killed: {' '.join(last)}"


def _how(delay: float, moment: Moment) -> dict[str, object]:
    if not moment.call:
        return {
            "killed": "after a time",
            "delay_s": round(delay, 4),
            "operation": "",
            "occurrence": "",
            "share": "",
        }
    chosen = {"operation": moment.operation, "occurrence": moment.occurrence, "share": round(moment.share, 3)}
    return {"killed": "within an operation", "delay_s": "", **chosen}


def _look(folder: Path, ledger: Ledger, fault: str) -> dict[str, object]:
    """Recover a copy, so that the next recorder has to recover the data set itself."""
    finished = ledger.finished
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / folder.name
        if folder.exists():
            shutil.copytree(folder, copy)
        loss = ledger.check(folder, copy)
    faults = [text.replace(f"{place}{os.sep}", "") for text in [fault] * bool(fault) + loss.faults]
    return {"finished": finished, **asdict(loss), "lost": loss.lost, "faults": "; ".join(faults)}
