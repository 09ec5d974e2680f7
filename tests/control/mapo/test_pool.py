"""Samplers in processes: each problem in one place, nothing runs away, a lost one is replaced."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
import torch

from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.learner import Learner
from grasp_control.mapo.pool import AHEAD, SamplerPool
from grasp_sim.list_programs import ListPrograms
from grasp_sim.programs import ProgramError

PROBLEMS = 12


class Broken(ListPrograms):
    """Rewards more than it may."""

    def execute(self, key, program) -> float:
        return 2.0


class Stuck(ListPrograms):
    """Hangs in its first process."""

    def execute(self, key, program) -> float:
        flag = os.environ["STUCK"]
        if not os.path.exists(flag):
            open(flag, "w").close()
            time.sleep(1000)
        return super().execute(key, program)


class Deadly(ListPrograms):
    """Ends its process."""

    def execute(self, key, program) -> float:
        os._exit(3)


@pytest.fixture
def learner():
    problems = ListPrograms().problems("train", PROBLEMS)
    config = MAPOConfig(problems=3, hidden=16)
    generator = torch.Generator().manual_seed(0)
    return problems, config, Learner(ListPrograms(), len(problems[0].features), config, generator)


def learn(pool, learner, problems, updates: int, rng) -> list:
    """Keep all samplers busy and learn from what comes."""
    everything = []
    for _ in range(updates):
        for sampler in pool.idle():
            numbers = rng.choice(pool.owned(sampler), 3, replace=False)
            pool.request(sampler, [int(n) for n in numbers], learner.policy.state_dict())
        found = pool.collect()
        learner.update(found, problems)
        everything += found
    return everything


def test_samplers_in_processes_try_nothing_twice_and_are_kept_in_step(learner):
    problems, config, own = learner
    with SamplerPool(ListPrograms, problems, config, 2, seed=1) as pool:
        assert [list(pool.owned(s))[:2] for s in range(2)] == [[0, 2], [1, 3]]
        everything = learn(pool, own, problems, 12, np.random.default_rng(0))
        for sampler in pool.idle():
            while sampler in pool.idle():
                pool.request(sampler, [sampler], own.policy.state_dict())
            with pytest.raises(ValueError, match=f"has {AHEAD} requests already"):
                pool.request(sampler, [sampler], own.policy.state_dict())
            break
    tried = [(one.problem, program) for one in everything for program in one.tried]
    assert len(tried) == len(set(tried)) > 50
    with pytest.raises(ValueError, match="does not own"):
        SamplerPool(ListPrograms, problems, config, 2, seed=1).request(0, [1], {})
    with pytest.raises(ValueError, match="processes=0"):
        SamplerPool(ListPrograms, problems, config, 0, seed=1)


def test_a_killed_sampler_is_replaced_and_knows_what_was_tried(learner):
    problems, config, own = learner
    rng = np.random.default_rng(0)
    with SamplerPool(ListPrograms, problems, config, 2, seed=1) as pool:
        before = learn(pool, own, problems, 6, rng)
        os.kill(pool._workers[0]._process.pid, signal.SIGKILL)
        after = learn(pool, own, problems, 5, rng)
        end = time.monotonic() + 60.0
        while {one.problem % 2 for one in after} != {0, 1} and time.monotonic() < end:
            after += learn(pool, own, problems, 1, rng)
        assert pool.replaced == 1
    tried = [(one.problem, program) for one in [*before, *after] for program in one.tried]
    assert len(tried) == len(set(tried))
    assert {one.problem % 2 for one in after} == {0, 1}
    memories = {}
    for one in [*before, *after]:
        known = memories.setdefault(one.problem, set())
        assert known <= set(one.memory)  # nothing that was found is forgotten
        known |= {scored for scored in one.memory if scored[1] > 0}


def test_a_sampler_that_hangs_is_replaced(learner, tmp_path, monkeypatch):
    problems, config, own = learner
    monkeypatch.setenv("STUCK", str(tmp_path / "flag"))
    with SamplerPool(Stuck, problems, config, 1, seed=1, patience=5.0) as pool:
        assert learn(pool, own, problems, 2, np.random.default_rng(0))
        assert pool.replaced == 1


def test_a_task_that_breaks_its_promises_ends_the_learning(learner):
    problems, config, own = learner
    with (
        SamplerPool(Broken, problems, config, 1, seed=1) as pool,
        pytest.raises(ProgramError, match=r"with 2.0; it must be from 0 to 1"),
    ):
        learn(pool, own, problems, 1, np.random.default_rng(0))
    with (
        SamplerPool(ListPrograms, problems, config, 1, seed=1) as pool,
        pytest.raises(ValueError, match="nothing was requested"),
    ):
        pool.collect()


def test_samplers_that_die_again_and_again_end_the_learning(learner):
    problems, config, own = learner
    with (
        SamplerPool(Deadly, problems, config, 1, seed=1) as pool,
        pytest.raises(ProgramError, match="sampler 0 died or hung 3 times without an answer"),
    ):
        learn(pool, own, problems, 1, np.random.default_rng(0))
