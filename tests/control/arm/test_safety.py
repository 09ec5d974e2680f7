"""What the safety filter does in each situation, cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.arm.inputs import Source
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.reasons import KINDS, Status, markdown
from grasp_control.arm.safety import SafetyFilter, Verdict
from grasp_sim import ur5e
from grasp_sim.scene import TABLE_HEIGHT
from grasp_sim.servo import down_rotation, heading, joints_at

NAN = float("nan")
ZERO = np.zeros(6)
HOME_POSITION, HOME_ROTATION = ur5e.Kinematics().pose(ur5e.HOME)


class Rig:
    """A filter with an arm that follows it exactly, everything being well unless a test says otherwise."""

    def __init__(self, **config) -> None:
        defaults = {"rate_hz": 125.0, "settle_time": 0.02, "resume_delay": 0.2, "ramp_time": 0.0}
        self.config = SafetyConfig(**{**defaults, **config})
        self.filter = SafetyFilter(self.config)
        self.now = 100.0
        self.arm = ur5e.HOME.copy()
        self.follows = True
        self.goal: np.ndarray | None = None
        self.sent: list[np.ndarray] = []
        self.filter.robot(program_running=True)
        self.verdict: Verdict | None = None

    def cycle(self, *, measure=True, command=True, grip=True, age=0.0) -> Verdict:
        self.now += self.config.period
        if measure:
            self.filter.measured(self.arm, None, stamp_age=age, now=self.now)
        if grip:
            self.filter.gripper(10.0, stamp_age=0.0, now=self.now)
        if command and self.goal is not None:
            self.filter.setpoint(self.goal, epoch=self.filter.epoch, stamp_age=0.0, now=self.now)
        self.verdict = verdict = self.filter.step(self.now)
        if verdict.positions is not None:
            self.sent.append(verdict.positions)
            if self.follows:
                self.arm = verdict.positions.copy()
        return verdict

    def cycles(self, seconds: float, **given) -> Verdict:
        for _ in range(max(1, round(seconds * self.config.rate_hz))):
            verdict = self.cycle(**given)
        return verdict

    def start(self) -> Rig:
        """Until the first command was sent."""
        for _ in range(100):
            if self.cycle().positions is not None:
                return self
        raise AssertionError(f"no start: {self.verdict}")


def keys(verdict: Verdict) -> set[str]:
    return {reason.key for reason in verdict.reasons}


# ---- starting


def test_the_first_command_is_the_measured_position_exactly():
    rig = Rig()
    rig.arm = ur5e.HOME + 0.0123
    rig.start()
    assert np.array_equal(rig.sent[0], ur5e.HOME + 0.0123)
    assert not rig.verdict.velocities.any()
    assert rig.verdict.epoch == 1


def test_nothing_is_sent_before_anything_was_measured():
    rig = Rig()
    verdict = rig.cycles(1.0, measure=False)
    assert verdict.positions is None
    assert verdict.velocities is None
    assert verdict.status is Status.WAITING
    assert keys(verdict) == {"no_measured"}


def test_all_zero_joints_are_the_drivers_blank_and_never_a_start():
    rig = Rig()
    rig.arm = ZERO.copy()
    verdict = rig.cycles(1.0)
    assert verdict.positions is None
    assert keys(verdict) == {"measured_zeros"}
    rig.arm = ur5e.HOME.copy()
    rig.start()
    assert np.array_equal(rig.sent[0], ur5e.HOME)


@pytest.mark.parametrize(
    ("joints", "velocities"),
    [
        (np.full(6, NAN), None),
        ([NAN, *ur5e.HOME[1:]], None),
        (ur5e.HOME[:5], None),
        (None, None),
        ("x", None),
    ],
)
def test_a_start_needs_six_finite_joints(joints, velocities):
    rig = Rig()
    for _ in range(50):
        rig.filter.measured(joints, velocities, stamp_age=0.0, now=rig.now)
        verdict = rig.cycle(measure=False)
    assert verdict.positions is None
    assert keys(verdict) == {"measured_invalid"}


def test_where_only_one_of_two_publishers_is_heard_the_command_never_jumps_to_what_it_says():
    """One with stamps ahead of the other's is the only one that is taken; which of them is the arm's?"""
    rig = Rig().start()
    rig.follows = False
    elsewhere = ur5e.HOME + np.array([0.35, 0.0, 0.0, 0.0, 0.0, 0.0])
    for _ in range(400):
        rig.filter.measured(elsewhere, ZERO, stamp_age=-0.009, now=rig.now)
        verdict = rig.cycle(age=0.001)
        assert np.array_equal(verdict.positions, ur5e.HOME)
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {"arm_elsewhere"}
    assert rig.filter.refused["measured_back"] == 400
    rig.cycles(1.0)
    assert rig.filter.epoch == 2  # it starts anew from where the arm is, once the other one is silent


def test_velocities_that_are_not_a_number_are_no_obstacle():
    rig = Rig()
    for _ in range(10):
        rig.filter.measured(ur5e.HOME, np.full(6, NAN), stamp_age=0.0, now=rig.now)
        verdict = rig.cycle(measure=False)
    assert np.array_equal(verdict.positions, ur5e.HOME)


def test_one_sample_does_not_show_that_the_arm_rests():
    rig = Rig()
    rig.cycle()
    assert rig.cycles(0.04, measure=False).positions is None  # not stale yet
    assert keys(rig.verdict) == {"arm_moving"}


def test_a_start_waits_until_the_arm_rests():
    rig = Rig()
    rig.follows = False
    for _ in range(50):
        rig.arm = rig.arm + 0.003
        verdict = rig.cycle()
        assert verdict.positions is None
    assert keys(verdict) == {"arm_moving"}
    rig.start()


def test_a_start_waits_for_the_program_and_then_for_the_delay():
    rig = Rig()
    rig.filter.robot(program_running=False)
    assert keys(rig.cycles(0.5)) == {"program_stopped"}
    rig.filter.robot(program_running=True)
    assert keys(rig.cycles(0.1)) == {"resume_delay"}
    began = rig.now
    rig.start()
    assert rig.now - began == pytest.approx(0.1, abs=0.02)


def test_a_robot_that_never_speaks_of_its_program_is_not_moved_unless_configured():
    for required in (True, False):
        rig = Rig(require_program=required)
        rig.filter = SafetyFilter(rig.config)
        verdict = rig.cycles(0.5)
        assert (verdict.positions is None) == required
        assert ("program_unknown" in keys(verdict)) == required


@pytest.mark.parametrize(
    ("change", "config", "what"),
    [
        (ZERO, {"workspace_min": [0.4, -0.45, -0.2]}, "TCP x min"),
        (ZERO, {"floor_height": 0.065}, "floor"),
        ((0, 0, 0, 0, 1.5, 0), {}, "singularity"),
        ((0, 0, 0.6, 0, 0, 0), {"workspace_min": [-1, -1, -1], "workspace_max": [1, 1, 1]}, "self_collision"),
        ((0, 0, 0.63, 0, 0, 0), {}, "elbow_joint"),
    ],
)
def test_a_start_outside_the_limits_waits_and_says_which(change, config, what):
    rig = Rig(**config)
    rig.arm = ur5e.HOME + np.array(change)
    rig.goal = ur5e.HOME
    verdict = rig.cycles(0.5)
    assert verdict.positions is None
    assert verdict.status is Status.WAITING
    assert keys(verdict) == {"start_outside"}
    assert what in verdict.reasons[0].text


def test_the_velocity_limit_ramps_up_from_zero():
    rig = Rig(ramp_time=1.0, setpoint_jump_max=1.5).start()
    begin = rig.now
    goal = ur5e.HOME + np.array([0.8, 0, 0, 0, 0, 0])
    rig.goal = goal
    while rig.now < begin + 0.9:
        before = rig.sent[-1]
        verdict = rig.cycle()
        speed = np.abs(verdict.positions - before).max() * 125.0
        assert speed <= (rig.now - begin) / 1.0 + 1e-9
        assert verdict.status is Status.RAMPING
    assert speed > 0.8


# ---- free motion


def test_a_setpoint_within_the_limits_passes_exactly():
    rig = Rig().start()
    for k in range(500):
        rig.goal = ur5e.HOME + 0.1 * (1 - np.cos(0.02 * k)) * np.array([1, 0.2, 0.1, -0.1, 0.1, 1.0])
        verdict = rig.cycle()
        if k > 10:
            np.testing.assert_allclose(verdict.positions, rig.goal, atol=1e-12)
            assert verdict.status is Status.OK
            assert verdict.reasons == ()


def test_a_step_is_taken_at_the_limits_without_overshoot():
    rig = Rig().start()
    goal = ur5e.HOME + np.array([0.3, 0, 0, 0, 0, -0.1])
    rig.goal = goal
    verdict = rig.cycle()
    path = []
    for _ in range(100):
        verdict = rig.cycle()
        path.append(verdict.positions[0])
    assert max(path) <= goal[0] + 1e-12
    np.testing.assert_allclose(verdict.positions, goal, atol=1e-12)
    # 0.3 rad at 1 rad/s and 10 rad/s^2: 0.1 s up, 0.2 s, 0.1 s down
    arrived = next(k for k, value in enumerate(path) if value > goal[0] - 1e-4)
    assert 0.4 <= (arrived + 2) / 125.0 <= 0.5


def test_a_setpoint_faster_than_the_limit_is_followed_and_reported():
    rig = Rig().start()
    statuses = set()
    for k in range(30):
        rig.goal = ur5e.HOME + np.array([0.012 * k, 0, 0, 0, 0, 0])  # 1.5 rad/s
        verdict = rig.cycle()
        statuses.add(verdict.status)
    assert verdict.status is Status.LIMITED
    assert keys(verdict) == {"velocity_limit"}
    assert np.abs(np.diff(rig.sent, axis=0)).max() * 125.0 <= 1.0


def test_the_step_limit_counts_besides_the_velocity_limit():
    rig = Rig(step_max=0.001).start()
    rig.goal = ur5e.HOME + 0.2
    rig.cycles(1.0)
    assert np.abs(np.diff(rig.sent, axis=0)).max() == pytest.approx(0.001, rel=1e-3)


def test_speed_scaling_scales_the_velocity_limit():
    rig = Rig().start()
    rig.filter.robot(speed_scaling=30.0)
    rig.goal = ur5e.HOME + 0.3
    rig.cycles(0.5)
    assert np.abs(np.diff(rig.sent, axis=0)).max() * 125.0 == pytest.approx(0.3, rel=1e-3)


def test_the_velocity_command_is_the_derivative_and_draws_the_arm_back():
    rig = Rig().start()
    rig.follows = False
    for k in range(60):
        rig.goal = ur5e.HOME + np.array([0.002 * k, 0, 0, 0, 0, 0])  # 0.25 rad/s
        rig.arm = rig.goal - np.array([0.02, 0, 0, 0, 0, 0])
        verdict = rig.cycle()
    # 2 /s of 0.018 ... 0.02 rad behind
    assert verdict.velocities[0] == pytest.approx(0.25 + 0.04, abs=0.005)
    assert abs(verdict.velocities[1:]).max() < 1e-9
    rig.arm = rig.goal - np.array([0.09, 0, 0, 0, 0, 0])
    for k in range(60, 70):
        rig.goal = ur5e.HOME + np.array([0.002 * k, 0, 0, 0, 0, 0])
        rig.arm = rig.goal - np.array([0.09, 0, 0, 0, 0, 0])
        verdict = rig.cycle()
    assert verdict.velocities[0] == pytest.approx(0.25 + 0.05, abs=1e-6)  # no more than drift_velocity_max


# ---- limits of geometry


def straight_down(depth: float) -> np.ndarray:
    """Joints with the tool `depth` m below home."""
    return joints_at(HOME_POSITION - np.array([0.0, 0.0, depth]), heading(HOME_ROTATION), ur5e.HOME)


def test_the_tool_stops_above_the_floor_and_slides_along_it():
    rig = Rig(setpoint_jump_max=1.0).start()
    kinematics = ur5e.Kinematics()
    rig.goal = straight_down(0.05)
    rig.cycles(1.0)
    rig.goal = straight_down(0.20)  # 2 cm into the table
    verdict = rig.cycles(2.0)
    assert verdict.status is Status.LIMITED
    assert keys(verdict) == {"floor"}
    assert "fingertip" in verdict.reasons[0].text
    height = kinematics.pose(verdict.positions)[0][2] - 0.011 - (TABLE_HEIGHT + 0.001)
    assert 0.0 <= height < 0.005
    last = np.diff(rig.sent[-50:], axis=0)
    assert np.abs(last).max() < 1e-4
    assert (last[1:] * last[:-1] >= -1e-15).all()  # it comes to rest there and does not tremble
    # 2 cm into the table and 5 cm aside: only aside is possible.
    aside = HOME_POSITION + np.array([0.0, 0.05, -0.20])
    rig.goal = joints_at(aside, heading(HOME_ROTATION), ur5e.HOME)
    before = len(rig.sent)
    verdict = rig.cycles(2.0)
    heights = [kinematics.pose(joints)[0][2] for joints in rig.sent[before:]]
    assert np.ptp(heights) < 0.001
    position, rotation = kinematics.pose(verdict.positions)
    assert keys(verdict) == {"floor"}
    assert position[1] == pytest.approx(aside[1], abs=0.015)
    assert 0.0 <= position[2] - 0.011 - (TABLE_HEIGHT + 0.001) < 0.005
    np.testing.assert_allclose(rotation, down_rotation(heading(rotation)), atol=0.05)
    # And up again without being stuck.
    rig.goal = ur5e.HOME
    verdict = rig.cycles(2.0)
    np.testing.assert_allclose(verdict.positions, ur5e.HOME, atol=1e-9)
    assert verdict.status is Status.OK


def test_the_tool_stays_in_the_workspace():
    rig = Rig(workspace_max=[0.9, 0.05, 0.5]).start()
    rig.goal = ur5e.HOME + np.array([0.39, 0, 0, 0, 0, 0])
    verdict = rig.cycles(2.0)
    assert keys(verdict) == {"workspace"}
    assert "TCP y max" in verdict.reasons[0].text
    assert 0.04 < ur5e.Kinematics().pose(verdict.positions)[0][1] <= 0.05


def test_a_singularity_is_not_entered():
    rig = Rig().start()
    for k in range(400):
        rig.goal = ur5e.HOME + np.array([0, 0, 0, 0, 0.005 * k, 0])
        if np.abs(rig.goal - rig.sent[-1]).max() > 0.35:
            break
        verdict = rig.cycle()
    assert keys(verdict) == {"singularity"}
    determinant = abs(np.linalg.det(ur5e.Kinematics().jacobian(verdict.positions)))
    assert 0.01 <= determinant < 0.011


def test_joint_limits_are_kept_with_their_margin():
    rig = Rig(setpoint_jump_max=0.6)
    rig.arm = ur5e.HOME + np.array([0, 0, 0, 0, 0, 2 * np.pi + 1.7])  # the last joint at 5.99
    rig.start()
    rig.goal = rig.arm + np.array([0, 0, 0, 0, 0, 0.5])
    verdict = rig.cycles(2.0)
    assert keys(verdict) == {"joint_limit"}
    assert "wrist_3_joint" in verdict.reasons[0].text
    assert verdict.positions[5] == pytest.approx(2 * np.pi - 0.05, abs=1e-9)


# ---- holding


def moving(rig: Rig, seconds: float = 0.4) -> Rig:
    """Moving at 0.5 rad/s from home."""
    rig.start()
    for k in range(round(seconds * rig.config.rate_hz)):
        rig.goal = ur5e.HOME + 0.5 * (k + 1) * rig.config.period * np.array([1.0, 0, 0, 0, 0, 0])
        rig.cycle()
    assert np.abs(rig.sent[-1] - rig.sent[-2]).max() > 0.4 * rig.config.period
    return rig


def test_when_the_servo_dies_the_arm_stands_within_100_ms_and_says_why():
    for rate in (125.0, 500.0):
        rig = moving(Rig(rate_hz=rate))
        verdict = rig.cycles(0.1, command=False)
        assert verdict.status is Status.HOLD
        assert keys(verdict) == {"setpoint_stale"}
        assert np.array_equal(rig.sent[-1], rig.sent[-2])
        assert not verdict.velocities.any()
        again = rig.cycles(1.0, command=False)
        assert np.array_equal(again.positions, verdict.positions)


def test_when_the_driver_dies_the_arm_stands_within_100_ms_and_says_why():
    rig = moving(Rig())
    for k in range(25):  # the servo lives on
        rig.goal = rig.goal + np.array([0.004, 0, 0, 0, 0, 0]) if k < 12 else rig.goal
        verdict = rig.cycle(measure=False)
        if k == 12:
            assert np.array_equal(rig.sent[-1], rig.sent[-2])
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {"measured_stale"}
    assert not verdict.velocities.any()


def test_the_arm_goes_on_where_it_was_when_the_measurements_come_back():
    rig = moving(Rig())
    rig.cycles(0.2, measure=False)
    epoch = rig.filter.epoch
    rig.goal = rig.sent[-1] + 0.01
    verdict = rig.cycles(0.5)
    assert verdict.status is Status.OK
    assert verdict.epoch == epoch
    np.testing.assert_allclose(verdict.positions, rig.goal, atol=1e-9)


def test_measurements_that_come_with_old_stamps_are_stale_too():
    rig = moving(Rig())
    verdict = rig.cycles(0.2, age=0.3)
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {"measured_stale"}


def test_a_stream_whose_stamps_stand_still_is_stale():
    rig = moving(Rig())
    age = 0.0
    for _ in range(20):
        age += rig.config.period
        verdict = rig.cycle(age=age)
    assert keys(verdict) == {"measured_stale"}


def test_without_a_gripper_the_arm_holds_unless_it_is_not_monitored():
    for most, held in ((0.05, True), (float("inf"), False)):
        rig = Rig(gripper_max_age=most).start()
        rig.goal = ur5e.HOME + 0.01
        verdict = rig.cycles(0.3, grip=False)
        assert (verdict.status is Status.HOLD) == held
        assert ("gripper_stale" in keys(verdict)) == held


def test_too_much_grip_force_holds_the_arm():
    rig = Rig().start()
    rig.goal = ur5e.HOME + 0.1
    for force, held in ((149.0, False), (151.0, True), (140.0, False)):
        for _ in range(10):
            rig.filter.gripper(force, stamp_age=0.0, now=rig.now)
            verdict = rig.cycle(grip=False)
        assert (verdict.status is Status.HOLD) == held
        assert (keys(verdict) == {"grip_force"}) == held
        if held:
            assert "151.0 N" in verdict.reasons[0].text
    rig.filter.gripper(NAN, stamp_age=0.0, now=rig.now)
    assert keys(rig.cycle(grip=False)) == {"gripper_invalid"}


@pytest.mark.parametrize(
    ("setpoint", "key"),
    [
        (np.full(6, NAN), "setpoint_invalid"),
        ([float("inf"), 0, 0, 0, 0, 0], "setpoint_invalid"),
        (ur5e.HOME[:5], "setpoint_invalid"),
        (None, "setpoint_invalid"),
        (ur5e.HOME + 0.5, "setpoint_jump"),
        (ur5e.HOME + np.array([0, 0, 0, 0, 0, 2 * np.pi]), "setpoint_wrapped"),
        (ur5e.HOME - np.array([2 * np.pi, 0, 0, 0, 0, 2 * np.pi]), "setpoint_wrapped"),
    ],
)
def test_a_setpoint_that_cannot_be_meant_holds_at_once(setpoint, key):
    rig = Rig().start()
    rig.goal = ur5e.HOME
    assert rig.cycle().status is Status.OK
    rig.filter.setpoint(setpoint, epoch=rig.filter.epoch, stamp_age=0.0, now=rig.now)
    verdict = rig.cycle(command=False)
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {key}
    assert np.array_equal(verdict.positions, ur5e.HOME)
    assert rig.filter.refused[key] == 1
    assert rig.cycle().status is Status.OK


@pytest.mark.parametrize(
    ("age", "key"), [(0.3, "setpoint_stale"), (-0.3, "setpoint_future"), (NAN, "setpoint_invalid")]
)
def test_setpoints_with_impossible_stamps_are_refused(age, key):
    rig = Rig().start()
    for _ in range(20):
        rig.filter.setpoint(ur5e.HOME + 0.01, epoch=rig.filter.epoch, stamp_age=age, now=rig.now)
        verdict = rig.cycle(command=False)
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {key}
    assert np.array_equal(verdict.positions, ur5e.HOME)


def test_a_setpoint_older_than_the_one_before_is_not_taken():
    rig = Rig().start()
    rig.filter.setpoint(ur5e.HOME, epoch=1, stamp_age=0.0, now=rig.now)
    rig.filter.setpoint(ur5e.HOME + 0.1, epoch=1, stamp_age=0.02, now=rig.now)
    verdict = rig.cycle(command=False)
    assert np.array_equal(verdict.positions, ur5e.HOME)
    assert rig.filter.refused["setpoint_back"] == 1


def test_a_setpoint_of_another_epoch_is_not_taken():
    rig = Rig().start()
    for epoch in (0, 2, -1):
        rig.filter.setpoint(ur5e.HOME + 0.1, epoch=epoch, stamp_age=0.0, now=rig.now)
    verdict = rig.cycle()
    assert keys(verdict) == {"setpoint_epoch"}
    assert np.array_equal(verdict.positions, ur5e.HOME)


def test_holding_keeps_the_last_command_and_never_creeps_to_the_measured_one():
    rig = moving(Rig())
    rig.follows = False
    held = rig.cycles(0.3, command=False).positions
    for _ in range(200):  # it sags
        rig.arm = rig.arm - 0.0002
        verdict = rig.cycle(command=False)
        assert np.array_equal(verdict.positions, held)
        assert not verdict.velocities.any()


# ---- pauses, blocks, gaps


@pytest.mark.parametrize(
    ("pause", "resume", "key"),
    [
        ({"program_running": False}, {"program_running": True}, "program_stopped"),
        ({"protective_stop": True}, {"protective_stop": False}, "protective_stop"),
        ({"speed_scaling": 0.0}, {"speed_scaling": 100.0}, "speed_zero"),
        ({"speed_scaling": NAN}, {"speed_scaling": 100.0}, "speed_zero"),
    ],
)
def test_a_pause_stops_the_motion_and_ends_with_a_new_start_from_the_measured_pose(pause, resume, key):
    rig = moving(Rig(ramp_time=0.5))
    rig.follows = False
    rig.arm = rig.sent[-1].copy()  # a stopped robot stops at once
    rig.filter.robot(**pause)
    verdict = rig.cycle()
    assert verdict.status is Status.HOLD
    assert keys(verdict) == {key}
    rig.cycles(0.5)
    # A robot that resumes repeats its last command: that must be where it stands by now.
    assert np.array_equal(rig.sent[-1], rig.arm)
    assert rig.filter.epoch == 2
    rig.arm = rig.arm + np.array([0.05, 0, 0, 0, 0, 0])  # moved by hand
    rig.cycles(0.5)
    assert np.array_equal(rig.sent[-1], rig.arm)
    old = rig.filter.epoch
    rig.filter.robot(**resume)
    rig.goal = rig.arm + 0.1
    began = rig.now
    while rig.cycle().status is Status.HOLD:
        assert np.array_equal(rig.sent[-1], rig.arm)
    assert rig.now - began == pytest.approx(0.2, abs=0.02)
    assert rig.filter.epoch == old + 1
    assert rig.verdict.status is Status.RAMPING


def test_setpoints_from_before_a_pause_are_refused_after_it():
    rig = Rig().start()
    rig.filter.robot(protective_stop=True)
    rig.cycles(0.1)
    rig.filter.robot(protective_stop=False)
    for _ in range(60):
        rig.filter.setpoint(ur5e.HOME + 0.1, epoch=1, stamp_age=0.0, now=rig.now)
        verdict = rig.cycle(command=False)
    assert verdict.epoch == 2
    assert keys(verdict) == {"setpoint_epoch"}
    assert np.array_equal(verdict.positions, ur5e.HOME)


def test_an_arm_put_outside_during_a_pause_is_left_where_it_stands():
    rig = Rig().start()
    rig.follows = False
    rig.filter.robot(program_running=False)
    rig.cycles(0.1)
    rig.arm = ur5e.HOME + np.array([0, 0, 0, 0, 1.5, 0])
    rig.goal = ur5e.HOME
    rig.filter.robot(program_running=True)
    verdict = rig.cycles(1.0)
    assert verdict.status is Status.WAITING
    assert keys(verdict) == {"start_outside"}
    assert np.array_equal(verdict.positions, rig.arm)
    assert not verdict.velocities.any()
    rig.arm = ur5e.HOME.copy()  # jogged back
    verdict = rig.cycles(1.0)
    assert verdict.status is Status.OK


def test_a_blocked_arm_is_held_then_released():
    rig = Rig().start()
    rig.follows = False
    for k in range(40):
        rig.goal = ur5e.HOME + np.array([0.004 * k, 0, 0, 0, 0, 0])
        verdict = rig.cycle()
    assert keys(verdict) == {"following_error"}
    assert "shoulder_pan_joint" in verdict.reasons[0].text
    assert np.array_equal(rig.sent[-1], rig.sent[-2])
    ahead = np.abs(rig.sent[-1] - rig.arm).max()
    assert 0.1 < ahead < 0.13
    rig.goal = None
    verdict = rig.cycles(0.6)  # following_release is 0.5 s
    assert np.array_equal(verdict.positions, rig.arm)
    assert verdict.epoch == 2


def test_an_arm_that_is_elsewhere_needs_a_new_start():
    rig = Rig().start()
    rig.follows = False
    rig.arm = ur5e.HOME + np.array([0.5, 0, 0, 0, 0, 0])
    rig.goal = ur5e.HOME
    verdict = rig.cycle()
    assert verdict.status is Status.HOLD
    assert "arm_elsewhere" in keys(verdict)
    assert np.array_equal(verdict.positions, ur5e.HOME)
    rig.goal = rig.arm
    verdict = rig.cycles(0.7)
    assert np.array_equal(verdict.positions, rig.arm)
    assert verdict.status is Status.OK
    assert verdict.epoch == 2


def test_calls_within_one_cycle_send_nothing_more():
    rig = moving(Rig())
    sent = len(rig.sent)
    extra = [rig.filter.step(rig.now) for _ in range(5)]
    assert sum(verdict.positions is not None for verdict in extra) <= 1
    assert extra[-1].positions is None
    assert extra[-1].velocities is None
    assert extra[-1].status is Status.OK
    assert sent == len(rig.sent)


def test_after_a_gap_the_arm_starts_again_from_rest():
    rig = moving(Rig())
    before, speed = rig.sent[-1], rig.verdict.velocities
    assert np.abs(speed).max() > 0.1
    rig.now += 0.2
    verdict = rig.cycle()
    assert "cycle_gap" in keys(verdict)
    assert np.array_equal(verdict.positions, before)
    # A velocity controller went on meanwhile: no jump to 0.
    braking = rig.filter.config.acceleration_max * rig.filter.config.period
    np.testing.assert_allclose(
        verdict.velocities, np.sign(speed) * np.maximum(np.abs(speed) - braking, 0), atol=1e-6
    )
    rig.goal = before
    assert rig.cycles(0.3).status is Status.OK


def test_gaps_never_leave_the_arm_stuck_close_to_a_limit():
    rig = Rig(setpoint_jump_max=1.5).start()
    rig.goal = straight_down(0.20)  # into the table
    for _ in range(40):
        rig.cycles(0.05)
        rig.now += 0.06  # stands wherever it was, perhaps nearer than where it would have stopped
    rig.goal = ur5e.HOME
    verdict = rig.cycles(3.0)
    np.testing.assert_allclose(verdict.positions, ur5e.HOME, atol=1e-9)


def test_a_gap_does_not_shorten_the_delay_after_a_pause():
    rig = Rig().start()
    rig.filter.robot(protective_stop=True)
    rig.cycles(0.1)
    rig.filter.robot(protective_stop=False)
    rig.goal = ur5e.HOME
    began = rig.now
    rig.cycles(0.02)
    rig.now += 0.06
    while rig.cycle().status is Status.HOLD:
        pass
    assert rig.now - began >= 0.2 - 0.02


@pytest.mark.parametrize("now", [50.0, NAN, float("-inf")])
def test_a_clock_that_cannot_be_trusted_stops_the_arm(now):
    rig = moving(Rig())
    verdict = rig.filter.step(now)
    assert verdict.status is Status.HOLD
    assert "clock_back" in keys(verdict)
    if np.isfinite(now):
        rig.now = now
    rig.cycles(0.15)
    assert np.array_equal(rig.sent[-1], rig.sent[-2])
    rig.goal = rig.arm
    assert rig.cycles(0.5).status is Status.OK


# ---- reasons and settings


def test_every_reason_a_source_can_give_is_in_the_table():
    given = {
        "measured": ("invalid", "zeros", "stale", "future", "back"),
        "setpoint": ("invalid", "epoch", "jump", "wrapped", "stale", "future", "back"),
        "gripper": ("invalid", "stale", "future", "back"),
    }
    for name, endings in given.items():
        source = Source(name, 0.01)
        for ending in endings:
            source.refuse(ending, "")
            assert source.fault is not None
            assert source.fault.key in KINDS
    table = markdown().splitlines()
    assert len(table) == 2 + len(KINDS)
    assert all(line.count("|") == 5 for line in table)
    for kind in KINDS.values():
        assert kind.meaning.endswith(".")
        assert kind.remedy.endswith(".")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("velocity_max", 4.0),
        ("velocity_max", NAN),
        ("acceleration_max", 0.0),
        ("rate_hz", True),
        ("singularity_min", 0.0),
        ("workspace_min", [0.0, 0.0]),
        ("workspace_min", [0.95, 0.0, 0.0]),
        ("workspace_max", [1.0, 1.0, NAN]),
        ("floor_height", 0.5),
        ("following_lost", 0.05),
        ("cycle_gap_max", 0.001),
        ("require_program", 1),
    ],
)
def test_settings_out_of_range_are_refused_naming_the_value(setting, value):
    with pytest.raises(ValueError, match=setting):
        SafetyConfig(**{setting: value})


def test_the_defaults_are_well_below_what_the_arm_can_do():
    config = SafetyConfig()
    assert config.velocity_limit <= ur5e.VELOCITY_MAX.min() / 3
    assert config.acceleration_max <= ur5e.ACCELERATION_MAX.min() / 4
