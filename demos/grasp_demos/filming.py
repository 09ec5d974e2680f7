"""Film an episode's playback: by actions, by states, or both side by side."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from grasp_demos.episode import Episode
from grasp_demos.outputs import replacing
from grasp_demos.playback import Moment, ReplayReport, play_actions, play_states, report_on

VIDEO_SUFFIXES = (".mp4", ".gif", ".mkv")
FRAME_SIZE = (640, 480)
"""Pixels, width and height of one playback."""

_PLAYERS = {"actions": play_actions, "states": play_states}
_CAPTIONS = {"actions": "actions simulated again", "states": "states as recorded"}


def film(episode: Episode, environments: Mapping[str, Any], path: Path) -> list[ReplayReport]:
    """Play an episode once in each mode, all in step, and write one film of it.

    Args:
        episode: what is played.
        environments: one of its own for each mode (`grasp_demos.playback.MODES`), from left to right.
        path: the film, its type by its suffix; it appears when it is whole.

    Returns a report for each mode. Raises DemoError as the playbacks do.
    """
    players = {mode: _PLAYERS[mode](episode, env) for mode, env in environments.items()}
    seen: dict[str, list[Moment]] = {mode: [] for mode in players}
    pictures: dict[str, np.ndarray] = {}
    # A GIF counts in milliseconds a frame, a film in frames a second.
    rate = episode.metadata.rate_hz
    timing = {"duration": 1000.0 / rate} if path.suffix.lower() == ".gif" else {"fps": rate}
    with (
        replacing(path) as unfinished,
        imageio.get_writer(unfinished, **timing) as writer,  # type: ignore[call-overload]
    ):
        for moments in zip_longest(*players.values()):
            for mode, moment in zip(players, moments, strict=True):
                if moment is not None:  # One that ended earlier stays as it ended.
                    seen[mode].append(moment)
                    frame = environments[mode].render_frame(*FRAME_SIZE)
                    pictures[mode] = _captioned(frame, episode, mode, moment.step)
            writer.append_data(np.concatenate(list(pictures.values()), axis=1))  # type: ignore[attr-defined]
    return [report_on(episode, mode, seen[mode]) for mode in players]


def _captioned(frame: np.ndarray, episode: Episode, mode: str, step: int) -> np.ndarray:
    """A frame (height, width, 3) uint8 that says what it is."""
    image = Image.fromarray(frame)
    text = f"episode {episode.metadata.index}, step {step} of {len(episode)}: {_CAPTIONS[mode]}"
    font = ImageFont.load_default(18)
    place = (10, image.height - 10)
    ImageDraw.Draw(image).text(place, text, "white", font, anchor="ld", stroke_width=2, stroke_fill="black")
    return np.asarray(image)
