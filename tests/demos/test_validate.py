"""Defects are named by episode, step and dimension; nothing is repaired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_demos.episode import DemoError
from grasp_demos.validate import require_valid, state_names, validate
from grasp_sim.contract import STATE_WIDTH


def changed(episode, name, index, value):
    array = getattr(episode, name).copy()
    array[index] = value
    return replace(episode, **{name: array})


def the_defect(episode):
    (defect,) = validate(episode)
    return defect


def test_a_good_episode_has_no_defects(make_episode):
    assert validate(make_episode(steps=30)) == []
    require_valid([make_episode(index=k) for k in range(3)])


def test_state_columns_are_named():
    names = state_names()
    assert len(names) == STATE_WIDTH
    assert names[:2] == ("joint_positions[0]", "joint_positions[1]")
    assert names[-1] == "time"


@pytest.mark.parametrize("name", ["intended_actions", "executed_actions"])
def test_an_action_of_seven_and_a_half_names_step_and_dimension(make_episode, name):
    episode = changed(make_episode(), name, (2, 1), 7.5)
    if name == "executed_actions":
        episode = changed(episode, "requested_actions", (2, 1), 7.5)
    defect = next(d for d in validate(episode) if "outside" in d.problem)
    assert (defect.step, defect.dimension) == (2, "delta_y")
    assert f"{name} holds 7.5" in defect.problem


def test_a_requested_action_may_be_out_of_range_when_the_executed_one_is_its_clip(make_episode):
    episode = changed(make_episode(), "requested_actions", (1, 0), 3.0)
    assert the_defect(episode).problem.endswith("is not the requested action clipped to [-1, 1]")
    assert validate(changed(episode, "executed_actions", (1, 0), 1.0)) == []


@pytest.mark.parametrize(
    ("name", "index", "dimension"),
    [
        ("intended_actions", (3, 5), "force_limit"),
        ("observations", (4, 0), "tcp_height"),
        ("states", (1, 7), "joint_velocities[1]"),
        ("rewards", 2, "reward"),
    ],
)
def test_nan_is_named(make_episode, name, index, dimension):
    defect = the_defect(changed(make_episode(), name, index, np.nan))
    assert (defect.step, defect.dimension) == (index if name == "rewards" else index[0], dimension)
    assert f"{name} holds nan, which is not finite" in defect.problem


def test_wrong_widths_and_lengths_are_named(make_episode):
    episode = make_episode()
    cases = {
        "requested_actions": np.zeros((4, 7)),
        "states": np.zeros((4, STATE_WIDTH)),
        "slips": np.zeros(3, bool),
    }
    for name, value in cases.items():
        defect = the_defect(replace(episode, **{name: value}))
        assert defect.dimension == name
        assert f"has shape {value.shape}; it must be" in defect.problem
    assert the_defect(replace(episode, executed_actions=np.zeros((0, 6)))).problem == "has no steps"


def test_metadata_is_checked(make_episode):
    episode = make_episode()
    cases = {"contract_version": 0, "kind": "humanlike", "task": "", "control_mode": "", "rate_hz": 0.0}
    for name, value in cases.items():
        assert (
            the_defect(replace(episode, metadata=replace(episode.metadata, **{name: value}))).dimension
            == name
        )
    broken = replace(episode, metadata=replace(episode.metadata, complete=False))
    assert the_defect(broken).dimension == "success"


def test_time_must_increase_and_sources_must_not_go_back(make_episode):
    episode = make_episode()
    column = state_names().index("joint_time")
    assert validate(changed(episode, "states", (2, column), episode.states[1, column])) == []
    assert the_defect(changed(episode, "states", (2, column), 0.0)).dimension == "joint_time"
    column = state_names().index("time")
    repeated = changed(episode, "states", (2, column), episode.states[1, column])
    defect = next(d for d in validate(repeated) if d.dimension == "time")
    assert defect.step == 1


def test_an_observation_that_is_not_its_states_encoding_is_named(make_episode):
    episode = changed(make_episode(), "observations", (3, 1), 0.5)
    defect = the_defect(episode)
    assert (defect.step, defect.dimension) == (3, "gripper_opening")
    assert "the observation holds 0.5" in defect.problem


def test_steps_after_the_end_are_named(make_episode):
    assert the_defect(changed(make_episode(), "terminations", 1, True)).step == 1


def test_training_gets_one_error_with_the_file_in_it(make_episode, tmp_path):
    episode = changed(make_episode(), "intended_actions", (slice(None), 0), 7.5)
    episode = replace(episode, path=tmp_path / "episode_000000.npz")
    with pytest.raises(
        DemoError, match=r"episode_000000\.npz, step 0, delta_x: .*\(4 steps\)\. Mend or delete"
    ):
        require_valid([make_episode(), episode])


def test_one_number_in_place_of_the_actions_is_named(make_episode):
    defects = validate(replace(make_episode(), executed_actions=np.float32(0.5)))
    assert "episode 0, executed_actions: has shape (); it must be (1, 6)" in [str(d) for d in defects]


def test_a_negative_seed_or_horizon_is_named(make_episode):
    defects = validate(make_episode(seed=-3, horizon=-1))
    assert [(d.dimension, d.problem) for d in defects] == [
        ("seed", "is -3; it must not be negative"),
        ("horizon", "is -1; it must not be negative"),
    ]


def test_a_snapshot_that_is_not_finite_is_named(make_episode):
    defect = the_defect(replace(make_episode(), snapshot={"numbers": np.array([0.0, np.nan])}))
    assert (defect.dimension, defect.problem) == ("numbers", "of the simulator's snapshot is not finite")
