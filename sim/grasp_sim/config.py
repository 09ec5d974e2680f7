"""The typed configuration of an environment, the same for every command. Field docstrings are `--help`'s."""

from __future__ import annotations

from dataclasses import dataclass, field

from grasp_sim import registry
from grasp_sim.cli import require_choice
from grasp_sim.randomization import RandomizationConfig
from grasp_sim.rewards import REWARDS
from grasp_sim.structures import check_delay
from grasp_sim.tasks import ObjectsConfig, find_task

MAX_HORIZON = 100_000


@dataclass
class EnvConfig:
    """The environment; `registry.make(**vars(config))` builds it."""

    name: str = "robosuite-lift"
    """Registered name, <simulator>-<task>; an unknown one lists what exists."""
    control_mode: str = "servo"
    """'servo', the same servo as on the real arm, or 'osc', robosuite's operational-space controller."""
    reward: str = "sparse"
    """Reward structure: sparse, dense, delayed or noisy."""
    delay: int = 0
    """Steps after which a delayed reward is paid; 0 pays all of it with the episode's end."""
    horizon: int = 100
    """Policy steps (20 Hz) until an episode times out."""
    objects: ObjectsConfig = field(default_factory=ObjectsConfig)
    randomization: RandomizationConfig = field(default_factory=RandomizationConfig)

    def __post_init__(self) -> None:
        """Check the names and ranges."""
        require_choice("env.name", self.name, registry.names())
        require_choice("env.control_mode", self.control_mode, registry.CONTROL_MODES)
        require_choice("env.reward", self.reward, REWARDS)
        if not 1 <= self.horizon <= MAX_HORIZON:
            raise ValueError(f"env.horizon={self.horizon} must be from 1 to {MAX_HORIZON}.")
        check_delay(REWARDS[self.reward].structure, self.delay, self.horizon, "env.")
        task = find_task(self.name.split("-", 1)[1]).configured(self.objects)
        self.randomization.check_objects(task.mass, task.friction)
