"""Images on demand."""

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from grasp_sim import rendering
from grasp_sim.objects import ObjectSpec, Part
from grasp_sim.registry import make
from grasp_sim.rendering import RenderUnavailable
from grasp_sim.scene import TABLE_CENTRE, TABLE_HEIGHT
from grasp_sim.tasks import TASKS


@pytest.fixture
def env():
    env = make("robosuite-lift")
    env.reset(seed=0)
    yield env
    env.close()


@pytest.mark.usefixtures("opengl")
def test_a_frame_shows_the_scene_and_changes_nothing(env):
    before = env.snapshot()
    frame = env.render_frame(160, 120)
    assert frame.shape == (120, 160, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 10
    assert env.render_frame(800, 600).shape == (600, 800, 3)
    for name, value in env.snapshot().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("simulator", ["robosuite", "pybullet"])
def test_a_cube_of_4_cm_is_seen_large_wherever_a_task_puts_it(simulator, request):
    if simulator == "robosuite":  # PyBullet draws in software of its own
        request.getfixturevalue("opengl")
    cube = ObjectSpec("cube", (Part("box", (0.02, 0.02, 0.02)),), 0.1, 0.8, symmetry=4)
    env = make(f"{simulator}-objects")
    _, info = env.reset(seed=0)
    for corner in itertools.product((-1, 1), (-1, 1)):
        place = np.add(TABLE_CENTRE, np.multiply(corner, TASKS["objects"].spread))
        position = np.array([*place, TABLE_HEIGHT + 0.02])
        env.reset(options={"start": replace(info["start"], object=cube, object_position=position)})
        red, green, blue = env.render_frame(480, 360).astype(int).transpose(2, 0, 1)
        assert ((red > 2 * green) & (red > 2 * blue)).sum() > 15**2
    env.close()


def test_without_a_backend_the_error_names_what_to_install(env, monkeypatch):
    monkeypatch.setattr(rendering, "_BACKENDS", ("no_such_backend",))
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(RenderUnavailable, match=r"libegl1.*libosmesa6.*no_such_backend"):
        env.render_frame(64, 64)
    assert "MUJOCO_GL" not in os.environ
