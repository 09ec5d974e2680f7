"""Grasp programs do in the simulators what their words say."""

from __future__ import annotations

import itertools
import operator
import subprocess
import sys

import numpy as np
import pytest

from grasp_sim.errors import UserError
from grasp_sim.program_env import BREAKING, FORCES, HOLDING, OBJECTS, TOKENS, GraspPrograms, problem_of
from grasp_sim.programs import ProgramError, is_whole, require_grammar

RESTING = ("settle", "lift slowly", "end")


@pytest.fixture(scope="module")
def task():
    made = GraspPrograms()
    yield made
    made.close()


def program(*words: str) -> tuple[int, ...]:
    return tuple(TOKENS.index(word) for word in words)


def plain(force: float, *ending: str, side="from above", yaw="0 deg", width="open 85 mm"):
    rest = ending or RESTING
    return program(side, "9 cm up", yaw, width, f"{force:g} N", "close slowly", *rest)


def fitting_force(key: str) -> float | None:
    """A force that holds the object, with a margin of a tenth, and does not break it; None without any."""
    rules, start = problem_of(OBJECTS, key)
    low, high = 1.1 * start.object.holding_force, 0.9 * rules.breaking_force
    return next((force for force in FORCES if low < force < high), None)


def test_a_program_has_one_token_of_each_kind_and_may_rest(task):
    assert is_whole(task, plain(20.0))
    assert is_whole(task, plain(20.0, "lift slowly", "end"))
    assert not is_whole(task, plain(20.0, "settle", "end"))
    assert not is_whole(task, plain(20.0)[:-1])
    aside = task.legal(program("from the left"))
    assert [TOKENS[token] for token in np.flatnonzero(aside)] == ["9 cm up", "12 cm up"]
    counts = list(
        itertools.accumulate([11, 6, 5, 8, 2], operator.mul)
    )  # sides and heights come as 5, then 11
    closed = counts[-1]
    counts = [5, *counts, closed, 2 * closed * 3, 2 * closed * 3]  # settled, lifted, ended
    assert require_grammar(task, most=200_000) == 1 + sum(counts)
    with pytest.raises(ProgramError, match="does not end"):
        task.execute("train/0", plain(20.0)[:-1])


def test_the_plain_program_with_a_fitting_force_lifts_nearly_every_object(task):
    keys = [f"train/{number}" for number in range(40) if fitting_force(f"train/{number}")]
    assert len(keys) >= 20
    lifted = [task.execute(key, plain(fitting_force(key))) for key in keys]
    assert np.mean(lifted) >= 0.85
    assert np.mean([task.execute(key, plain(FORCES[-1])) for key in keys]) == 0.0  # all break


def test_too_little_force_lets_the_object_slip(task):
    keys = [f"train/{n}" for n in range(60)]
    heavy = [key for key in keys if problem_of(OBJECTS, key)[1].object.holding_force > 45.0]
    assert len(heavy) >= 5
    assert np.mean([task.execute(key, plain(FORCES[0])) for key in heavy]) == 0.0


def test_fingers_closer_than_the_object_is_wide_do_not_grasp_it(task):
    wide = [
        key
        for key in (f"train/{number}" for number in range(60))
        if problem_of(OBJECTS, key)[1].object.size[0] > 0.045 and fitting_force(key)
    ]
    assert len(wide) >= 4
    lifted = [task.execute(key, plain(fitting_force(key), width="open 25 mm")) for key in wide]
    assert np.mean(lifted) <= 0.25


def test_the_same_program_has_the_same_reward_in_another_process(task):
    rng = np.random.default_rng(4)
    programs = []
    for _ in range(6):
        written: tuple[int, ...] = ()
        while len(legal := np.flatnonzero(task.legal(written))):
            written = (*written, int(rng.choice(legal)))
        programs.append(written)
    programs[0] = plain(fitting_force("train/1") or 40.0)
    here = [task.execute("train/1", one) for one in programs]
    assert here == [task.execute("train/1", one) for one in programs]
    script = (
        "from grasp_sim.program_env import GraspPrograms\n"
        f"task = GraspPrograms(); print([task.execute('train/1', p) for p in {programs!r}])"
    )
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert there.stdout.strip().splitlines()[-1] == repr(here)


def test_the_same_problem_can_be_solved_in_robosuite():
    other = GraspPrograms(simulator="robosuite")
    key = next(f"train/{n}" for n in range(40) if fitting_force(f"train/{n}"))
    assert other.execute(key, plain(fitting_force(key))) == 1.0
    assert other.execute(key, plain(FORCES[-1])) == 0.0
    other.close()


def test_problems_are_the_same_every_time_and_within_their_ranges(task):
    for split in ("train", "held-out"):
        problems = task.problems(split, 50)
        assert len({problem.key for problem in problems}) == 50
        for problem in problems:
            assert np.abs(problem.features).max() < 3.0
            rules, start = problem_of(OBJECTS, problem.key)
            assert HOLDING[0] - 1e-9 <= start.object.holding_force <= HOLDING[1] + 1e-9
            assert BREAKING[0] <= rules.breaking_force / start.object.holding_force <= BREAKING[1]
    np.testing.assert_array_equal(
        task.problems("train", 2)[1].features, task.problems("train", 9)[1].features
    )
    with pytest.raises(UserError, match="split=all"):
        task.problems("all", 1)


def test_words_say_what_is_done(task):
    assert task.describe(plain(56.0)) == (
        "from above, 9 cm up, 0 deg, open 85 mm, 56 N, close slowly, settle, lift slowly"
    )
