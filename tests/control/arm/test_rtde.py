"""What of the RTDE back end needs no robot: ages, faults, poses, counts, and the loop of one grasp."""

import json

import numpy as np
import pytest

from grasp_control.arm.assembler import MaximumAges, StateAssembler
from grasp_control.arm.grasp_loop import HOLD_TIMEOUT, GraspLoop
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.object_poses import ObjectPose, parse
from grasp_control.arm.robotiq import GripReading, RobotiqConfig, force_count
from grasp_control.arm.rtde import PLAYING, PROTECTIVE_STOP, RUNNING, Measured, RtdeConfig, StampClock
from grasp_control.arm.runner import GraspConfig, GraspRunner, Outcome
from grasp_control.arm.safety import SafetyFilter, Status
from grasp_control.arm.setpoints import SetpointStream
from grasp_sim import ur5e
from grasp_sim.contract import ActionScale

CYCLE = 0.002
HOME_POSITION, HOME_QUATERNION = ur5e.Kinematics().forward(ur5e.HOME)


# ---- ages


def test_the_quickest_package_counts_as_fresh_and_queued_ones_as_old():
    clock = StampClock()
    assert clock.age(10.0, 500.003) == 0.0
    assert clock.age(10.1, 500.101) == pytest.approx(0.0)  # quicker by 2 ms
    assert clock.age(10.2, 500.221) == pytest.approx(0.020, abs=1e-4)


def test_a_robot_s_slower_clock_is_not_taken_for_delay():
    clock = StampClock()
    ages = [clock.age(second * (1.0 - 5e-5), float(second)) for second in range(1000)]
    assert max(ages) < 1e-6


# ---- what the robot says of itself


def measured(now: float, positions: np.ndarray = ur5e.HOME, **changed: object) -> Measured:
    values = {
        "stamp": now,
        "received": now,
        "age": 0.0,
        "positions": positions,
        "velocities": np.zeros(6),
        "robot_mode": RUNNING,
        "safety_mode": 1,
        "runtime_state": PLAYING,
        "speed_scaling": 1.0,
    }
    return Measured(**{**values, **changed})  # type: ignore[arg-type]


def test_an_arm_that_cannot_move_says_why():
    assert measured(0.0).fault() == ""
    assert measured(0.0, safety_mode=2).fault() == ""
    assert "protective stop" in measured(0.0, safety_mode=PROTECTIVE_STOP).fault()
    assert "emergency stop" in measured(0.0, safety_mode=7).fault()
    assert "brakes" in measured(0.0, robot_mode=5).fault()
    assert "safety mode 42" in measured(0.0, safety_mode=42).fault()


@pytest.mark.parametrize(
    "wrong",
    [{"host": ""}, {"rate": 250}, {"lookahead": 0.3}, {"gain": float("nan")}, {"watchdog": 0.0}],
)
def test_settings_of_the_arm_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"rtde\.{next(iter(wrong))}"):
        RtdeConfig(**wrong)


# ---- poses

POSE = {
    "frame": "base_link",
    "position": [0.5, 0.1, -0.09],
    "quaternion": [0.0, 0.0, 0.6, 0.8],
    "size": [0.04, 0.04, 0.05],
    "symmetry": 2,
    "age": 0.03,
}


def test_a_pose_is_read_with_its_age():
    pose = parse(json.dumps(POSE).encode(), 100.0)
    assert pose.position.tolist() == [0.5, 0.1, -0.09]
    assert pose.quaternion.tolist() == [0.0, 0.0, 0.6, 0.8]
    assert (pose.size.tolist(), pose.symmetry) == ([0.04, 0.04, 0.05], 2)
    assert pose.measured == pytest.approx(99.97)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"frame": "camera"}, "frame is 'camera'"),
        ({"frame": None}, "frame is None"),
        ({"position": [0.5, 0.1]}, "position"),
        ({"position": [0.5, 0.1, float("nan")]}, "position"),
        ({"position": [0.5, 0.1, 10**400]}, "position"),
        ({"position": ["0", 0, 0]}, "position"),
        ({"position": [True, 0, 0]}, "position"),
        ({"quaternion": [0, 0, 0, 0]}, "not of length 1"),
        ({"size": [0.04, 0.0, 0.05]}, "not positive"),
        ({"symmetry": 1.5}, "symmetry"),
        ({"age": -0.1}, "age is -0.1"),
        ({"age": None}, "age"),
    ],
)
def test_a_pose_that_cannot_be_used_says_why(changed, said):
    with pytest.raises(ValueError, match=said):
        parse(json.dumps({**POSE, **changed}).encode(), 100.0)


@pytest.mark.parametrize("message", [b"", b"\xff\xfe", b"[]", b"3", b"[" * 3000])
def test_what_is_no_pose_is_refused(message):
    with pytest.raises(ValueError, match="JSON"):
        parse(message, 0.0)


# ---- the gripper's counts


def test_the_gripper_s_counts_are_linear_between_open_and_closed():
    config = RobotiqConfig()
    assert (config.opening(3), config.opening(230)) == (0.085, 0.0)
    assert config.count(0.0425) == round(3 + 113.5)
    assert (config.count(-1.0), config.count(1.0)) == (230, 3)
    assert (force_count(20.0), force_count(235.0), force_count(1000.0)) == (0, 255, 255)
    assert force_count(40.0) == round(255 * 20 / 215)


# ---- the loop


class Policy:
    """Down with the fingers open, always."""

    class manifest:
        task = "pybullet-lift"

    def reset(self, observation): ...
    def observe(self, executed, observation): ...
    def act(self, observation):
        return np.array([0, 0, -0.5, 0, 1, 0], np.float32)


class Rig:
    """An arm that follows at once, cycle by cycle, on a clock of its own."""

    def __init__(self, *, shadow: bool = False) -> None:
        self.runner = GraspRunner(Policy(), GraspConfig(timeout=1.0))  # type: ignore[arg-type]
        self.loop = GraspLoop(
            self.runner,
            SetpointStream(ActionScale()),
            SafetyFilter(SafetyConfig(gripper_max_age=0.2, ramp_time=0.1)),
            StateAssembler(MaximumAges()),
            shadow=shadow,
        )
        self.now, self.joints, self.velocities = 100.0, ur5e.HOME.copy(), np.zeros(6)
        self.changed: dict[str, object] = {}
        self.silent, self.blind, self.follows = False, False, True
        self.sent: list[np.ndarray] = []
        self.grips = []

    def cycle(self):
        self.now += CYCLE
        if not self.silent:
            values = {"velocities": self.velocities, **self.changed}
            self.loop.arm(measured(self.now, self.joints, **values))
        self.loop.gripper(GripReading(0.085, 0.0, self.now), self.now)
        if not self.blind:
            pose = ObjectPose(
                np.array([0.5, 0.0, -0.09]), np.array([0.0, 0, 0, 1]), np.full(3, 0.04), 4, self.now
            )
            self.loop.object_seen(pose, self.now)
        cycle = self.loop.step(self.now)
        if cycle.positions is not None and self.follows:
            self.velocities = (cycle.positions - self.joints) / CYCLE
            self.joints = cycle.positions
        if cycle.positions is not None:
            self.sent.append(cycle.positions)
        if cycle.grip is not None:
            self.grips.append(cycle.grip)
        return cycle

    def cycles(self, seconds: float):
        for _ in range(round(seconds / CYCLE)):
            cycle = self.cycle()
        return cycle

    def begin(self):
        while self.loop.problems(self.now) or self.loop.held_by():
            self.cycle()
            assert self.now < 110.0, self.loop.held_by()
        self.loop.begin(self.now)


def test_before_a_grasp_the_arm_is_held_where_it_is():
    rig = Rig()
    rig.begin()
    assert np.abs(np.array(rig.sent) - ur5e.HOME).max() == 0.0
    assert not rig.grips


def test_the_tool_goes_where_the_policy_sends_it_and_the_arm_is_held_when_the_time_is_up():
    rig = Rig()
    rig.begin()
    rig.cycles(1.2)
    progress = rig.runner.progress
    assert (progress.outcome, progress.step) == (Outcome.TIMED_OUT, 20)
    height = ur5e.Kinematics().forward(rig.joints)[0][2]
    # 20 actions of half of 0.0125 m, less what the servo and the filter smooth away.
    assert HOME_POSITION[2] - height == pytest.approx(0.125, abs=0.02)
    assert rig.grips[0] == (0.085, 127.5)
    before = rig.joints
    rig.cycles(0.2)
    assert np.abs(rig.joints - before).max() < 1e-6


def test_a_silent_robot_is_braked_and_the_grasp_stops_saying_so():
    rig = Rig()
    rig.begin()
    rig.cycles(0.4)
    rig.silent = True
    assert rig.cycles(0.06).verdict.status is Status.HOLD
    rig.cycles(0.1)
    at = rig.sent[-1]
    rig.cycles(0.1)
    assert np.array_equal(rig.sent[-1], at)
    rig.cycles(HOLD_TIMEOUT)
    assert rig.runner.progress.outcome is Outcome.STOPPED
    assert "held for 1 s" in rig.runner.progress.message
    assert "old" in rig.runner.progress.message


def test_an_object_that_is_no_longer_seen_stops_the_grasp():
    rig = Rig()
    rig.begin()
    rig.cycles(0.3)
    rig.blind = True
    rig.cycles(0.6)
    assert rig.runner.progress.outcome is Outcome.STOPPED
    assert "object pose" in rig.runner.progress.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"safety_mode": PROTECTIVE_STOP}, "protective stop"),
        ({"runtime_state": 1}, "program on the robot's controller was stopped"),
        ({"robot_mode": 5}, "brakes"),
    ],
)
def test_a_robot_that_stops_ends_the_grasp_and_is_held_where_it_is(changed, said):
    rig = Rig()
    rig.begin()
    rig.cycles(0.3)
    rig.changed = changed
    cycle = rig.cycle()
    assert rig.runner.progress.outcome is Outcome.STOPPED
    assert said in rig.runner.progress.message
    if "robot_mode" not in changed:  # the filter is not told of it
        assert cycle.verdict.status is Status.HOLD
    rig.cycles(0.2)
    before = rig.joints
    rig.cycles(0.2)
    assert np.array_equal(rig.joints, before)


def test_after_a_pause_a_grasp_starts_from_where_the_arm_was_moved_to():
    rig = Rig()
    rig.begin()
    rig.cycles(0.3)
    rig.changed, rig.follows = {"safety_mode": PROTECTIVE_STOP}, False
    rig.joints, rig.velocities = ur5e.HOME + 0.05, np.zeros(6)  # by hand
    rig.cycles(0.5)
    rig.changed, rig.follows = {}, True
    rig.sent.clear()
    rig.begin()
    assert np.abs(np.array(rig.sent) - (ur5e.HOME + 0.05)).max() < 1e-9


def test_in_shadow_the_same_is_computed_wherever_the_arm_stays():
    rig = Rig(shadow=True)
    rig.changed = {"runtime_state": 1}
    while rig.loop.problems(rig.now) or rig.loop.held_by():
        rig.cycle()
        rig.joints, rig.velocities = ur5e.HOME.copy(), np.zeros(6)
    rig.loop.begin(rig.now)
    for _ in range(round(1.2 / CYCLE)):
        rig.cycle()
        rig.joints, rig.velocities = ur5e.HOME.copy(), np.zeros(6)
    assert rig.runner.progress.outcome is Outcome.TIMED_OUT
    assert rig.loop.last is not None
    assert rig.loop.last.action.tolist() == [0, 0, -0.5, 0, 1, 0]
    assert rig.loop.counts.held == 0
