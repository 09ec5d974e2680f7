"""Actions become lines of setpoints, the same that the simulators follow."""

import numpy as np
import pytest

from grasp_control.arm.setpoints import BRAKING, SetpointStream
from grasp_sim import ur5e
from grasp_sim.contract import ActionScale, ContractError, decode
from grasp_sim.servo import Servo, ServoStatus, interpolate

DOWN = np.array([0.0, 0.0, -1.0, 0.0, 1.0, -1.0], np.float32)


def begun() -> SetpointStream:
    stream = SetpointStream(ActionScale())
    stream.reset(ur5e.HOME)
    return stream


def test_it_rests_at_the_measured_joints_after_a_reset():
    stream = SetpointStream(ActionScale())
    assert not stream.ready
    stream.reset(ur5e.HOME)
    assert stream.ready
    positions, velocities = stream.at(123.0)
    assert np.array_equal(positions, ur5e.HOME)
    assert not velocities.any()


def test_the_line_is_that_of_the_simulators():
    """The same servo, and `interpolate` at the same fractions."""
    stream, servo = begun(), Servo()
    servo.reset(ur5e.HOME)
    start, now = ur5e.HOME, 5.0
    for _ in range(4):
        goal = servo.step(start, decode(DOWN, ActionScale()))
        done = stream.act(DOWN, start, now)
        assert done.status is ServoStatus.OK
        line = [stream.at(now + k * 0.01)[0] for k in range(1, 6)]
        assert np.allclose(line, interpolate(start, goal, 5), rtol=0, atol=1e-12)
        assert np.allclose(stream.at(now + 0.02)[1], (goal - start) / 0.05)
        start, now = goal, now + 0.05
    tip = ur5e.Kinematics().pose(stream.at(now)[0])[0]
    assert tip[2] - ur5e.Kinematics().pose(ur5e.HOME)[0][2] == pytest.approx(-0.05, abs=1e-3)


def test_it_brakes_to_rest_when_no_further_action_comes():
    stream = begun()
    stream.act(DOWN, ur5e.HOME, 1.0)
    goal, velocity = stream.at(1.05)
    assert np.abs(goal - ur5e.HOME).max() > 0.01
    fastest = np.abs(velocity).max()
    stopping = fastest / BRAKING
    rest, still = stream.at(1.05 + stopping)
    assert np.allclose(still, 0.0)
    assert np.allclose(rest - goal, 0.5 * velocity * stopping)  # v^2 / 2a along the line
    assert np.array_equal(stream.at(9.0)[0], rest)
    times = np.linspace(1.04, 1.1, 601)
    speeds = np.array([stream.at(t)[1] for t in times])
    assert np.abs(np.diff(speeds, axis=0)).max() <= BRAKING * 1e-4 * (1 + 1e-6)


def test_an_early_action_begins_where_the_setpoint_is():
    stream = begun()
    stream.act(DOWN, ur5e.HOME, 1.0)
    before = stream.at(1.03)[0]
    stream.act(DOWN, ur5e.HOME, 1.03)
    assert np.array_equal(stream.at(1.03)[0], before)


def test_a_blocked_arm_is_not_pulled_after():
    """The setpoint goes back to the measured joints in one step, and the servo says so."""
    stream = begun()
    stream.act(DOWN, ur5e.HOME, 1.0)
    elsewhere = ur5e.HOME + np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    done = stream.act(DOWN, elsewhere, 1.05)
    assert done.status is ServoStatus.HOLD
    assert "shoulder_lift_joint" in done.reason
    assert np.array_equal(stream.at(1.06)[0], elsewhere)


@pytest.mark.parametrize("action", [np.full(6, np.nan), np.zeros(5), np.array([np.inf, 0, 0, 0, 0, 0])])
def test_what_is_no_action_changes_nothing(action):
    stream = begun()
    with pytest.raises(ContractError):
        stream.act(action, ur5e.HOME, 1.0)
    assert np.array_equal(stream.at(1.05)[0], ur5e.HOME)


def test_the_executed_action_is_the_clipped_one():
    done = begun().act(np.array([0, 0, 0, 0, 9.0, -9.0]), ur5e.HOME, 1.0)
    assert done.action.tolist() == [0, 0, 0, 0, 1, -1]
    assert (done.command.opening, done.command.force_limit) == (0.085, 20.0)


def test_a_slower_step_takes_the_same_line_in_more_time():
    fast, slow = begun(), begun()
    fast.act(DOWN, ur5e.HOME, 1.0)
    slow.act(DOWN, ur5e.HOME, 1.0, period=0.2)
    assert np.allclose(slow.at(1.1)[0], fast.at(1.025)[0])
    assert np.allclose(slow.at(1.1)[1] * 4.0, fast.at(1.025)[1])
    assert np.array_equal(slow.at(1.2)[0], fast.at(1.05)[0])


@pytest.mark.parametrize("period", [0.01, -1.0, float("nan"), 9.0])
def test_a_step_is_neither_faster_than_in_training_nor_endless(period):
    stream = begun()
    with pytest.raises(ContractError, match="policy step"):
        stream.act(DOWN, ur5e.HOME, 1.0, period=period)
    assert np.array_equal(stream.at(1.05)[0], ur5e.HOME)


def test_it_brakes_before_the_end_of_the_line_when_told_to():
    stream = begun()
    stream.act(DOWN, ur5e.HOME, 1.0)
    here, velocity = stream.at(1.02)
    stream.brake(1.02)
    now_here, now_velocity = stream.at(1.02)
    assert np.allclose(now_here, here)
    assert np.allclose(now_velocity, velocity)
    stopping = np.abs(velocity).max() / BRAKING
    rest, still = stream.at(1.02 + stopping)
    assert np.allclose(still, 0.0)
    assert np.allclose(rest - here, 0.5 * velocity * stopping)
    stream.brake(1.5)
    assert np.array_equal(stream.at(1.6)[0], rest)
    stream.act(DOWN, ur5e.HOME, 2.0)
    assert np.abs(stream.at(2.05)[1]).max() > 0.1
