"""The episodic memory, its filter, and how much it takes part, by hand (R4, R7, R8)."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.empo2.gate import PARTICIPATION
from grasp_control.study.arms import GATES, Arm, Participation
from grasp_control.study.filter import REPEATS, RepeatedSuccess
from grasp_control.study.memory import EpisodicMemory, Found
from grasp_sim.structures import TRAP_LOSS, TRAP_LUCK, TRAP_WIN


def episode(memory: EpisodicMemory, cells: list[int], actions: list[int], rewards: list[float]) -> bool:
    return memory.write(np.array(cells), np.array(actions), np.array(rewards), cells[-1])


def memory(capacity: int = 100, *, filtered: bool = False) -> EpisodicMemory:
    return EpisodicMemory(capacity, 0.5, filtered=filtered)


def test_an_empty_memory_finds_nothing():
    assert memory().retrieve(0) is None


def test_what_was_done_in_the_same_cell_or_beside_it_is_found_and_farther_away_nothing():
    one = memory()
    assert episode(one, [11, 12], [3, 1], [0.0, 1.0])
    assert one.retrieve(11) == Found(3, 0)
    assert one.retrieve(1) == Found(3, 1)  # the cell above
    assert one.retrieve(13) == Found(1, 1)
    assert one.retrieve(14) is None
    assert one.retrieve(19) is None  # row 1, column 9: no neighbour of row 2, column 0
    assert episode(one, [20], [2], [1.0])
    assert one.retrieve(19) is None


def test_a_detour_is_left_out_as_the_return_to_come_is_higher_after_it():
    """The cell 5 was left upwards at first, came by again, and was left to the right for the treasure."""
    one = memory()
    episode(one, [5, 6, 5, 4], [0, 2, 3, 1], [0.0, 0.0, 0.0, 1.0])
    assert one.retrieve(5) == Found(3, 0)


def test_an_episode_is_written_whole_with_the_return_that_came_at_its_end():
    one = memory()
    episode(one, [1, 2, 3], [0, 1, 2], [0.0, 0.0, 4.0])
    cells, actions, returns = one.sample(200, np.random.default_rng(0))
    assert set(zip(cells.tolist(), actions.tolist(), returns.tolist(), strict=True)) == {
        (1, 0, 1.0),
        (2, 1, 2.0),
        (3, 2, 4.0),
    }


def test_only_success_is_written():
    one = memory()
    assert not episode(one, [1], [0], [0.0])
    assert not episode(one, [1], [0], [-1.0])
    assert len(one) == one.writes == 0


def test_a_full_memory_keeps_the_episodes_that_were_paid_most():
    one = memory(capacity=4)
    assert episode(one, [1, 2], [0, 0], [0.0, 1.0])
    assert episode(one, [3, 4], [0, 0], [0.0, 3.0])
    assert episode(one, [5, 6], [0, 0], [0.0, 2.0])
    assert sorted(one.sample(100, np.random.default_rng(0))[0].tolist())[::99] == [3, 6]
    assert not episode(one, [7, 8], [0, 0], [0.0, 0.5])
    assert list(one.latest) == [1.0, 3.0, 2.0]


def test_the_filter_trusts_repeated_success_only():
    one = memory(filtered=True)
    assert [episode(one, [9], [0], [1.0]) for _ in range(REPEATS)] == [False] * (REPEATS - 1) + [True]
    assert (one.writes, one.refused) == (1, REPEATS - 1)


def test_the_filter_refuses_a_trap_that_was_lucky_once():
    one = memory(filtered=True)
    assert not episode(one, [62], [0], [TRAP_WIN])
    for _ in range(4):
        assert not episode(one, [62], [0], [TRAP_LOSS])
    assert not episode(one, [62], [0], [TRAP_WIN])
    assert len(one) == 0
    assert one.refused == 2


def trust(one: RepeatedSuccess, outcome: int, total: float) -> bool:
    one.observe(outcome, total)
    return one.trusts(outcome)


def test_the_filter_learns_to_refuse_traps_whatever_their_luck():
    rng, one = np.random.default_rng(0), RepeatedSuccess()
    paid = [TRAP_WIN if rng.random() < TRAP_LUCK else TRAP_LOSS for _ in range(500)]
    assert not any([trust(one, 62, total) for total in paid][50:])


def test_the_filter_keeps_a_success_that_is_noisy():
    rng, one = np.random.default_rng(0), RepeatedSuccess()
    assert np.mean([trust(one, 78, 1.5 + rng.normal()) for _ in range(50)]) > 0.9


def test_what_luck_brought_into_memory_is_forgotten_when_the_luck_ends():
    one = memory(filtered=True)
    for cell in (62, 78):
        assert [episode(one, [cell], [0], [TRAP_WIN]) for _ in range(3)] == [False, False, True]
    for _ in range(3):
        episode(one, [62], [1], [TRAP_LOSS])
    assert one.retrieve(62) is None
    assert one.retrieve(78) == Found(0, 0)
    assert len(one) == 1


def test_arms_are_read_and_contradictions_refused():
    assert Arm.parse("on+filter") == Arm("on", True)
    assert Arm.parse("adaptive") == Arm("adaptive", False)
    for text, message in (
        ("off+filter", "a filter of what is written needs a memory"),
        ("onn", "Did you mean 'on'"),
        ("on+filtr", "Did you mean 'filter'"),
    ):
        with pytest.raises(ValueError, match=message):
            Arm.parse(text)


STREAMS = {
    "sparse": np.r_[np.zeros(59), 1.0],
    "delayed": np.r_[np.zeros(59), -0.4],
    "dense": np.r_[np.full(59, 0.04), 0.04],
    "noisy": 0.1 * np.random.default_rng(0).normal(size=60),
}


def test_the_adaptive_gate_separates_the_structures():
    found = {}
    for structure, rewards in STREAMS.items():
        adaptive = Participation(Arm.parse("adaptive"), structure)
        for _ in range(10):
            adaptive.observe(rewards)
        found[structure] = adaptive.value
    assert found["sparse"] > 0.95
    assert found["delayed"] > 0.95
    assert found["dense"] == pytest.approx(PARTICIPATION["dense"], abs=0.05)
    assert found["noisy"] == pytest.approx(PARTICIPATION["noisy"], abs=0.15)


@pytest.mark.parametrize("gate", GATES)
def test_the_other_gates_do_not_look_at_the_rewards(gate):
    one = Participation(Arm.parse(gate), "dense")
    before = one.value
    one.observe(STREAMS["noisy"])
    assert (one.value == before) == (gate != "adaptive")
    assert before == {"off": 0.0, "on": 1.0, "told": PARTICIPATION["dense"], "adaptive": 1.0}[gate]
