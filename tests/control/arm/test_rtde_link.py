"""Real ur_rtde against the emulated controller in a process of its own, and what is left when either dies."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("rtde_receive", reason="ur_rtde is not installed")

from grasp_control import perform
from grasp_control.arm.rtde import RtdeArm, RtdeConfig
from grasp_control.arm.safety import SafetyFilter
from grasp_control.perform import PerformConfig
from grasp_sim import ur5e
from grasp_sim.cli import run_command
from grasp_sim.contract import ActionScale
from grasp_sim.errors import UserError
from grasp_sim.ur_emulator.server import FAULTS_PORT

RATE = 125
WITHIN = 60.0  # s for what a loaded machine does at some time


class Emulator:
    """The emulated controller at an address of its own."""

    def __init__(self, host: str) -> None:
        self.host, self.poses = host, (host, 30100)
        settings = [f"host={host}", f"rate={RATE}", f"pose_to={host}:30099"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grasp_sim.ur_emulator", *settings], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert "stands at" in self.process.stdout.readline()

    def say(self, line: str) -> str:
        with socket.create_connection((self.host, FAULTS_PORT), timeout=20) as connection:
            connection.sendall(line.encode() + b"\n")
            return connection.makefile().readline().strip()

    def state(self) -> dict:
        return json.loads(self.say("state"))

    def until(self, holds, what: str) -> dict:
        end = time.monotonic() + WITHIN
        while not holds(state := self.state()):
            assert time.monotonic() < end, f"not {what}: {state}"
            time.sleep(0.02)
        return state


ADDRESSES = iter(f"127.0.78.{i}" for i in range(1, 255))


@pytest.fixture
def emulator():
    made = Emulator(next(ADDRESSES))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def arm(emulator):
    made = RtdeArm(RtdeConfig(host=emulator.host, rate=RATE, watchdog=5.0, lost_after=0.3))
    yield made
    made.end()


def follow(arm: RtdeArm, positions) -> None:
    """Send one setpoint for each package."""
    for wanted in positions:
        while arm.next(time.monotonic() + 1.0) is None:
            pass
        assert arm.servo(wanted)


# ---- the arm


def test_an_arm_is_measured_held_and_given_back(emulator, arm):
    measured = arm.connect()
    assert np.array_equal(measured.positions, ur5e.HOME)
    assert measured.fault() == ""
    assert emulator.state()["runtime"] == "STOPPED"  # looking starts nothing
    arm.take_control()
    follow(arm, [ur5e.HOME] * 60)
    assert arm.end() == ""
    state = emulator.state()
    assert (state["runtime"], state["joints"]) == ("STOPPED", ur5e.HOME.tolist())
    assert "the client ended it" in state["log"][-1]


def test_a_motion_arrives_as_it_was_sent(emulator, arm):
    arm.connect()
    arm.take_control()
    phases = np.linspace(0.0, 2.5 * np.pi, 126)
    follow(arm, [ur5e.HOME + 0.05 * np.sin(phase) for phase in phases])
    follow(arm, [ur5e.HOME + 0.05] * 5)
    state = emulator.until(lambda s: np.allclose(s["joints"], ur5e.HOME + 0.05), "where it was sent")
    assert state["asked"]["commands"] == 131
    assert state["asked"]["velocity"] == pytest.approx(0.05 * (phases[1] * RATE), rel=0.01)
    assert state["asked"]["first_step"] == 0.0


def test_an_arm_that_waits_for_its_first_setpoint_keeps_its_program(emulator, arm):
    arm.connect()
    arm.take_control()
    until = time.monotonic() + 0.6  # three times what the watchdog allows
    while time.monotonic() < until:
        arm.next(until)
        assert arm.wait()
    state = emulator.state()
    assert (state["runtime"], state["asked"]["commands"]) == ("PLAYING", 0)


def test_a_frozen_stream_is_told_by_its_stamps_and_nothing_more_is_sent(emulator, arm):
    arm.connect()
    arm.take_control()
    follow(arm, [ur5e.HOME] * 5)
    emulator.say("freeze")
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        arm.next(until)
    assert arm.silent_for(time.monotonic()) > 0.3
    assert not arm.servo(ur5e.HOME + 0.01)
    state = emulator.until(lambda s: s["runtime"] == "STOPPED", "stopped by the watchdog")
    assert "watchdog" in state["log"][-1]
    assert state["joints"] == ur5e.HOME.tolist()


def test_a_program_that_cannot_be_ended_by_the_stream_is_ended_by_the_dashboard(emulator, arm):
    arm.connect()
    arm.take_control()
    follow(arm, [ur5e.HOME] * 5)
    emulator.say("protective stop")
    assert arm.end() == ""
    state = emulator.state()
    assert (state["runtime"], state["safety"]) == ("STOPPED", "PROTECTIVE_STOP")


def test_no_robot_and_one_that_cannot_move_are_one_clear_line(emulator):
    with pytest.raises(UserError, match=r"no robot answers at rtde\.host=127\.0\.79\.1"):
        RtdeArm(RtdeConfig(host="127.0.79.1", rate=RATE)).connect()
    emulator.say("protective stop")
    with pytest.raises(UserError, match="protective stop"):
        RtdeArm(RtdeConfig(host=emulator.host, rate=RATE)).connect()


def test_a_robot_that_somebody_else_moves_is_left_alone(emulator, arm):
    arm.connect()
    arm.take_control()
    second = RtdeArm(RtdeConfig(host=emulator.host, rate=RATE))
    second.connect()
    with pytest.raises(UserError, match="a program runs on the robot"):
        second.take_control()
    second.end()
    log = emulator.state()["log"]
    assert (log[0], any("another program" in line for line in log)) == ("program started", False)


# ---- the command


class Sideways:
    """A bundle's policy that moves the tool at 0.05 m/s, the fingers open."""

    class manifest:
        task = "pybullet-lift"
        action_scale = ActionScale()

    def reset(self, observation): ...
    def observe(self, executed, observation): ...
    def act(self, observation):
        return np.array([0, 0.2, 0, 0, 1, 0], np.float32)


class Perception(threading.Thread):
    """Says where an object is, 30 times a second."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.address, self.ended = address, threading.Event()

    def run(self) -> None:
        message = {"frame": "base_link", "position": [0.5, 0.0, -0.09], "quaternion": [0, 0, 0, 1]}
        text = json.dumps({**message, "size": [0.04, 0.04, 0.04], "age": 0.0}).encode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not self.ended.wait(1 / 30):
                sender.sendto(text, self.address)


def perform_in_child(settings: list[str], errors: str) -> None:
    perform.load_bundle = lambda *_, **__: Sideways()
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    code = run_command(PerformConfig, perform.run, "", argv=settings, program="grasp-perform")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Performing:
    """`grasp-perform` in a process forked from this one, which saves importing everything again."""

    def __init__(self, emulator: Emulator, errors: str, **changed) -> None:
        self.errors = errors
        settings = {
            "bundle": ".",
            "shadow": "false",
            "poses": ":".join(map(str, emulator.poses)),
            "rtde.host": emulator.host,
            "rtde.rate": RATE,
            "grasp.timeout": 3,
            # Machines that run tests are slower than one that runs a robot.
            "rtde.watchdog": 5,
            "safety.measured_max_age": 0.2,
            "safety.setpoint_max_age": 0.2,
            "safety.gripper_max_age": 1,
            "safety.cycle_gap_max": 0.5,
            "max_age.joints": 0.5,
            "max_age.gripper": 1,
            "max_age.object_pose": 2,
            **changed,
        }
        context = multiprocessing.get_context("fork")
        self.process = context.Process(
            target=perform_in_child, args=([f"{k}={v}" for k, v in settings.items()], errors)
        )
        self.process.start()

    def end(self) -> tuple[int, str]:
        self.process.join(WITHIN)
        with open(self.errors) as said:
            lines = said.read()
        assert self.process.exitcode is not None, lines
        return self.process.exitcode, lines


@pytest.fixture(scope="module")
def compiled() -> None:
    """The safety filter's functions in this process, so that none forked from it loads them again."""
    SafetyFilter()


@pytest.fixture
def performing(emulator, tmp_path, compiled):
    perception = Perception(emulator.poses)
    perception.start()
    started = []

    def start(**changed) -> Performing:
        started.append(Performing(emulator, str(tmp_path / "said"), **changed))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.join()
    perception.ended.set()
    perception.join()


def moving(state: dict) -> bool:
    return state["runtime"] == "PLAYING" and float(np.abs(state["velocities"]).max()) > 0.02


def at_rest(state: dict) -> bool:
    return not np.any(state["velocities"])


def test_a_grasp_moves_the_arm_within_the_limits_and_says_how_it_ended(emulator, performing):
    code, said = performing().end()
    assert code == 1
    assert "timed out: not lifted within 3 s, after 60 actions." in said
    state = emulator.state()
    assert (state["runtime"], state["safety"]) == ("STOPPED", "NORMAL")
    asked = state["asked"]
    assert asked["first_step"] < 1e-6
    assert asked["velocity"] <= 1.0 + 1e-6
    assert asked["acceleration"] <= 10.0 + 1e-3
    assert np.abs(np.subtract(state["joints"], ur5e.HOME)).max() > 0.1


def test_in_shadow_nothing_is_sent(emulator, performing):
    code, said = performing(shadow="true").end()
    assert code == 0
    assert "Nothing was sent" in said
    state = emulator.state()
    assert (state["asked"]["commands"], state["joints"]) == (0, ur5e.HOME.tolist())
    assert state["log"] == []


def test_a_killed_process_leaves_an_arm_at_rest_and_no_program(emulator, performing):
    started = performing()
    emulator.until(moving, "moving")
    os.kill(started.process.pid, signal.SIGKILL)
    state = emulator.until(lambda s: s["runtime"] == "STOPPED" and at_rest(s), "stopped")
    assert "watchdog" in state["log"][-1]


def test_a_robot_that_is_gone_ends_the_process_with_one_line(emulator, performing):
    started = performing()
    emulator.until(moving, "moving")
    emulator.process.kill()
    code, said = started.end()
    assert code == 2, said
    complaints = [line for line in said.splitlines() if line.startswith("grasp-perform")]
    assert len(complaints) == 1, said
    assert "the robot sent nothing for 0.5 s" in complaints[0]


def test_a_frozen_robot_is_left_to_its_watchdog(emulator, performing):
    started = performing()
    emulator.until(moving, "moving")
    emulator.say("freeze")
    code, said = started.end()
    assert (code, "the robot sent nothing for 0.5 s" in said) == (2, True)
    state = emulator.until(at_rest, "at rest")
    assert state["runtime"] == "STOPPED"


def test_after_a_protective_stop_a_grasp_ends_and_the_next_begins_where_the_arm_is(emulator, performing):
    started = performing()
    emulator.until(moving, "moving")
    emulator.say("protective stop")
    code, said = started.end()
    assert code == 1
    assert "stopped: the robot is in a protective stop" in said
    stopped = emulator.state()
    assert (stopped["runtime"], stopped["safety"]) == ("STOPPED", "PROTECTIVE_STOP")
    emulator.say("unlock")
    emulator.say("play")
    assert emulator.state()["joints"] == stopped["joints"]  # no old motion is left to go on with
    started = performing()
    state = emulator.until(moving, "moving again")
    assert state["asked"]["first_step"] < 1e-6


def test_ctrl_c_ends_the_motion_in_order(emulator, performing):
    started = performing()
    emulator.until(moving, "moving")
    os.kill(started.process.pid, signal.SIGINT)
    code, said = started.end()
    assert (code, "stopped by the keyboard" in said) == (130, True)
    state = emulator.state()
    assert (state["runtime"], at_rest(state)) == ("STOPPED", True)
    assert "the client ended it" in state["log"][-1]
