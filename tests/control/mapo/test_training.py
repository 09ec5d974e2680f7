"""The loop goes on exactly where it stopped, with or without the rewards on disk."""

from __future__ import annotations

import pytest
import torch

from grasp_control.checkpoint import CheckpointError, CheckpointStore
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.training import Training
from grasp_sim.programs import Executor

CONFIG = MAPOConfig(problems=2, hidden=16, memory=3)


def make(tiny, config: MAPOConfig = CONFIG) -> Training:
    task = tiny(rewarded=0.3)
    return Training(task, task.problems("train", 4), config, 0, Executor(task))


def weights(training: Training) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in training.learner.policy.parameters()])


def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tiny, tmp_path):
    whole = make(tiny)
    for _ in range(12):
        whole.update()
    half = make(tiny)
    for _ in range(5):
        half.update()
    CheckpointStore(tmp_path).save(half.executions, {"training": half.state()})
    resumed = make(tiny)
    resumed.load(CheckpointStore(tmp_path).load_latest().state["training"])
    assert (resumed.updates, resumed.executions, resumed.tried) == (5, half.executions, half.tried)
    for _ in range(7):
        resumed.update()
    assert torch.equal(weights(resumed), weights(whole))
    assert (resumed.tried, resumed.solved) == (whole.tried, whole.solved)
    assert resumed.executions == whole.executions


def test_the_best_program_of_each_problem_is_known(tiny):
    training = make(tiny)
    for _ in range(40):
        training.update()
    task = tiny(rewarded=0.3)
    for number, program in training.solved.items():
        rewards = [task.execute(f"train/{number}", one) for one in training.tried[number]]
        assert task.execute(f"train/{number}", program) == max(rewards) > 0.0
    assert set(training.solved) == {
        number
        for number, programs in training.tried.items()
        if any(task.execute(f"train/{number}", program) for program in programs)
    }


def test_executions_count_repeated_ones_and_tried_does_not(tiny):
    training = make(tiny)
    for _ in range(30):
        training.update()
    different = sum(map(len, training.tried.values()))
    assert different <= 4 * 21 < training.executions


def test_a_state_of_other_settings_is_refused(tiny):
    training = make(tiny)
    with pytest.raises(CheckpointError, match="policy does not fit"):
        make(tiny, MAPOConfig(problems=2, hidden=8)).load(training.state())
    task = tiny()
    with pytest.raises(ValueError, match="processes need make_task"):
        Training(task, task.problems("train", 4), CONFIG, 0, Executor(task), processes=1)
