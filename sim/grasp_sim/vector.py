"""Several environments at once, each in a process of its own, as one of Gymnasium's vector environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from grasp_sim import registry
from grasp_sim.errors import UserError


class NumbersOnly(gymnasium.Wrapper):
    """Keeps the numbers and arrays of `info`; all else would be pickled in every step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """As the environment's own."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, _numbers(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """As the environment's own."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, _numbers(info)


class ProcessLost(UserError):
    """A process with an environment has ended."""


class Processes(AsyncVectorEnv):
    """Gymnasium's environments in processes; says so in one line when a process was killed."""

    def reset_wait(self, *args: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's own."""
        with self._watched():
            return super().reset_wait(*args, **settings)

    def step_async(self, actions: np.ndarray) -> None:
        """As Gymnasium's own."""
        with self._watched():
            super().step_async(actions)

    def step_wait(self, *args: Any, **settings: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As Gymnasium's own."""
        with self._watched():
            return super().step_wait(*args, **settings)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            lost = [number for number, process in enumerate(self.processes) if not process.is_alive()]
            self._state = AsyncState.DEFAULT  # closing would wait for the answer
            self.close(terminate=True)
            raise ProcessLost(
                f"the process of environment {', '.join(map(str, lost))} of {self.num_envs} has ended: was it"
                " killed, or is memory short? Make the environments again, fewer of them if memory is short"
            ) from error


def _numbers(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if isinstance(value, bool | int | float | np.ndarray)}


def make_vector(name: str, count: int, *, seed: int = 0, **settings: Any) -> Processes:
    """`count` environments in processes of their own; `settings` are those of `registry.make`.

    Environment i begins with the episodes of seed + i. An environment whose episode ends is reset within the
    same step: the last observation of the old episode is in `info["final_obs"]`, its info in
    `info["final_info"]`.

    The processes are spawned, so a script that calls this needs `if __name__ == "__main__":`.
    """
    if not isinstance(count, int) or count < 1:
        raise UserError(f"{count} environments are asked for; it must be a whole number, at least 1")
    registry.make(
        name, seed=seed, **settings
    ).close()  # so that a wrong setting is one error here, not one per process
    makers = [partial(_make, name, seed + number, settings) for number in range(count)]
    return Processes(makers, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)


def _make(name: str, seed: int, settings: dict[str, Any]) -> gymnasium.Env:
    return NumbersOnly(registry.make(name, seed=seed, **settings))
