"""Many environments at once, in several processes, as one of Gymnasium's vector environments.

Gymnasium's own `AsyncVectorEnv` has one environment per process and waits for the slowest of them in every
step, which for steps of a millisecond eats up what a second core brings. Here each process holds several
environments, so there is one message per process and step, and long and short steps even out.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from grasp_sim import registry
from grasp_sim.contract import ContractError
from grasp_sim.errors import UserError
from grasp_sim.tasks import Difficulty

INFO = ("success", "grasped", "slip", "drop", "broken", "sim_fault", "requested_action", "executed_action")
"""What of an environment's `info` a vector of them holds; the rest would be pickled in every step."""


class ProcessLost(UserError):
    """A process with environments has ended."""


class Processes(gymnasium.vector.VectorEnv):
    """`count` environments shared out among `processes` processes; see `make_vector`."""

    def __init__(self, name: str, count: int, processes: int, seed: int, settings: dict[str, Any]) -> None:
        alone = registry.make(name, seed=seed, **settings)  # so that a wrong setting is one error, here
        self.num_envs = count
        self.single_observation_space, self.single_action_space = (
            alone.observation_space,
            alone.action_space,
        )
        alone.close()
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        context = multiprocessing.get_context("spawn")
        self._groups = [group.tolist() for group in np.array_split(np.arange(count), processes)]
        self._pipes: list[Connection] = []
        self.processes: list[Any] = []
        """One for each group of environments."""
        for group in self._groups:
            ours, theirs = context.Pipe()
            seeds = [seed + number for number in group]
            process = context.Process(target=_serve, args=(theirs, name, seeds, settings), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations (count, 13) and info of new episodes; environment i is seeded with seed + i."""
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        given = [seeds and [seeds[i] for i in group] for group in self._groups]
        observations, infos = zip(*self._ask("reset", [(part, options) for part in given]), strict=True)
        return np.concatenate(observations), self._join(infos)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control step of all; `actions` (count, 6). Rewards and ends are (count,)."""
        with np.errstate(over="ignore"):  # beyond float32 is not finite either
            actions = np.asarray(actions, dtype=np.float32)
        if actions.shape != self.action_space.shape:
            raise UserError(f"actions have shape {actions.shape}; they must be {self.action_space.shape}")
        bad = np.flatnonzero(~np.isfinite(actions).all(axis=1))
        if len(bad):  # found here, before any environment has moved
            raise ContractError(
                f"the action of environment {bad[0]} is not finite: {actions[bad[0]].tolist()}"
            )
        answers = self._ask("step", [(actions[group],) for group in self._groups])
        observations, rewards, terminated, truncated, infos = zip(*answers, strict=True)
        return (
            np.concatenate(observations),
            np.concatenate(rewards),
            np.concatenate(terminated),
            np.concatenate(truncated),
            self._join(infos),
        )

    @property
    def difficulty(self) -> NoReturn:
        """Only to be set, in all environments: a curriculum does."""
        raise AttributeError("each environment has its own difficulty; it can only be set")

    @difficulty.setter
    def difficulty(self, value: Difficulty) -> None:
        self.set_attr("difficulty", value)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, such as `difficulty`."""
        self._ask("set", [(name, value)] * len(self._groups))

    def _ask(self, command: str, given: list[tuple[Any, ...]]) -> list[Any]:
        """The answers of all processes, which work at the same time."""
        if self.closed:
            raise UserError("the environments are closed: make them again")
        try:
            for pipe, arguments in zip(self._pipes, given, strict=True):
                pipe.send((command, arguments))
            answers = [pipe.recv() for pipe in self._pipes]
        except (EOFError, ConnectionError) as error:
            raise self._lost() from error
        except BaseException:
            self.close()  # answers still on their way would be taken for those of the next question
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _lost(self) -> ProcessLost:
        """Close, and say which environments were in a process that has ended."""
        for process in self.processes:
            process.join(0.2)  # of one that is ending, its pipe may be closed first
        ended = [
            number
            for group, process in zip(self._groups, self.processes, strict=True)
            for number in group
            if not process.is_alive()
        ]
        self.close()
        return ProcessLost(
            f"the process of environment {', '.join(map(str, ended))} of {self.num_envs} has ended: was it"
            " killed, or is memory short? Make the environments again, fewer of them if memory is short"
        )

    @staticmethod
    def _join(infos: tuple[dict[str, np.ndarray], ...]) -> dict[str, Any]:
        """One info of all environments."""
        joined: dict[str, Any] = {name: np.concatenate([info[name] for info in infos]) for name in infos[0]}
        ended = joined.get("_final_obs")
        if ended is not None and ended.any():
            joined["final_info"], joined["_final_info"] = dict(joined), ended
        return joined

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes; `close` calls it once."""
        for pipe in self._pipes:
            pipe.close()  # they end when nobody asks any more
        for process in self.processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()


class _Group:
    """The environments of one process."""

    def __init__(self, name: str, seeds: list[int], settings: dict[str, Any]) -> None:
        self.envs = [registry.make(name, seed=seed, **settings) for seed in seeds]

    def reset(
        self, seeds: list[int] | None, options: dict[str, Any] | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Observations (n, 13) of new episodes."""
        given = seeds or [None] * len(self.envs)
        return np.stack(
            [env.reset(seed=seed, options=options)[0] for env, seed in zip(self.envs, given, strict=True)]
        ), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """One step of each; where an episode ends, the observation is that of the next one's start."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        observations, rewards, terminated, truncated = (
            np.array([result[part] for result in results]) for part in range(4)
        )
        info = {name: np.array([result[4][name] for result in results]) for name in INFO}
        ended = terminated | truncated
        info["_final_obs"], info["final_obs"] = ended, observations.copy()
        for number in np.flatnonzero(ended):
            observations[number] = self.envs[number].reset()[0]
        return observations, rewards, terminated, truncated, info

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each."""
        for env in self.envs:
            setattr(env, name, value)


def _serve(pipe: Connection, name: str, seeds: list[int], settings: dict[str, Any]) -> None:
    """The work of one process, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that asks is told, and closes
    group = _Group(name, seeds, settings)
    while True:
        try:
            command, given = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer = getattr(group, command)(*given)
        except Exception as error:
            answer = error
        pipe.send(answer)


def make_vector(
    name: str, count: int, *, processes: int | None = None, seed: int = 0, **settings: Any
) -> Processes:
    """`count` environments in `processes` processes (by default one per core); `settings` are those of
    `registry.make`.

    Environment i begins with the episodes of seed + i. An environment whose episode ends is reset within the
    same step: the observation is that of the new start, the last one of the old episode is in
    `info["final_obs"]` where `info["_final_obs"]` is true. `info` is that of the step itself and holds the
    arrays of `INFO`; `info["final_info"]` is the same, under the name that Gymnasium gives it. Several
    environments in each process use the cores best.

    The processes are spawned, so a script that calls this needs `if __name__ == "__main__":`.
    """
    if not isinstance(count, int) or count < 1:
        raise UserError(f"{count} environments are asked for; it must be a whole number, at least 1")
    if processes is None:
        processes = min(count, os.cpu_count() or 1)
    if not isinstance(processes, int) or not 1 <= processes <= count:
        raise UserError(f"{processes} processes are asked for; they must be from 1 to {count} (environments)")
    return Processes(name, count, processes, seed, settings)
