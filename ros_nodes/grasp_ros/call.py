"""Calls a Trigger service without the `ros2` command: python -m grasp_ros.call /policy_server/start."""

from __future__ import annotations

import os
import sys

from grasp_ros.watcher import Watcher
from grasp_sim.cli import say
from grasp_sim.errors import UserError

USAGE = "usage: python -m grasp_ros.call SERVICE, such as /policy_server/start or /sim_robot/reset"


def main() -> int:
    """Print the answer; 0 where the service says success, 1 where it says no, 2 where nobody answers."""
    if len(sys.argv) != 2 or not sys.argv[1].startswith("/"):
        print(USAGE)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    try:
        with Watcher(int(os.environ.get("ROS_DOMAIN_ID", "0"))) as watcher:
            answer = watcher.call(sys.argv[1])
    except UserError as error:
        say(str(error))
        return 2
    print(answer.message or ("done" if answer.success else "refused"))
    return 0 if answer.success else 1


if __name__ == "__main__":
    sys.exit(main())
