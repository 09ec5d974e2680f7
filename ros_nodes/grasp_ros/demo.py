"""`make ros-demo`: the nodes as processes on the simulated robot, and ten grasps."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grasp_control.arm.runner import Outcome
from grasp_control.bundle import load_bundle
from grasp_control.intervals import wilson_interval
from grasp_control.manifest import Expectation
from grasp_ros.grasps import grasps
from grasp_ros.stack import Stack
from grasp_ros.watcher import Watcher
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_at_most, require_choice, require_path, run_command

HELP = """Perform grasps with a policy bundle on the simulated robot, by the nodes that serve a real one.

Starts sim_robot (in place of the driver), gripper_bridge, safety, servo and policy_server as processes of
their own that talk over DDS, on this machine alone. No ROS distribution is needed. Whether a grasp succeeded
is the simulator's word.

Examples:
  make ros-demo
  make ros-demo ARGS="env=robosuite-lift bundle=runs/robosuite-lift-servo-seed0/bundle count=20"
"""
BUNDLE = Path(__file__).parent / "bundle"
"""The policy that comes with the repository; see its manifest for where it is from."""

ENOUGH = 0.9
"""Share of successful grasps from which the demonstration has succeeded."""
FULL_SPEED = {"limits.velocity_max": 3.0, "limits.acceleration_max": 40.0, "limits.step_max": 0.025}
"""Of the safety filter, for the policy's own speed; its defaults are for first runs on a real arm."""
LAGGING = {
    "position": {},
    "velocity": {},
    "trajectory": {"limits.following_max": 0.2, "limits.following_lost": 0.4},
}
"""Of the safety filter, by output: a trajectory controller is a period of its points behind."""


@dataclass
class DemoConfig:
    """Settings of the demonstration."""

    bundle: str = str(BUNDLE)
    """Folder of the policy bundle."""
    env: str = "pybullet-lift"
    """The simulated robot's environment."""
    count: int = 10
    """Grasps."""
    rate: int = 500
    """Hz of the simulated driver: 500 (e-Series) or 125 (CB3)."""
    output: str = "position"
    """Which of the driver's controllers is commanded: 'position', 'velocity' or 'trajectory'."""
    seed: int = 0
    """Of the starts."""
    domain_id: int = 42
    """ROS domain of the nodes."""
    logs: str = ""
    """Folder for what the nodes say; empty makes one among the temporary files."""

    def __post_init__(self) -> None:
        """Check the choices and ranges."""
        require_choice("env", self.env, registry.names())
        require_choice("output", self.output, ("position", "velocity", "trajectory"))
        if self.rate not in (125, 500):
            raise ValueError(f"rate={self.rate} must be 125 or 500.")
        require_at_least(self, {"count": 1, "seed": 0, "domain_id": 0})
        require_at_most(self, {"count": 10_000, "domain_id": 232})
        require_path("bundle", self.bundle)


def stack_of(config: DemoConfig, folder: Path) -> Stack:
    """The processes with their parameters."""
    rate = float(config.rate)
    controllers = {
        "position": "forward_position_controller",
        "velocity": "forward_velocity_controller",
        "trajectory": "scaled_joint_trajectory_controller",
    }
    return Stack(
        folder,
        config.domain_id,
        parameters={
            "sim_robot": {
                "env": config.env,
                "rate": config.rate,
                "seed": config.seed,
                "controller": controllers[config.output],
            },
            "safety": {
                "limits.rate_hz": rate,
                "output": config.output,
                **FULL_SPEED,
                **LAGGING[config.output],
            },
            "policy_server": {"bundle": os.path.abspath(config.bundle), "autostart": True},
        },
    )


def run(config: DemoConfig) -> int:
    """Start the nodes, grasp, and say how it went; 1 where fewer than nine of ten grasps succeeded."""
    load_bundle(config.bundle, expect=Expectation())  # said here, and not in the log of a node
    folder = Path(config.logs) if config.logs else Path(tempfile.mkdtemp(prefix="grasp-ros-demo-"))
    print(f"Policy {config.bundle}, {config.env}, driver at {config.rate} Hz. The nodes' words: {folder}")
    successes = stopped = 0
    with stack_of(config, folder) as stack, Watcher(config.domain_id) as watcher:
        for number, grasp in enumerate(grasps(stack, watcher, config.count), start=1):
            successes += grasp.success
            stopped += grasp.outcome == Outcome.STOPPED.value
            word = "success" if grasp.success else "failure"
            print(
                f"grasp {number:2}/{config.count}: {word}, {grasp.steps} steps in {grasp.seconds:.1f} s;"
                f" policy server: {grasp.outcome}: {grasp.message}",
                flush=True,
            )
    low, high = wilson_interval(successes, config.count)
    print(
        f"{successes} of {config.count} grasps succeeded (95 % interval {low:.0%} to {high:.0%}), judged by"
        " the simulator."
    )
    if stopped:
        print(
            f"{stopped} were stopped by the nodes. On a busy machine messages come late, and late ones stop"
        )
        print("the arm: try rate=125, or let nothing else run.")
    return 0 if successes >= ENOUGH * config.count else 1


def main() -> int:
    """Entry point of the demonstration."""
    return run_command(DemoConfig, run, HELP, program="python -m grasp_ros.demo")


if __name__ == "__main__":
    sys.exit(main())
