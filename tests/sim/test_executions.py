"""Rewards kept on disk: the same for every process, of one task only, checked like fresh ones."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

from grasp_sim.errors import UserError
from grasp_sim.executions import ExecutionStore
from grasp_sim.list_programs import ListPrograms
from grasp_sim.programs import Executor, ProgramError

TASK = ListPrograms()
PROGRAM = (0, len(TASK.tokens) - 1)


class Counting(ListPrograms):
    """Counts its executions."""

    def __init__(self) -> None:
        self.executions = 0

    def execute(self, key, program) -> float:
        self.executions += 1
        return super().execute(key, program)


def add(path, number: int) -> None:
    store = ExecutionStore(path, "lists")
    for other in range(50):
        store.add(f"train/{number}", (other,), number / 10)


def test_what_was_executed_is_looked_up_afterwards(tmp_path):
    path = tmp_path / "deep" / "rewards.sqlite"
    task = Counting()
    reward = Executor(task, store=ExecutionStore(path, "lists"))("train/0", PROGRAM)
    again = Executor(task, store=ExecutionStore(path, "lists"))
    assert again("train/0", PROGRAM) == reward
    assert task.executions == 1
    assert again.executed == 0
    assert len(ExecutionStore(path, "lists")) == 1


def test_two_processes_write_into_one_store(tmp_path):
    path = tmp_path / "rewards.sqlite"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add, args=(path, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    store = ExecutionStore(path, "lists")
    assert len(store) == 100
    assert store.get("train/1", (7,)) == 0.1
    assert store.get("train/2", (7,)) is None


def test_a_store_that_contradicts_the_task_is_noticed(tmp_path):
    path = tmp_path / "rewards.sqlite"
    store = ExecutionStore(path, "lists")
    reward = TASK.execute("train/0", PROGRAM)
    store.add("train/0", PROGRAM, 1.0 - reward)
    checking = Executor(TASK, 1.0, np.random.default_rng(0), store)
    with pytest.raises(ProgramError, match="lists is not deterministic"):
        checking("train/0", PROGRAM)
    store.add("train/1", PROGRAM, 7.0)
    with pytest.raises(ProgramError, match=r"with 7\.0; it must be from 0 to 1"):
        Executor(TASK, store=store)("train/1", PROGRAM)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "rewards.sqlite"
    ExecutionStore(path, "lists").close()
    with pytest.raises(UserError, match="holds rewards of lists, not of grasps"):
        ExecutionStore(path, "grasps")
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match=r"broken.sqlite cannot be used as a store of executions"):
        ExecutionStore(broken, "lists")
    with pytest.raises(UserError, match="cannot be used"):
        ExecutionStore(broken / "inside", "lists")
