"""The gripper behind its driver: units, limits, the pace of commands, and the estimated grip force."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grasp_control.arm.gripper import CommandPacer, FingerUnits, Grip, GripForce, GripPace

UNITS, PACE = FingerUnits(), GripPace()


def test_units_by_hand():
    # 0.8 rad closed, 85 mm stroke: a quarter of the way is 0.2 rad and leaves three quarters open.
    assert UNITS.opening(0.0) == 0.085
    assert UNITS.opening(0.8) == 0.0
    assert UNITS.opening(0.2) == pytest.approx(0.06375)
    assert UNITS.position(0.06375) == pytest.approx(0.2)
    # A driver that counts metres of one finger from closed to open.
    prismatic = FingerUnits(open_position=0.0425, closed_position=0.0)
    assert prismatic.opening(0.0425) == 0.085
    assert prismatic.position(0.0) == 0.0
    assert prismatic.opening(0.01) == pytest.approx(0.02)


@given(st.floats(0.0, 0.085), st.floats(-1, 1), st.floats(0.1, 2))
def test_positions_and_openings_are_inverse(opening, start, span):
    units = FingerUnits(open_position=start, closed_position=start - span)
    assert units.opening(units.position(opening)) == pytest.approx(opening, abs=1e-12)


@pytest.mark.parametrize(
    ("position", "fault"),
    [
        (0.0, ""),
        (0.8, ""),
        (-0.079, ""),
        (0.879, ""),
        (-0.081, "is at -0.081 rad, which lies outside 0 rad (open) to 0.8 rad (closed)"),
        (0.881, "lies outside"),
        (math.nan, "is at nan"),
        (-math.inf, "is at -inf"),
    ],
)
def test_positions_that_cannot_be_believed(position, fault):
    assert fault in UNITS.fault(position)
    assert bool(UNITS.fault(position)) == bool(fault)


def test_force_of_an_effort():
    assert FingerUnits(effort_scale=2.0).force(20.0) == 40.0
    assert FingerUnits(effort_scale=-2.0).force(20.0) == 0.0
    assert FingerUnits(effort_scale=0.0).force(20.0) is None
    assert UNITS.force(math.nan) is None


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        (FingerUnits, {"stroke": 0.0}, "stroke=0.0"),
        (FingerUnits, {"stroke": 85.0}, "stroke=85.0: it must be in (0, 1] m"),
        (FingerUnits, {"closed_position": 0.0}, "closed_position=0.0"),
        (FingerUnits, {"open_position": math.nan}, "open_position=nan"),
        (FingerUnits, {"effort_scale": math.inf}, "effort_scale=inf"),
        (GripPace, {"rate": 20.0}, "rate=20.0"),
        (GripPace, {"rate": 0.0}, "rate=0.0"),
        (GripPace, {"force_step": -1.0}, "force_step=-1.0"),
        (GripPace, {"command_age": 0.0}, "command_age=0.0"),
    ],
)
def test_settings_out_of_range_are_quoted(config, settings, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        config(**settings)


def test_a_command_goes_at_once_and_the_next_after_the_period():
    pacer = CommandPacer(PACE)
    assert pacer.due(0.0) is None
    pacer.offer(Grip(0.0, 50.0), 1.0)
    assert pacer.due(1.0) == (0.0, 50.0)
    assert pacer.due(1.1) is None
    pacer.offer(Grip(0.085, 50.0), 1.03)
    assert pacer.due(1.06) is None
    assert pacer.waits(1.06)
    assert pacer.due(1.07) == (0.085, 50.0)  # 1/15 s = 0.067 s
    assert not pacer.waits(1.07)


def test_equal_commands_are_sent_once_and_what_is_overtaken_never():
    pacer = CommandPacer(PACE)
    pacer.offer(Grip(0.0, 50.0), 0.0)
    assert pacer.due(0.0) is not None
    pacer.offer(Grip(0.00009, 50.4), 1.0)
    assert pacer.due(1.0) is None
    pacer.offer(Grip(0.0, 51.0), 2.0)
    assert pacer.due(2.0) == (0.0, 51.0)
    pacer.offer(Grip(0.085, 51.0), 2.01)
    pacer.offer(Grip(0.0, 51.0), 2.02)  # back before the opening was sent
    assert pacer.due(3.0) is None


def test_slow_drift_is_sent_once_it_sums_up():
    pacer = CommandPacer(PACE)
    sent = []
    for k in range(30):
        pacer.offer(Grip(0.04 + k * 3e-5, 50.0), k * 0.1)
        sent += [pacer.due(k * 0.1)]
    assert [k for k, command in enumerate(sent) if command] == [0, 4, 8, 12, 16, 20, 24, 28]


def test_a_command_that_could_not_be_sent_is_dropped_when_it_is_old():
    pacer = CommandPacer(PACE)
    pacer.offer(Grip(0.0, 50.0), 0.0)
    assert pacer.waits(0.5)
    assert not pacer.waits(0.51)
    assert pacer.due(0.51) is None


def test_after_the_driver_was_away_the_next_command_is_sent_again_but_no_old_one():
    pacer = CommandPacer(PACE)
    pacer.offer(Grip(0.0, 50.0), 0.0)
    pacer.due(0.0)
    pacer.offer(Grip(0.085, 50.0), 0.01)
    pacer.forget()
    assert pacer.due(1.0) is None
    pacer.offer(Grip(0.0, 50.0), 1.1)
    assert pacer.due(1.1) == (0.0, 50.0)


def test_what_the_driver_refused_is_sent_again_when_asked_for():
    pacer = CommandPacer(PACE)
    pacer.offer(Grip(0.0, 50.0), 0.0)
    pacer.due(0.0)
    pacer.refused()
    pacer.offer(Grip(0.0, 50.0), 0.02)
    assert pacer.due(0.02) is None  # not faster for that
    assert pacer.due(0.07) == (0.0, 50.0)


COMMANDS = st.tuples(st.floats(0.0, 0.05), st.sampled_from([0.0, 0.02, 0.085]), st.sampled_from([20.0, 60.0]))


@given(st.lists(COMMANDS, max_size=60))
def test_the_pace_is_kept_and_the_last_command_arrives(offers):
    pacer, now, sent = CommandPacer(PACE), 0.0, []
    for wait, *command in offers:
        now += wait
        pacer.offer(Grip(*command), now)
        if (due := pacer.due(now)) is not None:
            sent.append((now, due))
    for _ in range(20):
        now += 0.008
        if (due := pacer.due(now)) is not None:
            sent.append((now, due))
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(sent)]
    assert all(gap >= 1 / 15 - 1e-12 for gap in gaps)
    assert all(later[1] != earlier[1] for earlier, later in itertools.pairwise(sent))
    assert not offers or sent[-1][1] == offers[-1][1:]


def estimate(
    force: GripForce, openings: list[float], period: float = 0.008, start: float = 0.0
) -> list[float]:
    return [force.estimate(opening, start + k * period) for k, opening in enumerate(openings)]


def test_no_force_without_a_command_or_in_free_air():
    force = GripForce()
    assert estimate(force, [0.04] * 100) == [0.0] * 100
    force.commanded(Grip(0.0, 60.0))
    closing = [max(0.04 - k * 0.0008, 0.0015) for k in range(200)]
    assert estimate(force, closing, start=0.8) == [0.0] * 200
    force.commanded(Grip(0.085, 60.0))  # opening against something is no grip
    assert estimate(force, [0.0015] * 100, start=3.0) == [0.0] * 100


def test_held_up_fingers_press_with_what_was_commanded():
    force = GripForce()
    estimate(force, [0.06] * 100)
    force.commanded(Grip(0.0, 60.0))
    # The driver takes 0.1 s to start, the fingers close at 0.1 m/s and meet 40 mm.
    openings = [0.06] * 12 + [0.06 - k * 0.0008 for k in range(1, 26)] + [0.04] * 50
    forces = estimate(force, openings, start=0.8)
    pressing = [k for k, value in enumerate(forces) if value]
    assert set(forces) == {0.0, 60.0}
    # Held up from sample 36 on (within 0.5 mm of where it stays), for 0.2 s = 25 samples of 8 ms.
    assert pressing[0] == pytest.approx(36 + 25, abs=1)
    assert pressing == list(range(pressing[0], len(forces)))
    force.commanded(Grip(0.001, 40.0))  # another command that still presses leaves no gap
    assert estimate(force, [0.04] * 3, start=2.0) == [40.0] * 3
    force.commanded(Grip(0.085, 40.0))
    assert estimate(force, [0.04] * 3, start=3.0) == [0.0] * 3
