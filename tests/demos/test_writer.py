"""Killing a recorder costs at most the step being written, whenever it happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grasp_demos.episode import DemoError, Episode, Metadata, Step
from grasp_demos.outputs import naming
from grasp_demos.reader import read_dataset
from grasp_demos.storage import _frames, _unzip_arrays, _zip_arrays, end_bytes, frame
from grasp_demos.validate import validate
from grasp_demos.writer import DatasetWriter, write_episode
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
        assert "damaged at its beginning, or is no log of this program: set aside" in writer.warnings[0]
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


def test_a_recorder_that_is_stopped_before_the_first_step_stores_nothing(tmp_path, arm):
    with DatasetWriter(tmp_path) as writer:
        begin(writer, arm)
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


@pytest.fixture
def log(tmp_path, arm):
    """The frames of a log with three steps: its header's, the steps', its end's."""
    with DatasetWriter(tmp_path / "source") as writer:
        recording = begin(writer, arm)
        for _ in range(3):
            append(recording, arm)
        data = (tmp_path / "source" / "episode_000000.log").read_bytes()
        recording.discard()
    return [*_frames(data), end_bytes({"success": True, "complete": True, "note": "good"})]


def header_with(payload, **arrays):
    """The header with arrays replaced, or left out where they are None."""
    metadata, held, snapshot = _unzip_arrays(payload)
    held = {name: array for name, array in (held | arrays).items() if array is not None}
    return _zip_arrays(metadata, held, snapshot)


def test_a_whole_log_is_recovered_as_it_ended(tmp_path, log):
    (tmp_path / "episode_000004.log").write_bytes(b"".join(map(frame, log)))
    with DatasetWriter(tmp_path) as writer:
        assert "was recovered (complete)" in writer.warnings[0]
    (episode,) = read_dataset(tmp_path)
    assert (len(episode), episode.metadata.success, episode.metadata.note) == (3, True, "good")


@pytest.mark.parametrize(
    "end",
    [
        b'end:{"zzz":1}',
        b"end:{",
        b"end:5",
        b"end:" + b"[" * 100_000,
        b'end:{"success":"no","complete":true,"note":""}',
        b'end:{"success":true,"complete":1,"note":""}',
        b'end:{"success":true,"complete":true,"note":["x"]}',
        b'end:{"success":true,"complete":true}',
        b"end:\xff",
    ],
)
def test_a_log_with_an_odd_end_is_set_aside(tmp_path, arm, log, end):
    refuse(tmp_path, arm, b"".join(map(frame, [*log[:-1], end])))


@pytest.mark.parametrize(
    "arrays",
    [
        {"states": None},
        {"observations": None},
        {"simulator_states": None},
        {"states": np.zeros(())},
        {"states": np.zeros((0, 35))},
        {"states": np.zeros((1, 3))},
        {"observations": np.array([["x"] * 3])},
        {"simulator_states": np.zeros(())},
        {"simulator_states": np.zeros((1, 2, 3))},
        {"simulator_states": np.zeros((1, 8), complex)},
    ],
)
def test_a_log_with_an_odd_header_is_set_aside(tmp_path, arm, log, arrays):
    refuse(tmp_path, arm, b"".join(map(frame, [header_with(log[0], **arrays), *log[1:]])))


@pytest.mark.parametrize("content", [b"abc", b"not a log of this program", frame(b""), frame(b"end:{}")])
def test_what_is_no_log_is_set_aside(tmp_path, arm, content):
    refuse(tmp_path, arm, content)


def test_steps_behind_a_frame_that_fits_no_step_are_not_thrown_away(tmp_path, log):
    data = b"".join(map(frame, [log[0], log[1], b"odd", *log[2:]]))
    (tmp_path / "episode_000000.log").write_bytes(data)
    with DatasetWriter(tmp_path) as writer:
        assert "with its 1 whole steps; its log is damaged after them" in writer.warnings[0]
    assert (tmp_path / "episode_000000.log.damaged").read_bytes() == data


def refuse(folder, arm, content):
    """The log is kept under another name with one line said, and recording goes on."""
    (folder / "episode_000003.log").write_bytes(content)
    goes_on(folder, arm)
    assert (folder / "episode_000003.log.damaged").read_bytes() == content


def goes_on(folder, arm):
    with DatasetWriter(folder) as writer:
        (line,) = writer.warnings
        assert "\n" not in line
        assert line.endswith("set aside as episode_000003.log.damaged.")
        recording = begin(writer, arm)
        append(recording, arm)
        assert recording.finish(success=True).metadata.index == 4
    assert [e.metadata.index for e in read_dataset(folder)] == [4]


@pytest.mark.parametrize("kind", ["endless", "pipe", "folder", "dangling", "loop"])
def test_what_is_no_regular_file_is_set_aside_unread(tmp_path, arm, kind):
    log = tmp_path / "episode_000003.log"
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "folder":
        log.mkdir()
    else:
        log.symlink_to({"endless": "/dev/zero", "dangling": "nothing", "loop": log}[kind])
    goes_on(tmp_path, arm)


def test_nothing_that_was_set_aside_before_is_replaced(tmp_path, arm, log):
    before = tmp_path / "episode_000003.log.damaged"
    before.write_text("earlier")
    (tmp_path / "episode_000003.log").write_text("not a log")
    with DatasetWriter(tmp_path) as writer:
        assert writer.warnings[0].endswith("set aside as episode_000003.log.damaged.1.")
    assert before.read_text() == "earlier"


def test_a_log_of_another_recording_than_the_episode_beside_it_is_kept(tmp_path, log, make_episode):
    write_episode(tmp_path / "episode_000003.npz", make_episode(index=3))
    (tmp_path / "episode_000003.log").write_bytes(b"".join(map(frame, log)))
    with DatasetWriter(tmp_path) as writer:
        assert "is another recording than episode_000003.npz: set aside" in writer.warnings[0]
    assert len(read_dataset(tmp_path)[0]) == 4


def test_an_unreadable_episode_makes_way_for_its_log_and_is_kept(tmp_path, log):
    (tmp_path / "episode_000003.npz").write_text("damaged")
    (tmp_path / "episode_000003.log").write_bytes(b"".join(map(frame, log)))
    with DatasetWriter(tmp_path) as writer:
        assert len(writer.warnings) == 2
    assert (tmp_path / "episode_000003.npz.damaged").read_text() == "damaged"
    assert len(read_dataset(tmp_path)[0]) == 3


def test_a_log_whose_name_no_recorder_gives_is_left_alone(tmp_path):
    (tmp_path / "episode_notes.log").write_text("")
    with DatasetWriter(tmp_path) as writer:
        assert writer.warnings == []
    assert (tmp_path / "episode_notes.log").exists()


def test_links_and_folders_in_place_of_the_writers_own_files_cost_nothing(tmp_path, arm):
    other, folder = tmp_path / "other", tmp_path / "demos"
    other.write_text("precious")
    folder.mkdir()
    (folder / "episode_000001.npz.tmp").mkdir()
    (folder / "episode_000000.npz.tmp").symlink_to(other)
    with DatasetWriter(folder) as writer:
        recording = begin(writer, arm)
        append(recording, arm)
        (folder / "episode_000002.npz.tmp").symlink_to(other)
        recording.finish(success=True)
    assert other.read_text() == "precious"
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(other)
    with pytest.raises(DemoError, match="delete it"):
        DatasetWriter(folder)
    assert other.read_text() == "precious"


def test_an_episode_that_could_not_be_read_back_is_not_written(tmp_path, make_episode):
    episode = make_episode(success="no")
    with pytest.raises(DemoError, match="would be an episode that nobody can read: it holds success 'no'"):
        write_episode(tmp_path / "episode_000000.npz", episode)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file(tmp_path, make_episode):
    def fill() -> None:
        with naming(tmp_path / "x"), open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert caught.value.filename == str(tmp_path / "x")
