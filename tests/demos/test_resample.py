"""Resampling: the latest message at each tick; every gap and clock jump is named, and none is filled."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_demos.episode import DemoError, Metadata
from grasp_demos.gaps import latest
from grasp_demos.incremental import Resampler, finished
from grasp_demos.resample import MaximumAge, Resampled, resample
from grasp_demos.streams import NS, Recorded, Span, Stream
from grasp_demos.validate import require_valid
from grasp_sim.contract import ActionScale, encode, pack_state, unpack_state
from grasp_sim.ur5e import HOME, Kinematics

MS = 1_000_000
START = 1_700_000_000 * NS
METADATA = Metadata("fake", "servo", ActionScale(), "human-like", success=True)


def stream(topic: str, times_ms, values, delay_ms: float = 0.0) -> Stream:
    """Messages received at `times_ms` and measured `delay_ms` before."""
    received = START + np.asarray(times_ms, np.int64) * MS
    values = np.asarray(values, np.float64).reshape(len(received), -1)
    return Stream(topic, received, received - round(delay_ms * MS), values)


def recorded(duration_ms: int = 1000, **changes: Stream | None) -> Recorded:
    """Joints at 125 Hz, gripper at 30 Hz, object at 10 Hz and 70 ms late, commands at 20 Hz."""
    fast, middle, slow = (np.arange(0, duration_ms + 1, step) for step in (8, 33, 100))
    commands = np.arange(0, duration_ms, 50)
    joints = np.tile(np.concatenate([HOME, np.zeros(6)]), (len(fast), 1))
    joints[:, 0] = fast / 1000
    pose = np.tile([0.4, 0.0, 0.02, 0.0, 0.0, 0.0, 1.0], (len(slow), 1))
    pose[:, 1] = slow / 1e5
    actions = np.zeros((len(commands), 6))
    actions[:, 0] = commands / 10000
    streams = {
        "joints": stream("/joint_states", fast, joints, 2),
        "gripper": stream("/gripper", middle, np.stack([middle / 1e5, middle], 1), 5),
        "object_pose": stream("/object_pose", slow, pose, 70),
        "object_size": stream("/object_size", [0], [0.04, 0.04, 0.04]),
        "requested": stream("/requested_action", commands, actions),
        "executed": None,
        "intended": None,
    }
    return Recorded(**(streams | changes))  # type: ignore[arg-type]


def run(streams: Recorded, **span: object) -> Resampled:
    found = resample(streams, Span(METADATA, **span), START)  # type: ignore[arg-type]
    require_valid(found.episodes)
    return found


def without(stream: Stream, low_ms: int, high_ms: int) -> Stream:
    """What was received from `low_ms` on and before `high_ms` is lost."""
    times = (stream.received - START) / MS
    return stream.take((times < low_ms) | (times >= high_ms))


def test_the_latest_is_the_last_at_or_before_the_tick():
    assert latest(np.array([10, 20, 30]), np.array([9, 10, 19, 20, 99])).tolist() == [-1, 0, 0, 1, 2]


def test_each_tick_takes_the_latest_of_every_source_and_keeps_its_own_time():
    (episode,), warnings = run(recorded())
    assert warnings == []
    assert len(episode) == 20
    for k, row in enumerate(episode.states):
        state, tick = unpack_state(row), 50 * k
        joint_ms, gripper_ms, object_ms = (tick // step * step for step in (8, 33, 100))
        assert state.joint_positions[0] == joint_ms / 1000
        assert state.gripper_force == gripper_ms
        assert state.object_position[1] == object_ms / 1e5
        assert state.time == pytest.approx(tick / 1000, abs=1e-12)
        assert state.joint_time == pytest.approx((joint_ms - 2) / 1000, abs=1e-12)
        assert state.gripper_time == pytest.approx((gripper_ms - 5) / 1000, abs=1e-12)
        assert state.object_time == pytest.approx((object_ms - 70) / 1000, abs=1e-12)
        position, quaternion = Kinematics().forward(state.joint_positions)
        np.testing.assert_array_equal(state.tcp_position, position)
        np.testing.assert_array_equal(state.tcp_quaternion, quaternion)
        np.testing.assert_array_equal(episode.observations[k], encode(state))
    np.testing.assert_allclose(episode.requested_actions[:, 0], np.arange(20) * 0.005, atol=1e-7)
    np.testing.assert_array_equal(episode.executed_actions, np.clip(episode.requested_actions, -1, 1))
    assert episode.terminations.tolist() == [False] * 19 + [True]


def test_a_command_is_held_until_the_next():
    commands = stream("/requested_action", [0, 149, 150, 420], np.arange(4)[:, None] * np.ones(6) / 10)
    (episode,), _ = run(recorded(requested=commands), end=START + 500 * MS, begin=START)
    expected = [0, 0, 0, 2, 2, 2, 2, 2, 2, 3]
    np.testing.assert_allclose(episode.requested_actions[:, 0], np.array(expected) / 10, rtol=1e-6)


def test_a_command_whose_execution_was_lost_is_not_answered_by_anothers():
    whole = recorded()
    executed = Stream("/executed_action", *whole.requested[1:])  # same stamps and values
    lossy = recorded(executed=without(executed, 300, 360), requested=without(whole.requested, 500, 520))
    (episode,), _ = run(lossy, begin=START, end=START + 900 * MS)
    np.testing.assert_array_equal(episode.executed_actions, episode.requested_actions)
    held = episode.requested_actions[:, 0] * 10000
    assert held[6] == held[7] == pytest.approx(250)  # those of 300 and 350 ms are not whole
    assert held[10] == pytest.approx(450)  # nor is that of 500 ms


def test_recorded_ticks_and_times_are_taken_as_they_are():
    ticks = np.arange(0, 1000, 52)
    times = np.stack([ticks, ticks, ticks, ticks], 1) / 1000 + 1e-10
    stamps = stream("/stamps", ticks, times)
    commands = stream("/requested_action", ticks, np.zeros((len(ticks), 6)))
    found = run(recorded(stamps=stamps, requested=commands), origin=START)
    (episode,) = found.episodes
    assert found.warnings == []
    assert [unpack_state(row).time for row in episode.states] == times[:, 0].tolist()
    # What the message says of its own time is further off than rounding: the message is right.
    assert unpack_state(episode.states[1]).joint_time == pytest.approx(0.046, abs=1e-12)


def test_nothing_begins_before_all_sources_and_a_command_are_there():
    late = stream("/requested_action", np.arange(300, 1000, 50), np.zeros((14, 6)))
    (episode,), _ = run(recorded(requested=late))
    assert len(episode) == 14
    assert unpack_state(episode.states[0]).joint_positions[0] == 0.296


@pytest.mark.parametrize(
    ("name", "lost", "lengths", "said"),
    [
        # The last message before the gap is from 400 + 0.2 s on too old, the first after it comes at 704 ms.
        (
            "joints",
            (401, 700),
            [12, 5],
            "/joint_states: gap: nothing new within 0.2 s at 0.650 s, for 0.100 s",
        ),
        ("gripper", (100, 900), [11, 1], "/gripper: gap: nothing new within 0.5 s at 0.600 s"),
        ("requested", (101, 900), [13, 2], "/requested_action: gap: nothing new within 0.5 s at 0.650 s"),
    ],
)
def test_a_gap_splits_the_episode_and_is_named(name, lost, lengths, said):
    streams = recorded()
    found = run(streams._replace(**{name: without(getattr(streams, name), *lost)}))
    assert [len(e) for e in found.episodes] == lengths
    assert len(found.warnings) == 1
    assert said in found.warnings[0]
    for part, episode in enumerate(found.episodes):
        assert (episode.metadata.complete, episode.metadata.success) == (False, False)
        assert episode.metadata.note == f"part {part + 1} of 2 between gaps"
    assert not found.episodes[0].terminations.any()


def test_a_source_that_stops_ends_the_episode_incomplete():
    streams = recorded(3000)
    (episode,), warnings = run(streams._replace(object_pose=without(streams.object_pose, 901, 9999)))
    assert "/object_pose: gap: nothing new within 1 s at 1.950 s, for 1.050 s" in warnings[0]
    assert (len(episode), episode.metadata.complete) == (38, False)


def test_repeating_an_old_stamp_is_a_gap_although_messages_come():
    streams = recorded()
    frozen = streams.joints.stamps.copy()
    frozen[50:] = frozen[50]
    found = run(streams._replace(joints=streams.joints._replace(stamps=frozen)))
    assert "/joint_states: gap: nothing new within 0.2 s" in found.warnings[0]
    assert [len(e) for e in found.episodes] == [12]


def test_stamps_that_go_back_are_named_and_not_used():
    streams = recorded()
    stamps = streams.joints.stamps.copy()
    stamps[60] -= 3 * NS  # received at 480 ms
    found = run(streams._replace(joints=streams.joints._replace(stamps=stamps)))
    assert found.warnings == [
        "/joint_states: clock jump: stamps go back by 2.992 s at 0.480 s: "
        "messages are not used until their stamps are right again."
    ]
    assert len(found.episodes[0]) == 20
    stamps[60:] = streams.joints.stamps[60:] - 3 * NS  # The clock was set back, and stays so.
    found = run(streams._replace(joints=streams.joints._replace(stamps=stamps)))
    assert "stamps go back by 2.992 s at 0.480 s" in found.warnings[0]
    assert "gap" in found.warnings[-1]
    assert [len(e) for e in found.episodes] == [13]


def test_stamps_in_the_future_are_named_and_not_used():
    streams = recorded()
    stamps = streams.gripper.stamps.copy()
    stamps[5] += 100 * NS
    found = run(streams._replace(gripper=streams.gripper._replace(stamps=stamps)))
    assert found.warnings == [
        "/gripper: clock jump: stamps 100.000 s ahead of the receive time at 0.165 s: "
        "messages are not used until their stamps are right again."
    ]
    assert len(found.episodes[0]) == 20


def test_a_recorder_with_another_clock_is_moved_to_that_of_the_stamps():
    streams = recorded()
    moved = {
        name: s._replace(received=s.received + 3600 * NS)
        for name, s in streams._asdict().items()
        if s is not None
    }
    found = run(streams._replace(**moved), begin=START + 3600 * NS)
    (expected,), _ = run(streams, begin=START)
    assert "receive times are 3600.002 s later than header stamps" in found.warnings[0]
    assert len(found.warnings) == 1
    # The joints' own delay is not known any more.
    assert len(found.episodes[0]) in (len(expected), len(expected) - 1)


def test_a_source_with_a_clock_of_its_own_is_refused():
    streams = recorded()
    pose = streams.object_pose._replace(stamps=streams.object_pose.stamps - 5 * NS)
    with pytest.raises(
        DemoError, match=r"/object_pose: its stamps are 5\.070 s behind the clock of /joint_states"
    ):
        run(streams._replace(object_pose=pose))


def test_headers_without_stamps_get_their_receive_times():
    streams = recorded()
    pose = streams.object_pose._replace(stamps=np.zeros_like(streams.object_pose.stamps))
    (episode,), warnings = run(streams._replace(object_pose=pose))
    assert warnings == ["/object_pose: its headers have no stamps: receive times were taken instead."]
    assert episode.observations[1, -1] == np.float32(0.05)


def test_what_would_be_endless_or_nothing_is_refused():
    with pytest.raises(DemoError, match="more than 2000000"):
        run(recorded(), begin=START, end=START + 10**18)
    with pytest.raises(DemoError, match="one step"):
        run(recorded(), begin=START, end=START + 10 * MS)
    with pytest.raises(DemoError, match="no actions"):
        run(recorded(requested=None))
    streams = recorded()
    with pytest.raises(DemoError, match="no whole step: /joint_states: gap"):
        run(streams._replace(joints=without(streams.joints, 1, 9999)), begin=START + 400 * MS)


def test_the_limits_are_settings():
    streams = recorded()
    streams = streams._replace(joints=without(streams.joints, 401, 700))
    found = resample(streams, Span(METADATA), START, MaximumAge(joints=0.4))
    assert (len(found.episodes), found.warnings) == (1, [])


# ---- while the messages come in


def window(streams: Recorded, since: int, now: int) -> Recorded:
    """What a recorder holds at `now`: the messages since a moment, and two before it."""
    held = {}
    for name, s in streams._asdict().items():
        if s is not None:
            low = max(int(np.searchsorted(s.received, since)) - 2, 0)
            held[name] = s.take(np.arange(low, np.searchsorted(s.received, now, side="right")))
    return streams._replace(**held)


def grow(streams: Recorded, begin: int, end: int, rng: np.random.Generator, limits=None, ticked=False):
    """The steps of `Resampler` at random moments, its first state, and its problem."""
    usual = {n: s.delay() for n, s in streams._asdict().items() if s is not None and n != "object_size"}
    resampler = Resampler(Span(METADATA, begin), usual, limits or MaximumAge(), ticked)
    steps, now = [], begin
    while now < end:
        now = min(end, now + int(rng.integers(1, 200)) * MS)
        advance = resampler.advance(window(streams, resampler.since, now), now, end=now == end)
        steps += advance.steps
        if advance.problem:
            return steps, resampler.start, advance.problem
    return steps, resampler.start, ""


def assert_same(steps, start, episode):
    assert len(steps) == len(episode)
    np.testing.assert_array_equal(np.stack([pack_state(s) for s in [start, *(s.state for s in steps)]]),
                                  episode.states)  # fmt: skip
    np.testing.assert_array_equal([s.observation for s in steps], episode.observations[1:])
    for name in ("requested", "executed", "intended"):
        held = [getattr(s, f"{name}_action") for s in steps]
        np.testing.assert_array_equal(held, getattr(episode, f"{name}_actions"))


def irregular(rng: np.random.Generator, duration_ms: int = 3000) -> Recorded:
    """Sources with jitter and random delays, two kinds of actions, no velocities in some messages."""

    def some(topic: str, period_ms: float, width: int, delay_ms: float) -> Stream:
        stamps = np.cumsum(rng.uniform(0.7, 1.3, int(duration_ms / period_ms)) * period_ms * MS)
        received = np.maximum.accumulate(stamps + rng.uniform(0.2, 1.0, len(stamps)) * delay_ms * MS)
        values = rng.uniform(-0.9, 0.9, (len(stamps), width))
        return Stream(topic, START + received.astype(np.int64), START + stamps.astype(np.int64), values)

    streams = recorded(
        duration_ms,
        joints=some("/joint_states", 8, 12, 6),
        gripper=some("/gripper", 30, 2, 12),
        object_pose=some("/object_pose", 90, 7, 150),
        requested=some("/requested_action", 50, 6, 60),
        executed=some("/executed_action", 50, 6, 80),
    )
    streams.joints.values[rng.random(len(streams.joints.values)) < 0.3, 6:] = np.nan
    pose = streams.object_pose.values
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    return streams


@pytest.mark.parametrize("seed", range(8))
def test_step_by_step_gives_the_numbers_of_the_whole(seed):
    rng = np.random.default_rng(seed)
    streams = irregular(rng)
    begin, end = START + 500 * MS, START + int(rng.integers(2000, 2900)) * MS
    steps, start, problem = grow(streams, begin, end, rng)
    assert problem == ""
    found = resample(window(streams, 0, end), Span(METADATA, begin, end), START)
    assert found.warnings[0].endswith("lack velocities: positions' change taken.")
    assert len(found.episodes) == 1
    assert_same(steps, start, found.episodes[0])
    assert not any(s.terminated or s.truncated or s.reward for s in steps)
    last = finished(steps[-1], True)
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)
    assert (found.episodes[0].rewards[-1], found.episodes[0].terminations[-1]) == (1.0, True)


@pytest.mark.parametrize("name", ["joints", "gripper", "object_pose", "requested", "executed"])
def test_step_by_step_ends_where_the_whole_is_split(name):
    rng = np.random.default_rng(3)
    streams = irregular(rng, 6000)
    streams = streams._replace(**{name: without(getattr(streams, name), 2000, 4500)})
    steps, start, problem = grow(streams, START + 500 * MS, START + 5900 * MS, rng)
    found = resample(streams, Span(METADATA, START + 500 * MS, START + 5900 * MS), START)
    assert len(found.episodes) == 2
    assert_same(steps, start, found.episodes[0])
    topic = getattr(streams, name).topic
    assert problem.startswith(f"{topic}: nothing new within ")
    assert "s old at " in problem


def test_step_by_step_takes_recorded_ticks():
    rng = np.random.default_rng(0)
    streams = irregular(rng)
    times = 500 + np.arange(40) * 50 + rng.uniform(0, 20, 40)
    stamps = stream("/stamps", times, np.zeros((40, 4)))
    streams = streams._replace(stamps=stamps)
    begin, end = int(stamps.received[0]), START + 2400 * MS
    steps, start, problem = grow(streams, begin, end, rng, ticked=True)
    assert problem == ""
    (episode,), _ = resample(window(streams, 0, end), Span(METADATA, begin, end), START)
    assert_same(steps, start, episode)
    streams = streams._replace(stamps=stamps.take(np.arange(10)))
    steps, _, problem = grow(streams, begin, START + 2900 * MS, rng, ticked=True)
    assert len(steps) == 9
    assert problem == ""


def test_where_commands_stop_the_episode_rests_and_ends_with_the_last():
    rng = np.random.default_rng(1)
    streams = irregular(rng)
    cut = streams.requested.received <= START + 1500 * MS  # type: ignore[union-attr]
    streams = streams._replace(
        requested=streams.requested.take(cut),  # type: ignore[union-attr]
        executed=streams.executed.take(streams.executed.received <= START + 1490 * MS),  # type: ignore[union-attr]
    )
    steps, start, problem = grow(streams, START + 500 * MS, START + 2900 * MS, rng)
    assert problem == ""
    last = min(int(s.stamps[-1]) for s in streams.commands)
    (episode,), _ = resample(streams, Span(METADATA, START + 500 * MS, last + 50 * MS), START)
    assert_same(steps, start, episode)


def test_a_robot_that_is_gone_ends_the_episode_though_commands_stopped_too():
    rng = np.random.default_rng(1)
    streams = irregular(rng, 4000)
    streams = Recorded(*(s and s.take(s.received <= START + 1500 * MS) for s in streams))
    steps, start, problem = grow(streams, START + 500 * MS, START + 5900 * MS, rng)
    assert problem.startswith("/joint_states: nothing new within 0.2 s, the latest is 0.2")
    found = resample(streams, Span(METADATA, START + 500 * MS, START + 5900 * MS), START)
    assert_same(steps, start, found.episodes[0])
    other = irregular(rng, 60_000)
    requested, executed = (s.take(s.received <= START + 900 * MS) for s in other.commands)
    resting = other._replace(requested=requested, executed=executed)
    _, _, problem = grow(resting, START + 500 * MS, START + 55_000 * MS, rng)
    assert problem.startswith("/requested_action: nothing new within 0.5 s")


def test_step_by_step_ends_at_a_clock_jump():
    rng = np.random.default_rng(0)
    streams = irregular(rng)
    late = streams.gripper.received > START + 1500 * MS
    back = streams.gripper.stamps - np.where(late, 30 * NS, 0)
    jumped = streams._replace(gripper=streams.gripper._replace(stamps=back))
    steps, start, problem = grow(jumped, START + 500 * MS, START + 2900 * MS, rng)
    assert problem.startswith("/gripper: clock jump: stamps go back by 29.9")
    at = int(streams.gripper.received[late][0]) - 1
    (episode,), _ = resample(window(streams, 0, at), Span(METADATA, START + 500 * MS, at), START)
    assert_same(steps, start, episode)
    ahead = streams.gripper._replace(stamps=streams.gripper.stamps + np.where(late, 30 * NS, 0))
    _, _, problem = grow(streams._replace(gripper=ahead), START + 500 * MS, START + 2900 * MS, rng)
    assert "/gripper: clock jump: stamps 30." in problem
    assert "ahead of the receive time" in problem


def test_step_by_step_follows_another_clock():
    rng = np.random.default_rng(0)
    streams = irregular(rng)
    moved = streams._replace(**{n: s.moved(3600 * NS) for n, s in streams._asdict().items() if s is not None})
    hour = 3600 * NS
    steps, start, problem = grow(moved, START + hour + 500 * MS, START + hour + 2500 * MS, rng)
    assert problem == ""
    span = Span(METADATA, START + hour + 500 * MS, START + hour + 2500 * MS)
    (episode,), _ = resample(window(moved, 0, START + hour + 2500 * MS), span, START)
    assert_same(steps, start, episode)
