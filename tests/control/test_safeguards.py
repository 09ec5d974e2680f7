"""Protection against collapse: when it acts, when it stays quiet, and what it asks for."""

from __future__ import annotations

import numpy as np
import pytest

from grasp_control.empo2.safeguards import (
    Action,
    Event,
    Safeguards,
    SafeguardsConfig,
    standard_errors_below,
)

SMALL = SafeguardsConfig(recent_episodes=10, reference_episodes=30, patience=10)


def feed(
    guard: Safeguards, rate: float, episodes: int, rng: np.random.Generator, step: int = 0
) -> list[Event]:
    """Sparse returns of a policy that succeeds with `rate`, 50 steps an episode."""
    events = [guard.observe(float(rng.random() < rate), step + 50 * (i + 1)) for i in range(episodes)]
    return [event for event in events if event is not None]


def test_standard_errors_by_hand() -> None:
    # Means 1.5 and 0; the usual ones' variance is 1/3: sqrt(1/3 * (1/2 + 1/4)) = 1/2.
    usual, recent = [1.0, 2.0, 1.0, 2.0], [0.0, 0.0]
    assert standard_errors_below(recent, usual) == pytest.approx(3.0)
    assert standard_errors_below([3.0, 3.0], usual) == pytest.approx(-3.0)
    assert standard_errors_below([1.0, 1.0], [1.0, 1.0]) == 0.0
    assert standard_errors_below([0.0, 0.0], [1.0, 1.0]) == np.inf


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_steady_policy_is_left_alone(rate: float) -> None:
    guard = Safeguards(SafeguardsConfig())
    assert feed(guard, rate, 2000, np.random.default_rng(0)) == []
    assert guard.lambda_factor == 1.0


def test_a_slow_improvement_and_a_small_dip_are_no_collapse() -> None:
    guard, rng = Safeguards(SafeguardsConfig()), np.random.default_rng(1)
    assert [feed(guard, rate, 100, rng) for rate in (0.3, 0.5, 0.7, 0.9, 0.75, 0.9)] == [[]] * 6


def test_a_collapse_raises_lambda_and_recovery_lowers_it() -> None:
    guard, rng = Safeguards(SMALL), np.random.default_rng(0)
    assert feed(guard, 0.8, 60, rng) == []
    events = feed(guard, 0.0, 10, rng)
    assert [event.action for event in events] == [Action.RAISE_LAMBDA]
    assert "standard errors below" in events[0].cause
    assert guard.lambda_factor == SMALL.lambda_factor
    events = feed(guard, 0.8, 30, rng)
    assert [event.action for event in events] == [Action.LOWER_LAMBDA]
    assert guard.lambda_factor == 1.0


def test_a_lasting_collapse_rolls_back_further_each_time() -> None:
    guard, rng = Safeguards(SMALL), np.random.default_rng(0)
    feed(guard, 0.8, 60, rng)
    events = feed(guard, 0.0, 40, rng, step=3000)
    assert [event.action for event in events] == [Action.RAISE_LAMBDA, *[Action.ROLL_BACK] * 3]
    assert [event.number for event in events[1:]] == [0, 1, 2]
    # The drop was found among the last ten episodes; it began no later than the first bad one at step 3050.
    assert all(2500 <= event.before_step <= 3050 for event in events[1:])


def test_saved_safeguards_go_on_as_if_never_stopped() -> None:
    first, rng = Safeguards(SMALL), np.random.default_rng(0)
    feed(first, 0.8, 60, rng)
    feed(first, 0.0, 8, rng)
    second = Safeguards(SMALL)
    second.load(first.state())
    assert feed(second, 0.0, 30, np.random.default_rng(5)) == feed(first, 0.0, 30, np.random.default_rng(5))


def test_after_three_rollbacks_the_policy_is_left_alone() -> None:
    guard, rng = Safeguards(SMALL), np.random.default_rng(0)
    feed(guard, 0.8, 60, rng)
    events = feed(guard, 0.0, 200, rng)
    assert [event.action for event in events] == [
        Action.RAISE_LAMBDA,
        *[Action.ROLL_BACK] * 3,
        Action.LOWER_LAMBDA,
    ]
    assert "from now on that is the usual one" in events[-1].cause
    assert guard.lambda_factor == 1.0


def test_checkpoints_from_before_a_drop_are_needed_while_it_lasts() -> None:
    guard, rng = Safeguards(SMALL), np.random.default_rng(0)
    feed(guard, 0.8, 60, rng)
    assert guard.drop_step is None
    feed(guard, 0.0, 10, rng, step=3000)
    assert guard.drop_step is not None
    assert guard.drop_step <= 3050
    feed(guard, 0.8, 30, rng)
    assert guard.drop_step is None


def test_critics_explode_only_beyond_what_returns_explain() -> None:
    guard = Safeguards(SMALL)
    assert guard.observe_values(1e9, 0) is None  # no return is known yet
    guard.observe(1.0, 50)
    assert guard.observe_values(9.9, 60) is None
    events = [guard.observe_values(-10.1, step) for step in (70, 80)]
    assert [(event.action, event.number) for event in events if event] == [
        (Action.ROLL_BACK, 0),
        (Action.ROLL_BACK, 1),
    ]
    guard.observe_values(0.5, 90)
    event = guard.observe_values(11.0, 100)
    assert event is not None
    assert event.number == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"outlier_share": 1.5}, "outlier_share=1.5 must be from 0 to 1"),
        ({"certainty": float("nan")}, "certainty=nan"),
        ({"lambda_factor": 0.5}, "lambda_factor=0.5"),
        ({"patience": 1}, "patience=1 must be at least 2"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SafeguardsConfig(**setting)
