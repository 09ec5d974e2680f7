"""The table of episodes, its totals, and the plot of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from grasp_demos import commands
from grasp_demos.episode import ACTORS
from grasp_demos.plot import plot_episode, title_of
from grasp_demos.reader import read_episode
from grasp_demos.show import COLUMNS, occurrences, row, shares, totals
from grasp_demos.writer import write_episode


@pytest.fixture
def dataset(tmp_path, make_episode):
    """Steps 10, 11, 12; the second a failure, the third handed over to a person and broken off."""
    folder = tmp_path / "demos"
    folder.mkdir()
    for index in range(3):
        episode = make_episode(steps=10 + index, index=index, success=index == 0, source="policy")
        actors = np.full(len(episode), ACTORS.index("policy"), np.uint8)
        if index == 2:
            actors[9:] = ACTORS.index("person")
            metadata = replace(
                episode.metadata, complete=False, note="cable", recorded_at="2026-01-02T03:04:05Z"
            )
            slips = np.isin(np.arange(12), (2, 3, 7))
            episode = replace(episode, metadata=metadata, slips=slips, drops=np.arange(12) == 8)
        write_episode(folder / f"episode_{index:06d}.npz", replace(episode, actors=actors))
    return folder


def cells(path):
    return dict(zip(COLUMNS, row(read_episode(path)), strict=True))


def test_a_row_says_who_acted_how_long_and_what_went_wrong(dataset):
    assert cells(dataset / "episode_000002.npz") == {
        "index": "2",
        "task": "fake",
        "source": "policy",
        "who acted": "policy 75 %, person 25 %",
        "kind": "human-like",
        "seed": "2",
        "steps": "12",
        "seconds": "0.60",
        "success": "no",
        "complete": "no",
        "slips": "2",
        "drops": "1",
        "recorded at": "2026-01-02T03:04:05Z",
        "note": "cable",
    }
    assert cells(dataset / "episode_000000.npz")["who acted"] == "policy"


def test_shares_and_occurrences():
    assert shares(np.array([0, 0, 0, 2], np.uint8)) == "expert 75 %, person 25 %"
    assert shares(np.array([9], np.uint8)) == "unknown"
    assert shares(np.array([], np.uint8)) == "nobody"
    assert occurrences(np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)) == 3
    assert occurrences(np.zeros(0, bool)) == 0


def test_the_totals_are_sums(dataset, make_episode):
    episodes = [read_episode(path) for path in sorted(dataset.iterdir())]
    assert totals(episodes) == (
        "3 episodes, 33 steps, 0:02 min, 1 success, 1 incomplete, 2 slips, 1 drop;"
        " acted: policy 91 %, person 9 %"
    )
    assert "1 episode, 1300 steps, 1:05 min, 1 success" in totals([make_episode(steps=1300)])


def test_the_command_shows_all_or_one_and_names_the_damaged(dataset, capsys):
    assert commands.main(["show", str(dataset)]) == 0
    said = capsys.readouterr().out
    assert said.count("policy ") >= 3
    assert "3 episodes, 33 steps" in said
    assert commands.main(["show", str(dataset), "episode=1"]) == 0
    assert "1 episode, 11 steps" in capsys.readouterr().out
    (dataset / "episode_000001.npz").write_bytes(b"not mine")
    assert commands.main(["show", str(dataset)]) == 1
    said = capsys.readouterr()
    assert "2 episodes, 22 steps" in said.out
    assert "episode_000001.npz is cut off, or is no episode file" in said.err


def test_an_episode_of_other_shapes_is_named_not_shown(dataset, make_episode, capsys):
    bad = replace(make_episode(index=5), states=np.zeros((5, 3)))
    write_episode(dataset / "episode_000005.npz", bad)
    assert commands.main(["show", str(dataset)]) == 1
    assert "episode_000005.npz, states: has shape (5, 3)" in capsys.readouterr().err


def test_the_plot_is_a_picture_of_one_episode(dataset, tmp_path, capsys):
    target = tmp_path / "plots" / "two.png"
    assert commands.main(["show", str(dataset), "episode=2", f"plot={target}"]) == 0
    assert f"into {target}" in capsys.readouterr().out
    picture = np.asarray(Image.open(target).convert("RGB"))
    assert min(picture.shape[:2]) > 600
    assert [p.name for p in target.parent.iterdir()] == ["two.png"]
    assert commands.main(["show", str(dataset), f"plot={target}"]) == 2
    assert "one plot shows one episode, and there are 3" in capsys.readouterr().err
    assert commands.main(["show", str(dataset), f"plot={tmp_path / 'a.gif'}"]) == 2
    assert ".png, .pdf, .svg" in capsys.readouterr().err
    assert commands.main(["show", str(dataset), "episode=7"]) == 2
    assert "there is no episode 7; there are: 0, 1, 2." in capsys.readouterr().err


def test_the_plot_draws_what_was_recorded(dataset):
    episode = read_episode(dataset / "episode_000002.npz")
    figure = plot_episode(episode)
    top, gripper, *actions, _force = figure.axes
    tcp, thing = (line.get_ydata() for line in top.lines[:2])
    assert np.allclose(tcp, episode.states[:, 14] * 1000.0)
    assert np.allclose(thing, episode.states[:, 23] * 1000.0)
    assert np.allclose(gripper.lines[0].get_ydata(), episode.states[:, 19] * 1000.0)
    assert len(actions) == 6
    labels = [text.get_text() for text in top.get_legend().get_texts()]
    assert labels == ["TCP", "object's centre", "slip", "drop", "person acts"]
    assert len(top.patches) == 2 + 1 + 1  # two slips, a drop, a span of the person's
    drawn = {patch.get_label(): patch.get_data().values for patch in actions[1].patches[:3]}
    assert np.array_equal(drawn["executed"], episode.executed_actions[:, 1])


def test_the_title_says_what_it_is_and_a_note_is_no_formula(dataset):
    episode = read_episode(dataset / "episode_000002.npz")
    assert title_of(episode).splitlines()[:2] == [
        "Episode 2: fake, servo control, failure, incomplete",
        "recorded by policy, human-like, seed 2, 12 steps, 2026-01-02T03:04:05Z",
    ]
    hostile = replace(episode, metadata=replace(episode.metadata, note=r"$\frac{" + "x" * 200 + "\x1b"))
    plot_episode(hostile).canvas.draw()


@pytest.mark.parametrize("name", ["states", "intended_actions"])
def test_values_that_are_not_finite_can_be_plotted(make_episode, name):
    episode = make_episode(steps=6)
    array = getattr(episode, name).copy()
    array[2] = np.nan
    plot_episode(replace(episode, **{name: array})).canvas.draw()
