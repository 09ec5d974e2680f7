"""Sampler and learner together: what is tried, remembered and learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grasp_control.mapo.config import METHODS, MAPOConfig
from grasp_control.mapo.learner import Learner, greedy_success
from grasp_control.mapo.sampler import Sampler
from grasp_sim.programs import Executor


def make(tiny, seed: int = 0, **settings):
    task = tiny()
    config = MAPOConfig(problems=4, hidden=16, **settings)
    problems = task.problems("train", 4)
    learner = Learner(task, 5, config, torch.Generator().manual_seed(seed))
    execute = Executor(task, config.check_share, np.random.default_rng(seed))
    generator = torch.Generator().manual_seed(seed)
    return task, problems, learner, Sampler(problems, learner.policy, config, execute, generator)


def test_a_sampler_tries_everything_once_and_remembers_what_is_worth_something(tiny):
    task, problems, _, sampler = make(tiny, memory=100)
    tried = {number: [] for number in range(4)}
    for _ in range(60):
        for found in sampler.sample(range(4)):
            held = dict(found.memory)
            assert all(program not in held for program, _ in found.drawn)
            assert all(
                task.execute(problems[found.problem].key, p) == r for p, r in [*found.memory, *found.drawn]
            )
            tried[found.problem] += found.tried
    for number, problem in enumerate(problems):
        assert sorted(tried[number]) == sorted(task.programs)
        worth = {p: task.execute(problem.key, p) for p in task.programs}
        assert sampler.memory.of(problem.key) == {p: r for p, r in worth.items() if r > 0}
    assert sampler.tried == 4 * len(task.programs)


def test_a_sampler_that_takes_over_knows_what_was_tried(tiny):
    *_, sampler = make(tiny)
    tried = {number: [] for number in range(4)}
    for _ in range(3):
        for found in sampler.sample(range(4)):
            tried[found.problem] += found.tried
    *_, other = make(tiny)
    other.recall(tried)
    assert other.memory.state() == sampler.memory.state()
    again = [
        program
        for found in other.sample(range(4))
        for program in found.tried
        if program in tried[found.problem]
    ]
    assert not again


def test_without_remembering_an_update_has_only_its_own_finds(tiny):
    *_, sampler = make(tiny, remember=False, explored=5)
    for _ in range(5):
        for found in sampler.sample(range(4)):
            assert {program for program, _ in found.memory} <= set(found.tried)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method, tiny):
    task, problems, learner, sampler = make(tiny, method=method, learning_rate=0.01, drawn=4)
    best = np.mean([max(task.execute(p.key, program) for program in task.programs) for p in problems])
    before = greedy_success(learner.policy, problems, Executor(task))
    for _ in range(60):
        stats = learner.update(sampler.sample(range(4)), problems)
    after = greedy_success(learner.policy, problems, Executor(task))
    assert np.isfinite(list(stats.values())).all()
    assert after >= 0.75 * best > before


def test_the_same_seed_learns_the_same(tiny):
    weights = []
    for _ in range(2):
        _, problems, learner, sampler = make(tiny)
        for _ in range(5):
            learner.update(sampler.sample(range(4)), problems)
        weights.append(torch.cat([p.flatten() for p in learner.policy.parameters()]))
    assert torch.equal(*weights)


def test_with_nothing_found_nothing_is_learned(tiny):
    _, problems, learner, sampler = make(tiny, method="hard-em", entropy=0.0)
    before = [parameter.clone() for parameter in learner.policy.parameters()]
    sampler._execute = lambda key, program: 0.0
    learner.update(sampler.sample(range(4)), problems)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "mappo"}, "mapo"),
        ({"clip": 1.5}, "clip=1.5 must be from 0 to 1"),
        ({"false_positives": 0.0}, "false_positives=0.0 must be between 0 and 1"),
        ({"drawn": 0}, "method=mapo learns from drawn programs"),
        ({"method": "hard-em", "drawn": 0, "explored": 0}, "no program would ever be tried"),
        ({"entropy": -0.1}, "entropy=-0.1"),
        ({"problems": 0}, "problems=0"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(ValueError, match=words):
        MAPOConfig(**settings)
