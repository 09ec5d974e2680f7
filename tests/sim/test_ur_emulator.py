"""The emulated UR controller: what it does each cycle, its bytes and its sockets. Numbers by hand."""

import json
import socket
import struct
import threading

import numpy as np
import pytest

from grasp_sim import gripper, ur5e
from grasp_sim.errors import UserError
from grasp_sim.ur_emulator import packets, server, texts
from grasp_sim.ur_emulator.controller import Command, Controller, Runtime, Safety
from grasp_sim.ur_emulator.packets import PacketError, Recipe, packet
from grasp_sim.ur_emulator.robotiq import AT_GOAL, STOPPED_CLOSING, UrcapGripper
from grasp_sim.ur_emulator.robots import FollowingJoints
from grasp_sim.ur_emulator.rtde_server import RtdeSession

SCRIPT = "def rtde_control():\n  cmd = rtde_cmd()\nend\n"
HOST = "127.0.77.1"


def written(command: Command, *numbers: float) -> dict[str, object]:
    registers = {f"input_double_register_{i}": value for i, value in enumerate(numbers)}
    return {"input_int_register_0": int(command), **registers}


def playing() -> Controller:
    controller = Controller(FollowingJoints())
    controller.upload(SCRIPT)
    return controller


def steps(controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.step()


def servo(controller: Controller, target: np.ndarray) -> None:
    controller.write(written(Command.SERVO_J, *target, 0.0, 0.0, 0.002, 0.1, 300.0))
    controller.step()


# ---- the controller


def test_a_servo_target_is_kept_for_ever_when_nobody_sends_more():
    controller = playing()
    servo(controller, ur5e.HOME + 0.002)
    steps(controller, 5000)
    assert controller.runtime == Runtime.PLAYING
    assert controller.robot.joints()[0] == pytest.approx(ur5e.HOME + 0.002)


def test_a_speed_goes_on_for_ever_without_a_watchdog():
    controller = playing()
    controller.write(written(Command.SPEED_J, 0.1, 0, 0, 0, 0, 0, 0.5, 0.0))
    steps(controller, 100)  # 0.5 rad/s^2 for 0.2 s
    assert controller.robot.joints()[1][0] == pytest.approx(0.1)
    steps(controller, 500)
    # 0.01 rad while it sped up: sum of 0.001 k * 0.002 over k = 1..100, then 0.1 rad in the second after.
    assert controller.robot.joints()[0][0] - ur5e.HOME[0] == pytest.approx(0.0101 + 0.1)


def test_the_watchdog_ends_the_program_of_a_client_that_died_moving():
    controller = playing()
    controller.write(written(Command.SET_WATCHDOG, 10.0))
    controller.step()
    assert controller.outputs["output_int_register_0"] == 2
    controller.write(written(Command.SPEED_J, 0.1, 0, 0, 0, 0, 0, 10.0, 0.0))
    steps(controller, 49)
    assert controller.runtime == Runtime.PLAYING
    steps(controller, 3)  # more than 0.1 s
    assert controller.runtime == Runtime.STOPPED
    assert "watchdog" in controller.log[-1]
    steps(controller, 10)  # 10 rad/s^2 takes 0.1 rad/s away in 5 cycles
    assert controller.robot.joints()[1] == pytest.approx(np.zeros(6))


def test_a_stop_brakes_by_the_deceleration_it_names():
    controller = playing()
    controller.write(written(Command.SPEED_J, 0.2, 0, 0, 0, 0, 0, 100.0, 0.0))
    steps(controller, 10)
    at = controller.robot.joints()[0][0]
    controller.write(written(Command.SERVO_STOP, 10.0))
    steps(controller, 30)
    # 0.02 rad/s less each cycle: 0.18, 0.16, ... 0.02 rad/s, a cycle of 2 ms each.
    assert controller.robot.joints()[0][0] - at == pytest.approx(0.002 * 0.02 * sum(range(1, 10)))
    assert controller.outputs["output_int_register_0"] == 2


def test_a_protective_stop_pauses_and_play_goes_on_with_the_old_motion():
    controller = playing()
    servo(controller, ur5e.HOME)
    controller.write(written(Command.SPEED_J, 0.1, 0, 0, 0, 0, 0, 10.0, 0.0))
    steps(controller, 20)
    controller.protective_stop()
    at = controller.robot.joints()[0]
    steps(controller, 100)
    assert controller.robot.joints()[0] == pytest.approx(at)
    assert (controller.runtime, controller.safety) == (Runtime.PAUSED, Safety.PROTECTIVE_STOP)
    assert not controller.play()
    controller.unlock()
    steps(controller, 100)
    assert controller.robot.joints()[0] == pytest.approx(at)
    assert controller.play()
    steps(controller, 100)
    assert controller.robot.joints()[0][0] > at[0] + 0.01


def test_a_target_far_away_is_a_protective_stop_before_anything_moves():
    controller = playing()
    servo(controller, ur5e.HOME + 0.04)  # 2 ms at pi rad/s are 0.0063 rad
    assert controller.safety == Safety.PROTECTIVE_STOP
    assert "0.040 rad away" in controller.log[-2]
    assert controller.robot.joints()[0] == pytest.approx(ur5e.HOME)


def test_a_target_at_the_arm_is_no_jump_wherever_the_last_one_was():
    controller = playing()
    for k in range(1, 11):
        servo(controller, ur5e.HOME + 0.006 * k)
    controller.robot.reset()  # held back at the start by something
    servo(controller, ur5e.HOME)
    assert controller.safety == Safety.NORMAL
    assert controller.asked.step == pytest.approx(0.006)
    servo(controller, ur5e.HOME + 0.02)
    assert controller.safety == Safety.PROTECTIVE_STOP


def test_what_was_asked_of_the_joints_is_kept():
    controller = playing()
    servo(controller, ur5e.HOME + 0.0005)
    servo(controller, ur5e.HOME + 0.0015)
    servo(controller, ur5e.HOME + 0.0015)
    asked = controller.asked
    assert (asked.commands, asked.first_step) == (3, pytest.approx(0.0005))
    assert (asked.step, asked.velocity) == (pytest.approx(0.001), pytest.approx(0.5))
    assert asked.acceleration == pytest.approx(0.001 / 0.002**2)


def test_a_command_that_is_not_emulated_ends_the_program_and_says_so():
    controller = playing()
    controller.write({"input_int_register_0": 52})
    controller.step()
    assert controller.runtime == Runtime.STOPPED
    assert "no command 52" in controller.log[-1]


def test_only_the_control_script_is_taken_and_none_in_a_protective_stop():
    controller = Controller(FollowingJoints())
    controller.upload("def other():\nend\n")
    assert controller.runtime == Runtime.STOPPED
    controller.protective_stop()
    controller.upload(SCRIPT)
    assert controller.runtime == Runtime.STOPPED


# ---- RTDE


def test_a_recipe_writes_and_reads_the_protocol_s_bytes():
    recipe = Recipe(3, ["timestamp", "actual_q", "runtime_state"], ["DOUBLE", "VECTOR6D", "UINT32"])
    values = {"timestamp": 1.5, "actual_q": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), "runtime_state": 2}
    packed = recipe.pack(values)
    assert packed == struct.pack(">HBB7dI", 3 + 1 + 56 + 4, 85, 3, 1.5, 1, 2, 3, 4, 5, 6, 2)
    assert recipe.unpack(packed[4:]) == values
    with pytest.raises(PacketError, match="must have 60"):
        recipe.unpack(packed[5:])


def test_a_packet_comes_whole_or_not_at_all():
    buffer = bytearray(packet(86, b"\0\2"))
    last = buffer.pop()
    assert packets.take_packet(buffer) is None
    buffer.append(last)
    assert packets.take_packet(buffer) == (86, b"\0\2")
    assert not buffer
    with pytest.raises(PacketError):
        packets.take_packet(bytearray(b"\0\1V"))


def test_a_session_agrees_on_recipes_and_refuses_what_another_client_writes():
    controller, claims = Controller(FollowingJoints()), {}
    first, second = RtdeSession(controller, claims), RtdeSession(controller, claims)
    assert first.feed(packet(86, b"\0\2")) == packet(86, b"\1")
    assert first.feed(packet(86, b"\0\1")) == packet(86, b"\0")
    asks = packet(79, struct.pack(">d", 125.0) + b"timestamp,no_such,")
    assert first.feed(asks) == packet(79, b"\1DOUBLE,NOT_FOUND")
    writes = packet(73, b"input_int_register_0,input_double_register_0,")
    assert first.feed(writes) == packet(73, b"\1INT32,DOUBLE")
    assert second.feed(writes) == packet(73, b"\0IN_USE,IN_USE")
    first.feed(packet(85, struct.pack(">Bid", 1, 7, 0.25)))
    assert controller.inputs == {"input_int_register_0": 7, "input_double_register_0": 0.25}
    first.close()
    assert second.feed(writes) == packet(73, b"\1INT32,DOUBLE")


def test_data_is_sent_at_the_rate_that_was_asked_for():
    session = RtdeSession(Controller(FollowingJoints()), {})
    session.feed(packet(79, struct.pack(">d", 125.0) + b"timestamp"))
    assert not session.data(0, {"timestamp": 0.0})
    session.feed(packet(83, b""))
    sent = [bool(session.data(cycle, {"timestamp": 0.0})) for cycle in range(8)]
    assert sent == [True, False, False, False] * 2
    with pytest.raises(PacketError, match="1000 Hz"):
        session.feed(packet(79, struct.pack(">d", 1000.0) + b"timestamp"))


@pytest.mark.parametrize("hostile", [b"\0\0\0", packet(85, b"\x09"), packet(1, b""), packet(79, b"\0")])
def test_what_is_no_rtde_is_refused(hostile):
    with pytest.raises(PacketError):
        RtdeSession(Controller(FollowingJoints()), {}).feed(hostile)


# ---- the gripper


class Blocked(FollowingJoints):
    """Something 40 mm wide between the pads."""

    def opening(self) -> float:
        return max(super().opening(), 0.04)


def closed_by(robot: FollowingJoints) -> UrcapGripper:
    urcap = UrcapGripper(robot)
    assert urcap.answer("SET POS 230 SPE 255 FOR 128 GTO 1") == "ack"
    for _ in range(1000):
        robot.follow(ur5e.HOME, 0.002)
        urcap.step(0.002)
    return urcap


def test_the_gripper_closes_and_says_what_it_met():
    free = closed_by(FollowingJoints())
    assert (free.answer("GET POS"), free.answer("GET OBJ")) == ("POS 230", f"OBJ {AT_GOAL}")
    holding = closed_by(Blocked())
    # 3 + 227 * (1 - 40 / 85)
    assert (holding.answer("GET POS"), holding.answer("GET OBJ")) == ("POS 123", f"OBJ {STOPPED_CLOSING}")
    assert holding.answer("GET STA") == "STA 3"


def test_half_closed_is_half_the_stroke():
    robot = FollowingJoints()
    urcap = UrcapGripper(robot)
    assert urcap.answer("GET POS") == "POS 3"
    urcap.answer("SET POS 116")
    for _ in range(1000):
        robot.follow(ur5e.HOME, 0.002)
    assert robot.opening() == pytest.approx(gripper.STROKE * (1 - 113 / 227))


@pytest.mark.parametrize(
    "line", ["", "GET", "GET XYZ", "SET POS", "SET POS 256", "SET POS -1", "SET POS 1 F"]
)
def test_what_the_urcap_does_not_know_changes_nothing(line):
    urcap = UrcapGripper(FollowingJoints())
    assert urcap.answer(line) == "?"
    assert urcap.answer("GET PRE") == "PRE 0"


def test_a_gripper_that_was_not_activated_does_not_move():
    robot = FollowingJoints()
    urcap = UrcapGripper(robot, activated=False)
    assert urcap.answer("GET STA") == "STA 0"
    urcap.answer("SET POS 255")
    robot.follow(ur5e.HOME, 1.0)
    assert robot.opening() == gripper.STROKE


# ---- the dashboard and faults


def test_the_dashboard_answers_as_ur_rtde_expects():
    controller = playing()
    assert texts.dashboard(controller, "PolyscopeVersion\n") == "URSoftware 5.16.0.0"
    assert texts.dashboard(controller, "is in remote control") == "true"
    assert texts.dashboard(controller, "running") == "Program running: true"
    assert texts.dashboard(controller, "stop") == "Stopped"
    assert controller.runtime == Runtime.STOPPED
    assert texts.dashboard(controller, "play") == "Failed to execute: play"
    assert texts.dashboard(controller, "what") == "could not understand: 'what'"


def test_faults_are_done_by_name_and_others_are_listed():
    controller = playing()
    faults = texts.Faults(controller)
    assert faults.answer("protective stop") == "ok"
    assert json.loads(faults.answer("state"))["safety"] == "PROTECTIVE_STOP"
    assert faults.answer("freeze") == "ok"
    assert faults.frozen
    assert "there are: state, protective stop" in faults.answer("explode")


# ---- the network


@pytest.fixture
def served():
    """A server in a thread; ur_rtde itself needs it in a process of its own."""
    made = server.Server(Controller(FollowingJoints()), HOST)
    ended = threading.Event()
    thread = threading.Thread(target=made.serve, args=(ended.is_set,))
    thread.start()
    yield made
    ended.set()
    thread.join()
    made.close()


def asked(port: int, line: bytes, *, greeting: bool = False) -> bytes:
    with socket.create_connection((HOST, port), timeout=20) as connection:
        lines = connection.makefile("rb")
        if greeting:
            assert b"Dashboard" in lines.readline()
        connection.sendall(line)
        return lines.readline()


def test_every_port_answers_and_hostile_clients_disturb_nobody(served):
    for junk in (b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000):
        with socket.create_connection((HOST, server.RTDE_PORT), timeout=20) as connection:
            connection.sendall(junk)
    with socket.create_connection((HOST, server.SCRIPT_PORTS[2])) as connection:
        connection.sendall(SCRIPT.encode())
    assert asked(server.DASHBOARD_PORT, b"robotmode\n", greeting=True) == b"Robotmode: RUNNING\n"
    assert asked(63352, b"GET STA\n") == b"STA 3\n"
    while json.loads(asked(server.FAULTS_PORT, b"state\n"))["runtime"] != "PLAYING":
        pass
    assert served.late >= 0.0


def test_a_port_that_is_taken_is_one_clear_line(served):
    with pytest.raises(UserError, match=r"127\.0\.77\.1 cannot be had"):
        server.Server(Controller(FollowingJoints()), HOST)
