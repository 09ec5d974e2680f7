"""What a UR driver takes, refuses, repeats for ever, and stops for."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_sim import driver as module
from grasp_sim.controllers import TrajectoryPoint
from grasp_sim.driver import CONTROLLERS, Driver, finger_of, opening_of
from grasp_sim.errors import UserError
from grasp_sim.ur5e import HOME, JOINT_NAMES

POSITION, VELOCITY, TRAJECTORY = CONTROLLERS
MS2, MS8 = 0.002, 0.008
NAN = float("nan")
ONE = np.eye(6)[0]


def running(controller: str, period: float = MS2) -> Driver:
    driver = Driver(controller, period)
    driver.place(HOME)
    driver.run_program()
    return driver


def cycles(driver: Driver, count: int) -> np.ndarray:
    return np.array([driver.next_target() for _ in range(count)])


def test_without_a_command_the_arm_stays():
    for controller in CONTROLLERS:
        np.testing.assert_array_equal(cycles(running(controller), 3), [HOME] * 3)


def test_before_the_program_runs_commands_do_nothing_and_are_forgotten():
    driver = Driver(POSITION, MS2)
    driver.place(HOME)
    driver.forward.accept((HOME + 0.001).tolist())
    np.testing.assert_array_equal(driver.next_target(), HOME)
    assert driver.speed_scaling == 0.0
    driver.run_program()
    np.testing.assert_array_equal(driver.next_target(), HOME)
    assert driver.speed_scaling == 1.0


def test_the_last_position_is_repeated_for_ever():
    driver = running(POSITION)
    assert driver.forward.accept((HOME + 0.006).tolist()) == ""
    np.testing.assert_array_equal(cycles(driver, 1000), [HOME + 0.006] * 1000)


def test_the_last_velocity_is_integrated_for_ever():
    driver = running(VELOCITY, MS8)
    assert driver.forward.accept([0.5, 0, 0, 0, 0, 0]) == ""
    np.testing.assert_allclose(cycles(driver, 100)[-1], HOME + 0.4 * ONE, atol=1e-12)


@pytest.mark.parametrize("controller", [POSITION, VELOCITY])
def test_a_wrong_size_is_refused_and_all_nan_is_no_command(controller):
    driver = running(controller)
    assert driver.forward.accept([0.0] * 5) == "command size 5 does not match the number of joints, 6"
    assert driver.forward.accept([0.0] * 7) == "command size 7 does not match the number of joints, 6"
    assert driver.forward.accept([NAN] * 6) == ""
    np.testing.assert_array_equal(driver.next_target(), HOME)
    assert driver.faults == []


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_a_nan_among_numbers_is_passed_on_and_stops_the_robot(bad):
    driver = running(POSITION)
    driver.forward.accept([*HOME[:5].tolist(), bad])
    np.testing.assert_array_equal(cycles(driver, 2), [HOME] * 2)
    assert driver.protective_stop
    (fault,) = driver.faults
    assert fault.startswith("protective stop: the target is not finite: [")


@pytest.mark.parametrize(("period", "most"), [(MS2, 0.0062831), (MS8, 0.0251327)])  # pi rad/s
def test_a_step_beyond_the_greatest_velocity_stops_the_robot(period, most):
    driver = running(POSITION, period)
    driver.forward.accept((HOME - most * ONE).tolist())
    np.testing.assert_array_equal(driver.next_target(), HOME - most * ONE)
    driver.forward.accept((HOME + 1e-6 * ONE).tolist())
    np.testing.assert_array_equal(driver.next_target(), HOME - most * ONE)
    assert driver.protective_stop
    assert not driver.program_running
    (fault,) = driver.faults
    assert fault.startswith("protective stop: the target of shoulder_pan_joint moves by 0.0")
    assert fault.endswith("3.14 rad/s; at most 3.14")


@pytest.fixture
def stream():
    """2 rad/s at 500 Hz: 4 mrad a command, 6.3 at most. Numbers of the commands that come in each cycle."""
    driver = running(POSITION)
    sent = 0

    def send(*arrivals: int) -> tuple[int, int]:
        nonlocal sent
        for count in arrivals:
            for _ in range(count):
                sent += 1
                driver.forward.accept((HOME + 0.004 * sent * ONE).tolist())
            driver.next_target()
        return len(driver.faults), sent

    return driver, send


@pytest.mark.parametrize(
    ("arrivals", "stops"),
    [
        ([1, 1, 0, 2, 1, 0, 0, 3, 1], False),
        ([1, 0, 0, 1, 2, 2, 1], False),  # late, and made up for bit by bit
        ([1, 1, 2], True),  # none was late
        ([1, 0, 2, 2], True),  # made up for already
        ([1, *[0] * 15, 16], False),  # 30 ms
        ([1, *[0] * 16, 17], True),  # longer: a new beginning
        ([1, *[0] * 16, 1, 0, 2], False),
        ([0, 0, 2], True),  # the first is not late
    ],
)
def test_commands_of_a_stream_that_are_late_may_be_made_up_for(arrivals, stops, stream):
    driver, send = stream
    faults, sent = send(*arrivals)
    assert faults == stops
    if not stops:
        np.testing.assert_allclose(driver.next_target(), HOME + 0.004 * sent * ONE)


def test_a_stop_breaks_the_stream(stream):
    driver, send = stream
    assert send(1, 0, 0)[0] == 0
    driver.stop()
    driver.resume()
    assert send(3)[0] == 1


def test_a_velocity_beyond_the_greatest_and_a_position_beyond_the_limits_stop_the_robot():
    driver = running(VELOCITY)
    driver.forward.accept([0, 0, 3.15, 0, 0, 0])
    np.testing.assert_array_equal(driver.next_target(), HOME)
    assert "elbow_joint moves by 0.0063 rad in a cycle, 3.15 rad/s; at most 3.14" in driver.faults[0]
    driver = running(VELOCITY)
    driver.forward.accept([0, 0, 3.0, 0, 0, 0])
    elbow = cycles(driver, 500)[:, 2]
    assert elbow.max() <= np.pi
    assert "the target of elbow_joint is 3.1" in driver.faults[0]
    assert driver.faults[0].endswith("it must be from -3.1416 to 3.1416")


def test_resuming_goes_on_with_the_old_motion():
    driver = running(VELOCITY)
    driver.forward.accept([0.5, 0, 0, 0, 0, 0])
    before = cycles(driver, 10)[-1]
    driver.stop()
    assert (driver.protective_stop, driver.program_running, driver.speed_scaling) == (True, False, 0.0)
    np.testing.assert_array_equal(cycles(driver, 100)[-1], before)
    driver.resume()
    assert (driver.protective_stop, driver.program_running) == (False, True)
    np.testing.assert_allclose(driver.next_target(), before + 0.001 * ONE)


def test_a_command_during_a_stop_acts_on_resuming():
    driver = running(POSITION)
    driver.forward.accept((HOME + 0.1).tolist())
    driver.next_target()
    assert driver.protective_stop
    driver.resume()
    assert len(driver.faults) == 1
    driver.next_target()  # the same command still jumps
    assert (len(driver.faults), driver.protective_stop) == (2, True)
    driver.forward.accept(HOME.tolist())
    driver.resume()
    driver.next_target()
    assert (len(driver.faults), driver.protective_stop) == (2, False)


def test_nothing_but_resuming_ends_a_stop():
    driver = running(POSITION)
    driver.stop()
    driver.run_program()
    assert not driver.program_running
    idle = Driver(POSITION, MS2)
    idle.resume()
    assert not idle.program_running
    driver.place(HOME)  # a new episode
    driver.run_program()
    assert driver.program_running


def point(time: float, offset: float, velocities=()) -> TrajectoryPoint:
    return TrajectoryPoint(time, (HOME + offset * ONE).tolist(), velocities)


def test_a_trajectory_is_straight_in_time_and_stays_at_its_end():
    driver = running(TRAJECTORY, MS8)
    assert driver.trajectory.accept(JOINT_NAMES, [point(0.08, 0.04), point(0.16, 0.0)]) == ""
    offsets = cycles(driver, 40)[:, 0] - HOME[0]
    np.testing.assert_allclose(offsets[:10], 0.004 * np.arange(1, 11), atol=1e-12)
    np.testing.assert_allclose(offsets[10:20], 0.004 * np.arange(9, -1, -1), atol=1e-12)
    np.testing.assert_allclose(offsets[20:], 0.0, atol=1e-12)
    assert driver.faults == []


def test_with_velocities_a_trajectory_is_a_cubic():
    driver = running(TRAJECTORY, MS8)
    driver.trajectory.accept(JOINT_NAMES, [point(0.8, 0.1, [0.0] * 6)])
    offsets = cycles(driver, 100)[:, 0] - HOME[0]
    s = np.arange(1, 101) / 100
    np.testing.assert_allclose(offsets, 0.1 * (3 * s**2 - 2 * s**3), atol=1e-12)


def test_joints_of_a_trajectory_are_mapped_by_name():
    driver = running(TRAJECTORY)
    names = sorted(JOINT_NAMES)
    moved = HOME + 0.001 * np.arange(6)
    positions = [moved[JOINT_NAMES.index(name)] for name in names]
    assert driver.trajectory.accept(names, [TrajectoryPoint(MS2, positions)]) == ""
    np.testing.assert_array_equal(driver.next_target(), moved)


def test_speed_scaling_stretches_a_trajectory_alone():
    driver = running(TRAJECTORY, MS8)
    driver.speed_slider = 0.5
    driver.trajectory.accept(JOINT_NAMES, [point(0.08, 0.04)])
    np.testing.assert_allclose(cycles(driver, 10)[-1], HOME + 0.02 * ONE, atol=1e-12)
    np.testing.assert_allclose(cycles(driver, 10)[-1], HOME + 0.04 * ONE, atol=1e-12)
    driver = running(VELOCITY, MS8)
    driver.speed_slider = 0.5
    driver.forward.accept([0.5, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(driver.next_target(), HOME + 0.004 * ONE, atol=1e-12)


def test_a_trajectory_goes_on_after_a_stop():
    driver = running(TRAJECTORY, MS8)
    driver.trajectory.accept(JOINT_NAMES, [point(0.08, 0.04)])
    cycles(driver, 5)
    driver.stop()
    cycles(driver, 50)
    driver.resume()
    np.testing.assert_allclose(cycles(driver, 5)[-1], HOME + 0.04 * ONE, atol=1e-12)


def test_a_first_point_at_time_zero_far_away_is_jumped_to_and_stops_the_robot():
    driver = running(TRAJECTORY)
    assert driver.trajectory.accept(JOINT_NAMES, [point(0.0, 0.5), point(1.0, 0.6)]) == ""
    np.testing.assert_array_equal(driver.next_target(), HOME)
    assert "shoulder_pan_joint moves by 0.5" in driver.faults[0]


def test_a_trajectory_that_began_in_the_past_is_joined_and_one_that_ended_is_refused():
    driver = running(TRAJECTORY, MS8)
    assert driver.trajectory.accept(JOINT_NAMES, [point(0.0, 0.0), point(1.0, 0.2)], begin=-0.1) == ""
    np.testing.assert_allclose(driver.next_target(), HOME + 0.0216 * ONE, atol=1e-12)
    refused = driver.trajectory.accept(JOINT_NAMES, [point(0.1, 0.2)], begin=-0.3)
    assert refused == "the trajectory ends 0.200 s in the past"
    np.testing.assert_allclose(driver.next_target(), HOME + 0.0232 * ONE, atol=1e-12)


REFUSED = {
    "joints": ((JOINT_NAMES[:5], [TrajectoryPoint(1.0, [0.0] * 5)]), "the trajectory's joints ["),
    "unknown": (((*JOINT_NAMES[:5], "finger"), [point(1.0, 0.0)]), "the trajectory's joints ["),
    "twice": (((*JOINT_NAMES, JOINT_NAMES[0]), [point(1.0, 0.0)]), "the trajectory's joints ["),
    "empty": ((JOINT_NAMES, []), "the trajectory is empty"),
    "size": ((JOINT_NAMES, [TrajectoryPoint(1.0, [0.0] * 5)]), "point 0 has 5 positions and 0 velocities"),
    "velocities": ((JOINT_NAMES, [point(1.0, 0.0, [0.0])]), "point 0 has 6 positions and 1 velocities"),
    "times": ((JOINT_NAMES, [point(1.0, 0.0), point(1.0, 0.1)]), "the times of points 0 and 1 do not"),
    "moving end": ((JOINT_NAMES, [point(1.0, 0.0, [0.1] * 6)]), "the velocity of the last point is not zero"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_the_trajectory_controller_refuses_changes_nothing(wrong):
    driver = running(TRAJECTORY, MS8)
    driver.trajectory.accept(JOINT_NAMES, [point(0.08, 0.04)])
    given, reason = REFUSED[wrong]
    assert driver.trajectory.accept(*given).startswith(reason)
    np.testing.assert_allclose(cycles(driver, 10)[-1], HOME + 0.04 * ONE, atol=1e-12)


def test_the_finger_joint_is_the_opening():
    assert (finger_of(0.085), finger_of(0.0)) == (0.0, 0.8)
    assert opening_of(0.4) == pytest.approx(0.0425)
    for opening in np.linspace(0.0, 0.085, 1000):
        assert np.float32(opening_of(finger_of(opening))) == np.float32(opening)


def test_gripper_commands_are_limited_and_what_is_no_command_is_refused():
    driver = Driver(POSITION, MS2)
    assert driver.command_gripper([0.4, 60.0], 0.0) == ""
    assert (driver.opening, driver.force_limit) == (pytest.approx(0.0425), 60.0)
    for bad in ([0.4], [0.4, 60.0, 1.0], [NAN, 60.0], [0.4, float("inf")]):
        assert driver.command_gripper(bad, 1.0).startswith("a gripper command is finger (rad) and force (N)")
    assert (driver.opening, driver.force_limit) == (pytest.approx(0.0425), 60.0)
    driver.command_gripper([2.0, 1000.0], 2.0)
    assert (driver.opening, driver.force_limit) == (0.0, 235.0)
    driver.command_gripper([-1.0, 0.0], 3.0)
    assert (driver.opening, driver.force_limit) == (0.085, 20.0)


def test_more_gripper_commands_than_its_driver_endures_lock_it_up():
    driver = Driver(POSITION, MS2)
    for number in range(100):  # 15 Hz
        assert driver.command_gripper([0.4, 60.0], number / 15.0) == ""
    assert driver.faults == []
    answers = [driver.command_gripper([0.2, 60.0], 10.0 + number / 20.0) for number in range(25)]
    assert answers[:18] == [""] * 18
    assert answers[18] == driver.faults[0] == "gripper: more than 18 commands in a second lock its driver up"
    assert set(answers[19:]) == {"the gripper's driver is locked up"}
    assert driver.command_gripper([0.2, 60.0], 10.9 + module.LOCKED) == ""
    assert not driver.protective_stop


def test_an_unknown_controller_is_refused():
    with pytest.raises(
        UserError, match="there is no controller 'joint_trajectory_controller'; there are: fo"
    ):
        Driver("joint_trajectory_controller", MS2)
