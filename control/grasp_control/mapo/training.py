"""Learning to write programs, update by update: problems are chosen, samplers asked, the policy improved."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from grasp_control.checkpoint import Restorable, capture, restore
from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.estimators import Stats
from grasp_control.mapo.learner import Learner
from grasp_control.mapo.pool import MakeTask, OneSampler, SamplerPool
from grasp_control.mapo.sampler import Sampler
from grasp_sim.programs import Executor, Problem, Program, ProgramTask


class Training:
    """A context manager. Without processes it is exactly repeatable, and goes on exactly after `load`."""

    def __init__(
        self,
        task: ProgramTask,
        problems: Sequence[Problem],
        config: MAPOConfig,
        seed: int,
        execute: Executor,
        *,
        processes: int = 0,
        make_task: MakeTask | None = None,
        store: str = "",
    ) -> None:
        """Learn from `problems`, programs being executed by `execute`, or by `processes` of their own, which
        make the task with `make_task` and keep rewards in `store`, if given."""
        made, self._sampling = (
            torch.Generator().manual_seed(int(s)) for s in np.random.SeedSequence(seed).generate_state(2)
        )
        self.learner = Learner(task, len(problems[0].features), config, made)
        self._problems, self._config, self._longest = problems, config, task.longest
        self._rng = np.random.default_rng(seed)
        self._samplers: OneSampler | SamplerPool
        if processes:
            if make_task is None:
                raise ValueError("processes need make_task.")
            self._samplers = SamplerPool(make_task, problems, config, processes, seed, store=store)
        else:
            sampler = Sampler(problems, self.learner.policy, config, execute, self._sampling)
            self._samplers = OneSampler(sampler, len(problems))
        self.updates, self.executions = 0, 0
        self.tried: dict[int, list[Program]] = {}
        """By number of the problem, in their order."""
        self.solved: dict[int, Program] = {}
        """By number of the problem: the best program found, of equals the first."""
        self._best: dict[int, float] = {}

    def __enter__(self) -> Self:
        if isinstance(self._samplers, SamplerPool):
            self._samplers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._samplers, SamplerPool):
            self._samplers.__exit__(kind, error, trace)

    def update(self) -> Stats:
        """Ask whoever is idle, learn from the next answer."""
        for idle in self._samplers.idle():
            owned = self._samplers.owned(idle)
            count = min(self._config.problems, len(owned))
            numbers = self._rng.choice(owned, count, replace=False).tolist()
            self._samplers.request(idle, numbers, self.learner.policy.state_dict())
        found = self._samplers.collect()
        stats = self.learner.update(found, self._problems)
        for one in found:
            self.executions += one.executions
            self.tried.setdefault(one.problem, []).extend(one.tried)
            for program, reward in (*one.memory, *one.drawn):
                if reward > self._best.get(one.problem, 0.0):
                    self._best[one.problem], self.solved[one.problem] = reward, program
        self.updates += 1
        return stats

    def state(self) -> dict[str, Any]:
        """All that `load` needs, as `CheckpointStore.save` takes it."""
        tried = [(number, program) for number, programs in self.tried.items() for program in programs]
        return {
            "parts": capture(self._parts()),
            "updates": self.updates,
            "executions": self.executions,
            "tried": self._table(tried),
            "solved": self._table(list(self.solved.items())),
            "best": np.array([self._best[number] for number in self.solved]),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave. What was tried is looked up again, or executed where no store has it.

        Raises CheckpointError where the state is of other settings.
        """
        restore(self._parts(), state["parts"])
        self.updates, self.executions = int(state["updates"]), int(state["executions"])
        self.tried = {}
        for number, program in self._untabled(state["tried"]):
            self.tried.setdefault(number, []).append(program)
        solved = self._untabled(state["solved"])
        self.solved = dict(solved)
        self._best = {number: float(best) for (number, _), best in zip(solved, state["best"], strict=True)}
        self._samplers.recall(self.tried)

    def _parts(self) -> dict[str, Restorable]:
        learner = self.learner
        return {
            "policy": learner.policy,
            "optimizer": learner.optimizer,
            "sampling": self._sampling,
            "choice": self._rng,
        }

    def _table(self, programs: list[tuple[int, Program]]) -> np.ndarray:
        """(N, 1 + L) int32: number of the problem, then the program, filled up with -1."""
        rows = np.full((len(programs), 1 + self._longest), -1, dtype=np.int32)
        for row, (number, program) in zip(rows, programs, strict=True):
            row[: 1 + len(program)] = number, *program
        return rows

    @staticmethod
    def _untabled(rows: np.ndarray) -> list[tuple[int, Program]]:
        return [(int(row[0]), tuple(int(token) for token in row[1:] if token >= 0)) for row in rows]
