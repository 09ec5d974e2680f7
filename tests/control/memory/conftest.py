"""Episodes for memory tests."""

import numpy as np
import pytest

from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.types import Trajectory

WIDTH, ACTIONS = 12, 3


@pytest.fixture
def make_memory():
    def make(seed=0, clock=None, **settings):
        # A busy machine must not make queries late: late ones are answered with random rows.
        settings = {
            "capacity": 1000,
            "exact_below": 20_000,
            "deadline_ms": 60_000.0,
            "vae_updates": 20,
            **settings,
        }
        extra = {} if clock is None else {"clock": clock}
        return LongTermMemory(MemoryConfig(**settings), WIDTH, ACTIONS, np.random.default_rng(seed), **extra)

    return make


@pytest.fixture
def make_episode():
    rng = np.random.default_rng(99)

    def make(steps=20, **fields):
        defaults = {
            "windows": rng.standard_normal((1, WIDTH))
            + 0.1 * rng.standard_normal((steps + 1, WIDTH)).cumsum(0),
            "actions": rng.uniform(-1, 1, (steps, ACTIONS)),
            "intended_actions": rng.uniform(-1, 1, (steps, ACTIONS)),
            "rewards": np.r_[np.zeros(steps - 1), 1.0],
            "slips": np.zeros(steps, np.bool_),
            "forces": np.zeros(steps),
            "terminated": False,
            "success": False,
            "demonstration": False,
            "gated": np.zeros(steps, np.bool_),
        }
        values = {**defaults, **fields}
        for name in ("windows", "actions", "intended_actions", "rewards", "forces"):
            values[name] = np.asarray(values[name], np.float32)
        return Trajectory(**values)

    return make
