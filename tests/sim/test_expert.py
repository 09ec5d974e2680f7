"""The scripted expert lifts the cube, also with a shaky hand."""

import numpy as np
import pytest

from grasp_sim.expert import ScriptedExpert
from grasp_sim.registry import make


def episodes(control_mode: str, seeds: range, noise: float) -> list[bool]:
    env = make("robosuite-lift", control_mode=control_mode)
    expert = ScriptedExpert(env.action_scale, control_mode, env.task.grip_force)
    successes = []
    for seed in seeds:
        _, info = env.reset(seed=seed)
        expert.reset()
        rng = np.random.default_rng(seed)
        terminated = truncated = False
        while not (terminated or truncated):
            action = expert.act(info["state"])
            assert action.dtype == np.float32
            assert np.abs(action).max() <= 1.0
            action = (action + noise * rng.standard_normal(6)).astype(np.float32)
            _, _, terminated, truncated, info = env.step(action)
            assert not (terminated and truncated)
        successes.append(terminated)
    return successes


@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_it_lifts_the_cube_in_servo_mode(noise):
    assert all(episodes("servo", range(12), noise))


def test_it_lifts_the_cube_in_osc_mode():
    assert all(episodes("osc", range(2), 0.15))
