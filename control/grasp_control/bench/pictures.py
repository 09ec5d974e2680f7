"""`grasp-bench pictures`: one picture of every environment, in the middle of a grasp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import imageio.v3 as imageio

from grasp_control import progress
from grasp_control.bench.settings import require_environments
from grasp_sim import registry
from grasp_sim.cli import require_at_least, require_path, run_command
from grasp_sim.expert import perform

HELP = """Render one picture of every environment: the scripted expert has just lifted the object.

Example: grasp-bench pictures environments=[pybullet-objects] seed=3 out=/tmp/pictures"""


@dataclass
class PicturesConfig:
    """Settings of `grasp-bench pictures`."""

    environments: list[str] = field(default_factory=registry.names)
    """Environments to picture."""
    seed: int = 0
    """Seed of the first episode tried; the first one that succeeds is shown."""
    width: int = 480
    """Pixels."""
    height: int = 360
    """Pixels."""
    out: str = "docs/pictures"
    """Folder of the pictures."""

    def __post_init__(self) -> None:
        require_environments(self.environments)
        if not (16 <= self.width <= 4096 and 16 <= self.height <= 4096):
            raise ValueError(f"width={self.width} and height={self.height} must be from 16 to 4096.")
        require_at_least(self, {"seed": 0})
        require_path("out", self.out)


def run(arguments: Sequence[str]) -> int:
    """Render with `key=value` settings; returns the exit code."""
    return run_command(PicturesConfig, render, HELP, argv=arguments, program="grasp-bench pictures")


def render(config: PicturesConfig) -> None:
    """Write all pictures."""
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    with progress.bar("Render", len(config.environments)) as advance:
        for name in config.environments:
            env = registry.make(name, horizon=150)
            seed = config.seed
            while not list(perform(env, seed))[-1][1]["success"]:
                seed += 1
            imageio.imwrite(out / f"{name}.png", env.render_frame(config.width, config.height))
            env.close()
            advance()
    print(f"Written: {out}/<environment>.png")
