"""Demonstrations on the real simulator: recorded, killed, resumed and replayed by the commands themselves."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from grasp_demos.reader import demonstrations, read_dataset
from grasp_demos.validate import require_valid

RECORD = [sys.executable, "-m", "grasp_demos.record", "out=demos"]


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Three demonstrations whose recorder was killed after the first and repeated."""
    folder = tmp_path_factory.mktemp("recorded")
    process = start([*RECORD, "episodes=3"], folder)
    deadline = time.monotonic() + 60.0
    while not list((folder / "demos").glob("episode_000001.log")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [e.metadata.index for e in read_dataset(folder / "demos")] == [0]
    process = start([*RECORD, "episodes=3"], folder)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "holds 3 human-like demonstrations" in out
    assert "2 of them new" in out
    return folder


def test_a_killed_and_repeated_recording_holds_what_was_asked_for(recorded):
    everything = read_dataset(recorded / "demos")
    episodes = demonstrations(everything)
    require_valid(everything)
    assert [e.metadata.seed for e in episodes] == [0, 1, 2]
    assert len({e.metadata.index for e in everything}) == len(everything)
    for episode in episodes:
        assert {"mujoco", "robosuite"} <= set(episode.metadata.versions)
        assert np.allclose(np.diff(episode.states[:, -1]), 0.05)
        assert episode.rewards.sum() == 1.0
    broken_off = [e for e in everything if not e.metadata.complete]
    for episode in broken_off:  # Its try was repeated whole, with the same noise.
        whole = next(e for e in episodes if e.metadata.seed == episode.metadata.seed)
        assert np.array_equal(whole.states[: len(episode) + 1], episode.states)


def test_every_recording_replays_exactly_in_another_process(recorded):
    process = start(
        [sys.executable, "-m", "grasp_demos.replay", "path=demos", "tolerance_rad=1e-9"], recorded
    )
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors + out
    assert (
        len(re.findall(r": reproduced; .* joints 0 rad, TCP 0 m, object 0 m", out))
        == len(out.splitlines())
        >= 3
    )
    assert sorted(p.name for p in recorded.iterdir()) == ["demos"]


def test_a_damaged_episode_is_named_beside_the_good_ones(recorded, tmp_path):
    shutil.copytree(recorded / "demos", tmp_path / "demos")
    path = tmp_path / "demos" / "episode_000000.npz"
    path.write_bytes(path.read_bytes()[:-50])
    process = start([sys.executable, "-m", "grasp_demos.replay", "path=demos"], tmp_path)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "demos/episode_000000.npz" not in out
    assert "demos/episode_000001.npz: reproduced" in out
    assert "demos/episode_000000.npz is cut off" in errors
    assert "Traceback" not in errors
