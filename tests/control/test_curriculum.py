"""The difficulty of training episodes follows success."""

import pytest

from grasp_control.empo2.curriculum import Curriculum, CurriculumConfig
from grasp_sim.tasks import Difficulty


def shares(curriculum: Curriculum, outcomes: list[bool]) -> list[float]:
    found = []
    for outcome in outcomes:
        curriculum.observe(outcome)
        found.append(round(curriculum.share, 6))
    return found


def test_it_rises_with_success_stays_between_and_falls_with_failure():
    curriculum = Curriculum(CurriculumConfig(enabled=True, start=0.5, step=0.1, episodes=4))
    assert shares(curriculum, [True, True, True, False]) == [0.5, 0.5, 0.5, 0.6]
    assert shares(curriculum, [True, True, False, False])[-1] == 0.6
    assert shares(curriculum, [False] * 4)[-1] == 0.5


def test_it_stays_within_the_task():
    curriculum = Curriculum(CurriculumConfig(enabled=True, start=0.9, step=0.3, episodes=1))
    assert shares(curriculum, [True, True]) == [1.0, 1.0]
    assert curriculum.difficulty == Difficulty()
    assert shares(curriculum, [False] * 5)[-1] == 0.0


def test_without_it_the_whole_task_is_trained_on():
    curriculum = Curriculum(CurriculumConfig())
    assert shares(curriculum, [False] * 100) == [1.0] * 100


def test_saved_it_goes_on():
    first = Curriculum(CurriculumConfig(enabled=True, episodes=4))
    shares(first, [True, True])
    second = Curriculum(CurriculumConfig(enabled=True, episodes=4))
    second.load(first.state())
    assert shares(second, [True] * 6) == shares(first, [True] * 6)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"start": 1.5}, "start=1.5 must be from 0 to 1"),
        ({"lower_at": 0.7}, "lower_at=0.7 must be below raise_at=0.6"),
        ({"episodes": 0}, "episodes=0"),
    ],
)
def test_contradictory_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        CurriculumConfig(**setting)
