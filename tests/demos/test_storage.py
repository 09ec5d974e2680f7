"""Episode files: what is written is read, and any damage is named."""

from __future__ import annotations

import io
from dataclasses import fields, replace

import numpy as np
import pytest

from grasp_demos import storage
from grasp_demos.episode import DemoError, Episode, Step
from grasp_demos.reader import demonstrations, read_dataset, read_episode, read_usable
from grasp_demos.storage import (
    ARRAYS,
    Header,
    episode_bytes,
    frame,
    header_bytes,
    parse_episode,
    parse_log,
    step_bytes,
    step_dtype,
)
from grasp_demos.writer import write_episode
from grasp_sim.contract import unpack_state


def same(a: Episode, b: Episode) -> bool:
    arrays = all(np.array_equal(getattr(a, n), getattr(b, n)) and
                 getattr(a, n).dtype == getattr(b, n).dtype for n in ARRAYS)  # fmt: skip
    snapshots = {k: v.tolist() for k, v in a.snapshot.items()} == {
        k: v.tolist() for k, v in b.snapshot.items()
    }
    return arrays and snapshots and a.metadata == b.metadata


def test_what_is_written_is_read(tmp_path, make_episode):
    episode = make_episode(note="über\nlines", versions={"mujoco": "3.7.0"}, noise=0.15)
    path = tmp_path / "episode_000000.npz"
    assert write_episode(path, episode).path == path
    assert same(read_episode(path), episode)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_numpy_alone_opens_an_episode_and_the_same_episode_gives_the_same_bytes(make_episode):
    data = episode_bytes(make_episode())
    assert data == episode_bytes(make_episode())
    with np.load(io.BytesIO(data)) as archive:
        assert archive["executed_actions"].shape == (4, 6)


def test_every_flipped_byte_and_every_cut_is_noticed(make_episode):
    data = episode_bytes(make_episode(steps=2))
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(DemoError):
            parse_episode(bytes(damaged))
    for length in range(0, len(data), 97):
        with pytest.raises(DemoError):
            parse_episode(data[:length])


def test_a_cut_log_gives_its_whole_steps(make_episode):
    episode = make_episode(steps=3)
    moving = episode.simulator_states
    dtype = step_dtype(moving.shape[1])
    header = Header(episode.metadata, episode.states[0], episode.observations[0], moving[0], {})
    header = frame(header_bytes(header))
    frames = []
    for t in range(3):
        actions = (episode.intended_actions[t], episode.requested_actions[t], episode.executed_actions[t])
        state = unpack_state(episode.states[t + 1])
        after = (state, episode.observations[t + 1], "person", moving[t + 1])
        step = Step(*actions, 0.0, False, False, False, False, *after)
        frames.append(frame(step_bytes(t, step, dtype)))
    data = header + b"".join(frames)
    for cut in [*range(0, len(data), 11), len(header), len(header) + len(frames[0]), len(data)]:
        log = parse_log(data[:cut])
        if cut < len(header):
            assert log is None
        else:
            assert log is not None
            assert len(log.steps) == (cut - len(header)) // len(frames[0])
    # A step whose bytes were damaged ends the log there: what follows it cannot be trusted to follow it.
    damaged = bytearray(data)
    damaged[len(header) + len(frames[0]) + 20] ^= 1
    log = parse_log(bytes(damaged))
    assert log is not None
    assert len(log.steps) == 1


@pytest.fixture
def dataset(tmp_path, make_episode):
    folder = tmp_path / "demos"
    folder.mkdir()
    for index, success in enumerate([True, False, True]):
        write_episode(folder / f"episode_{index:06d}.npz", make_episode(index=index, success=success))
    return folder


def test_a_truncated_file_is_named_and_the_others_are_usable(dataset):
    bad = dataset / "episode_000001.npz"
    bad.write_bytes(bad.read_bytes()[:-100])
    with pytest.raises(DemoError, match=r"1 of 3 episodes .*episode_000001\.npz is cut off"):
        read_dataset(dataset)
    episodes, errors = read_usable(dataset)
    assert [e.metadata.index for e in episodes] == [0, 2]
    assert len(errors) == 1
    assert "delete it" in str(errors[0])


def test_only_complete_successes_are_demonstrations(dataset, make_episode):
    write_episode(dataset / "episode_000003.npz", make_episode(index=3, success=True, complete=False))
    assert [e.metadata.index for e in demonstrations(read_dataset(dataset))] == [0, 2]


def test_reading_what_is_not_there_says_what_is(dataset):
    with pytest.raises(DemoError, match=r"demo does not exist\. The folder .* holds demos\."):
        read_dataset(dataset.parent / "demo")
    with pytest.raises(DemoError, match="is a folder"):
        read_episode(dataset)
    empty = dataset.parent / "empty"
    empty.mkdir()
    with pytest.raises(DemoError, match=r"holds no episodes .*grasp-record out="):
        read_dataset(empty)
    other = dataset / "episode_000009.npz"
    np.savez(other, actions=np.zeros(3))
    with pytest.raises(DemoError, match="no episode file"):
        read_dataset(other)
    other.write_bytes(b"")
    with pytest.raises(DemoError, match="is empty"):
        read_episode(other)


def test_a_missing_array_is_named(make_episode):
    episode = make_episode()
    arrays = {n: getattr(episode, n) for n in ARRAYS if n != "executed_actions"}
    data = storage._zip_arrays(episode.metadata, arrays, {})
    with pytest.raises(DemoError, match="lacks executed_actions"):
        parse_episode(data)


def test_a_policy_learns_the_intended_action_of_clean_and_the_executed_one_of_human_like_episodes(
    make_episode,
):
    episode = make_episode()
    assert np.array_equal(episode.training_actions, episode.executed_actions)
    clean = replace(episode, metadata=replace(episode.metadata, kind="clean"))
    assert np.array_equal(clean.training_actions, episode.intended_actions)
    assert not np.array_equal(episode.executed_actions, episode.requested_actions)
    assert {f.name for f in fields(Episode)} >= set(ARRAYS)


@pytest.mark.parametrize("array", [np.full((4, 6), "x"), np.zeros((4, 6), complex)])
def test_an_array_of_another_type_is_named(make_episode, array):
    data = episode_bytes(replace(make_episode(), executed_actions=array))
    with pytest.raises(DemoError, match=f"holds executed_actions of type {array.dtype}; it must be float32"):
        parse_episode(data)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("seed", "abc", "int"),
        ("horizon", 2.5, "int"),
        ("success", "yes", "bool"),
        ("success", 1, "bool"),
        ("rate_hz", "fast", "float"),
        ("rate_hz", True, "float"),
        ("task", ["lift"], "str"),
        ("versions", [], r"Mapping\[str, str\]"),
    ],
)
def test_metadata_of_another_type_is_named(make_episode, tmp_path, name, value, wanted):
    path = tmp_path / "episode_000000.npz"
    path.write_bytes(episode_bytes(make_episode(**{name: value})))
    with pytest.raises(
        DemoError, match=rf"episode_000000.npz holds {name} .*; it must be {wanted}\. Restore"
    ):
        read_episode(path)


def test_a_whole_number_is_a_rate(make_episode):
    assert parse_episode(episode_bytes(make_episode(rate_hz=20))).metadata.rate_hz == 20
