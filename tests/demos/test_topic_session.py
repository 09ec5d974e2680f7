"""Recording from topics without ROS: the messages of exported episodes, handed over as a node would."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mcap")
pytest.importorskip("rosbags")

from grasp_demos.convert import FORMATS
from grasp_demos.convert.format import ImportSettings
from grasp_demos.convert.ros_messages import episode_messages, typestore
from grasp_demos.episode import Metadata
from grasp_demos.reader import read_dataset
from grasp_demos.resample import MaximumAge
from grasp_demos.streams import NS
from grasp_demos.teleop.operator import NOTHING
from grasp_demos.teleop.session import Pace
from grasp_demos.teleop.topic_session import TopicSession
from grasp_demos.topics import Topics
from grasp_demos.validate import require_valid, validate
from grasp_demos.watch import Received, Watch
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale

T = Topics()
SOURCES = (T.joint_states, T.gripper, T.object_pose, T.object_size)
EQUAL = ("states", "observations", "intended_actions", "requested_actions", "executed_actions")
PERIOD = NS // 20


class Robot:
    """Hands out messages by their receive times; each call of `take` is a period later."""

    def __init__(self, messages, begin: int) -> None:
        self.messages, self.now = sorted(messages, key=lambda m: m[1]), begin
        self.lost = 0

    def take(self) -> Received:
        self.now += PERIOD
        out = [m for m in self.messages if m[1] <= self.now]
        self.messages = self.messages[len(out) :]
        lost, self.lost = self.lost, 0
        return Received(out, self.now, lost)


class Person:
    """Says commands at given moments of the robot's clock."""

    def __init__(self, robot: Robot, says: dict[int, str]) -> None:
        self.robot, self.says = robot, sorted(says.items())
        self.told: list[str] = []
        self.shown = []

    def begin(self, closed: bool) -> None:
        pass

    def poll(self, state):
        if self.says and self.robot.now >= self.says[0][0]:
            return NOTHING._replace(command=self.says.pop(0)[1])
        assert self.robot.messages or self.says, f"nobody ends this: {self.told}"
        return NOTHING

    def show(self, status) -> None:
        self.shown.append(status)
        if not self.told or status.verdict != self.told[-1]:
            self.told.append(status.verdict)


def messages_of(episode, topics=T, lead=1.0, change=lambda topic, at, message: (topic, at, message)):
    """What a node hears of an episode, the state of its start standing for `lead` s before it."""
    store, heard = typestore(), []
    for raw in episode_messages([episode], topics):
        if not raw.topic.startswith("/episode") and raw.topic != topics.tcp_pose:
            heard.append((raw.topic, raw.time, store.deserialize_cdr(raw.data, raw.type_name)))
    begin = heard[0][1]
    before = []
    for back in range(int(lead * 20), 0, -1):
        for topic, at, message in heard[:4]:
            early = copy.deepcopy(message)
            stamp = early.header.stamp.sec * NS + early.header.stamp.nanosec - back * PERIOD
            early.header.stamp.sec, early.header.stamp.nanosec = divmod(stamp, NS)
            before.append((topic, at - back * PERIOD, early))
    changed = [change(*m) for m in before + heard]
    return [m for m in changed if m is not None], begin, heard[-1][1]


def stamp_of(message) -> int:
    return message.header.stamp.sec * NS + message.header.stamp.nanosec


def move_stamp(message, ns: int) -> None:
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_of(message) + ns, NS)


@pytest.fixture
def episode(make_episode, on_an_arm):
    made = on_an_arm(make_episode(30, 0), 0, (0.0071234567891, 0.013, 0.08123456789012345))
    executed = np.clip(made.requested_actions, -1.0, 1.0)
    return replace(made, executed_actions=executed)


@pytest.fixture
def record(tmp_path):
    def run(messages, begin, says, *, limits=None, wanted=5, horizon=200, size=(), out="demos", **keep):
        robot = Robot(messages, begin - NS)
        person = Person(robot, says)
        metadata = Metadata(
            "fake", "servo", ActionScale(), "human-like", source="ros", horizon=horizon, note="remark"
        )
        watch = Watch(T, limits or MaximumAge(), object_size=size, object_symmetry=4)
        pace = Pace(20.0, clock=lambda: robot.now / NS, sleep=lambda _: None)
        with DatasetWriter(tmp_path / out) as writer:
            summary = TopicSession(
                robot, watch, writer, metadata, person, wanted=wanted, pace=pace, **keep
            ).run()
        return summary, person

    return run


def recorded(tmp_path, out="demos"):
    episodes = read_dataset(tmp_path / out)
    require_valid([e for e in episodes if e.metadata.success])
    return episodes


def plain(message_topics=(T.state_stamps,)):
    """Without the recorded ticks, as an arm has none."""
    return lambda topic, at, message: None if topic in message_topics else (topic, at, message)


def test_what_is_recorded_is_what_the_import_of_a_bag_gives(episode, record, tmp_path):
    messages, begin, end = messages_of(episode)
    summary, person = record(messages, begin, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    FORMATS["mcap"].write([episode], tmp_path / "bag.mcap")
    (imported,) = FORMATS["mcap"].read(tmp_path / "bag.mcap", ImportSettings()).episodes
    for name in EQUAL:
        np.testing.assert_array_equal(getattr(held, name), getattr(imported, name), err_msg=name)
    assert len(held) == 30
    assert (held.rewards.tolist(), held.terminations.tolist()) == ([0.0] * 29 + [1.0], [False] * 29 + [True])
    assert not held.truncations.any()
    assert held.is_demonstration
    assert (held.metadata.source, held.metadata.note, held.metadata.horizon) == ("ros", "remark", 200)
    assert summary[:3] == (1, 0, 0)
    assert any("no command on /requested_action or /executed_action" in line for line in person.told)


def test_an_arm_without_recorded_ticks_gets_those_of_the_rate(episode, record, tmp_path):
    messages, begin, end = messages_of(episode, change=plain())
    record(messages, begin, {begin - NS // 2: "start", end: "failure", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    assert len(held) == 30
    np.testing.assert_array_equal(held.requested_actions, episode.requested_actions)
    np.testing.assert_array_equal(held.states[:, :6], episode.states[:, :6])
    assert held.metadata.complete
    assert (held.truncations[-1], held.rewards.sum()) == (True, 0.0)
    assert held.metadata.note == "remark; called a failure by the operator"


@pytest.mark.parametrize("topic", SOURCES)
def test_without_a_source_nothing_begins_and_it_is_named(topic, episode, record, tmp_path):
    messages, begin, end = messages_of(episode, change=plain((topic,)))
    summary, person = record(messages, begin, {begin: "start", end + 1: "quit"})
    assert summary[:3] == (0, 0, 0)
    assert list((tmp_path / "demos").glob("episode*")) == []
    hint = ", and object_size is not set" if topic == T.object_size else ""
    assert f"not begun: {topic}: no message yet{hint}. waiting: {topic}: no message yet{hint}" in person.told
    assert all(status.phase == "ready" and not status.moves for status in person.shown)


def test_the_size_of_the_object_may_be_a_setting(episode, record, tmp_path):
    messages, begin, end = messages_of(episode, change=plain((T.object_size,)))
    says = {begin - NS // 2: "start", end: "success", end + 1: "quit"}
    record(messages, begin, says, size=(0.03, 0.04, 0.05))
    (held,) = recorded(tmp_path)
    assert held.start.object_size.tolist() == [0.03, 0.04, 0.05]
    messages, begin, end = messages_of(episode)
    record(messages, begin, says, size=(0.03, 0.04, 0.05), out="b")
    assert recorded(tmp_path, "b")[0].start.object_size.tolist() == [0.04, 0.04, 0.04]


def stopped(stop_topic: str, at: int):
    def change(topic, received, message):
        return None if topic == stop_topic and received > at else (topic, received, message)

    return change


@pytest.mark.parametrize(
    ("topic", "limit"),
    [(T.joint_states, 0.2), (T.gripper, 0.5), (T.object_pose, 1.0), (T.requested_action, 0.5)],
)
def test_a_source_that_stops_ends_the_episode_as_incomplete(
    topic, limit, make_episode, on_an_arm, record, tmp_path
):
    episode = on_an_arm(make_episode(60, 0), 0)
    messages, begin, end = messages_of(episode)
    stop = begin + 10 * PERIOD
    actions = (T.requested_action, T.executed_action, T.intended_action)
    silent = actions if topic in actions else (topic,)
    messages = [m for m in messages if not (m[0] in silent and stop < m[1] < stop + 2 * NS)]
    _, person = record(messages, begin, {begin - NS // 2: "start", end: "success", end + NS: "quit"})
    (held,) = recorded(tmp_path)
    # A state may be that old; a command is for the step that begins then.
    assert len(held) == 10 + round(limit * 20) + (topic in actions)
    assert (held.metadata.success, held.metadata.complete) == (False, False)
    at = 0.05 * (len(held) + (topic not in actions))
    assert held.metadata.note.startswith(
        f"remark; {topic}: nothing new within {limit:g} s,"
        f" the latest is {limit + 0.05:.3f} s old at {at:.3f} s"
    )
    assert validate(held) == []
    assert any("are kept as incomplete" in line for line in person.told)


def test_when_commands_stop_the_person_has_time_to_judge(make_episode, on_an_arm, record, tmp_path):
    messages, begin, end = messages_of(on_an_arm(make_episode(60, 0), 0), change=plain())
    last = begin + 20 * PERIOD
    messages = [m for m in messages if not (m[0].endswith("_action") and m[1] > last)]
    _, person = record(messages, begin, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    assert held.is_demonstration
    assert len(held) == 21
    line = "/requested_action: no more commands; say what became of the episode"
    assert f"waiting: {line}" in person.told


def spoil(topic_at_fault, at, spoiler):
    def change(topic, received, message):
        if topic == topic_at_fault and received == at:
            message = copy.deepcopy(message)
            spoiler(message)
        return topic, received, message

    return change


def nan_elbow(message):
    message.position = np.array([np.nan, *message.position[1:]])


def without_elbow(message):
    message.name = message.name[1:]
    message.position, message.velocity = message.position[1:], message.velocity[1:]


def too_few(message):
    message.position = message.position[:3]


def other_frame(message):
    message.header.frame_id = "camera"


def no_rotation(message):
    message.pose.orientation.w += 1.0


def short_action(message):
    message.points[0].positions = message.points[0].positions[:5]


@pytest.mark.parametrize(
    ("topic", "spoiler", "line"),
    [
        (T.joint_states, nan_elbow, "position of elbow_joint is nan"),
        (T.joint_states, without_elbow, "it lacks elbow_joint; it has shoulder_lift_joint"),
        (T.joint_states, too_few, "it has 3 numbers of position for 7 names"),
        (T.object_pose, other_frame, "it is in the frame 'camera'; it must be in 'base_link'"),
        (T.object_pose, no_rotation, "its quaternion has length"),
        (T.requested_action, short_action, "it has 5 numbers of action for 6 names"),
    ],
)
def test_a_message_that_cannot_be_used_ends_the_episode(topic, spoiler, line, episode, record, tmp_path):
    begin, end = messages_of(episode)[1:]
    at = begin + 12 * PERIOD
    messages, _, _ = messages_of(episode, change=spoil(topic, at, spoiler))
    record(messages, begin, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    assert 10 <= len(held) <= 12
    assert held.metadata.note.startswith(f"remark; {topic}: {line}")
    assert not held.metadata.complete
    np.testing.assert_array_equal(held.requested_actions, episode.requested_actions[: len(held)])


def test_a_message_that_cannot_be_used_lets_nothing_begin(episode, record, tmp_path):
    def change(topic, received, message):
        if topic == T.joint_states:
            nan_elbow(message)
        return topic, received, message

    messages, begin, end = messages_of(episode, change=change)
    _, person = record(messages, begin, {begin: "start", end: "quit"})
    assert "not begun: /joint_states: position of elbow_joint is nan" in person.told[-1]


def test_stamps_that_go_back_end_the_episode_with_a_note(episode, record, tmp_path):
    begin, end = messages_of(episode)[1:]

    def change(topic, received, message):
        if topic == T.gripper and received >= begin + 15 * PERIOD:
            message = copy.deepcopy(message)
            move_stamp(message, -30 * NS)
        return topic, received, message

    messages, _, _ = messages_of(episode, change=change)
    record(messages, begin, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    assert len(held) == 14
    assert held.metadata.note == f"remark; {T.gripper}: clock jump: stamps go back by 29.950 s at 0.750 s"
    assert not held.metadata.complete


def test_a_driver_that_was_restarted_with_another_clock_is_recorded_afterwards(episode, record, tmp_path):
    """What a clock did before an episode is of the past."""
    begin, end = messages_of(episode)[1:]

    def change(topic, received, message):
        if hasattr(message, "header") and received < begin - NS // 2:
            message = copy.deepcopy(message)
            move_stamp(message, 100 * NS)
        return topic, received, message

    messages, _, _ = messages_of(episode, change=change)
    record(messages, begin, {begin - NS // 10: "start", end: "success", end + 1: "quit"})
    (held,) = recorded(tmp_path)
    assert held.is_demonstration
    assert len(held) == 30


def test_a_source_on_another_clock_is_refused_by_name(episode, record, tmp_path):
    def change(topic, received, message):
        if topic == T.object_pose:
            message = copy.deepcopy(message)
            move_stamp(message, -5 * NS)
        return topic, received, message

    messages, begin, end = messages_of(episode, change=change)
    _, person = record(messages, begin, {begin - NS // 2: "start", end: "quit"})
    assert any(
        "/object_pose: its stamps are 5.081 s behind the clock of /joint_states" in t for t in person.told
    )
    assert list((tmp_path / "demos").glob("episode*")) == []


def test_messages_that_were_dropped_end_the_episode(episode, record, tmp_path):
    messages, begin, end = messages_of(episode)

    class Flooded(Robot):
        def take(self):
            received = super().take()
            return received._replace(lost=7 if self.now == begin + 10 * PERIOD else 0)

    robot = Flooded(messages, begin - NS)
    person = Person(robot, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    watch = Watch(T, MaximumAge(), object_size=(), object_symmetry=4)
    metadata = Metadata("fake", "servo", ActionScale(), "human-like", source="ros", horizon=100)
    with DatasetWriter(tmp_path / "demos") as writer:
        TopicSession(robot, watch, writer, metadata, person, wanted=1,
                     pace=Pace(20.0, lambda: 0.0, lambda _: None)).run()  # fmt: skip
    (held,) = recorded(tmp_path)
    assert held.metadata.note == "7 messages came faster than they could be taken in"


def test_discard_time_out_and_second_thoughts(episode, record, tmp_path):
    messages, begin, end = messages_of(episode, change=plain())
    at = [begin + k * PERIOD for k in range(30)]
    says = {begin - NS // 2: "start", at[5]: "discard", at[6]: "start", at[18]: "discard", at[20]: "start"}
    summary, person = record(messages, begin, says | {end: "quit"}, horizon=8)
    (held,) = recorded(tmp_path)
    assert len(held) == 8
    assert held.metadata.note == "remark; time ran out"
    assert held.truncations[-1]
    assert summary[:3] == (0, 1, 2)
    assert "thrown away" in person.told
    assert "episode 0 was thrown away" in person.told


def test_an_episode_that_no_learner_could_use_is_a_failure(episode, record, tmp_path):
    messages, begin, end = messages_of(
        replace(episode, executed_actions=np.zeros_like(episode.executed_actions)), change=plain()
    )
    summary, _ = record(messages, begin, {begin - NS // 2: "start", end: "success", end + 1: "quit"})
    (held,) = read_dataset(tmp_path / "demos")
    assert not held.metadata.success
    assert "cannot be learnt from" in held.metadata.note
    assert "is not the requested action clipped" in held.metadata.note
    assert summary[:3] == (0, 1, 0)


def test_steps_are_written_while_they_come(episode, record, tmp_path):
    messages, begin, end = messages_of(episode)
    sizes = []

    class Spy(Robot):
        def take(self):
            log = list((tmp_path / "demos").glob("*.log"))
            sizes.append(log[0].stat().st_size if log else 0)
            return super().take()

    robot = Spy(messages, begin - NS)
    person = Person(robot, {begin - NS // 2: "start", end: "success"})
    watch = Watch(T, MaximumAge(), object_size=(), object_symmetry=4)
    metadata = Metadata("fake", "servo", ActionScale(), "human-like", source="ros", horizon=100)
    with DatasetWriter(tmp_path / "demos") as writer:
        TopicSession(robot, watch, writer, metadata, person, wanted=1,
                     pace=Pace(20.0, lambda: 0.0, lambda _: None)).run()  # fmt: skip
    grown = np.diff([size for size in sizes if size])
    assert (grown > 0).sum() >= 20
