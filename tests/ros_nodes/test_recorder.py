"""Recording from real ROS 2 topics: a driver in a process of its own, the command in a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from grasp_demos.convert import FORMATS
from grasp_demos.convert.format import ImportSettings
from grasp_demos.reader import read_dataset
from grasp_demos.recorders import load_receiver
from grasp_demos.recording import record_expert
from grasp_demos.topics import Topics
from grasp_demos.validate import require_valid, validate
from grasp_demos.writer import DatasetWriter
from grasp_sim import registry
from grasp_sim.contract import unpack_state
from grasp_sim.errors import UserError

DRIVER = Path(__file__).with_name("fake_driver.py")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A successful grasp of the scripted expert, as a file."""
    env = registry.make(name="pybullet-lift", seed=0)
    folder = tmp_path_factory.mktemp("simulated")
    (episode,) = record_expert(
        env, folder, task="pybullet-lift", episodes=1, rng=np.random.default_rng(0), noise=0.05
    )
    env.close()
    return episode


@pytest.fixture
def start(ros_domain, simulated, tmp_path, terminal):
    """Starts the driver, and the command when asked to."""

    def driver(fault: str):
        return terminal(str(DRIVER), str(simulated.path), str(tmp_path), fault)

    def recorder(*settings: str):
        out = tmp_path / "demos"
        command = ["-m", "grasp_demos.record", "source=ros", f"out={out}", "env.name=pybullet-lift"]
        return terminal(*command, "page.show=false", *settings)

    return driver, recorder


def begin(recorder, folder: Path) -> None:
    """Start an episode once all sources are there, and let the driver move."""
    recorder.saw("press enter to begin")

    def ready() -> bool:
        recorder.press("")
        time.sleep(0.3)
        picture = recorder.read()
        return "press enter to begin" in picture and "waiting" not in picture

    recorder.wait_for(ready, 60, lambda: recorder.text[-2000:])
    recorder.press("\r")
    recorder.saw("no command on /requested_action or /executed_action")
    (folder / "go").touch()


@pytest.mark.slow
def test_a_grasp_is_recorded_from_a_drivers_topics(start, simulated, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    recorder.saw("waiting: /joint_states: no message yet; /gripper/joint_states: no message yet;")
    recorder.press("\r")
    recorder.saw("not begun: /joint_states: no message yet")
    driver = start_driver("nothing")
    begin(recorder, tmp_path)
    driver.saw("done")
    recorder.saw("/requested_action: no more commands; say what became of the episode")
    recorder.press("1")
    assert recorder.wait() == 0
    assert "holds 1 of 1 demonstrations, 1 of them new" in recorder.read()
    (held,) = read_dataset(tmp_path / "demos")
    require_valid([held])
    assert held.is_demonstration
    assert len(held) == len(simulated)
    assert (held.rewards[-1], held.terminations[-1], held.rewards[:-1].any()) == (1.0, True, False)
    check = [sys.executable, "-m", "grasp_demos.commands", "check", str(tmp_path / "demos")]
    report = tmp_path / "check.json"
    done = subprocess.run([*check, f"report={report}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(report.read_text())["summary"]["errors"] == 0
    np.testing.assert_array_equal(held.requested_actions, simulated.requested_actions)
    np.testing.assert_array_equal(held.executed_actions, simulated.executed_actions)
    # The driver interpolates the simulated joints at 125 Hz; the arm moves by less than that in a period.
    np.testing.assert_allclose(held.states[:, :6], simulated.states[:, :6], atol=0.05)


@pytest.mark.slow
def test_recorded_live_is_imported_from_the_export(start, simulated, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    driver = start_driver("as-exported")
    begin(recorder, tmp_path)
    driver.saw("done")
    recorder.press("1")
    assert recorder.wait() == 0
    (held,) = read_dataset(tmp_path / "demos")
    require_valid([held])
    FORMATS["mcap"].write([simulated], tmp_path / "bag.mcap")
    (imported,) = FORMATS["mcap"].read(tmp_path / "bag.mcap", ImportSettings()).episodes
    assert len(held) == len(imported)
    for name in ("intended_actions", "requested_actions", "executed_actions"):
        np.testing.assert_array_equal(getattr(held, name), getattr(imported, name))
    # The tick is a moment after the state's own time; all else is the same to the last bit.
    np.testing.assert_array_equal(held.observations[:, :-1], imported.observations[:, :-1])
    same = 0
    for a, b in zip(map(unpack_state, held.states), map(unpack_state, imported.states), strict=True):
        np.testing.assert_array_equal(a.joint_positions, b.joint_positions)
        np.testing.assert_array_equal(a.joint_velocities, b.joint_velocities)
        np.testing.assert_array_equal(a.tcp_quaternion, b.tcp_quaternion)
        same += 1
    assert same == len(simulated) + 1


FAULTS = {
    "nan": "/joint_states: position of elbow_joint is nan",
    "missing": "/joint_states: it lacks elbow_joint; it has shoulder_lift_joint",
    "wrong-size": "/joint_states: it has 4 numbers of position for 7 names",
    "stale-object": "/object_pose: nothing new within 1 s, the latest is 1.",
    "back": "/joint_states: clock jump: stamps go back by 29.9",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_ends_the_episode_and_is_named(fault, start, simulated, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    start_driver(fault)
    begin(recorder, tmp_path)
    recorder.saw("broken off")
    recorder.press("x")
    assert recorder.wait() == 0
    (held,) = read_dataset(tmp_path / "demos")
    assert validate(held) == []
    assert held.metadata.note.startswith(FAULTS[fault])
    assert (held.metadata.complete, held.metadata.success) == (False, False)
    assert 15 <= len(held) <= 45
    np.testing.assert_array_equal(held.requested_actions, simulated.requested_actions[: len(held)])


@pytest.mark.slow
def test_a_flood_of_messages_is_survived(start, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    driver = start_driver("flood")
    begin(recorder, tmp_path)
    written = tmp_path / "demos" / "episode_000000.npz"
    # A machine that is too slow for it ends the episode itself, and says why.
    recorder.wait_for(lambda: "step 20" in recorder.read() or written.exists(), 60, recorder.read)
    driver.saw("done", 120)
    recorder.press("1")
    recorder.wait_for(written.exists, 60, recorder.read)
    (held,) = read_dataset(tmp_path / "demos")
    assert validate(held) == []
    # Either it kept up, or it said why not.
    assert held.is_demonstration or held.metadata.note


@pytest.mark.slow
def test_a_driver_that_is_killed_ends_the_episode(start, simulated, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    driver = start_driver("nothing")
    begin(recorder, tmp_path)
    recorder.saw("step 20")
    driver.process.send_signal(signal.SIGKILL)
    recorder.saw("broken off")
    recorder.saw("waiting: /joint_states: nothing new within 0.2 s")
    recorder.press("\r")
    recorder.saw("not begun: /joint_states: nothing new within 0.2 s")
    recorder.press("x")
    assert recorder.wait() == 0
    (held,) = read_dataset(tmp_path / "demos")
    assert validate(held) == []
    assert held.metadata.note.startswith("/joint_states: nothing new within 0.2 s, the latest is 0.")
    assert 20 <= len(held) <= len(simulated)


@pytest.mark.slow
def test_a_recorder_that_is_killed_loses_at_most_its_last_steps(start, simulated, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    start_driver("nothing")
    begin(recorder, tmp_path)
    recorder.saw("step 25")
    recorder.process.send_signal(signal.SIGKILL)
    recorder.process.wait()
    with DatasetWriter(tmp_path / "demos") as writer:
        assert "was recovered (incomplete, with its" in writer.warnings[0]
    (held,) = read_dataset(tmp_path / "demos")
    assert validate(held) == []
    assert len(held) >= 24
    np.testing.assert_array_equal(held.requested_actions, simulated.requested_actions[: len(held)])


@pytest.mark.slow
def test_ctrl_c_keeps_what_there_is_and_leaves_no_process(start, tmp_path):
    start_driver, start_recorder = start
    recorder = start_recorder("episodes=1")
    start_driver("nothing")
    begin(recorder, tmp_path)
    recorder.saw("step 10")
    recorder.process.send_signal(signal.SIGINT)
    assert recorder.wait() == 130
    assert "stopped by the keyboard" in recorder.read()
    (held,) = read_dataset(tmp_path / "demos")
    assert len(held) >= 9
    assert held.metadata.note == "the recorder was stopped"


def test_no_thread_is_left(ros_domain):
    before = threading.active_count()
    for _ in range(2):
        with load_receiver("ros", Topics()) as receiver:
            assert receiver.take().messages == []
            assert threading.active_count() == before + 1
        assert threading.active_count() == before


def test_every_publisher_is_heard_and_what_was_latched_before(ros_domain, wait_for):
    from geometry_msgs.msg import Vector3Stamped
    from rclpy.context import Context
    from rclpy.node import Node
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import JointState

    topics, context = Topics(joint_states="/arm/states", gripper="/hand/states"), Context()
    context.init()
    node = Node("publisher", context=context)
    latched = QoSProfile(
        depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    )
    size = node.create_publisher(Vector3Stamped, topics.object_size, latched)
    size.publish(Vector3Stamped())
    modest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    arm = node.create_publisher(JointState, topics.joint_states, modest)
    hand = node.create_publisher(JointState, topics.gripper, QoSProfile(depth=1))
    heard, times = set(), []
    try:
        with load_receiver("ros", topics) as receiver:

            def all_heard() -> bool:
                arm.publish(JointState())
                hand.publish(JointState())
                received = receiver.take()
                heard.update(topic for topic, _, _ in received.messages)
                times.extend([at for _, at, _ in received.messages] + [received.now])
                return heard == {topics.object_size, topics.joint_states, topics.gripper}

            wait_for(all_heard, 30, lambda: str(heard))
    finally:
        node.destroy_node()
        context.try_shutdown()
    assert times == sorted(times)
    assert abs(times[-1] - time.time_ns()) < 10**9


def test_a_name_that_is_no_topic_is_refused(ros_domain):
    with (
        pytest.raises(UserError, match=r"topics\.object_pose=no topic cannot be a topic"),
        load_receiver("ros", Topics(object_pose="no topic")),
    ):
        pass


def test_without_rclpy_the_command_says_how_to_install_it(tmp_path):
    code = "import sys; sys.modules['rclpy'] = None; from grasp_demos.record import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "source=ros", f"out={tmp_path / 'demos'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install -c requirements.lock -e '.[ros]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "demos").exists()
