"""Nothing is tried twice, everything is tried, and the policy's probabilities stay proportional."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from grasp_control.mapo.exploration import Explored
from grasp_control.mapo.grammar import Grammar
from grasp_control.mapo.memory import ProgramMemory
from grasp_control.mapo.policy import ProgramPolicy
from grasp_sim.programs import ProgramError, require_grammar


@pytest.fixture
def task(tiny):
    return tiny()


@pytest.fixture
def policy(task):
    made = ProgramPolicy(Grammar(task), 5, torch.Generator().manual_seed(1), hidden=8)
    with torch.no_grad():
        made.output.weight.mul_(100.0)
    return made


def features(task, row: int) -> torch.Tensor:
    return torch.from_numpy(task.problems("train", row + 1)[row].features)[None]


def test_exploration_never_proposes_an_explored_program_and_finds_all(task, policy):
    explored = Explored(policy.grammar, expected=10_000, false_positives=1e-9)
    generator = torch.Generator().manual_seed(2)
    for problem in range(2):
        found = []
        while not explored.finished(problem):
            allowed = [lambda prefix, problem=problem: explored.untried(problem, prefix)]
            (program,) = policy.write(features(task, problem), generator, allowed)
            assert program is not None
            found.append(program)
            explored.close(problem, program)
        assert sorted(found) == sorted(task.programs)  # each exactly once


def test_what_is_taken_for_tried_by_mistake_is_as_rare_as_asked(task):
    expected, rate = 2000, 0.02
    explored = Explored(Grammar(task), expected=expected, false_positives=rate)
    rng = np.random.default_rng(0)
    programs = [task.programs[place] for place in rng.integers(len(task.programs), size=expected)]
    for problem, program in enumerate(programs):
        explored._filter.add((problem, *program))
    wrong = sum(explored.finished(problem) for problem in range(10**6, 10**6 + 20_000))
    assert 0.2 * rate < wrong / 20_000 < 1.3 * rate


def test_a_prefix_that_only_chance_closed_is_left(task, policy):
    """With a filter that is full of mistakes writing ends, in programs that are new or in None."""
    explored = Explored(policy.grammar, expected=1, false_positives=0.5)
    generator = torch.Generator().manual_seed(2)
    proposed = []
    for _ in range(200):
        if explored.finished(0):
            break
        (program,) = policy.write(features(task, 0), generator, [lambda p: explored.untried(0, p)])
        if program is None:
            break
        proposed.append(program)
        explored.close(0, program)
    assert len(set(proposed)) == len(proposed) < len(task.programs)


def test_programs_are_written_as_often_as_their_probability_says(task, policy):
    generator = torch.Generator().manual_seed(3)
    count = 4000
    written = Counter(policy.write(features(task, 0).expand(count, -1), generator))
    with torch.no_grad():
        log_p, _ = policy.log_probs(features(task, 0).expand(len(task.programs), -1), task.programs)
    for program, probability in zip(task.programs, log_p.exp().tolist(), strict=True):
        error = (count * probability * (1.0 - probability)) ** 0.5
        assert abs(written[program] - count * probability) < 4.5 * error + 1.0


def test_the_likeliest_program_is_written_without_a_generator(task, policy):
    (greedy,) = policy.write(features(task, 0), None)
    assert greedy in task.programs
    (again,) = policy.write(features(task, 0), None)
    assert greedy == again


def test_entropy_is_that_of_the_choices_on_the_way(task, policy):
    program = task.programs[-1]
    _, entropy = policy.log_probs(features(task, 0), [program])
    state = policy.encoder(features(task, 0))
    code, before, total = state, policy.grammar.size, 0.0
    for length, token in enumerate(program):
        state = policy.cell(torch.cat([policy.tokens(torch.tensor([before])), code], dim=-1), state)
        logits = policy.output(state)[0][torch.from_numpy(policy.grammar.legal(program[:length]).copy())]
        p = torch.softmax(logits, dim=0)
        total -= float((p * p.log()).sum().detach())
        before = token
    assert float(entropy.detach()) == pytest.approx(total, rel=1e-5)


def test_memory_keeps_the_best_and_of_equals_the_first():
    memory = ProgramMemory(most=2)
    assert not memory.add("a", (1,), 0.0)
    assert memory.add("a", (1,), 0.5)
    assert not memory.add("a", (1,), 0.5)
    assert memory.add("a", (2,), 0.5)
    assert not memory.add("a", (3,), 0.5)
    assert memory.add("a", (4,), 0.9)
    assert memory.of("a") == {(1,): 0.5, (4,): 0.9}
    assert memory.best("a") == 0.9
    assert memory.best("b") == 0.0
    assert ("a", (4,)) in memory
    assert ("a", (2,)) not in memory
    other = ProgramMemory(most=2)
    other.load(memory.state())
    assert other.of("a") == memory.of("a")
    assert len(other) == 2
    with pytest.raises(ValueError, match="0 programs"):
        ProgramMemory(most=0)


def test_a_grammar_with_a_dead_end_is_refused(task):
    assert require_grammar(task) > len(task.programs)
    task.longest = 3
    task.legal = lambda prefix: np.ones(4, dtype=bool)
    with pytest.raises(ProgramError, match="tiny has a dead end: 'a a a' is as long as a program may be"):
        require_grammar(task)
    with pytest.raises(ProgramError, match="dead end"):
        Grammar(task).legal((0, 1, 2))
    task.legal = lambda prefix: np.zeros(4, dtype=bool)
    with pytest.raises(ProgramError, match="allows no token to begin with"):
        require_grammar(task)
    task.legal = lambda prefix: np.zeros(3)
    with pytest.raises(ProgramError, match=r"answers float64 \(3,\) to \(\); it must be bool \(4,\)"):
        require_grammar(task)
