"""MCAP files and rosbag2 folders: episodes come back bit for bit, and hostile files are named."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("mcap")
pytest.importorskip("rosbags")

from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from mcap_ros2.decoder import DecoderFactory
from rosbags.rosbag2 import Reader

from grasp_demos.convert import FORMATS, recognise
from grasp_demos.convert.format import ImportSettings
from grasp_demos.convert.ros_messages import episode_messages, typestore
from grasp_demos.episode import DemoError
from grasp_demos.storage import ARRAYS
from grasp_demos.topics import Topics
from grasp_demos.validate import require_valid
from grasp_sim import registry
from grasp_sim.contract import unpack_state
from grasp_sim.randomization import RandomizationConfig
from grasp_sim.ur5e import JOINT_NAMES

BOTH = ("mcap", "rosbag2", "rosbag2-sqlite3")
SETTINGS = ImportSettings()


def differences(a, b) -> list[str]:
    wrong = [n for n in ARRAYS if getattr(a, n).dtype != getattr(b, n).dtype]
    wrong += [n for n in ARRAYS if not np.array_equal(getattr(a, n), getattr(b, n))]
    if {k: v.tolist() for k, v in a.snapshot.items()} != {k: v.tolist() for k, v in b.snapshot.items()}:
        wrong.append("snapshot")
    return wrong + ["metadata"] * (a.metadata != b.metadata)


@pytest.fixture
def episodes(make_episode, on_an_arm):
    first = on_an_arm(make_episode(8, 0, note="über"), 0, (0.0071234567891, 0.013, 0.08123456789012345))
    second = on_an_arm(make_episode(5, 1, recorded_at="2026-03-01T12:00:00+00:00"), 1)
    made = [first, replace(second, slips=np.arange(5) == 2, rewards=np.linspace(0, 1, 5, dtype=np.float32))]
    require_valid(made)
    return made


@pytest.mark.parametrize("name", BOTH)
def test_exported_episodes_come_back_bit_for_bit(name, episodes, tmp_path):
    path = tmp_path / ("bag.mcap" if name == "mcap" else "bag")
    FORMATS[name].write(episodes, path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    imported = recognise(path).read(path, SETTINGS)
    assert imported.warnings == []
    assert [differences(a, b) for a, b in zip(imported.episodes, episodes, strict=True)] == [[], []]


def test_a_simulated_episode_with_noise_and_latency_comes_back_bit_for_bit(tmp_path):
    from grasp_demos.recording import record_expert

    random = RandomizationConfig(
        joint_latency=[0.01, 0.06], gripper_latency=[0.0, 0.09], object_latency=[0.05, 0.2],
        joint_noise=1e-4, joint_velocity_noise=1e-3, object_position_noise=5e-4,
    )  # fmt: skip
    env = registry.make(name="pybullet-objects", seed=0, randomization=random)
    recorded = record_expert(
        env, tmp_path / "demos", task="pybullet-objects", episodes=1, rng=np.random.default_rng(0),
        keep_failures=True, noise=0.05,
    )  # fmt: skip
    env.close()
    FORMATS["mcap"].write(recorded, tmp_path / "bag.mcap")
    imported = FORMATS["mcap"].read(tmp_path / "bag.mcap", SETTINGS)
    assert imported.warnings == []
    ages = recorded[0].observations[:, -1]
    assert (ages > 0.0).all()
    assert differences(imported.episodes[0], recorded[0]) == []


def test_another_reader_decodes_the_topics_as_the_driver_would_send_them(episodes, tmp_path):
    FORMATS["mcap"].write(episodes[:1], tmp_path / "bag.mcap")
    state = unpack_state(episodes[0].states[0])
    with open(tmp_path / "bag.mcap", "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        first = {}
        for schema, channel, message, decoded in reader.iter_decoded_messages():
            first.setdefault(channel.topic, (schema.name, message.log_time, decoded))
    assert set(first) == set(Topics().types())
    kind, time, joints = first["/joint_states"]
    assert kind == "sensor_msgs/msg/JointState"
    assert list(joints.name) == [*sorted(JOINT_NAMES), "finger_joint"]
    assert joints.name[0] == "elbow_joint"
    assert joints.position[0] == state.joint_positions[2]
    assert joints.velocity[1] == state.joint_velocities[1]
    stamp = joints.header.stamp.sec * 10**9 + joints.header.stamp.nanosec
    assert time - stamp == 7123457
    _, _, gripper = first["/gripper/joint_states"]
    assert (gripper.position[0], gripper.effort[0]) == (state.gripper_opening, state.gripper_force)
    _, _, pose = first["/object_pose"]
    assert pose.header.frame_id == "base_link"
    assert pose.pose.orientation.w == state.object_quaternion[3]
    _, _, tcp = first["/tcp_pose"]
    assert tcp.pose.position.z == state.tcp_position[2]
    _, _, action = first["/requested_action"]
    assert list(action.joint_names)[:2] == ["delta_x", "delta_y"]
    np.testing.assert_array_equal(
        np.array(action.points[0].positions, np.float32), episodes[0].requested_actions[0]
    )
    assert json.loads(first["/episode/start"][2].data)["metadata"]["task"] == "fake"


@pytest.mark.parametrize("name", BOTH[1:])
def test_rosbags_reads_the_folder(name, episodes, tmp_path):
    FORMATS[name].write(episodes, tmp_path / "bag")
    with Reader(tmp_path / "bag") as reader:
        assert {c.topic for c in reader.connections} == set(Topics().types())
        assert reader.topics["/joint_states"].msgcount == 9 + 6
        assert reader.topics["/executed_action"].msgcount == 8 + 5


def foreign(path, episode, change=lambda raw: raw, skip=(), topics=None, compression=CompressionType.ZSTD):
    """An MCAP file with the plain topics alone, as another program's recorder would leave it."""
    topics = topics or Topics()
    left_out = {*skip, topics.episode_start, topics.episode_step, topics.episode_end, topics.state_stamps}
    schemas, channels = {}, {}
    with open(path, "wb") as file:
        writer = Writer(file, compression=compression)
        writer.start(profile="ros2")
        for raw in episode_messages([episode], topics):
            if raw.topic in left_out or (raw := change(raw)) is None:
                continue
            if raw.type_name not in schemas:
                schemas[raw.type_name] = writer.register_schema(raw.type_name, "ros2msg", b"")
            if raw.topic not in channels:
                channels[raw.topic] = writer.register_channel(raw.topic, "cdr", schemas[raw.type_name])
            writer.add_message(channels[raw.topic], raw.time, bytes(raw.data), raw.time)
        writer.finish()
    return path


FOREIGN = ImportSettings("fake", "servo", "human-like")


def thawed(value):
    """A copy of a message that can be changed."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [thawed(entry) for entry in value]
    if hasattr(value, "__dataclass_fields__"):
        return SimpleNamespace(**{name: thawed(getattr(value, name)) for name in value.__dataclass_fields__})
    return value


def edited(topic, edit, at=None):
    """A change of `foreign` that edits the messages of one topic, or only the one number `at`."""
    count = iter(range(10**6))

    def change(raw):
        if raw.topic != topic:
            return raw
        if at is not None and next(count) != at:
            return raw
        store = typestore()
        message = thawed(store.deserialize_cdr(raw.data, raw.type_name))
        edit(message)
        return raw._replace(data=store.serialize_cdr(message, raw.type_name))

    return change


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_recording_of_another_program_is_resampled(episodes, tmp_path, compression):
    made = episodes[0]
    path = foreign(tmp_path / "other.mcap", made, compression=compression)
    (episode,), warnings = FORMATS["mcap"].read(path, FOREIGN)
    require_valid([episode])
    assert warnings == ["no /episode/end says whether it succeeded: taken as failed."]
    np.testing.assert_array_equal(episode.executed_actions, made.executed_actions)
    np.testing.assert_allclose(episode.observations, made.observations, atol=2e-9)
    assert (episode.metadata.source, episode.metadata.task) == ("ros", "fake")
    assert episode.truncations.tolist() == [False] * 7 + [True]


def test_what_the_recording_does_not_say_must_be_given(episodes, tmp_path):
    path = foreign(tmp_path / "other.mcap", episodes[0])
    with pytest.raises(DemoError, match="does not say its task"):
        FORMATS["mcap"].read(path, SETTINGS)


def test_topics_may_have_other_names_and_joints_a_prefix(episodes, tmp_path):
    topics = Topics(joint_states="/left/joint_states", object_pose="/aruco/pose", tf_prefix="left_")
    path = foreign(tmp_path / "other.mcap", episodes[0], topics=topics)
    with pytest.raises(
        DemoError, match=r"no usable message on /joint_states, /object_pose.*It has /aruco/pose"
    ):
        FORMATS["mcap"].read(path, FOREIGN)
    read = FORMATS["mcap"].read(path, replace(FOREIGN, topics=topics))
    assert len(read.episodes[0]) == 8
    with pytest.raises(ValueError, match="two things"):
        Topics(object_pose="/joint_states")


def without_elbow(message):
    message.name = [n for n in message.name if n != "elbow_joint"]
    message.position, message.velocity = message.position[1:], message.velocity[1:]


@pytest.mark.parametrize(
    ("topic", "edit", "said"),
    [
        ("/joint_states", without_elbow, "lacks elbow_joint"),
        ("/joint_states", lambda m: m.position.__setitem__(3, np.nan), "position of wrist_1_joint is nan"),
        (
            "/joint_states",
            lambda m: m.position.__setitem__(2, np.inf),
            "position of shoulder_pan|shoulder_lift",
        ),
        (
            "/joint_states",
            lambda m: setattr(m, "position", m.position[:3]),
            "3 numbers of position for 7 names",
        ),
        (
            "/joint_states",
            lambda m: setattr(m, "name", [m.name[0], *m.name[:-1]]),
            "names elbow_joint twice|lacks",
        ),
        ("/gripper/joint_states", lambda m: setattr(m, "effort", m.effort[:0]), "0 numbers of effort"),
        ("/object_pose", lambda m: setattr(m.header, "frame_id", "camera"), "frame 'camera'"),
        ("/object_pose", lambda m: setattr(m.pose.orientation, "w", 9.0), "quaternion has length"),
        ("/object_pose", lambda m: setattr(m.pose.position, "x", np.nan), "not finite"),
        ("/object_size", lambda m: setattr(m.vector, "x", 0.0), "must be positive"),
        (
            "/executed_action",
            lambda m: setattr(m, "joint_names", m.joint_names[:5]),
            "lacks force_limit|numbers of",
        ),
        ("/executed_action", lambda m: setattr(m, "points", []), "holds no action"),
        ("/joint_states", lambda m: setattr(m.header.stamp, "sec", -(2**31)), "no whole step|ahead|behind"),
    ],
)
def test_a_message_that_cannot_be_used_is_refused_by_topic_and_time(topic, edit, said, episodes, tmp_path):
    path = foreign(tmp_path / "bad.mcap", episodes[0], edited(topic, edit))
    with pytest.raises(DemoError) as error:
        FORMATS["mcap"].read(path, FOREIGN)
    assert re.search(said, str(error.value))
    assert str(path) in str(error.value)
    assert topic in str(error.value)
    assert "\n" not in str(error.value)


def test_messages_of_the_gripper_alone_are_passed_over_and_too_few_velocities_replaced(episodes, tmp_path):
    def gripper_alone(message):
        message.name, message.position = message.name[-1:], message.position[-1:]
        message.velocity = message.velocity[-1:]

    path = foreign(tmp_path / "a.mcap", episodes[0], edited("/joint_states", gripper_alone))
    with pytest.raises(DemoError, match="no usable message on /joint_states"):
        FORMATS["mcap"].read(path, FOREIGN)
    few = edited("/joint_states", lambda m: setattr(m, "velocity", m.velocity[:2]))
    (episode,), warnings = FORMATS["mcap"].read(foreign(tmp_path / "b.mcap", episodes[0], few), FOREIGN)
    assert any("9 of 9 messages lack velocities" in line for line in warnings)
    change = np.diff(episode.states[:, :6], axis=0) / 0.05
    np.testing.assert_allclose(episode.states[1:, 6:12], change, rtol=1e-6)


def test_a_topic_of_another_type_is_refused(episodes, tmp_path):
    def other(raw):
        return raw._replace(type_name="std_msgs/msg/String") if raw.topic == "/object_pose" else raw

    with pytest.raises(DemoError, match="/object_pose has messages of type std_msgs/msg/String"):
        FORMATS["mcap"].read(foreign(tmp_path / "bad.mcap", episodes[0], other), FOREIGN)


def test_messages_that_claim_more_than_they_hold_are_refused(episodes, tmp_path):
    for position, value in ((8, 2**31 - 1), (12, 2**31 - 1), (20, 2**30)):

        def absurd(raw, position=position, value=value):
            data = bytearray(raw.data)
            if raw.topic == "/joint_states" and len(data) > position:
                data[position : position + 4] = value.to_bytes(4, "little")
            return raw._replace(data=bytes(data))

        with pytest.raises(DemoError) as error:
            FORMATS["mcap"].read(foreign(tmp_path / "bad.mcap", episodes[0], absurd), FOREIGN)
        assert "/joint_states" in str(error.value)


def test_a_cut_or_damaged_mcap_file_is_named_wherever_it_is_cut(episodes, tmp_path):
    FORMATS["mcap"].write(episodes, tmp_path / "bag.mcap")
    content = (tmp_path / "bag.mcap").read_bytes()
    bad = tmp_path / "bad.mcap"
    for length in [0, 4, 8, 9, 30, *range(100, len(content) - 400, len(content) // 23), len(content) - 9]:
        bad.write_bytes(content[:length])
        with pytest.raises(DemoError, match=r"bad\.mcap: .*(damaged|cut off)"):
            FORMATS["mcap"].read(bad, SETTINGS)
    flipped = bytearray(content)
    flipped[len(content) // 4] ^= 1
    bad.write_bytes(flipped)
    with pytest.raises(DemoError, match="damaged"):
        FORMATS["mcap"].read(bad, SETTINGS)


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.LZ4])
def test_a_chunk_that_unpacks_to_more_than_it_may_is_refused(compression, tmp_path, monkeypatch):
    with open(tmp_path / "bomb.mcap", "wb") as file:
        writer = Writer(file, chunk_size=2**22, compression=compression)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"")
        channel = writer.register_channel("/x", "cdr", schema)
        writer.add_message(channel, 0, bytes(2**21), 0)
        writer.finish()
    assert (tmp_path / "bomb.mcap").stat().st_size < 2**15
    monkeypatch.setattr("grasp_demos.convert.mcap_file.MAX_CHUNK", 2**20)
    with pytest.raises(DemoError, match="at most 1048576 are read"):
        FORMATS["mcap"].read(tmp_path / "bomb.mcap", SETTINGS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rosbag2_bagfile_information: {relative_file_paths: [../secret.db3]}", "outside"),
        ("rosbag2_bagfile_information: {relative_file_paths: [/etc/passwd]}", "outside"),
        ("rosbag2_bagfile_information: {relative_file_paths: [..]}", "outside"),
        ("rosbag2_bagfile_information: {relative_file_paths: [gone.db3]}", "lacks the file gone.db3"),
        ("rosbag2_bagfile_information: {relative_file_paths: []}", "names no files"),
        ("rosbag2_bagfile_information: {relative_file_paths: [x.db3], compression_mode: file}", "compressed"),
        ("{[", "cannot be read"),
        ("!!python/object/apply:os.system [exit]", "cannot be read"),
        ("7", "cannot be read"),
    ],
)
def test_metadata_that_lies_is_refused(text, said, episodes, tmp_path):
    FORMATS["rosbag2"].write(episodes, tmp_path / "bag")
    (tmp_path / "bag/metadata.yaml").write_text(text)
    with pytest.raises(DemoError, match=said):
        FORMATS["rosbag2"].read(tmp_path / "bag", SETTINGS)


def test_a_damaged_database_is_refused(episodes, tmp_path):
    FORMATS["rosbag2-sqlite3"].write(episodes, tmp_path / "bag")
    file = next((tmp_path / "bag").glob("*.db3"))
    whole = file.read_bytes()
    assert len(FORMATS["rosbag2"].read(file, SETTINGS).episodes) == 2
    for content in (b"", b"SQLite format 3\0", whole[: len(whole) // 2], bytes(5000)):
        file.write_bytes(content)
        with pytest.raises(DemoError, match="bag"):
            FORMATS["rosbag2"].read(tmp_path / "bag", SETTINGS)
    file.write_bytes(whole)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE messages SET data = 7 WHERE id = 5")
    with pytest.raises(DemoError, match="wrong type"):
        FORMATS["rosbag2"].read(tmp_path / "bag", SETTINGS)
    connection.close()


def test_a_view_that_makes_endless_or_huge_rows_is_refused(episodes, tmp_path):
    FORMATS["rosbag2-sqlite3"].write(episodes, tmp_path / "bag")
    file = next((tmp_path / "bag").glob("*.db3"))
    connection = sqlite3.connect(file)
    connection.executescript(
        "DROP TABLE messages; CREATE VIEW messages AS SELECT 1 AS id, 1 AS topic_id, 0 AS timestamp, "
        "zeroblob(900000000) AS data;"
    )
    connection.close()
    with pytest.raises(DemoError, match="no storage of rosbag2"):
        FORMATS["rosbag2"].read(tmp_path / "bag", SETTINGS)


def test_a_recording_that_broke_off_is_marked_incomplete(episodes, tmp_path):
    FORMATS["rosbag2-sqlite3"].write(episodes[:1], tmp_path / "bag")
    file = next((tmp_path / "bag").glob("*.db3"))
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(
            "DELETE FROM messages WHERE timestamp > (SELECT min(timestamp) FROM messages) + 205000000"
        )
    connection.close()
    (episode,), warnings = FORMATS["rosbag2"].read(tmp_path / "bag", SETTINGS)
    assert len(warnings) == 1
    assert "no /episode/end follows" in warnings[0]
    assert (episode.metadata.complete, episode.metadata.success, len(episode)) == (False, False, 4)
    np.testing.assert_array_equal(episode.observations, episodes[0].observations[:5])
    require_valid([episode])


def test_failed_writing_leaves_nothing_and_existing_paths_are_kept(episodes, tmp_path):
    broken = replace(episodes[0], snapshot={"names": np.array(["a"])})
    for name in BOTH:
        with pytest.raises(DemoError, match="only numbers"):
            FORMATS[name].write([broken], tmp_path / "out")
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    for name in BOTH:
        with pytest.raises(DemoError, match="exists already"):
            FORMATS[name].write(episodes, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")


def refusal(name, path) -> str:
    """Why a path is refused; empty where it is not. Any other error is a fault."""
    try:
        require_valid(FORMATS[name].read(path, SETTINGS).episodes)
    except DemoError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", BOTH)
def test_flipped_bytes_are_refused_in_one_line_or_do_no_harm(name, episodes, tmp_path):
    path, rng = tmp_path / "bag", np.random.default_rng(0)
    FORMATS[name].write([replace(e, path=None) for e in episodes], path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    refused = 0
    for _ in range(60):
        file = files[rng.integers(len(files))]
        whole = file.read_bytes()
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] = rng.choice([0, 255, rng.integers(256)])
        file.write_bytes(flipped)
        said = refusal(name, path)
        assert "\n" not in said
        refused += bool(said)
        file.write_bytes(whole)
    assert refused > 10
