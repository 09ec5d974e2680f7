"""Writing frames as an MP4, and one clear line where nothing can be rendered."""

from __future__ import annotations

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image, ImageFont

from grasp_control.bundle import export_bundle
from grasp_control.manifest import Manifest, Training
from grasp_control.memory.window import window_width
from grasp_control.networks import DistilledPolicy, Normaliser, mlp
from grasp_control.video import (
    FILMSTRIP_FRAMES,
    OUTCOME_FRAMES,
    VideoError,
    captioned,
    filmstrip,
    render_grasps,
    write_video,
)
from grasp_sim.config import EnvConfig
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, ActionScale


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


def test_a_filmstrip_goes_from_the_first_picture_to_the_last():
    strip = filmstrip([np.full((4, 6, 3), shade, np.uint8) for shade in range(9)])
    assert strip.shape == (4, FILMSTRIP_FRAMES * 4, 3)
    assert strip[0, ::4, 0].tolist() == [0, 2, 4, 6, 8]


def test_a_caption_is_written_into_the_lower_left_corner():
    picture = np.full((360, 480, 3), 90, np.uint8)
    changed = (captioned(picture, "a run\nepisode of seed 1", ImageFont.load_default(16)) != picture).any(2)
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    assert 300 < rows[0] < 330 < rows[-1] < 360
    assert columns[0] < 15
    assert 90 < columns[-1] < 240
    assert (picture == 90).all()


def write_bundle(path):
    """A policy that has learned nothing, in a bundle."""
    width = window_width(4, OBSERVATION_DIM, ACTION_DIM)
    network = mlp(width, ACTION_DIM, torch.Generator().manual_seed(0), hidden=(8,))
    training = Training("run-1", "empo2", 0, 0, 0, {"torch": torch.__version__}, "lift", "servo", 4)
    manifest = Manifest(
        robot="ur5e",
        gripper="robotiq-2f85",
        control_mode="servo",
        task="robosuite-lift",
        action_scale=ActionScale(),
        context=4,
        training=(training,),
        success={},
    )
    export_bundle(
        path, DistilledPolicy(Normaliser(np.zeros(width), np.ones(width)), network), manifest=manifest
    )
    return path


@pytest.mark.usefixtures("opengl")
def test_a_bundle_is_filmed(tmp_path):
    bundle = write_bundle(tmp_path / "it's a bundle")
    path = tmp_path / "grasps.mp4"
    render_grasps(bundle, path, EnvConfig(horizon=5), [0, 1])
    frames = list(imageio_ffmpeg.read_frames(str(path)))[1:]
    assert len(frames) == 2 * (5 + OUTCOME_FRAMES)
    assert np.frombuffer(frames[0], np.uint8).std() > 10  # a picture, not one colour
    assert frames[4] != frames[5]  # the outcome is added
    with Image.open(path.with_suffix(".png")) as strip:
        assert strip.size == (FILMSTRIP_FRAMES * 360, 360)


def test_what_stops_the_recorder_is_one_line(tmp_path):
    with pytest.raises(VideoError, match=r"^no video: .*policy\.onnx is missing") as error:
        render_grasps(tmp_path / "nothing", tmp_path / "grasps.mp4", EnvConfig(), [0])
    assert "\n" not in str(error.value)
