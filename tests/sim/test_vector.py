"""Environments in processes: what they hand back, and what is said when one is lost."""

from typing import Any

import numpy as np
import pytest

from grasp_sim import registry
from grasp_sim.contract import ContractError
from grasp_sim.errors import UserError
from grasp_sim.tasks import Difficulty
from grasp_sim.vector import ProcessLost, make_vector


def test_processes_do_what_one_environment_does_and_a_killed_one_is_one_clear_line() -> None:
    vector = make_vector("pybullet-objects", 2, seed=4, horizon=2)
    try:
        alone = registry.make("pybullet-objects", seed=5, horizon=2)
        observations, _ = vector.reset()
        np.testing.assert_array_equal(observations[1], alone.reset()[0])
        up = np.tile(np.array([0, 0, 1, 0, 1, 0], dtype=np.float32), (2, 1))
        np.testing.assert_array_equal(vector.step(up)[0][1], alone.step(up[1])[0])
        after, _, _, truncated, info = vector.step(up)
        assert truncated.all()
        np.testing.assert_array_equal(info["final_obs"][1], alone.step(up[1])[0])
        assert info["_final_obs"].all()
        np.testing.assert_array_equal(info["final_info"]["executed_action"], up)
        np.testing.assert_array_equal(after[1], alone.reset()[0])
        vector.processes[1].kill()
        vector.processes[1].join()
        with pytest.raises(ProcessLost, match=r"environment 1 of 2 has ended.*Make the environments again"):
            vector.step(up)
    finally:
        vector.close()
    assert not any(process.is_alive() for process in vector.processes)


def test_environments_of_one_process_are_as_apart_as_those_of_several() -> None:
    vector = make_vector("pybullet-objects", 3, processes=2, seed=4, horizon=3)
    alone = [registry.make("pybullet-objects", seed=4 + i, horizon=3) for i in range(3)]
    try:
        assert len(vector.processes) == 2
        observations, _ = vector.reset(seed=20)
        np.testing.assert_array_equal(observations, [e.reset(seed=20 + i)[0] for i, e in enumerate(alone)])
        actions = np.random.default_rng(0).uniform(-1, 1, (2, 3, 6)).astype(np.float32)
        for action in actions:
            found = vector.step(action)
            expected = [env.step(a) for env, a in zip(alone, action, strict=True)]
            np.testing.assert_array_equal(found[0], [step[0] for step in expected])
            assert not found[2].any()
            np.testing.assert_array_equal(found[4]["success"], [step[4]["success"] for step in expected])
        with pytest.raises(UserError, match="must be"):
            vector.step(actions[0, :2])
        with pytest.raises(ContractError, match="finite"):
            vector.step(np.full((3, 6), np.nan, dtype=np.float32))
        with pytest.raises(ContractError, match="environment 1 is not finite"):
            vector.step(np.full((3, 6), 0.1) + np.array([[0.0], [1e300], [0.0]]))
        with pytest.raises(UserError, match=r"difficulty is 0\.5"):
            vector.difficulty = 0.5
        vector.difficulty = Difficulty(distance=0.0)
        observations, _ = vector.reset(seed=1)
        alone[2].difficulty = Difficulty(distance=0.0)
        np.testing.assert_array_equal(observations[2], alone[2].reset(seed=3)[0])
    finally:
        vector.close()
    with pytest.raises(UserError, match="closed"):
        vector.step(actions[0])


def test_an_interrupted_question_closes_the_environments_so_that_no_answer_is_taken_for_another() -> None:
    vector = make_vector("pybullet-lift", 2)
    vector.reset(seed=0)
    pipe = vector._pipes[1]

    class Interrupted:
        def send(self, message: Any) -> None:
            pipe.send(message)

        def recv(self) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            pipe.close()

    vector._pipes[1] = Interrupted()  # type: ignore[call-overload]
    with pytest.raises(KeyboardInterrupt):
        vector.step(np.zeros((2, 6), dtype=np.float32))
    with pytest.raises(UserError, match="closed: make them again"):
        vector.reset()
    assert not any(process.is_alive() for process in vector.processes)


@pytest.mark.parametrize("processes", [0, 3, 1.5])
def test_a_wrong_number_of_processes_is_refused(processes: Any) -> None:
    with pytest.raises(UserError, match="processes are asked for; they must be from 1 to 2"):
        make_vector("pybullet-lift", 2, processes=processes)


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_a_wrong_count_is_refused(count: Any) -> None:
    with pytest.raises(UserError, match="environments are asked for"):
        make_vector("pybullet-lift", count)


def test_a_wrong_setting_is_refused_before_any_process_starts() -> None:
    with pytest.raises(UserError, match="horizon is 0"):
        make_vector("pybullet-lift", 2, horizon=0)
