"""A video of a policy's grasps, rendered in a process of its own so that training never touches OpenGL.

A renderer that is missing or broken then costs no more than the video. MUJOCO_GL picks one (egl, osmesa).
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
from PIL import Image, ImageDraw, ImageFont

from grasp_control.bundle import load_bundle
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import Act, rollout
from grasp_sim import registry
from grasp_sim.cli import overrides, run_command
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, POLICY_RATE_HZ
from grasp_sim.errors import UserError

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PROGRAM = "grasp_control.video"

OUTCOME_FRAMES = 10
"""How often the last frame of an episode is shown, so that one sees how it ended."""

FILMSTRIP_FRAMES = 5
"""Pictures of one grasp in a filmstrip."""


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
    path: Path,
    *,
    name: str,
    width: int,
    height: int,
) -> None:
    """Run one episode for each seed and write them, one after the other, into one video.

    Beside it comes the filmstrip of the first episode that succeeded, or of the first where none did.

    Args:
        env: an environment of `grasp_sim.registry` with `render_frame(width, height)`.
        act: the policy, as in `rollout`.
        short_term: the window the policy's input is made from.
        seeds: each fixes an episode's initial state.
        path: the MP4 to write.
        name: the policy's, for the captions.
        width: pixels, even.
        height: pixels, even.
    """
    font = ImageFont.load_default(max(height / 22, 8))
    strips: list[tuple[bool, np.ndarray]] = []

    def frames() -> Iterator[np.ndarray]:
        for seed in seeds:
            pictures: list[np.ndarray] = []

            def render(pictures: list[np.ndarray] = pictures) -> None:
                pictures.append(env.unwrapped.render_frame(width, height))  # type: ignore[attr-defined]

            success = rollout(env, act, short_term, seed=seed, on_step=render).result.success
            strips.append((success, filmstrip(pictures)))
            text = f"{name}\nepisode of seed {seed}"
            yield from (captioned(picture, text, font) for picture in pictures)
            outcome = "success" if success else "failed"
            yield from [captioned(pictures[-1], f"{text}, {outcome}", font)] * OUTCOME_FRAMES

    write_video(path, frames())
    _, strip = max(strips, key=lambda one: one[0])
    Image.fromarray(strip).save(filmstrip_path(path))


def captioned(picture: np.ndarray, text: str, font: Font) -> np.ndarray:
    """A picture (height, width, 3) uint8 with text in its lower left corner."""
    image = Image.fromarray(picture)
    place = (8, image.height - 8)
    ImageDraw.Draw(image).text(place, text, "white", font, anchor="ld", stroke_width=2, stroke_fill="black")
    return np.asarray(image)


def filmstrip(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """The middle squares of some pictures (height, width, 3), from the first to the last, in a row."""
    height, width, _ = pictures[0].shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    chosen = np.linspace(0, len(pictures) - 1, FILMSTRIP_FRAMES).round().astype(int)
    return np.concatenate([pictures[i][top : top + side, left : left + side] for i in chosen], axis=1)


def filmstrip_path(video: Path) -> Path:
    """Where the filmstrip of a video lies."""
    return video.with_suffix(".png")


def render_grasps(bundle: Path, path: Path, env: EnvConfig, seeds: Sequence[int]) -> Path:
    """Record a bundle's grasps in a process of its own.

    Returns `path`. Raises VideoError, with what to install, where nothing can be rendered.
    """
    settings = [
        *overrides({"bundle": bundle, "path": path, "seeds": list(seeds)}),
        *overrides(vars(env), "env."),
    ]
    command = [sys.executable, "-m", PROGRAM, *settings]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"{PROGRAM} ended with exit code {done.returncode}"]
        raise VideoError(f"no video: {lines[-1].removeprefix(f'{PROGRAM}: ')}")
    return path


@dataclass
class VideoConfig:
    """Record a policy bundle's grasps as a video."""

    bundle: str = MISSING
    """The policy bundle's folder."""
    path: str = MISSING
    """The MP4 to write; a PNG of the same name shows one grasp in a row of pictures."""
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
    """Record in this process."""
    policy = load_bundle(config.bundle, expect=None)
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=policy.manifest.context)
    env = registry.make(**vars(config.env))
    try:
        record_grasps(
            env,
            lambda window: (policy.act_batch(window[None])[0], False),
            short_term,
            config.seeds,
            Path(config.path),
            name=policy.manifest.runs,
            width=config.width,
            height=config.height,
        )
    finally:
        env.close()


def main() -> int:
    """Entry point of `python -m grasp_control.video`."""
    return run_command(
        VideoConfig,
        record,
        "Record a policy bundle's grasps as a video.\n\n"
        f"Example: python -m {PROGRAM} bundle=runs/lift/bundle path=grasps.mp4",
        program=PROGRAM,
    )


if __name__ == "__main__":
    sys.exit(main())
