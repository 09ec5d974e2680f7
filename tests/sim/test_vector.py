"""Environments in processes: what they hand back, and what is said when one is lost."""

from typing import Any

import numpy as np
import pytest

from grasp_sim import registry
from grasp_sim.errors import UserError
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
        np.testing.assert_array_equal(after[1], alone.reset()[0])
        vector.processes[1].kill()
        vector.processes[1].join()
        with pytest.raises(ProcessLost, match=r"environment 1 of 2 has ended.*Make the environments again"):
            vector.step(up)
    finally:
        vector.close()
    assert not any(process.is_alive() for process in vector.processes)


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_a_wrong_count_is_refused(count: Any) -> None:
    with pytest.raises(UserError, match="environments are asked for"):
        make_vector("pybullet-lift", count)


def test_a_wrong_setting_is_refused_before_any_process_starts() -> None:
    with pytest.raises(UserError, match="horizon is 0"):
        make_vector("pybullet-lift", 2, horizon=0)
