"""grasp-perform: a grasp by a policy bundle on a UR arm with a Robotiq gripper, without ROS."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from omegaconf import MISSING

from grasp_control.arm.assembler import MaximumAges, StateAssembler
from grasp_control.arm.grasp_loop import PERIOD, Counts, GraspLoop
from grasp_control.arm.grip import GripLimiter, GripLimits
from grasp_control.arm.limits import SafetyConfig
from grasp_control.arm.object_poses import MAX_SYMMETRY, DatagramPoses, ObjectPose, PoseSource
from grasp_control.arm.robotiq import RobotiqConfig, RobotiqGripper
from grasp_control.arm.rtde import RtdeArm, RtdeConfig
from grasp_control.arm.runner import GraspConfig, GraspRunner, Outcome
from grasp_control.arm.safety import SafetyFilter
from grasp_control.arm.session import READY_WITHIN, Session
from grasp_control.arm.setpoints import SLOWEST, SetpointStream
from grasp_control.bundle import BundlePolicy, load_bundle
from grasp_control.manifest import Expectation
from grasp_sim.cli import require_path, run_command
from grasp_sim.errors import UserError
from grasp_sim.ur_emulator.command import address_of

HELP = """Perform a grasp by a policy bundle on a UR arm with a Robotiq 2F-85, without ROS, through ur_rtde.

The policy acts 20 times a second; the servo and the safety filter decide in each cycle of the robot what is
sent. First in shadow mode, the default: everything is measured and computed and nothing is sent, neither to
the arm nor to the gripper. With shadow=false the arm moves: stand by the emergency stop.

Where the object is must be told by a perception, by JSON datagrams to `poses`, at least twice a second:
  {"frame": "base_link", "position": [x, y, z], "quaternion": [x, y, z, w], "size": [x, y, z], "age": 0.03}
in m; age in s since it was measured. `base_link` is the robot's `base` turned by 180 degrees about z.

Ends with 0 when the object was lifted, 1 when not, 2 when something could not be begun or was lost. The arm
then stands still and the fingers stay as they are.

Without a robot, in two terminals:
  grasp-emulate env=pybullet-lift
  grasp-perform bundle=runs/pybullet-lift-seed0/bundle shadow=false

On a robot, at first:
  grasp-perform bundle=DIR rtde.host=192.168.0.10 poses=0.0.0.0:30100
  grasp-perform bundle=DIR rtde.host=192.168.0.10 poses=0.0.0.0:30100 shadow=false speed=0.25 grasp.timeout=32
"""

_SAY_EVERY = 1.0  # s


@dataclass
class PerformConfig:
    """Perform a grasp by a policy bundle."""

    bundle: str = MISSING
    """The policy bundle's folder."""
    shadow: bool = True
    """Measure and compute, and send nothing."""
    poses: str = "127.0.0.1:30100"
    """Address that the object's poses are awaited at."""
    speed: float = 1.0
    """Share of the speed of training: at 0.25 every policy step takes four times as long, and the arm moves
    that much slower on the same path. For the first runs."""
    object_symmetry: int = 4
    """n-fold rotational symmetry of the object about the vertical, 0 for any, where the poses tell none."""
    rtde: RtdeConfig = field(default_factory=RtdeConfig)
    gripper: RobotiqConfig = field(default_factory=RobotiqConfig)
    grip: GripLimits = field(default_factory=GripLimits)
    max_age: MaximumAges = field(default_factory=MaximumAges)
    grasp: GraspConfig = field(default_factory=GraspConfig)
    safety: SafetyConfig = field(default_factory=lambda: SafetyConfig(gripper_max_age=0.2))
    """Its rate is the robot's, whatever is given; the gripper is asked at a rate of its own."""

    def __post_init__(self) -> None:
        """Check the ranges, and what must agree."""
        require_path("bundle", self.bundle)
        address_of("poses", self.poses)
        if not 1.0 / SLOWEST <= self.speed <= 1.0:
            raise ValueError(f"speed={self.speed} must be from {1.0 / SLOWEST:g} to 1.")
        if not 0 <= self.object_symmetry <= MAX_SYMMETRY:
            raise ValueError(f"object_symmetry={self.object_symmetry} must be from 0 to {MAX_SYMMETRY}.")
        self.safety = replace(self.safety, rate_hz=float(self.rtde.rate))


def main() -> int:
    """Entry point of `grasp-perform`."""
    return run_command(PerformConfig, run, HELP, program="grasp-perform")


def run(config: PerformConfig) -> int:
    """Perform one grasp in this process, and say how it went."""
    # Ctrl-C, the end of the terminal and `kill` all end the motion in order.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    runner = make_runner(config, load_bundle(config.bundle, expect=Expectation()))
    with library_silenced(), _said_aloud(runner):
        counts = perform(config, runner)
    return _report(config, runner, counts)


def make_runner(config: PerformConfig, policy: BundlePolicy) -> GraspRunner:
    """A grasp by `policy` at the speed that is set."""
    return GraspRunner(policy, config.grasp, PERIOD / config.speed)


def perform(config: PerformConfig, runner: GraspRunner) -> Counts:
    """Connect, perform one grasp and disconnect. Raises UserError where something is missing or lost."""
    safety = SafetyFilter(config.safety)  # compiles, which may take a minute: before anything is connected
    with ExitStack() as stack:
        poses = DatagramPoses(address_of("poses", config.poses))
        stack.callback(poses.close)
        arm = RtdeArm(config.rtde)
        stack.callback(_end, arm)
        arm.connect()
        gripper = RobotiqGripper(config.rtde.host, config.gripper)
        stack.callback(gripper.close)
        first = _first_pose(poses)
        loop = _make_loop(config, runner, safety, first)
        session = Session(
            arm,
            gripper,
            poses,
            loop,
            runner,
            limiter=GripLimiter(config.grip),
            period=1.0 / config.rtde.rate,
            lost_after=config.rtde.lost_after,
            shadow=config.shadow,
        )
        if not config.shadow:
            arm.take_control()
        session.perform()
    return loop.counts


def _make_loop(
    config: PerformConfig, runner: GraspRunner, safety: SafetyFilter, first: ObjectPose
) -> GraspLoop:
    symmetry = config.object_symmetry if first.symmetry is None else first.symmetry
    return GraspLoop(
        runner,
        SetpointStream(runner.policy.manifest.action_scale),
        safety,
        StateAssembler(config.max_age, symmetry),
        period=PERIOD / config.speed,
        shadow=config.shadow,
    )


def _first_pose(poses: PoseSource) -> ObjectPose:
    """The first measurement of the object; it says what cannot change during a grasp."""
    until = time.monotonic() + READY_WITHIN
    while time.monotonic() < until:
        seen = poses.take()
        if seen is not None:
            return seen
        time.sleep(0.01)
    why = f" ({poses.refused})" if poses.refused else ""
    raise UserError(f"nobody says where the object is, within {READY_WITHIN:g} s{why}: see --help on poses.")


def _end(arm: RtdeArm) -> None:
    left = arm.end()
    if left:
        print(f"grasp-perform: {left}.", file=sys.stderr)


def _report(config: PerformConfig, runner: GraspRunner, counts: Counts) -> int:
    """Say how it ended; the exit code."""
    progress = runner.progress
    print(f"{progress.outcome.value}: {progress.message}, after {progress.step} actions.")
    if counts.cycles:
        keys = ", ".join(f"{key} {count}" for key, count in counts.reasons.most_common())
        print(
            f"The safety filter limited {counts.limited / counts.cycles:.1%} and held"
            f" {counts.held / counts.cycles:.1%} of {counts.cycles} cycles{f' ({keys})' if keys else ''}."
        )
    if config.shadow:
        print("Nothing was sent: shadow=false moves the arm.")
        return 0 if progress.outcome in (Outcome.TIMED_OUT, Outcome.LIFTED) else 1
    return 0 if progress.outcome is Outcome.LIFTED else 1


@contextmanager
def _said_aloud(runner: GraspRunner) -> Iterator[None]:
    """Print once a second how it stands, from a thread: a terminal may stop, the arm's loop must not."""
    ended = threading.Event()

    def say() -> None:
        while not ended.wait(_SAY_EVERY):
            at = runner.progress
            if not at.running:
                continue
            print(
                f"{at.phase:9} tool at {at.tcp_height:+.3f} m, fingers {at.opening:.3f} m apart,"
                f" {at.force:3.0f} N, object up {at.rise:.3f} m",
                flush=True,
            )

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def library_silenced() -> Iterator[None]:
    """Keep away what ur_rtde prints, from threads of its own, of lost connections: we say it ourselves."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [os.dup(1), os.dup(2)]
    before = sys.stdout, sys.stderr
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1) for fd in ours)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for stream, number in zip((sys.stdout, sys.stderr), (1, 2), strict=True):
            stream.flush()
            os.dup2(stream.fileno(), number)
        sys.stdout, sys.stderr = before
        os.close(nowhere)
