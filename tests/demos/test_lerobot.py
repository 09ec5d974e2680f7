"""LeRobot data sets: the documented layout is written, an episode comes back, and damage is named."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")

from grasp_demos.convert import find_format, recognise  # noqa: E402
from grasp_demos.convert.format import ImportSettings  # noqa: E402
from grasp_demos.convert.lerobot_layout import Statistics  # noqa: E402
from grasp_demos.episode import DemoError  # noqa: E402
from grasp_demos.storage import ARRAYS  # noqa: E402
from grasp_demos.validate import require_valid, validate  # noqa: E402
from grasp_sim.contract import ACTION_NAMES, OBSERVATION_NAMES  # noqa: E402

LEROBOT = find_format("lerobot")
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture
def episodes(make_episode):
    """Three, of different lengths and kinds, with slips, drops and a remark."""
    made = [make_episode(5, 0, note="über\nlines"), make_episode(3, 1, kind="clean"), make_episode(1, 2)]
    slips = np.array([False, True, False, True, False])
    return [replace(made[0], slips=slips, drops=~slips, rewards=np.arange(5, dtype=np.float32)), *made[1:]]


@pytest.fixture
def folder(tmp_path, episodes):
    require_valid(episodes)
    LEROBOT.write(episodes, tmp_path / "data_set")
    return tmp_path / "data_set"


def same(a, b) -> bool:
    arrays = all(
        np.array_equal(getattr(a, n), getattr(b, n)) and getattr(a, n).dtype == getattr(b, n).dtype
        for n in ARRAYS
    )
    snapshots = {k: v.tolist() for k, v in a.snapshot.items()} == {
        k: v.tolist() for k, v in b.snapshot.items()
    }
    return arrays and snapshots and a.metadata == b.metadata


def change_info(folder: Path, **changes: object) -> None:
    file = folder / "meta/info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change_data(folder: Path, name: str, column: object) -> None:
    table = pq.read_table(folder / DATA)
    position = table.schema.names.index(name)
    pq.write_table(table.set_column(position, name, column), folder / DATA)


def refusal(folder: Path) -> str:
    with pytest.raises(DemoError) as error:
        require_valid(LEROBOT.read(folder, ImportSettings()).episodes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_exported_episode_comes_back_bit_for_bit(folder, episodes):
    assert recognise(folder) is LEROBOT
    imported = LEROBOT.read(folder, ImportSettings())
    assert imported.warnings == []
    assert [same(a, b) for a, b in zip(imported.episodes, episodes, strict=True)] == [True] * 3


def test_an_episode_of_a_real_arm_has_no_simulator_state(tmp_path, make_episode):
    episode = make_episode(4)
    episode = replace(episode, simulator_states=np.zeros((5, 0)), snapshot={})
    LEROBOT.write([episode], tmp_path / "real")
    assert same(LEROBOT.read(tmp_path / "real", ImportSettings()).episodes[0], episode)
    assert "grasp.simulator_state" not in pq.read_schema(tmp_path / "real" / DATA).names


def test_one_number_of_simulator_state_is_a_plain_column(tmp_path, make_episode):
    episode = make_episode(4)
    episode = replace(episode, simulator_states=np.arange(5.0)[:, None])
    LEROBOT.write([episode], tmp_path / "one")
    assert pq.read_schema(tmp_path / "one" / DATA).field("grasp.simulator_state").type == pa.float64()
    assert same(LEROBOT.read(tmp_path / "one", ImportSettings()).episodes[0], episode)


def test_the_layout_is_the_documented_one(folder, episodes):
    info = json.loads((folder / "meta/info.json").read_text())
    counts = {"total_episodes": 3, "total_frames": 9, "total_tasks": 1, "fps": 20}
    assert counts.items() <= info.items()
    assert info["codebase_version"] == "v3.0"
    assert info["splits"] == {"train": "0:3"}
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    features = info["features"]
    observation = {"dtype": "float32", "shape": [13], "names": list(OBSERVATION_NAMES)}
    assert features["observation.state"] == observation
    assert features["action"] == {"dtype": "float32", "shape": [6], "names": list(ACTION_NAMES)}
    table = pq.read_table(folder / DATA)
    assert set(table.schema.names) == set(features)
    assert table["index"].to_pylist() == list(range(9))
    assert table["episode_index"].to_pylist() == [0] * 5 + [1] * 3 + [2]
    assert table["frame_index"].to_pylist() == [0, 1, 2, 3, 4, 0, 1, 2, 0]
    assert table["timestamp"].to_pylist() == [float(np.float32(k / 20)) for k in (0, 1, 2, 3, 4, 0, 1, 2, 0)]
    assert table["task_index"].to_pylist() == [0] * 9
    assert table["next.done"].to_pylist() == [False] * 4 + [True, False, False, True, True]
    np.testing.assert_array_equal(np.stack(table["action"].to_numpy())[:5], episodes[0].executed_actions)
    np.testing.assert_array_equal(np.stack(table["action"].to_numpy())[5:8], episodes[1].intended_actions)
    assert np.array_equal(table["next.observation.state"][4].as_py(), episodes[0].observations[-1].tolist())
    rows = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet")
    assert rows["dataset_from_index"].to_pylist() == [0, 5, 8]
    assert rows["dataset_to_index"].to_pylist() == [5, 8, 9]
    assert rows["tasks"].to_pylist() == [["fake"]] * 3
    assert rows["data/file_index"].to_pylist() == [0, 0, 0]
    assert rows["stats/next.reward/max"].to_pylist() == [[4.0], [0.0], [0.0]]
    assert pq.read_table(folder / "meta/tasks.parquet").to_pydict() == {"task_index": [0], "task": ["fake"]}
    statistics = json.loads((folder / "meta/stats.json").read_text())
    actions = np.stack(table["action"].to_numpy()).astype(float)
    np.testing.assert_allclose(statistics["action"]["mean"], actions.mean(0))
    np.testing.assert_allclose(statistics["action"]["std"], actions.std(0))
    assert statistics["action"]["count"] == [9]


def test_statistics_of_parts_are_those_of_the_whole_but_for_quantiles():
    values = np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    statistics = Statistics()
    assert statistics.add(values[:1])["std"] == [0.0, 0.0]
    statistics.add(values[1:30])
    statistics.add(values[30:])
    result = statistics.result()
    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(result[name], getattr(values, name)(0))


def test_a_large_data_set_goes_on_in_another_file(tmp_path, make_episode, monkeypatch):
    monkeypatch.setattr("grasp_demos.convert.lerobot_layout.FILE_MB", 1e-3)
    monkeypatch.setattr("grasp_demos.convert.lerobot_layout.CHUNK_FILES", 2)
    episodes = [make_episode(4, index) for index in range(3)]
    LEROBOT.write(episodes, tmp_path / "many")
    files = sorted(p.relative_to(tmp_path / "many").as_posix() for p in tmp_path.glob("many/data/*/*"))
    assert files == [DATA, "data/chunk-000/file-001.parquet", "data/chunk-001/file-000.parquet"]
    assert all(map(same, LEROBOT.read(tmp_path / "many", ImportSettings()).episodes, episodes))


def test_without_our_own_file_the_settings_say_what_it_is_and_the_last_step_is_lost(folder):
    (folder / "meta/grasp_episodes.jsonl").unlink()
    with pytest.raises(DemoError, match="task"):
        LEROBOT.read(folder, ImportSettings())
    # The second episode is a clean one, whose action is not the executed one.
    with pytest.raises(DemoError, match="which a human-like episode teaches"):
        LEROBOT.read(folder, ImportSettings(task="fake", control_mode="servo", kind="human-like"))


def test_the_last_step_alone_is_lost_with_our_own_file(tmp_path, make_episode):
    made = make_episode(5)
    LEROBOT.write([made], tmp_path / "set")
    (tmp_path / "set/meta/grasp_episodes.jsonl").unlink()
    settings = ImportSettings(task="fake", control_mode="servo", kind="human-like")
    (episode,), warnings = LEROBOT.read(tmp_path / "set", settings)
    assert len(warnings) == 2
    assert "its last step was left out" in warnings[1]
    assert validate(episode) == []
    np.testing.assert_array_equal(episode.states, made.states[:-1])
    np.testing.assert_array_equal(episode.observations, made.observations[:-1])
    np.testing.assert_array_equal(episode.executed_actions, made.executed_actions[:-1])
    assert (episode.metadata.success, episode.metadata.complete) == (False, False)


def test_episodes_that_cannot_share_a_data_set_are_refused_and_leave_nothing(tmp_path, make_episode):
    for other in (make_episode(3, rate_hz=10.0), replace(make_episode(3), simulator_states=np.zeros((4, 2)))):
        with pytest.raises(DemoError, match="export them separately"):
            LEROBOT.write([make_episode(3), other], tmp_path / "out")
    with pytest.raises(DemoError, match="whole number"):
        LEROBOT.write([make_episode(3, rate_hz=12.5)], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_frames": 10**12}, "claims 1000000000000 frames"),
        ({"total_frames": 8}, "claims 8 frames"),
        ({"total_frames": "9"}, "wrong type"),
        ({"total_episodes": 4}, "claims 4 episodes"),
        ({"codebase_version": "v2.1"}, "only v3 is read"),
        ({"data_path": "../../secret/{chunk_index}.parquet"}, "puts data at"),
        ({"fps": 0}, "wrong type"),
        ({"features": {}}, "no feature observation.state"),
    ],
)
def test_a_description_that_lies_is_refused(folder, changes, said):
    change_info(folder, **changes)
    assert said in refusal(folder)


def test_a_feature_of_another_shape_or_an_absurd_one_is_refused(folder):
    features = json.loads((folder / "meta/info.json").read_text())["features"]
    change_info(folder, features=features | {"action": features["action"] | {"shape": [7]}})
    assert "action has shape [7]" in refusal(folder)
    wide = {"dtype": "float64", "shape": [10**12], "names": None}
    change_info(folder, features=features | {"grasp.simulator_state": wide})
    assert "1000000000000" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("next.reward", pa.array([0.0] * 9, pa.float64()), "column next.reward has type double"),
        ("action", pa.array(["a"] * 9), "column action has type string"),
        (
            "action",
            pa.array([[0.0] * 7] * 9, pa.list_(pa.float32())),
            "column action has not 6 numbers in every row",
        ),
        ("grasp.slip", pa.array([None] * 9, pa.bool_()), "column grasp.slip has not 1 numbers in every row"),
        ("index", pa.array([1] * 9, pa.int64()), "does not count"),
        ("frame_index", pa.array([0] * 9, pa.int64()), "does not count"),
        ("episode_index", pa.array([0] * 5 + [7] * 4, pa.int64()), "episode 7 follows"),
        ("next.reward", pa.array([np.nan] * 9, pa.float32()), "not finite"),
        ("action", pa.array([[0.0] * 6] * 9, pa.list_(pa.float32())), "action is not grasp.executed_action"),
    ],
)
def test_columns_of_another_kind_are_refused(folder, name, column, said):
    change_data(folder, name, column)
    assert said in refusal(folder)


def test_a_row_that_unpacks_to_far_more_than_its_file_is_refused(folder):
    offsets = pa.array([0] + [2**22] * 9, pa.int32())
    change_data(folder, "action", pa.ListArray.from_arrays(offsets, pa.array(np.zeros(2**22, np.float32))))
    assert (folder / DATA).stat().st_size < 2**17
    assert "column action has not 6 numbers in every row" in refusal(folder)


def test_files_cut_or_damaged_or_missing_are_named(folder, tmp_path):
    for name in (DATA, "meta/info.json", "meta/grasp_episodes.jsonl"):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: len(content) // 2])
        assert "copy" in refusal(copy)
    shutil.rmtree(folder / "data")
    assert "the 0 data files hold 0" in refusal(folder)


def test_a_changed_number_is_noticed_by_its_checksum(folder):
    reward = np.float32(4.0).tobytes()  # The last of the first episode's.
    content = (folder / DATA).read_bytes()
    assert content.count(reward) >= 1
    (folder / DATA).write_bytes(content.replace(reward, np.float32(3.5).tobytes(), 1))
    assert "checksum" in refusal(folder).lower()


def test_a_file_that_would_end_the_process_in_arrow_is_refused(folder):
    content = bytearray((folder / DATA).read_bytes())
    rng = np.random.default_rng(0)
    for position in rng.integers(len(content) - 30_000, len(content) - 8, 12):  # In and before the footer.
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        (folder / DATA).write_bytes(flipped)
        with contextlib.suppress(DemoError):
            require_valid(LEROBOT.read(folder, ImportSettings()).episodes)


def test_a_header_that_claims_more_than_it_holds_is_refused(folder):
    file = folder / "meta/grasp_episodes.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["snapshot"]["numbers"]["shape"] = [10**12]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "line 1" in refusal(folder)
    lines[0]["snapshot"] = {}
    lines[0]["final_state"][0] = 9.0
    file.write_text("\n".join(map(json.dumps, lines)))
    imported = LEROBOT.read(folder, ImportSettings())  # The observation does not depend on a joint's angle.
    assert validate(imported.episodes[0]) == []
    lines[0]["final_state"][14] = 9.0
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "final state is not that of the data" in refusal(folder)


OPEN_IT = """
import sys
import numpy as np, torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root, expected = sys.argv[1], np.load(sys.argv[2])
data = LeRobotDataset("grasp/demos", root=root)
assert (data.num_episodes, data.num_frames, len(data), data.fps) == (3, 9, 9, 20)
for index in range(9):
    item = data[index]
    assert item["observation.state"].dtype == torch.float32
    assert np.array_equal(item["observation.state"].numpy(), expected["observations"][index])
    assert np.array_equal(item["action"].numpy(), expected["actions"][index])
    assert item["task"] == "fake"
    assert bool(item["next.done"]) == (index in (4, 7, 8))
assert data.meta.stats["action"]["mean"].shape == (6,)
deltas = {"observation.state": [-0.05, 0.0], "action": [0.0, 0.05, 0.1]}
data = LeRobotDataset("grasp/demos", root=root, delta_timestamps=deltas)
item = data[6]  # the second frame of the second episode, which has three
assert np.array_equal(item["observation.state"].numpy(), expected["observations"][5:7])
assert np.array_equal(item["action"].numpy(), expected["actions"][[6, 7, 7]])
assert item["action_is_pad"].tolist() == [False, False, True]
one = LeRobotDataset("grasp/demos", root=root, episodes=[1])
assert len(one) == 3 and np.array_equal(one[0]["action"].numpy(), expected["actions"][5])
print("opened")
"""


@pytest.mark.skipif("LEROBOT_PYTHON" not in os.environ, reason="LEROBOT_PYTHON names no Python with lerobot")
def test_lerobot_itself_opens_it_and_gives_the_right_frames(folder, episodes, tmp_path):
    np.savez(
        tmp_path / "expected.npz",
        observations=np.concatenate([e.observations[:-1] for e in episodes]),
        actions=np.concatenate([e.training_actions for e in episodes]),
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "CUDA_VISIBLE_DEVICES": ""}
    command = [os.environ["LEROBOT_PYTHON"], "-c", OPEN_IT, str(folder), str(tmp_path / "expected.npz")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout.strip().endswith("opened"), done.stderr[-3000:]
