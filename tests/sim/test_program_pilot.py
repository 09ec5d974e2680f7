"""A program performed from home does what it does in the program environment."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_sim import registry
from grasp_sim.errors import UserError
from grasp_sim.program_env import TOKENS, GraspPrograms, features_of
from grasp_sim.program_pilot import ProgramPilot

WORDS = ("from above", "9 cm up", "0 deg", "open 85 mm", "80 N", "close fast", "settle", "lift", "end")


def program(*words: str) -> tuple[int, ...]:
    return tuple(TOKENS.index(word) for word in words)


def perform(env, pilot, info, noise: float = 0.0) -> dict:
    rng = np.random.default_rng(0)
    while True:
        action = pilot.act(info["state"]) + rng.normal(0.0, noise, 6)
        _, _, terminated, truncated, info = env.step(action.astype(np.float32))
        if terminated or truncated:
            return info


@pytest.fixture(scope="module")
def env():
    made = registry.make("pybullet-lift", seed=0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def task():
    made = GraspPrograms("lift")
    yield made
    made.close()


@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize("side", ["from above", "from the left", "from behind"])
def test_a_program_lifts_the_cube_from_home(env, task, side, noise):
    _, info = env.reset(seed=1)
    plan = task.plan(program(side, *WORDS[1:]))
    assert perform(env, ProgramPilot(plan, env.start, env.action_scale), info, noise)["success"]


def test_a_program_that_leaves_no_room_for_the_cube_fails(env, task):
    _, info = env.reset(seed=1)
    plan = task.plan(program(*WORDS[:3], "open 25 mm", *WORDS[4:]))
    assert not perform(env, ProgramPilot(plan, env.start, env.action_scale), info)["success"]


def test_every_phase_moves_the_tool_and_the_fingers_as_the_plan_says(env, task):
    _, info = env.reset(seed=1)
    pilot = ProgramPilot(task.plan(program(*WORDS)), env.start, env.action_scale)
    scale, phases = env.action_scale, []
    for _ in range(60):
        action = pilot.act(info["state"])
        phases.append(pilot._phase)
        opening = (action[4] + 1.0) / 2.0 * scale.opening
        force = scale.force_min + (action[5] + 1.0) / 2.0 * (scale.force_max - scale.force_min)
        assert force == pytest.approx(80.0, abs=0.01)
        if phases[-1] in ("approach", "descend"):
            assert opening == pytest.approx(0.085, abs=1e-6)
        elif phases[-1] in ("settle", "lift"):
            assert opening == 0.0
        if phases[-1] == "lift":
            assert action[2] * scale.position == pytest.approx(0.15 * 0.05, abs=1e-6)
            assert not action[[0, 1, 3]].any()
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    assert list(dict.fromkeys(phases)) == ["approach", "descend", "close", "settle", "lift"]
    assert phases.count("settle") in (6, 7)  # two steps, and 0.2 s of rest


def test_what_the_policy_sees_is_of_the_objects_of_the_task(task):
    (problem,) = task.problems("train", 1)
    assert problem.features.shape == features_of(task.objects, registry_start()).shape
    assert np.isfinite(problem.features).all()  # of an object that does not break, too
    assert "unbreakable" in task.describe_problem(problem.key)
    with pytest.raises(UserError, match="there is no task 'cups'; there are: programs, lift"):
        GraspPrograms("cups")
    with pytest.raises(UserError, match="call reset"):
        _ = registry.make("pybullet-lift", seed=0).start


def registry_start():
    env = registry.make("pybullet-lift", seed=0)
    env.reset(seed=0)
    return env.start
