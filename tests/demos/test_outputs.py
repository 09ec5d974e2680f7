"""No file that a command writes costs a file that it reads, an episode, or a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grasp_demos import commands, replay
from grasp_demos.convert import FORMATS, ImportSettings, recognise
from grasp_demos.episode import DemoError
from grasp_demos.files import find_episodes
from grasp_demos.outputs import replacing, require_output, require_outside
from grasp_demos.writer import write_episode

FIRST, SECOND = "episode_000000.npz", "episode_000001.npz"


@pytest.fixture
def dataset(tmp_path, make_episode, monkeypatch):
    """Two episodes in the folder `good` below the current one."""
    monkeypatch.chdir(tmp_path)
    folder = Path("good")
    folder.mkdir()
    for index in range(2):
        write_episode(folder / f"episode_{index:06d}.npz", make_episode(index=index))
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def call(arguments, monkeypatch, capsys):
    """(exit code, errors) of a command."""
    program, *words = arguments
    if program == "grasp-replay":
        monkeypatch.setattr("sys.argv", arguments)
        code = replay.main()
    else:
        code = commands.main(words)
    return code, capsys.readouterr().err


OUTPUTS = [
    (["grasp-demos", "check", "good"], "report", ".json"),
    (["grasp-demos", "show", "good", "episode=0"], "plot", ".png"),
    (["grasp-replay", "path=good", "episode=0"], "video", ".mp4"),
    (["grasp-replay", "path=good"], "csv", ".csv"),
]


@pytest.mark.parametrize(("command", "setting", "suffix"), OUTPUTS)
def test_no_output_replaces_an_episode_or_what_is_no_file(
    dataset, tmp_path, monkeypatch, capsys, command, setting, suffix
):
    read = tmp_path / f"read{suffix}"
    os.link(dataset / FIRST, read)  # The same file by another name.
    (tmp_path / f"link{suffix}").symlink_to(dataset / SECOND)
    (tmp_path / f"loop{suffix}").symlink_to(f"loop{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    before = contents(dataset)
    for value, problem in (
        (f"good/{FIRST}", "must end in"),
        ("/dev/full", "must end in"),
        (f"good/episode_000007{suffix}", "has the name of an episode"),
        (f"read{suffix}", "is one of the files to read"),
        (f"link{suffix}", "is no regular file"),
        (f"loop{suffix}", "is no regular file"),
        (f"folder{suffix}", "is no regular file"),
        (f"pipe{suffix}", "is no regular file"),
        (f"good/{FIRST}/x{suffix}", "is no folder"),
    ):
        code, errors = call([*command, f"{setting}={value}"], monkeypatch, capsys)
        assert (code, errors.count("\n")) == (2, 1), errors
        assert problem in errors
        assert f"{setting}={value}" in errors
    assert contents(dataset) == before
    assert read.samefile(dataset / FIRST)


def test_an_earlier_output_is_replaced_and_a_link_beside_it_not_followed(tmp_path):
    path, other = tmp_path / "check.json", tmp_path / "other"
    path.write_text("old")
    other.write_text("precious")
    (tmp_path / ".unfinished-check.json").symlink_to(other)
    require_output("report", path, [tmp_path, other])
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert (path.read_text(), other.read_text()) == ("new", "precious")
    assert len(list(tmp_path.iterdir())) == 3

    def fail() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*check\.json"):
        fail()
    assert path.read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 3


def test_an_output_may_not_lie_in_what_is_read(tmp_path):
    (tmp_path / "bag").mkdir()
    (tmp_path / "link").symlink_to("bag")
    for inside in ("bag", "bag/x", "link/x", "other/../bag/x/y"):
        with pytest.raises(DemoError, match="which is read"):
            require_outside("out", tmp_path / inside, tmp_path / "bag")
    for outside in ("bagged", "other/x", "."):
        require_outside("out", tmp_path / outside, tmp_path / "bag")


def test_import_and_export_write_outside_of_what_they_read(dataset, monkeypatch, capsys):
    for words in (
        ["export", "path=good", "format=mcap", "out=good/x.mcap"],
        ["import", "path=good", "out=good"],
    ):
        before = contents(dataset)
        code, errors = call(["grasp-demos", *words], monkeypatch, capsys)
        assert (code, errors.count("\n")) == (2, 1)
        assert "lies in good, which is read" in errors
        assert contents(dataset) == before
    Path("dangling.mcap").symlink_to("nothing")
    words = ["export", "path=good", "format=mcap", "out=dangling.mcap"]
    code, errors = call(["grasp-demos", *words], monkeypatch, capsys)
    assert code == 2
    assert "exists already" in errors


def test_links_that_go_round_are_named_and_hide_no_episode(dataset, monkeypatch, capsys):
    (dataset / "episode_000002.npz").symlink_to("episode_000002.npz")
    assert len(find_episodes([dataset]).episodes) == 3
    for what in ("check", "show"):
        code = commands.main([what, "good"])
        said = capsys.readouterr()
        assert code == 1
        assert "Too many levels of symbolic links" in said.out + said.err


@pytest.mark.parametrize("name", ["x.npz", "x.mcap", "x.db3", "x.hdf5", "x"])
def test_a_pipe_is_not_opened(tmp_path, monkeypatch, capsys, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    with pytest.raises(DemoError, match="no known format"):
        recognise(pipe)
    for known in FORMATS.values():
        with pytest.raises((DemoError, OSError)):
            known.read(pipe, ImportSettings())
    code, errors = call(["grasp-demos", "import", f"path={pipe}"], monkeypatch, capsys)
    assert (code, errors.count("\n")) == (2, 1)
    assert "neither a regular file nor a folder" in errors


@pytest.mark.parametrize(
    ("format", "name"),
    [("rosbag2", "metadata.yaml"), ("lerobot", "meta/info.json"), ("lerobot", "meta/grasp_episodes.jsonl")],
)
def test_a_pipe_inside_of_a_folder_is_not_opened(dataset, tmp_path, format, name):
    folder = tmp_path / "folder"
    (folder / "meta").mkdir(parents=True)
    os.mkfifo(folder / name)
    with pytest.raises(DemoError):
        FORMATS[format].read(folder, ImportSettings())


@pytest.mark.parametrize("name", ["data/chunk-000/file-000.parquet", "meta/grasp_episodes.jsonl"])
def test_a_pipe_in_a_lerobot_data_set_is_not_opened(dataset, tmp_path, monkeypatch, capsys, name):
    assert commands.main(["export", "path=good", "format=lerobot", "out=set"]) == 0
    (tmp_path / "set" / name).unlink()
    os.mkfifo(tmp_path / "set" / name)
    code, errors = call(["grasp-demos", "import", "path=set", "out=back"], monkeypatch, capsys)
    assert code == 2
    assert f"{name} is no regular file" in errors


@pytest.mark.parametrize("beside", ["", "-journal", "-wal"])
def test_a_pipe_beside_a_database_is_not_opened(dataset, tmp_path, beside):
    assert commands.main(["export", "path=good", "format=rosbag2-sqlite3", "out=bag"]) == 0
    (database,) = (tmp_path / "bag").glob("*.db3")
    pipe = database.with_name(database.name + beside)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(DemoError):
        FORMATS["rosbag2"].read(tmp_path / "bag", ImportSettings())


def test_a_path_written_as_a_setting_or_empty_is_named(dataset, monkeypatch, capsys):
    for what in ("check", "show"):
        code, errors = call(["grasp-demos", what, "path=good"], monkeypatch, capsys)
        assert code == 2
        assert errors == f"grasp-demos {what}: write a path without path=, as in grasp-demos {what} good.\n"
        code, errors = call(["grasp-demos", what, "good", ""], monkeypatch, capsys)
        assert code == 2
        assert "one of the paths is empty" in errors


def test_a_terminal_without_the_characters_shows_escapes(dataset, tmp_path, make_episode):
    write_episode(dataset / SECOND, make_episode(index=1, note="Würfel 立方"))
    done = subprocess.run(
        [sys.executable, "-m", "grasp_demos.commands", "show", "good"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "W\\xfcrfel" in done.stdout


@pytest.mark.parametrize("what", ["show", "check"])
def test_output_that_cannot_be_written_is_said(dataset, what):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "grasp_demos.commands", what, "good"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith(f"grasp-demos {what}: No space left on device, where the output of the command")
