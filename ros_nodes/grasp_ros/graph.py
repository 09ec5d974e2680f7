"""The nodes and what they tell each other: one table, of which the picture is drawn.

A test compares it with what the running nodes publish and subscribe.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grasp_demos.topics import Topics
from grasp_ros import names, ur_status
from grasp_sim.cli import run_command

HELP = """Draw the topics between the nodes.

Example: python -m grasp_ros.graph out=docs/pictures/topics.png"""

ROBOT = "sim_robot"
"""Stands for the drivers of arm and gripper and for perception."""
NODES: dict[str, str] = {
    ROBOT: "sim_robot, or the drivers\nand perception",
    "gripper_bridge": "gripper_bridge",
    "safety": "safety",
    "servo": "servo",
    "policy_server": "policy_server",
    "grasp_recorder": "recorder\n(grasp-record)",
}
"""Names of the nodes, and how the picture shows them, from the robot to the policy."""


class Topic(NamedTuple):
    """Who says something to whom."""

    name: str
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    what: str
    """In a few words, with units and rate."""


T = Topics()
STACK = ("gripper_bridge", "safety", "servo", "policy_server")
GRAPH: tuple[Topic, ...] = (
    Topic(T.joint_states, (ROBOT,), (*STACK, "grasp_recorder"), "joints and finger, rad; 125 or 500 Hz"),
    Topic(T.object_pose, (ROBOT,), ("policy_server", "grasp_recorder"), "object, m, in base_link; 30 Hz"),
    Topic(T.object_size, (ROBOT,), ("policy_server", "grasp_recorder"), "object, m; latched"),
    Topic(ur_status.SPEED_SCALING, (ROBOT,), ("safety",), "percent"),
    Topic(ur_status.PROGRAM_RUNNING, (ROBOT,), ("safety",), "the program runs; latched"),
    Topic(ur_status.SAFETY_MODE, (ROBOT,), ("safety",), "protective stop and the like; latched"),
    Topic(
        T.gripper,
        ("gripper_bridge",),
        ("safety", "policy_server", "grasp_recorder"),
        "opening, m, and force, N; at most 100 Hz",
    ),
    Topic(T.requested_action, ("policy_server",), ("servo", "grasp_recorder"), "the policy's action; 20 Hz"),
    Topic(
        T.executed_action,
        ("servo",),
        ("policy_server", "grasp_recorder"),
        "the action as it was sent; 20 Hz",
    ),
    Topic(names.SETPOINT, ("servo",), ("safety",), "joints, rad; 125 or 500 Hz"),
    Topic("/forward_position_controller/commands", ("safety",), (ROBOT,), "joints, rad; 125 or 500 Hz"),
    Topic(names.GRIPPER_COMMAND, ("servo",), ("gripper_bridge",), "opening, m, and force limit, N; 20 Hz"),
    Topic(
        "/robotiq_gripper_controller/commands",
        ("gripper_bridge",),
        (ROBOT,),
        "finger, rad, and force, N; at most 15 Hz",
    ),
    Topic(names.SAFETY_STATUS, ("safety",), ("servo", "policy_server"), "limited or holding, and why; 20 Hz"),
    Topic(names.GRASP_STATUS, ("policy_server",), ("servo",), "how the grasp stands; latched"),
    Topic(names.GRASP_ALIVE, ("policy_server",), ("servo",), "the policy server lives; 100 Hz in a grasp"),
    Topic("/diagnostics", STACK, (), "what is wrong, for people; at once and 1 Hz"),
)
"""From what is measured to what is commanded, then what is said about it. The controller and the gripper's
driver are the defaults; their names are parameters."""

ROW, LEFT, COLUMN = 0.36, 5.6, 1.55
"""Inches: height of a topic's row, place of the first node's line, distance of the lines."""


@dataclass
class GraphConfig:
    """Settings of the picture."""

    out: str = "docs/pictures/topics.png"
    """File to write; its ending tells the format."""


def draw() -> Figure:
    """A line for each node, a row for each topic: a dot where it is published, an arrow to who hears it."""
    place = {name: LEFT + COLUMN * k for k, name in enumerate(NODES)}
    width, height = LEFT + COLUMN * (len(NODES) - 1) + 0.9, ROW * len(GRAPH) + 1.0
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0.0, width), ylim=(height, 0.0))
    axes.axis("off")
    for name, x in place.items():
        box = {"boxstyle": "round", "facecolor": "#e8eef7", "edgecolor": "#4c6a92"}
        axes.text(x, 0.4, NODES[name], ha="center", va="center", fontsize=8.5, bbox=box)
        axes.plot([x, x], [0.72, height - 0.15], color="#b9c4d3", linewidth=1.0, zorder=0)
    for row, topic in enumerate(GRAPH):
        y = 1.0 + ROW * row
        axes.text(0.1, y, topic.name, va="center", fontsize=8.0, family="monospace")
        axes.text(LEFT - 0.35, y, topic.what, va="center", ha="right", fontsize=7.0, color="#555555")
        from_x = [place[name] for name in topic.publishers]
        for x in from_x:
            axes.plot([x], [y], "o", color="#b04a2f", markersize=6.0)
        for name in topic.subscribers:
            near = min(from_x, key=lambda x: abs(x - place[name]))
            axes.annotate(
                "",
                xy=(place[name], y),
                xytext=(near, y),
                arrowprops={"arrowstyle": "-|>", "color": "#b04a2f", "linewidth": 1.1, "shrinkA": 0},
            )
    return figure


def run(config: GraphConfig) -> None:
    """Draw and write it."""
    Path(config.out).parent.mkdir(parents=True, exist_ok=True)
    draw().savefig(config.out, dpi=150, metadata={"Software": None} if config.out.endswith(".png") else None)
    print(f"{len(GRAPH)} topics between {len(NODES)} nodes: {config.out}")


def main() -> int:
    """`python -m grasp_ros.graph`."""
    return run_command(GraphConfig, run, HELP, program="python -m grasp_ros.graph")


if __name__ == "__main__":
    sys.exit(main())
