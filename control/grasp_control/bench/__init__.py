"""`grasp-bench <what> [key=value ...]`: measure a part of the stack on this machine.

Every benchmark prints a table and writes the raw figures; none is a test, so none fails on a slow machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from grasp_sim.cli import run_named

BENCHMARKS = {
    "learning": "success against environment steps: EMPO2, PPO, SAC, SAC with demonstrations",
    "mapo": "success of learned programs on held-out problems: MAPO, REINFORCE, likelihood, ablations",
    "programs": "how long grasp programs take to execute",
    "train": "the whole training loop: steps a second, shares of simulator, acting, memory and learner",
    "encoder": "what the encoders of the long-term memory retrieve, and the time of a refresh",
    "memory": "prioritised replay, retrieval, eviction, saving and loading of the long-term memory",
    "runs": "finished training runs side by side: table, figure and raw data",
    "recording": "what killed recorders lose, and how long checking 1,000 episodes takes",
    "safety": "microseconds that the safety filter costs a cycle of the driver",
    "sim": "control steps a second of every simulator and mode, resets, processes side by side",
    "expert": "success of the scripted expert in every environment and mode",
    "pictures": "one picture of every environment",
    "rtde": "grasps of a bundle through ur_rtde and an emulated controller, without ROS",
    "transfer": "success of policy bundles in environments they were not trained in",
    "ros": "the ROS 2 nodes as processes: grasps, killed nodes, delays",
}
"""Names, each a module of this package with `run(arguments) -> exit code`, and what they measure."""
OFFERED = "grasp_control.benchmarks"
"""Entry points: the `run` of benchmarks in packages that this one knows nothing of."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the first word names."""
    return run_named(
        "grasp-bench",
        "benchmark",
        {name: (_place_of(name), text) for name, text in BENCHMARKS.items()},
        list(sys.argv[1:] if arguments is None else arguments),
        usage="<what> [key=value ...]",
        closing="grasp-bench <what> --help lists the settings of one.",
    )


def _place_of(name: str) -> str:
    offered = list(entry_points(group=OFFERED, name=name))
    return offered[0].value if offered else f"{__name__}.{name}:run"
