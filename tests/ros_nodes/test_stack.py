"""All nodes as processes over DDS, with the policy that comes with the repository, on the simulated robot.

Ages are generous and the driver slow, since the machine that runs this may be busy; how fast the stack is,
`grasp-bench ros` measures.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from grasp_control.arm.limits import SafetyConfig
from grasp_demos.reader import read_dataset
from grasp_demos.validate import require_valid
from grasp_ros.demo import BUNDLE, DemoConfig, stack_of
from grasp_ros.grasps import grasps, new_episode, wait_until_ready
from grasp_ros.watcher import Watcher, values_of
from grasp_sim.contract import unpack_state

pytestmark = pytest.mark.slow

RATE = 125
GENEROUS = {
    "limits.measured_max_age": 0.5,
    "limits.setpoint_max_age": 0.5,
    "limits.gripper_max_age": 0.5,
    "limits.cycle_gap_max": 0.5,
    "limits.following_max": 0.3,  # what a motion of 1 rad/s makes of 0.3 s between command and arm
    "limits.following_lost": 0.9,
}


def stack_for(env: str, folder: Path, domain: int):
    stack = stack_of(DemoConfig(env=env, rate=RATE, domain_id=domain, seed=20), folder)
    parameters = {name: dict(values) for name, values in stack.parameters.items()}
    parameters["sim_robot"]["record"] = str(folder / "record.npz")
    parameters["safety"] |= GENEROUS
    parameters["servo"] = {"action_age": 0.5, "joints_age": 0.5, "status_age": 1.0, "alive_age": 0.5}
    ages = {"max_age.joints": 0.5, "max_age.gripper": 0.5, "max_age.object_pose": 1.0, "status_age": 1.0}
    parameters["policy_server"] |= ages
    stack.parameters = parameters
    return stack


@pytest.fixture(scope="module", params=["pybullet-lift", "robosuite-lift"])
def running(request, tmp_path_factory):
    """The stack, and a watcher of it."""
    folder = tmp_path_factory.mktemp("stack")
    domain = 60 + os.getpid() % 20 + 20 * (request.param == "robosuite-lift")
    with stack_for(request.param, folder, domain) as stack, Watcher(domain) as watcher:
        yield stack, watcher


def watch(watcher: Watcher, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        watcher.spin()


def begin(stack, watcher) -> None:
    """A new episode, and a grasp in full swing."""
    new_episode(stack, watcher)
    watcher.grasp = None
    answer = watcher.call("/policy_server/start")
    assert answer.success, answer.message
    stack.wait_for(lambda: watcher.spin() or steps(watcher) >= 8, "the grasp does not go on", 20.0)


def steps(watcher) -> int:
    return int(values_of(watcher.grasp).get("step", 0))


def ended(watcher) -> bool:
    watcher.spin()
    return values_of(watcher.grasp).get("running") == "False"


def record_of(stack, watcher) -> dict[str, np.ndarray]:
    assert watcher.call("/sim_robot/save_record").success
    return dict(np.load(stack.parameters["sim_robot"]["record"]))


def said(watcher, *, by: str, about: str) -> bool:
    watcher.spin()
    return any(s.name.startswith(by) and about in s.message and s.level[0] > 0 for s in watcher.diagnostics)


def test_the_policy_grasps_and_no_command_exceeds_a_limit(running):
    """Nearly all succeed without the nodes; on a busy machine late messages stop some."""
    stack, watcher = running
    done = list(grasps(stack, watcher, 4))
    assert sum(grasp.success for grasp in done) >= 2, done
    recorded = record_of(stack, watcher)
    assert not len(recorded["faults"])
    assert len(recorded["commands"]) > 4 * RATE
    limits = SafetyConfig(rate_hz=RATE, velocity_max=3.0, acceleration_max=40.0)
    # A new episode puts the arm elsewhere while the program is stopped; the commands begin anew from there.
    starts = recorded["times"][recorded["episodes"][:, 0].clip(max=len(recorded["times"]) - 1)]
    for begin_at, end_at in zip(starts, [*starts[1:], np.inf], strict=True):
        taken = (recorded["command_times"] > begin_at + 1.0) & (recorded["command_times"] < end_at)
        commands = recorded["commands"][taken]
        velocity = np.diff(commands, axis=0) * RATE
        assert np.abs(velocity).max() <= limits.velocity_max * (1 + 1e-6)
        assert np.abs(np.diff(velocity, axis=0)).max() * RATE <= limits.acceleration_max * (1 + 1e-6)


@pytest.mark.parametrize(
    ("victim", "by", "about"),
    [
        ("policy_server", "servo", "policy server"),
        ("servo", "safety", "old"),
        ("safety", "servo", "safety filter is silent"),
        ("gripper_bridge", "policy_server", "gripper"),
    ],
)
def test_a_killed_node_stops_the_arm_and_another_says_why(running, victim, by, about):
    stack, watcher = running
    if "pybullet" not in stack.parameters["sim_robot"]["env"]:
        pytest.skip("nodes do not know which simulator is behind the driver: one is enough")
    begin(stack, watcher)
    watcher.diagnostics.clear()
    killed = time.monotonic()
    stack.kill(victim)
    stack.processes.pop(victim)
    try:
        stack.wait_for(lambda: said(watcher, by=by, about=about), f"{by} says nothing of {victim}", 10.0)
        watch(watcher, 1.0)
    finally:
        stack.start(victim)  # takes seconds; the other tests need it, whatever comes
    recorded = record_of(stack, watcher)
    times, targets = recorded["times"], recorded["targets"]
    assert (
        np.abs(np.diff(targets[(times > killed - 0.5) & (times < killed)], axis=0)).max() > 1e-4
    )  # it moved
    after = targets[times > killed + 0.9]
    assert len(after) > 10
    assert np.ptp(after, axis=0).max() < 1e-4  # rad: and stands still
    assert not len(recorded["faults"])
    if victim != "policy_server":
        watcher.call("/policy_server/stop")
    wait_until_ready(stack, watcher)  # with the restarted node, as before


def test_a_protective_stop_ends_the_grasp_and_the_next_one_begins_from_where_the_arm_is(running):
    stack, watcher = running
    begin(stack, watcher)
    assert watcher.call("/sim_robot/protective_stop").success
    stack.wait_for(lambda: ended(watcher), "the grasp goes on in a protective stop", 10.0)
    assert values_of(watcher.grasp)["outcome"] == "stopped"
    assert watcher.grasp.message.startswith("the safety filter says: ")
    stack.wait_for(lambda: said(watcher, by="safety", about="protective stop"), "it is not named", 10.0)
    epoch = values_of(watcher.safety)["epoch"]
    assert not watcher.call("/policy_server/start").success
    watch(watcher, 1.5)  # people have to wait for 5 s; until the arm rests, the driver has the old command
    assert watcher.call("/sim_robot/resume").success
    wait_until_ready(stack, watcher)
    assert values_of(watcher.safety)["epoch"] != epoch
    assert not len(record_of(stack, watcher)["faults"])


def test_a_grasp_can_be_stopped(running):
    stack, watcher = running
    begin(stack, watcher)
    assert watcher.call("/policy_server/stop").success
    stack.wait_for(lambda: ended(watcher), "the grasp goes on", 5.0)
    assert values_of(watcher.grasp)["outcome"] == "cancelled"
    assert not watcher.call("/policy_server/stop").success


def test_the_recorder_hears_a_grasp_of_the_stack(running, terminal, tmp_path, monkeypatch):
    """What the policy requested and the servo executed becomes a valid episode, judged by a person."""
    stack, watcher = running
    monkeypatch.setenv("ROS_DOMAIN_ID", str(stack.domain_id))
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    env = stack.parameters["sim_robot"]["env"]
    new_episode(stack, watcher)
    recorder = terminal(
        *("-m", "grasp_demos.record", "source=ros", f"out={tmp_path / 'demos'}", f"env.name={env}"),
        *("page.show=false", "episodes=1", "ages.joints=2", "ages.gripper=2", "ages.object_pose=2"),
        "ages.command=2",
    )
    recorder.saw("press enter to begin")

    def ready() -> bool:
        recorder.press("")
        time.sleep(0.3)
        picture = recorder.read()
        return "press enter to begin" in picture and "waiting" not in picture

    recorder.wait_for(ready, 60, lambda: recorder.text[-2000:])
    recorder.press("\r")
    recorder.saw("no command on /requested_action or /executed_action")
    watcher.grasp = None
    answer = watcher.call("/policy_server/start")
    assert answer.success, answer.message
    stack.wait_for(lambda: ended(watcher), "the grasp did not end", 30.0)
    recorder.saw("no more commands; say what became of the episode")
    recorder.press("1")
    assert recorder.wait() == 0
    (held,) = read_dataset(tmp_path / "demos")
    require_valid([held])
    assert 5 <= len(held) <= steps(watcher)  # the first actions may come before the episode has begun
    np.testing.assert_array_equal(held.executed_actions, np.clip(held.requested_actions, -1.0, 1.0))
    heights = [unpack_state(row).tcp_position[2] for row in held.states]
    assert min(heights) < heights[0] - 0.01


def test_settings_are_those_of_the_demonstration():
    assert Path(DemoConfig().bundle) == BUNDLE
    with pytest.raises(ValueError, match="rate=100"):
        dataclasses.replace(DemoConfig(), rate=100)
