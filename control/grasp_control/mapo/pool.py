"""Samplers in processes of their own beside one learner (M4).

Each owns the problems whose numbers leave its own as remainder, so that what was tried on a problem is known
in one place. A sampler has at most `AHEAD` requests to work on and the learner takes what is ready: neither
runs away from the other, and a sampler that is slow, hangs or is killed holds up nobody. It is replaced, told
what was tried, and given its requests again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from grasp_control.mapo.config import MAPOConfig
from grasp_control.mapo.grammar import Grammar
from grasp_control.mapo.policy import ProgramPolicy
from grasp_control.mapo.sampler import Found, Sampler
from grasp_sim.executions import ExecutionStore
from grasp_sim.programs import Executor, Problem, Program, ProgramError, ProgramTask

AHEAD = 2
"""Requests that a sampler has at once: one to work on and one that waits."""
PATIENCE_S = 120.0
"""s without an answer after which a sampler is taken to hang."""
DEATHS = 3
"""Deaths of a sampler in a row, without an answer between them, after which no further one is started."""
STARTING_S = 300.0
"""The same while it starts, which on a busy machine takes half a minute."""
MakeTask = Callable[[], ProgramTask]
"""Makes the task in the sampler's process; a function or class that can be imported."""


class OneSampler:
    """A sampler in this process, asked and answering as a pool does: exactly repeatable."""

    def __init__(self, sampler: Sampler, problems: int) -> None:
        self._sampler, self._problems = sampler, problems
        self._asked: list[int] | None = None

    def idle(self) -> list[int]:
        """[0], unless it was asked."""
        return [0] if self._asked is None else []

    def owned(self, sampler: int) -> range:
        """All problems."""
        return range(self._problems)

    def request(self, sampler: int, numbers: Sequence[int], weights: dict[str, torch.Tensor]) -> None:
        """Ask for some problems; the policy is the learner's own."""
        self._asked = list(numbers)

    def recall(self, tried: dict[int, list[Program]]) -> None:
        """Take over what was tried before."""
        self._sampler.recall(tried)

    def collect(self) -> list[Found]:
        """The answer. Raises ValueError where nothing was asked."""
        if self._asked is None:
            raise ValueError("nothing was requested.")
        numbers, self._asked = self._asked, None
        return self._sampler.sample(numbers)


class SamplerPool:
    """A context manager; `request` and `collect` from one thread."""

    def __init__(
        self,
        make_task: MakeTask,
        problems: Sequence[Problem],
        config: MAPOConfig,
        processes: int,
        seed: int,
        *,
        patience: float = PATIENCE_S,
        store: str = "",
    ) -> None:
        """`store` names the file in which the processes keep rewards, if any."""
        if processes < 1:
            raise ValueError(f"processes={processes} must be at least 1.")
        self._make_task, self._problems, self._config = make_task, list(problems), config
        self._patience, self._seed, self._store = patience, seed, store
        self._workers = [_Worker(number) for number in range(processes)]
        self.replaced = 0
        """Samplers that died or hung so far."""

    def __enter__(self) -> Self:
        for worker in self._workers:
            self._start(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()

    def idle(self) -> list[int]:
        """Numbers of the samplers that can take another request."""
        return [worker.number for worker in self._workers if len(worker.asked) < AHEAD]

    def owned(self, sampler: int) -> range:
        """Numbers of the problems that a sampler owns."""
        return range(sampler, len(self._problems), len(self._workers))

    def request(self, sampler: int, numbers: Sequence[int], weights: dict[str, torch.Tensor]) -> None:
        """Ask a sampler that is not busy for some of its problems, with the present weights of the policy."""
        worker = self._workers[sampler]
        if len(worker.asked) >= AHEAD:
            raise ValueError(f"sampler {sampler} has {AHEAD} requests already: collect first.")
        if not set(numbers) <= set(self.owned(sampler)):
            raise ValueError(f"sampler {sampler} does not own all of the problems {list(numbers)}.")
        sent = {name: value.detach().numpy().copy() for name, value in weights.items()}
        worker.asked.append((list(numbers), sent))
        worker.send(worker.asked[-1])

    def recall(self, tried: dict[int, list[Program]]) -> None:
        """Tell the samplers what was tried before on the problems that they own."""
        for worker in self._workers:
            owned = [number for number in self.owned(worker.number) if number in tried]
            worker.tried = {number: list(tried[number]) for number in owned}
            worker.send(worker.tried)

    def collect(self) -> list[Found]:
        """The next answer of any sampler.

        Raises ProgramError where a task breaks its promises or its processes die again and again, and
        ValueError where nothing was asked.
        """
        if not any(worker.asked for worker in self._workers):
            raise ValueError("nothing was requested.")
        while True:
            asked = [worker for worker in self._workers if worker.asked]
            ready = wait([worker.pipe for worker in asked], timeout=min(self._patience, 1.0))
            for worker in asked:
                if worker.pipe not in ready:
                    continue
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self._replace(worker)
                    continue
                worker.heard, worker.patience = time.monotonic(), self._patience
                if answer is None:  # it has started
                    continue
                worker.deaths = 0
                if isinstance(answer, str):
                    raise ProgramError(answer)
                worker.asked.popleft()
                for found in answer:
                    worker.tried.setdefault(found.problem, []).extend(found.tried)
                return answer
            for worker in asked:
                if time.monotonic() - worker.heard > worker.patience:
                    self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        self.replaced += 1
        worker.deaths += 1
        worker.end()
        if worker.deaths >= DEATHS:
            raise ProgramError(
                f"sampler {worker.number} died or hung {DEATHS} times without an answer: its own words, if"
                " any, are above; with processes=0 programs are executed in this process"
            )
        self._start(worker)
        worker.send(worker.tried)
        for request in worker.asked:
            worker.send(request)

    def _start(self, worker: _Worker) -> None:
        seed = [self._seed, worker.number, self.replaced]
        worker.start(self._make_task, self._problems, self._config, seed, self._store)


class _Worker:
    """A sampler's process as the learner sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked: deque[tuple[list[int], dict[str, np.ndarray]]] = deque()
        """Requests without an answer."""
        self.tried: dict[int, list[Program]] = {}
        self.heard, self.patience = 0.0, STARTING_S
        self.deaths = 0
        """In a row."""
        self.pipe: Any = None
        self._process: Any = None
        self._outbox: SimpleQueue[object] = SimpleQueue()

    def start(self, *arguments: object) -> None:
        """Start a process, with the `arguments` of `_serve` behind the pipe."""
        # Not forked: a copy of a process with threads and a simulator may hang.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.heard, self.patience = time.monotonic(), STARTING_S
        self._outbox = SimpleQueue()
        threading.Thread(target=_deliver, args=(self._outbox, self.pipe), daemon=True).start()

    def send(self, message: object) -> None:
        """In a thread: a process that works, or hangs, reads nothing meanwhile."""
        self._outbox.put(message)

    def end(self) -> None:
        """Kill the process: nothing is lost with it."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._outbox.put(None)


def make_executor(
    task: ProgramTask, check_share: float, rng: np.random.Generator, store: str = ""
) -> Executor:
    """An executor that keeps rewards in the file `store`, if that is not empty."""
    kept = ExecutionStore(store, getattr(task, "identity", task.name)) if store else None
    return Executor(task, check_share, rng, kept)


def _deliver(outbox: SimpleQueue[object], pipe: Connection) -> None:
    """One that is dead is found by `collect`, which waits for its answer."""
    with contextlib.suppress(OSError):
        while (message := outbox.get()) is not None:
            pipe.send(message)


def _serve(
    pipe: Connection,
    make_task: MakeTask,
    problems: list[Problem],
    config: MAPOConfig,
    seed: list[int],
    store: str,
) -> None:
    """A sampler's process: answer requests until the learner is gone."""
    torch.set_num_threads(1)
    task = make_task()
    drawn, checked = np.random.SeedSequence(seed).spawn(2)
    generator = torch.Generator().manual_seed(int(drawn.generate_state(1)[0]))
    policy = ProgramPolicy(Grammar(task), len(problems[0].features), generator, config.hidden)
    execute = make_executor(task, config.check_share, np.random.default_rng(checked), store)
    sampler = Sampler(problems, policy, config, execute, generator)
    pipe.send(None)
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if isinstance(message, dict):
                sampler.recall(message)
                continue
            numbers, weights = message
            policy.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
            answer: list[Found] | str = sampler.sample(numbers)
        except ProgramError as error:
            answer = str(error)
        try:
            pipe.send(answer)
        except OSError:
            return
