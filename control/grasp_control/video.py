"""A video of a policy's grasps, rendered in a process of its own so that training never touches OpenGL.

MuJoCo chooses its renderer when it is imported, from MUJOCO_GL. So `render_grasps` starts
`python -m grasp_control.video` with each software renderer in turn, and says why when none works.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium
import imageio_ffmpeg
import numpy as np
from omegaconf import MISSING

from grasp_control.bundle import load_bundle
from grasp_control.config import EnvConfig
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import Act, rollout
from grasp_sim import registry
from grasp_sim.cli import run_command
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, POLICY_RATE_HZ
from grasp_sim.errors import UserError

RENDERERS = ("egl", "osmesa")
"""Values of MUJOCO_GL that need no display, the faster one first."""

_WORDS_OF_HELP = "install a software renderer (Debian: libegl1 libgl1-mesa-dri, or libosmesa6)"


class VideoError(UserError):
    """No video could be made; training and evaluation do not need one."""


def write_video(path: str | Path, frames: Iterable[np.ndarray], fps: int = int(POLICY_RATE_HZ)) -> int:
    """Write frames, each (height, width, 3) uint8 with even sides, as an MP4 and answer their number.

    The file appears when it is complete.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial.mp4")
    writer, count = None, 0
    try:
        for frame in frames:
            if writer is None:
                size = (frame.shape[1], frame.shape[0])
                writer = imageio_ffmpeg.write_frames(str(partial), size, fps=fps, macro_block_size=2)
                writer.send(None)
            writer.send(np.ascontiguousarray(frame))
            count += 1
        if writer is None:
            raise VideoError(f"there are no frames to write to {path}.")
        writer.close()
        os.replace(partial, path)
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)
    return count


def record_grasps(
    env: gymnasium.Env,
    act: Act,
    short_term: ShortTermMemory,
    seeds: Sequence[int],
    path: str | Path,
    *,
    width: int = 480,
    height: int = 360,
) -> int:
    """Run one episode for each seed and write them, one after the other, into one video.

    Args:
        env: an environment of `grasp_sim.registry` with `render_frame(width, height)`.
        act: the policy, as in `rollout`.
        short_term: the window the policy's input is made from.
        seeds: each fixes an episode's initial state.
        path: the MP4 to write.
        width: pixels, even.
        height: pixels, even.
    """
    return write_video(path, _frames(env, act, short_term, seeds, width, height))


def render_grasps(bundle: Path, path: Path, env: EnvConfig, seeds: Sequence[int]) -> Path:
    """Record a bundle's grasps in a process of its own, with the first renderer that works.

    Returns `path`. Raises VideoError, naming what each renderer answered, when none does.
    """
    answers = []
    for renderer in RENDERERS:
        settings = [f"bundle={_quoted(bundle)}", f"path={_quoted(path)}", f"seeds={list(seeds)}"]
        settings += [f"env.{name}={_quoted(value)}" for name, value in vars(env).items()]
        # MuJoCo refuses a PYOPENGL_PLATFORM that differs from the renderer it is asked for.
        environment = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
        done = subprocess.run(
            [sys.executable, "-m", "grasp_control.video", *settings],
            env=environment | {"MUJOCO_GL": renderer},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return path
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        answers.append(f"{renderer}: {lines[-1]}")
    raise VideoError(f"no video: {'; '.join(answers)}. To get one, {_WORDS_OF_HELP}.")


@dataclass
class VideoConfig:
    """Record a policy bundle's grasps as a video."""

    bundle: str = MISSING
    """The policy bundle's folder."""
    path: str = MISSING
    """The MP4 to write."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """One episode for each."""
    width: int = 480
    """Pixels."""
    height: int = 360
    """Pixels."""
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        """Check the picture's size."""
        if self.width < 2 or self.height < 2 or self.width % 2 or self.height % 2:
            raise ValueError(f"width={self.width} and height={self.height} must be even and above 0.")


def record(config: VideoConfig) -> None:
    """Record in this process; MUJOCO_GL must name a renderer that works here."""
    policy = load_bundle(config.bundle, expect=None)
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=policy.manifest.context)
    env = registry.make(
        config.env.name,
        control_mode=config.env.control_mode,
        reward=config.env.reward,
        horizon=config.env.horizon,
    )
    try:
        record_grasps(
            env,
            lambda window: (policy.act_batch(window[None])[0], False),
            short_term,
            config.seeds,
            config.path,
            width=config.width,
            height=config.height,
        )
    finally:
        env.close()


def _frames(
    env: gymnasium.Env,
    act: Act,
    short_term: ShortTermMemory,
    seeds: Sequence[int],
    width: int,
    height: int,
) -> Iterator[np.ndarray]:
    for seed in seeds:
        episode: list[np.ndarray] = []

        def render(frames: list[np.ndarray] = episode) -> None:
            frames.append(env.unwrapped.render_frame(width, height))  # type: ignore[attr-defined]

        rollout(env, act, short_term, seed=seed, on_step=render)
        yield from episode


def _quoted(value: object) -> str:
    """A value as Hydra reads it back unchanged, whatever characters a path holds."""
    if not isinstance(value, str | Path):
        return str(value)
    return "'" + str(value).replace("'", "\\'") + "'"


def main() -> int:
    """Entry point of `python -m grasp_control.video`."""
    return run_command(
        VideoConfig,
        record,
        "Record a policy bundle's grasps as a video.\n\n"
        "Example: MUJOCO_GL=egl python -m grasp_control.video bundle=runs/lift/bundle path=grasps.mp4",
        program="grasp_control.video",
    )


if __name__ == "__main__":
    sys.exit(main())
