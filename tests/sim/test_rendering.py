"""Images on demand."""

import os

import numpy as np
import pytest

from grasp_sim import rendering
from grasp_sim.registry import make
from grasp_sim.rendering import RenderUnavailable


@pytest.fixture
def env():
    env = make("robosuite-lift")
    env.reset(seed=0)
    yield env
    env.close()


def test_a_frame_shows_the_scene_and_changes_nothing(env):
    before = env.snapshot()
    try:
        frame = env.render_frame(160, 120)
    except RenderUnavailable as error:
        pytest.skip(str(error))
    assert frame.shape == (120, 160, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 10
    assert env.render_frame(800, 600).shape == (600, 800, 3)
    for name, value in env.snapshot().items():
        np.testing.assert_array_equal(value, before[name])


def test_without_a_backend_the_error_names_what_to_install(env, monkeypatch):
    monkeypatch.setattr(rendering, "_BACKENDS", ("no_such_backend",))
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(RenderUnavailable, match=r"libegl1.*libosmesa6.*no_such_backend"):
        env.render_frame(64, 64)
    assert "MUJOCO_GL" not in os.environ
