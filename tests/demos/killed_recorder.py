"""A recorder to be killed: writes numbered episodes, saying what is safe. Run as a process by the tests.

Arguments: folder, seconds between steps, moment. `moment` is where the process kills itself in its third
episode: `half-frame`, `before-rename`, `after-rename`, or `never`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from grasp_demos import writer as writer_module
from grasp_demos.episode import Metadata, Step
from grasp_demos.writer import DatasetWriter
from grasp_sim.contract import ActionScale, GraspState, encode

STEPS = 8


def state_at(index: int, step: int) -> GraspState:
    """A state that says which episode and step it belongs to."""
    return GraspState(
        joint_positions=np.full(6, float(index)),
        joint_velocities=np.zeros(6),
        tcp_position=np.array([0.0, 0.0, step / 100]),
        tcp_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
        gripper_opening=0.085,
        gripper_force=0.0,
        object_position=np.zeros(3),
        object_quaternion=np.array([0.0, 0.0, 0.0, 1.0]),
        object_size=np.full(3, 0.04),
        time=step / 20.0,
    )


def kill_myself(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm_trap(moment: str) -> None:
    if moment == "before-rename":
        writer_module.os.replace = kill_myself
    elif moment == "after-rename":
        real = os.replace

        def replace_and_die(*paths: str) -> None:
            real(*paths)
            kill_myself()

        writer_module.os.replace = replace_and_die


def main(folder: str, pause: float, moment: str) -> None:
    metadata = Metadata("fake", "servo", ActionScale(), "human-like")
    with DatasetWriter(Path(folder)) as writer:
        for episode in range(1000):
            index = writer.next_index
            start = state_at(index, 0)
            recording = writer.begin(metadata, start, encode(start), np.zeros(2), {"numbers": np.arange(3)})
            for t in range(STEPS):
                action = np.full(6, t / 10, np.float32)
                after = state_at(index, t + 1)
                step = Step(
                    *(action, action, action, 0.0, False, t == STEPS - 1, False, False, after, encode(after)),
                    *("person", np.full(2, float(t))),
                )
                if episode == 2 and t == 5 and moment == "half-frame":
                    payload = writer_module.frame(writer_module.step_bytes(t, step, recording._dtype))
                    recording._file.write(payload[: len(payload) // 2])
                    recording._file.flush()
                    kill_myself()
                recording.append(step)
                print(f"step {index} {t}", flush=True)
                time.sleep(pause)
            if episode == 2:
                arm_trap(moment)
            recording.finish(success=True)
            print(f"finished {index}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
