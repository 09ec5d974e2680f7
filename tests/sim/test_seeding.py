"""One seed fixes the whole episode, whatever happened before and wherever it runs; no OpenGL is touched."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from grasp_sim.contract import pack_state
from grasp_sim.registry import make

ACTIONS = np.random.default_rng(0).uniform(-1, 1, size=(8, 6)).astype(np.float32)


def digest(env, seed: int | None) -> str:
    """Hash of every state of a short episode."""
    _, info = env.reset(seed=seed)
    found = hashlib.sha256(pack_state(info["state"]).tobytes())
    for action in ACTIONS:
        found.update(pack_state(env.step(action)[4]["state"]).tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("mode", ["servo", "osc"])
def test_a_seed_fixes_the_episode_regardless_of_history(mode):
    env, other = make("robosuite-lift", control_mode=mode), make("robosuite-lift", control_mode=mode, seed=5)
    first = digest(env, 11)
    assert digest(env, 12) != first
    np.random.seed(3)  # noqa: NPY002 (the global state must not matter)
    for _ in range(2):
        digest(other, None)
    assert digest(other, 11) == first
    assert digest(env, 11) == first


def test_without_a_seed_the_environments_own_generator_goes_on():
    env, other = make("robosuite-lift", seed=21), make("robosuite-lift", seed=21)
    episodes = [digest(env, None) for _ in range(3)]
    assert len(set(episodes)) == 3
    assert [digest(other, None) for _ in range(3)] == episodes


def test_seeds_vary_pose_and_size():
    env = make("robosuite-lift")
    states = [env.reset(seed=seed)[1]["state"] for seed in range(5)]
    for field in ("joint_positions", "object_position", "object_quaternion", "object_size"):
        assert len({getattr(state, field).tobytes() for state in states}) == 5


CHILD = """
import sys
sys.path.insert(0, {folder!r})
from test_seeding import digest
from grasp_sim.registry import make
found = digest(make("robosuite-lift", seed=1), 11)
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
loaded = [name for name in ("libEGL", "libOSMesa") if name in maps]
modules = ("OpenGL", "mujoco.egl", "mujoco.osmesa", "grasp_sim.rendering")
loaded += [name for name in modules if name in sys.modules]
print(found, ",".join(loaded))
"""


@pytest.mark.parametrize("backend", ["disabled", "no such backend", None])
def test_another_process_gets_the_same_episode_without_opengl(backend):
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY", "PYOPENGL_PLATFORM")
    }
    if backend is not None:
        environment["MUJOCO_GL"] = backend
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(folder=os.path.dirname(os.path.abspath(__file__)))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found, _, loaded = child.stdout.strip().partition(" ")
    assert found == digest(make("robosuite-lift"), 11)
    assert loaded == ""
    assert "WARNING" not in child.stderr + child.stdout  # robosuite's import is quiet
