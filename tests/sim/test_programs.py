"""Programs are executed once; a task that breaks its promises is refused. And the list problems."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_sim.errors import UserError
from grasp_sim.list_programs import END, TOKENS, ListPrograms, examples_of, run, solution_of
from grasp_sim.programs import Executor, ProgramError, is_whole, require_grammar

TASK = ListPrograms()


class Rewarding(ListPrograms):
    """Answers what it is told."""

    def __init__(self, *rewards: float) -> None:
        self.rewards = list(rewards)

    def execute(self, key, program) -> float:
        return self.rewards.pop(0)


def test_a_program_is_executed_once():
    execute = Executor(Rewarding(1.0, 0.5))
    assert [execute("train/0", (0, END)) for _ in range(3)] == [1.0] * 3
    assert execute("train/1", (0, END)) == 0.5
    assert execute.executed == 2


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan")])
def test_a_reward_out_of_range_is_refused(reward):
    with pytest.raises(ProgramError, match=r"lists rewards 'reverse' on train/0 with .*; it must be from 0"):
        Executor(Rewarding(reward))("train/0", (0, END))


def test_chance_is_noticed_when_programs_are_executed_again():
    execute = Executor(Rewarding(1.0, 1.0, 1.0, 0.0), check_share=1.0, rng=np.random.default_rng(0))
    assert execute("train/0", (0, END)) == 1.0
    with pytest.raises(ProgramError, match="not deterministic: 'sort' on train/0 was worth 1, and 0 when"):
        execute("train/0", (1, END))
    with pytest.raises(ValueError, match="check_share needs an rng"):
        Executor(TASK, check_share=0.1)


def test_list_programs_end_after_a_number_and_after_three_functions():
    names = {name: number for number, name in enumerate(TOKENS)}
    assert not TASK.legal(())[END]
    assert TASK.legal(()).sum() == END
    assert list(np.flatnonzero(TASK.legal((names["sum"],)))) == [END]
    assert TASK.legal((0, 0)).all()
    assert list(np.flatnonzero(TASK.legal((0, 0, 0)))) == [END]
    assert not TASK.legal((0, END)).any()
    chains = 8 + 8**2 + 8**3 + 4 * (1 + 8 + 8**2)
    assert require_grammar(TASK) == 1 + 2 * chains  # each chain, whole and not
    assert is_whole(TASK, (0, names["sum"], END))
    assert not is_whole(TASK, (0, names["sum"]))
    assert not is_whole(TASK, (names["sum"], 0, END))
    assert TASK.describe((names["sort"], names["double"], END)) == "sort, then double"


@pytest.mark.parametrize(
    ("words", "given", "made"),
    [
        (["sort", "reverse", "first"], [3, -1, 7], 7),
        (["keep positive", "double", "sum"], [3, -2, 4], 14),
        (["differences", "running sums"], [1, 4, 2], [3, 1]),
        (["keep positive", "greatest"], [-1, -2], None),
        (["running sums", "running sums"], [9, 990], None),
        (["double", "drop first", "drop first", "add one"], [1, 2, 3], [7]),
        (["count", "sum"], [1], None),
    ],
)
def test_functions_do_what_they_say(words, given, made):
    assert run(tuple(TOKENS.index(word) for word in words), given) == made


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_problems_are_solved_by_their_program_and_not_by_a_shorter_one(split):
    problems = TASK.problems(split, 30)
    again = TASK.problems(split, 30)
    for problem, other in zip(problems, again, strict=True):
        np.testing.assert_array_equal(problem.features, other.features)
        assert np.abs(problem.features).max() <= 1.0
        solution = solution_of(problem.key)
        assert is_whole(TASK, solution)
        assert TASK.execute(problem.key, solution) == 1.0
        assert len(examples_of(problem.key)) == 5
        shorter = [(token, END) for token in range(END)]
        assert not any(TASK.execute(problem.key, program) for program in shorter)


def test_splits_share_no_problem_and_unknown_ones_are_refused():
    train, held_out = (
        {str(examples_of(p.key)) for p in TASK.problems(s, 200)} for s in ("train", "held-out")
    )
    assert len(train) == len(held_out) == 200
    assert not train & held_out
    with pytest.raises(UserError, match="split=test: there are train and held-out"):
        TASK.problems("test", 1)
    with pytest.raises(ProgramError, match="no whole program"):
        TASK.execute("train/0", (0,))
