"""grasp-bench recording, tiny: nothing is lost, and what is taken away from a data set is noticed."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from grasp_control.bench import main
from grasp_control.bench.ledger import Ledger
from grasp_control.bench.recorder import digest
from grasp_demos.episode import Metadata, Step
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale, GraspState, encode, pack_state

METADATA = Metadata("fake", "servo", ActionScale(), "human-like")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_nothing_is_lost_and_the_large_data_set_is_timed(tmp_path, capsys):
    settings = ["kills=4", "episodes=20", "longest=0.6", f"out={tmp_path}/v1.2"]
    assert main(["recording", *settings]) == 0
    kills = rows(tmp_path / "v1.2.csv")
    assert [row["way"] for row in kills] == ["expert", "person", "take-over", "expert"]
    assert {row["lost"] for row in kills} == {"0"}
    assert {row["faults"] for row in kills} == {""}
    assert sum(int(row["episodes"]) + int(row["steps"]) for row in kills) > 0
    times = rows(tmp_path / "v1.2_times.csv")
    assert {row["episodes"] for row in times} == {"20"}
    assert [row["what"] for row in times][:2] == ["grasp-demos check", "grasp-demos show"]
    assert "Lost: 0. Other faults: 0." in capsys.readouterr().out
    assert "A data set of 20 episodes" in (tmp_path / "v1.2.md").read_text()


def test_settings_out_of_range_are_refused(capsys):
    assert main(["recording", "kills=0"]) == 2
    assert "kills=0 must be at least 1" in capsys.readouterr().err


def state_at(step: int) -> GraspState:
    upright = np.array([0.0, 0.0, 0.0, 1.0])
    return GraspState(
        joint_positions=np.zeros(6),
        joint_velocities=np.zeros(6),
        tcp_position=np.array([0.0, 0.0, step / 100]),
        tcp_quaternion=upright,
        gripper_opening=0.085,
        gripper_force=0.0,
        object_position=np.zeros(3),
        object_quaternion=upright,
        object_size=np.full(3, 0.04),
        time=step / 20.0,
    )


@pytest.fixture
def recorded(tmp_path) -> tuple[Path, Ledger]:
    """Two finished episodes of three steps and the log of an unfinished one, with what was said of them."""
    folder, ledger = tmp_path / "demos", Ledger()

    def done(what: str, index: int = -1, **values: object) -> None:
        ledger.take({"event": "done", "what": what, "index": index, "at": 0.0, "seconds": 0.0} | values)

    writer = DatasetWriter(folder)
    done("open")
    for index in range(3):
        recording = writer.begin(METADATA, state_at(0), encode(state_at(0)), np.zeros(2), {})
        done("begin", index)
        for t in range(3):
            action, after = np.full(6, 0.1 * t, np.float32), state_at(t + 1)
            recording.append(
                Step(
                    *(action, action, action, 0.0, False, False, False, False, after, encode(after)),
                    *("person", np.zeros(2)),
                )
            )
            done("append", index, digest=digest(pack_state(after), action))
        if index < 2:
            recording.finish(success=True)
            done("finish", index, success=True, complete=True)
    writer._lock.close()  # As the system does for a process that is killed.
    return folder, ledger


def look(folder: Path, ledger: Ledger, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "copy")
    return ledger.check(folder, tmp_path / "copy")


def test_what_was_acknowledged_is_found(recorded, tmp_path):
    folder, ledger = recorded
    loss = look(folder, ledger, tmp_path)
    assert (loss.episodes, loss.episodes_found, loss.steps, loss.steps_found) == (2, 2, 3, 3)
    assert loss.faults == []
    assert ledger.next_index == 3


def test_a_missing_episode_is_lost(recorded, tmp_path):
    folder, ledger = recorded
    (folder / "episode_000001.npz").unlink()
    loss = look(folder, ledger, tmp_path)
    assert (loss.episodes, loss.episodes_found, loss.lost) == (2, 1, 1)
    assert loss.faults == ["episode 1 cannot be read before recovery"]


def test_a_missing_step_is_lost(recorded, tmp_path):
    folder, ledger = recorded
    log = folder / "episode_000002.log"
    log.write_bytes(log.read_bytes()[:-1])
    loss = look(folder, ledger, tmp_path)
    assert (loss.steps, loss.steps_found, loss.lost) == (3, 2, 1)
    assert loss.faults == ["episode 2 holds 2 steps, not 3"]


def test_another_verdict_a_strange_file_and_another_index_are_faults(recorded, tmp_path):
    folder, ledger = recorded
    ledger.episodes[0].success = False
    (folder / "notes.txt").write_text("mine")
    ledger.take({"event": "done", "what": "begin", "index": 7, "at": 0.0, "seconds": 0.0})
    loss = look(folder, ledger, tmp_path)
    assert loss.lost == 1
    assert "recording went on with index 7 in place of 2" in loss.faults
    assert loss.faults.count("notes.txt lies in the data set") == 2
