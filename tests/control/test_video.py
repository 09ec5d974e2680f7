"""Writing frames as an MP4, and one clear line where nothing can be rendered."""

from __future__ import annotations

import imageio_ffmpeg
import numpy as np
import pytest

from grasp_control import video
from grasp_control.config import EnvConfig
from grasp_control.video import VideoError, render_grasps, write_video


def test_a_video_holds_every_frame_at_its_rate(tmp_path):
    path = tmp_path / "deep" / "grasps.mp4"
    shades = (0, 100, 200) * 10
    count = write_video(path, (np.full((36, 48, 3), shade, np.uint8) for shade in shades), fps=20)
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    means = [np.frombuffer(frame, np.uint8).mean() for frame in reader]
    assert count == 30
    assert about["fps"] == 20
    assert about["size"] == (48, 36)
    assert means == pytest.approx(shades, abs=6)
    assert [entry.name for entry in path.parent.iterdir()] == ["grasps.mp4"]


def test_a_video_that_fails_halfway_leaves_nothing(tmp_path):
    def frames():
        yield np.zeros((36, 48, 3), np.uint8)
        raise VideoError("the renderer stopped")

    with pytest.raises(VideoError, match="the renderer stopped"):
        write_video(tmp_path / "grasps.mp4", frames())
    assert list(tmp_path.iterdir()) == []


def test_no_frames_is_an_error(tmp_path):
    with pytest.raises(VideoError, match="no frames"):
        write_video(tmp_path / "grasps.mp4", iter(()))


def test_without_a_renderer_there_is_one_line_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "RENDERERS", ("no-such-renderer",))
    with pytest.raises(
        VideoError, match=r"^no video: no-such-renderer: .*install a software renderer"
    ) as error:
        render_grasps(tmp_path / "it's a bundle", tmp_path / "grasps.mp4", EnvConfig(), [0])
    assert "\n" not in str(error.value)
