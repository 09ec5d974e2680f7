"""A person records: the session's loop, with a scripted person and a small arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from grasp_demos.episode import ACTORS, Metadata
from grasp_demos.reader import demonstrations, read_dataset
from grasp_demos.teleop.operator import FORCE, NOTHING, NUDGE_S, Intent, KeyMotion, action_of
from grasp_demos.teleop.session import Pace, Session
from grasp_demos.validate import require_valid
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale, GraspState
from grasp_sim.errors import UserError

METADATA = Metadata("fake", "servo", ActionScale(), "human-like", source="keyboard", note="left hand")


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Script:
    """A person who does what a generator of intents says; quits at its end."""

    def __init__(self, play: Callable[[Script], Iterator[Intent]]) -> None:
        self.state: GraspState
        self.seen = []
        self.closed = False
        self._play = play(self)

    def begin(self, closed: bool) -> None:
        self.closed = closed

    def follow(self, closed: bool) -> None:
        self.closed = closed

    def poll(self, state: GraspState) -> Intent:
        self.state = state
        return next(self._play, NOTHING._replace(command="quit"))

    def show(self, status) -> None:
        self.seen.append(status)


def grasp(person: Script) -> Iterator[Intent]:
    """Go to the cube, close, lift until the episode has ended, and a little on."""
    for _ in range(15):
        yield NOTHING
    closing = 0
    while not (closing and person.seen[-1].phase == "ready"):
        relative = person.state.object_position - person.state.tcp_position
        if np.abs(relative).max() < 0.01 or closing:
            closing += 1
            motion = np.array([0.0, 0.0, 0.5 if closing > 3 else 0.0, 0.0])
        else:
            motion = np.array([*np.clip(relative / 0.0125, -1, 1), 0.0])
        yield Intent(motion, closing > 0, True)


@pytest.fixture
def session(arm, tmp_path):
    clock = Clock()

    def make(play, **settings) -> tuple[Session, Script, DatasetWriter]:
        person = Script(play)
        writer = DatasetWriter(tmp_path / "demos")
        settings = {"wanted": 1, "pace": Pace(20.0, clock, clock.sleep), **settings}
        return Session(arm, writer, METADATA, person, **settings), person, writer

    return make


def say(command: str) -> Intent:
    return NOTHING._replace(command=command)


def test_a_grasp_is_recorded_as_it_was_done(session, tmp_path):
    run, person, writer = session(grasp, force=0.25)
    with writer:
        summary = run.run()
    assert summary == (1, 0, 0, 0)
    (episode,) = read_dataset(tmp_path / "demos")
    require_valid([episode])
    assert episode.is_demonstration
    assert (episode.actors == ACTORS.index("person")).all()
    np.testing.assert_array_equal(episode.intended_actions, episode.executed_actions)
    assert (episode.executed_actions[:, FORCE] == np.float32(0.25)).all()
    assert episode.metadata.recorded_at.endswith("+00:00")
    assert episode.simulator_states.shape == (len(episode) + 1, 8)
    assert person.seen[-1].phase == "recording"


def test_the_arm_stands_still_until_the_person_begins(session):
    def play(person):
        for _ in range(5):
            yield NOTHING
        yield say("quit")

    run, person, writer = session(play)
    with writer:
        assert run.run() == (0, 0, 0, 0)
    assert [status.phase for status in person.seen] == ["ready"] * 5
    assert len({tuple(status.state.tcp_position) for status in person.seen}) == 1


def idle(command: str, steps: int = 3):
    def play(person):
        yield say("start")
        for _ in range(steps):
            yield NOTHING
        yield say(command)

    return play


def test_what_the_person_says_ends_an_episode(session, tmp_path):
    for number, (command, success, complete) in enumerate(
        [("failure", False, True), ("success", False, True), ("quit", False, False)]
    ):
        run, _, writer = session(idle(command))
        with writer:
            run.run()
        last = read_dataset(tmp_path / "demos")[-1]
        assert last.metadata.index == number
        assert (last.metadata.success, last.metadata.complete) == (success, complete)
        assert last.metadata.note.startswith("left hand; ")
        assert "operator" in last.metadata.note
        assert len(last) == 3
    run, _, writer = session(idle("discard"))
    with writer:
        assert run.run().discarded == 1
    assert len(read_dataset(tmp_path / "demos")) == 3


def test_an_episode_without_a_step_leaves_nothing(session, tmp_path):
    run, _, writer = session(idle("failure", steps=0))
    with writer:
        assert run.run() == (0, 0, 0, 0)
    assert not list((tmp_path / "demos").glob("episode_*"))


@pytest.mark.parametrize("command", ["failure", "discard"])
def test_the_last_episode_can_be_changed_and_nothing_is_lost(session, tmp_path, command):
    def play(person):
        yield from grasp(person)
        yield say(command)
        yield say(command)  # there is none to change any more

    run, person, writer = session(play, wanted=2)
    with writer:
        summary = run.run()
    kept = list((tmp_path / "demos").glob("**/episode_*.npz"))
    assert len(kept) == 1
    assert person.seen[-1].recorded == 0
    if command == "failure":
        assert summary == (0, 1, 0, 0)
        assert not demonstrations(read_dataset(tmp_path / "demos"))
    else:
        assert summary == (0, 0, 1, 0)
        assert kept[0].parent.name == "discarded"


def test_discarding_begins_the_same_start_again_and_a_success_the_next(session):
    starts = []

    def play(person):
        for command in ("discard", "failure", "failure"):
            yield say("start")
            starts.append(tuple(person.state.object_position))
            yield NOTHING
            yield say(command)

    run, _, writer = session(play)
    with writer:
        run.run()
    assert starts[0] == starts[1]
    assert starts[1] != starts[2]


def test_while_nobody_is_there_nothing_moves_and_nothing_is_recorded(session, tmp_path):
    def play(person):
        yield say("start")
        yield NOTHING
        for _ in range(7):
            yield NOTHING._replace(motion=np.ones(4), present=False)
        yield NOTHING
        yield say("failure")

    run, person, writer = session(play)
    with writer:
        assert run.run().late == 0
    (episode,) = read_dataset(tmp_path / "demos")
    assert len(episode) == 2
    assert [status.phase for status in person.seen].count("paused") == 7
    np.testing.assert_array_equal(episode.states[0, 12:15], episode.states[-1, 12:15])


POLICY_ACTION = np.array([0, 0, -0.1, 0, -1, 0.5], np.float32)


class Policy:
    """Moves down; remembers what it was told."""

    def __init__(self) -> None:
        self.executed = []

    def reset(self, observation):
        self.last = observation

    def act(self, observation):
        np.testing.assert_array_equal(observation, self.last)
        return POLICY_ACTION.copy()

    def observe(self, executed, observation):
        self.executed.append(executed)
        self.last = observation


def test_a_person_takes_over_and_gives_back(session, tmp_path):
    push = Intent(np.array([0.5, 0.0, 0.0, 0.0]), True, True)

    def play(person):
        yield push  # The first motion begins no episode that a policy acts in.
        yield say("start")
        for _ in range(3):
            yield NOTHING
        assert person.closed  # as the policy has them
        yield push
        for _ in range(14):  # it acts again half a second after the last motion
            yield NOTHING._replace(closed=True)
        yield say("take")
        for _ in range(20):
            yield NOTHING._replace(closed=True)
        yield say("take")
        yield NOTHING
        yield say("failure")

    policy = Policy()
    run, person, writer = session(play, pilot=policy)
    with writer:
        run.run()
    (episode,) = read_dataset(tmp_path / "demos")
    names = [ACTORS[actor] for actor in episode.actors]
    assert names[:3] == ["policy"] * 3
    assert names[3:13] == ["person"] * 10
    assert names[14:18] == ["policy"] * 4
    assert names[18:39] == ["person"] * 21
    assert names[39:] == ["policy"] * 2
    assert len(policy.executed) == len(episode)
    np.testing.assert_array_equal(np.stack(policy.executed), episode.executed_actions)
    assert episode.executed_actions[3, 0] == np.float32(0.5)
    # What the policy would have done is kept beside what was done.
    np.testing.assert_array_equal(episode.intended_actions, np.tile(POLICY_ACTION, (len(episode), 1)))
    assert person.seen[5].actor == "person"


def test_a_device_that_fails_keeps_the_episode_as_incomplete(session, tmp_path):
    def play(person):
        yield say("start")
        yield NOTHING
        raise UserError("the gamepad is gone")

    run, _, writer = session(play)
    with pytest.raises(UserError, match="gone"), writer:
        run.run()
    (episode,) = read_dataset(tmp_path / "demos")
    assert not episode.metadata.complete
    assert len(episode) == 1


def test_late_steps_are_counted_and_not_made_up_for():
    clock = Clock()
    pace = Pace(20.0, clock, clock.sleep)
    pace.wait()
    assert clock.now == pytest.approx(100.05)
    clock.now += 0.3
    pace.wait()
    assert pace.late == 1
    before = clock.now
    pace.wait()
    assert clock.now == pytest.approx(before + 0.05)


def test_a_key_nudges_and_the_arm_stops_by_itself():
    clock = Clock()
    motion = KeyMotion(clock, speed=0.5)
    motion.press(0, 1)
    motion.press(2, -1)
    np.testing.assert_array_equal(motion.intent().motion, [0.5, 0, -0.5, 0])
    motion.press(0, -1)
    np.testing.assert_array_equal(motion.intent().motion, [-0.5, 0, -0.5, 0])
    clock.now += NUDGE_S
    assert not motion.intent().motion.any()
    assert not motion.intent().acting
    motion.toggle_gripper()
    assert motion.intent().closed
    assert motion.intent().acting
    motion.follow(closed=False)  # what was just told is not forgotten
    assert motion.intent().closed
    clock.now += 1.0
    motion.follow(closed=False)
    assert not motion.intent().closed
    for _ in range(20):
        motion.change_speed(1.5)
    assert motion.speed == 1.0


def test_an_intent_becomes_an_action_in_range():
    action = action_of(Intent(np.array([2.0, -3.0, 0.5, 0.0]), True, True), force=-0.5)
    np.testing.assert_array_equal(action, np.array([1, -1, 0.5, 0, -1, -0.5], np.float32))


def test_an_object_that_fell_off_ends_the_episode(session, arm, tmp_path):
    def play(person):
        yield say("start")
        yield NOTHING
        arm.numbers[6] = -1.0
        for _ in range(5):
            yield NOTHING

    run, _, writer = session(play)
    with writer:
        assert run.run().failures == 1
    (episode,) = read_dataset(tmp_path / "demos")
    assert len(episode) == 2
    assert "fell off the table" in episode.metadata.note


def test_a_policy_that_nobody_corrected_shows_nothing(session, arm, fake_expert, tmp_path):
    class Grasping(Policy):
        def reset(self, observation):
            fake_expert.reset()

        def act(self, observation):
            return fake_expert.act(arm._state())

        def observe(self, executed, observation):
            pass

    def play(person):
        yield say("start")
        while not person.seen or person.seen[-1].phase != "ready":
            yield NOTHING

    run, person, writer = session(play, pilot=Grasping(), wanted=1)
    with writer:
        assert run.run().successes == 1
    (episode,) = read_dataset(tmp_path / "demos")
    assert episode.metadata.success
    assert not episode.is_demonstration
    assert "nobody took over" in person.seen[-1].verdict
