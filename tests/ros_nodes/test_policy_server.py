"""The policy server as a lifecycle node, in a process of its own, without a robot."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from grasp_ros.demo import BUNDLE
from grasp_ros.qos import RELIABLE
from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher

pytestmark = pytest.mark.slow


@pytest.fixture
def serve(tmp_path):
    """Starts a policy server with parameters; gives the stack and a watcher."""
    domain = 160 + os.getpid() % 40
    open_ones = []

    def start(**parameters):
        stack = Stack(tmp_path / "logs", domain, {"policy_server": parameters}, nodes=("policy_server",))
        open_ones.append(stack.__enter__())
        watcher = Watcher(domain)
        open_ones.append(watcher.__enter__())
        return stack, watcher

    yield start
    for one in reversed(open_ones):
        one.__exit__(None, None, None)


def ask(watcher, kind, service, request):
    client = watcher.node.create_client(kind, f"/policy_server/{service}")
    assert client.wait_for_service(timeout_sec=30.0)
    future = client.call_async(request)
    end = time.monotonic() + 10.0
    while not future.done() and time.monotonic() < end:
        watcher.spin()
    return future.result()


def change(watcher, transition: int) -> bool:
    request = ChangeState.Request(transition=Transition(id=transition))
    return ask(watcher, ChangeState, "change_state", request).success


def state(watcher) -> str:
    return ask(watcher, GetState, "get_state", GetState.Request()).current_state.label


def test_it_goes_through_its_life(serve):
    _, watcher = serve(bundle=str(BUNDLE))
    assert state(watcher) == "unconfigured"
    assert "not active" in watcher.call("/policy_server/start").message
    for transition, reached in (
        (Transition.TRANSITION_CONFIGURE, "inactive"),
        (Transition.TRANSITION_ACTIVATE, "active"),
    ):
        assert change(watcher, transition)
        assert state(watcher) == reached
    refused = watcher.call("/policy_server/start")
    assert not refused.success
    assert "safety filter is silent" in refused.message
    for transition, reached in (
        (Transition.TRANSITION_DEACTIVATE, "inactive"),
        (Transition.TRANSITION_CLEANUP, "unconfigured"),
        (Transition.TRANSITION_CONFIGURE, "inactive"),
        (Transition.TRANSITION_ACTIVATE, "active"),
    ):
        assert change(watcher, transition)
        assert state(watcher) == reached


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("missing", "policy.onnx is missing"),
        ("robot", "robot 'ur5e' is asked for, the bundle has 'ur10e'"),
        ("changed", "was changed after its export"),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(serve, tmp_path, fault, said):
    bundle = tmp_path / "bundle"
    if fault != "missing":
        shutil.copytree(BUNDLE, bundle)
    if fault == "robot":
        manifest = json.loads((bundle / "manifest.json").read_text())
        (bundle / "manifest.json").write_text(json.dumps(manifest | {"robot": "ur10e"}))
    if fault == "changed":
        with (bundle / "policy.onnx").open("ab") as file:
            file.write(b"\0")
    stack, watcher = serve(bundle=str(bundle), autostart=True)
    stack.wait_for(lambda: said in stack.log("policy_server").read_text(), said, 30.0)
    assert state(watcher) == "unconfigured"
    assert "not active" in watcher.call("/policy_server/start").message


def test_in_shadow_mode_the_servos_topic_has_no_publisher(serve):
    stack, watcher = serve(bundle=str(BUNDLE), autostart=True, shadow=True)
    watcher.node.create_subscription(JointTrajectory, "/shadow/requested_action", print, RELIABLE)
    count = watcher.node.count_publishers
    stack.wait_for(lambda: watcher.spin() or count("/shadow/requested_action"), "no shadow", 30.0)
    assert count("/requested_action") == 0


@pytest.mark.parametrize(
    ("node", "says"),
    [("policy_server", "no joints yet"), ("safety", "no joint states"), ("servo", "no joint")],
)
def test_a_clock_that_stands_does_not_keep_a_node_from_watching(tmp_path, node, says):
    """As the computer's does not move on for an hour when it is set back by one."""
    domain = 160 + os.getpid() % 40
    parameters = {name: {"use_sim_time": True} for name in ("policy_server", "safety", "servo")}
    parameters["policy_server"] |= {"bundle": str(BUNDLE), "autostart": True}
    with Stack(tmp_path, domain, parameters, (node,)) as stack, Watcher(domain) as watcher:

        def said() -> bool:
            watcher.spin()
            return any(says in status.message for status in watcher.diagnostics)

        stack.wait_for(said, "it says nothing", 60.0)


def test_bytes_that_are_no_message_do_not_end_it(serve):
    stack, watcher = serve(bundle=str(BUNDLE), autostart=True, shadow=True)
    pose = watcher.node.create_publisher(PoseStamped, "/object_pose", RELIABLE)
    gripper = watcher.node.create_publisher(JointState, "/gripper/joint_states", RELIABLE)

    def refused() -> bool:
        pose.publish(serialize_message(PoseStamped())[:30])
        gripper.publish(serialize_message(JointState(name=["gripper_opening"]))[:30])
        watcher.spin()
        return any(s.message.count("cannot be decoded") == 2 for s in watcher.diagnostics)

    stack.wait_for(refused, "it does not say so", 30.0)
    stack.check()
    assert state(watcher) == "active"


def test_what_cannot_be_read_is_logged_once_a_second(serve):
    """However much comes of it: logs fill a disk."""
    stack, watcher = serve(bundle=str(BUNDLE), autostart=True)
    actions = watcher.node.create_publisher(JointTrajectory, "/executed_action", RELIABLE)
    log = stack.log("policy_server")

    def named() -> bool:
        actions.publish(JointTrajectory(joint_names=["elbow_joint"]))
        watcher.spin(0.005)
        return "it holds no action" in log.read_text()

    stack.wait_for(named, "it does not say so", 30.0)
    began = time.monotonic()
    while time.monotonic() - began < 2.0:
        named()
    assert log.read_text().count("it holds no action") <= 4
