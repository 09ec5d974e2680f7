"""Killing a recorder costs at most the step being written, whenever it happens."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grasp_demos.episode import DemoError, Episode, Metadata, Step
from grasp_demos.reader import read_dataset
from grasp_demos.validate import validate
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale, encode

RECORDER = Path(__file__).with_name("killed_recorder.py")
STEPS = 8
METADATA = Metadata("fake", "servo", ActionScale(), "human-like")


def check(episode: Episode, steps: int) -> None:
    """The numbers are those that the recorder wrote for this index and these steps."""
    assert validate(episode) == []
    assert len(episode) == steps
    assert np.array_equal(episode.states[:, 0], np.full(steps + 1, float(episode.metadata.index)))
    assert np.allclose(episode.executed_actions[:, 0], np.arange(steps) / 10)
    assert episode.snapshot["numbers"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("moment", "recovered_steps", "complete"),
    [("half-frame", 5, False), ("before-rename", STEPS, True), ("after-rename", STEPS, True)],
)
def test_killed_in_the_third_episode(tmp_path, moment, recovered_steps, complete):
    folder = tmp_path / "demos"
    done = subprocess.run(
        [sys.executable, str(RECORDER), str(folder), "0", moment], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    finished = 3 if moment == "after-rename" else 2
    before = read_dataset(folder)  # Before any recovery, what is finished loads.
    assert [e.metadata.index for e in before] == list(range(finished))
    with DatasetWriter(folder) as writer:
        assert writer.next_index == 3
        assert len(writer.warnings) == (0 if moment == "after-rename" else 1)
    episodes = read_dataset(folder)
    assert [e.metadata.complete for e in episodes] == [True, True, complete]
    assert [e.metadata.success for e in episodes] == [True, True, complete]
    for episode, steps in zip(episodes, [STEPS, STEPS, recovered_steps], strict=True):
        check(episode, steps)
    assert {p.suffix for p in folder.iterdir()} == {
        ".npz",
        "",
    }  # The lock has no suffix; no log, no temporary file.


def test_killed_at_any_moment_and_resumed(tmp_path):
    folder = tmp_path / "demos"
    rng = np.random.default_rng(0)
    finished: set[int] = set()
    appended: dict[int, int] = {}
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, str(RECORDER), str(folder), "0.001", "never"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        for line in [first, *process.stdout]:
            word, index, *step = line.split()
            if word == "finished":
                finished.add(int(index))
            else:
                appended[int(index)] = int(step[0]) + 1
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    with DatasetWriter(folder) as writer:
        assert writer.next_index > max(appended)
    episodes = {e.metadata.index: e for e in read_dataset(folder)}
    assert len(finished) > 0
    for index, steps in appended.items():
        held = len(episodes[index])
        assert held in (steps, min(steps + 1, STEPS))  # It may be killed between appending and saying so.
        check(episodes[index], held)
    assert all(episodes[index].metadata.complete and len(episodes[index]) == STEPS for index in finished)


def append(recording, arm, action=None) -> None:
    action = np.zeros(6, np.float32) if action is None else action
    observation, reward, terminated, truncated, info = arm.step(np.zeros(6))
    recording.append(
        Step(
            *(action, action, action, reward, terminated, truncated, False, False),
            *(info["state"], observation, "person", arm.dynamic_state()),
        )
    )


def begin(writer, arm):
    observation, info = arm.reset(seed=0)
    return writer.begin(METADATA, info["state"], observation, arm.dynamic_state(), arm.snapshot())


def test_an_exception_or_a_stop_keeps_the_running_episode_as_incomplete(tmp_path, arm):
    def record() -> None:
        with DatasetWriter(tmp_path) as writer:
            append(begin(writer, arm), arm)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record()
    (episode,) = read_dataset(tmp_path)
    assert (len(episode), episode.metadata.complete, episode.metadata.success) == (1, False, False)


def test_a_discarded_try_leaves_nothing_and_gives_its_index_back(tmp_path, arm):
    with DatasetWriter(tmp_path) as writer:
        recording = begin(writer, arm)
        append(recording, arm)
        recording.discard()
        assert writer.next_index == 0
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_step_of_the_wrong_width_is_refused_and_the_recording_goes_on(tmp_path, arm):
    with DatasetWriter(tmp_path) as writer:
        recording = begin(writer, arm)
        append(recording, arm)
        with pytest.raises(DemoError, match=r"step 1: intended_actions have shape \(7,\); it must be \(6,\)"):
            append(recording, arm, np.zeros(7, np.float32))
        append(recording, arm)
        assert len(recording.finish(success=True)) == 2


def test_two_recorders_cannot_open_one_data_set(tmp_path):
    with DatasetWriter(tmp_path), pytest.raises(DemoError, match="open in another recorder"):
        DatasetWriter(tmp_path)
    DatasetWriter(tmp_path).close()


def test_a_data_set_holds_one_task_and_one_meaning_of_actions(tmp_path, arm):
    with DatasetWriter(tmp_path) as writer:
        recording = begin(writer, arm)
        append(recording, arm)
        recording.finish(success=True)
        state, observation = arm._state(), encode(arm._state())
        for change in ({"task": "other"}, {"action_scale": ActionScale(position=0.05)}, {"rate_hz": 10.0}):
            with pytest.raises(DemoError, match=f"holds episodes with {next(iter(change))}"):
                writer.begin(replace(METADATA, **change), state, observation, np.zeros(0), {})


def test_a_damaged_log_is_set_aside_not_deleted(tmp_path, arm):
    writer = DatasetWriter(tmp_path)
    recording = begin(writer, arm)
    for _ in range(5):
        append(recording, arm)
    log = tmp_path / "episode_000000.log"
    whole = log.read_bytes()
    recording.discard()
    writer.close()
    for index, position in ((0, 100), (1, len(whole) - 1000)):  # In the header; in the third step.
        data = bytearray(whole)
        data[position] ^= 1
        log.with_name(f"episode_{index:06d}.log").write_bytes(data)
    with DatasetWriter(tmp_path) as writer:
        assert "damaged at its beginning: set aside" in writer.warnings[0]
        assert "incomplete, with its 2 whole steps; its log is damaged" in writer.warnings[1]
        assert writer.next_index == 2
    assert len(list(tmp_path.glob("*.log.damaged"))) == 2


def test_a_damaged_log_is_kept_even_if_recovering_it_was_killed(tmp_path, arm):
    writer = DatasetWriter(tmp_path)
    recording = begin(writer, arm)
    for _ in range(5):
        append(recording, arm)
    log = tmp_path / "episode_000000.log"
    data = bytearray(log.read_bytes())
    recording.discard()
    writer.close()
    data[len(data) - 1000] ^= 1  # In the third step.
    log.write_bytes(data)
    DatasetWriter(tmp_path).close()
    aside = tmp_path / "episode_000000.log.damaged"
    aside.rename(log)  # As if the kill had come between writing the episode and this.
    DatasetWriter(tmp_path).close()
    assert aside.read_bytes() == data
    assert not log.exists()
    assert len(read_dataset(tmp_path)) == 1


def test_a_data_set_is_a_folder(tmp_path):
    path = tmp_path / "a_file"
    path.write_text("")
    with pytest.raises(DemoError, match="is a file; a data set is a folder"):
        DatasetWriter(path)
