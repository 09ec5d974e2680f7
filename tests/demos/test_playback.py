"""Recorded episodes come back by their actions and by their states, on a real simulator."""

from __future__ import annotations

import csv
from dataclasses import replace

import imageio.v2 as imageio
import numpy as np
import pytest

from grasp_demos import replay as command
from grasp_demos.episode import DemoError
from grasp_demos.filming import film
from grasp_demos.playback import is_exact, replay, show_states, why_no_states
from grasp_demos.recording import record_expert
from grasp_demos.storage import ARRAYS
from grasp_demos.validate import state_names
from grasp_demos.writer import write_episode
from grasp_sim import registry
from grasp_sim.config import RandomizationConfig
from grasp_sim.contract import encode_rows


def recorded_with(folder, **settings):
    env = registry.make("pybullet-lift", **settings)
    rng = np.random.default_rng(0)
    episodes = record_expert(env, folder, task="pybullet-lift", episodes=1, rng=rng)
    env.close()
    return episodes[0]


@pytest.fixture(scope="module")
def episode(tmp_path_factory):
    return recorded_with(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def env():
    env = registry.make("pybullet-lift")
    yield env
    env.close()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Write episodes and replay them by the command; returns (exit code, output, errors)."""

    def call(*episodes, **settings):
        for index, one in enumerate(episodes):
            one = replace(one, metadata=replace(one.metadata, index=index))
            (tmp_path / "demos").mkdir(exist_ok=True)
            write_episode(tmp_path / "demos" / f"episode_{index:06d}.npz", one)
        words = [f"{key}={value}" for key, value in settings.items()]
        monkeypatch.setattr("sys.argv", ["grasp-replay", f"path={tmp_path / 'demos'}", *words])
        code = command.main()
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def first_steps(episode, count):
    """The beginning of an episode, which is no success yet."""
    cut = {name: getattr(episode, name)[:count] for name in ARRAYS}
    cut |= {
        name: getattr(episode, name)[: count + 1] for name in ("states", "observations", "simulator_states")
    }
    return replace(episode, metadata=replace(episode.metadata, success=False), **cut)


def with_other_actions(episode):
    """The episode with a first action that was not sent."""
    actions = episode.executed_actions.copy()
    actions[0, 0] = -actions[0, 0]
    return replace(episode, requested_actions=actions, executed_actions=actions)


def without_states(episode):
    """The episode as an earlier version recorded it."""
    return replace(episode, simulator_states=np.zeros((len(episode) + 1, 0)))


def test_states_are_shown_exactly_as_they_were_recorded_and_actions_come_back(episode, env):
    shown, replayed = show_states(episode, env), replay(episode, env)
    assert shown[:4] == replayed[:4] == (0.0, 0.0, 0.0, 0.0)
    assert shown.reproduced(tolerance_rad=0.0, tolerance_m=0.0)
    assert shown.table[:, 0].tolist() == list(range(len(episode) + 1))
    assert replayed.table[:, 0].tolist() == list(range(1, len(episode) + 1))


def test_what_the_simulator_shows_is_compared_with_what_was_recorded(episode, env):
    states = episode.states.copy()
    states[7, state_names().index("object_position[0]")] += 0.03
    states[7, state_names().index("object_position[1]")] += 0.04
    states[9, state_names().index("joint_positions[4]")] -= 0.5
    states[9, state_names().index("gripper_opening")] += 0.01
    report = show_states(replace(episode, states=states), env)
    assert report.object_deviation == pytest.approx(0.05)  # 3, 4, 5
    assert report.joint_deviation == pytest.approx(0.5)
    assert report.opening_deviation == pytest.approx(0.01)
    assert report.tcp_deviation == 0.0
    assert np.flatnonzero(report.table[:, 1:].any(axis=1)).tolist() == [7, 9]
    assert not report.reproduced(tolerance_rad=0.001, tolerance_m=0.001)


def test_each_mode_answers_its_own_question(episode, run):
    wrong = with_other_actions(episode)
    code, out, _ = run(wrong, mode="states")
    assert code == 0
    assert ": shown as recorded; largest deviation: joints 0 rad" in out
    code, out, errors = run(wrong)
    assert code == 1
    assert ": NOT reproduced; " in out
    assert "1 of 1 episodes were not reproduced" in errors
    code, out, _ = run(wrong, mode="both")
    assert code == 1
    assert [line.split(": ")[1].split(";")[0] for line in out.splitlines()] == [
        "NOT reproduced",
        "shown as recorded",
    ]


def test_episodes_without_simulator_states_say_so_and_hide_no_other(episode, run):
    code, out, errors = run(without_states(episode), episode, mode="states")
    assert code == 1
    first, second = out.splitlines()
    assert "holds no simulator states, so an earlier version recorded it: mode=actions" in first
    assert ": shown as recorded" in second
    assert "1 of 2 episodes" in errors
    code, out, _ = run(without_states(episode), mode="both", episode=0)
    assert code == 0
    assert out.count("\n") == 2
    assert ": reproduced; " in out
    assert "was not recorded in a simulator (source expert)" in why_no_states(replace(episode, snapshot={}))


def test_states_of_another_simulator_are_named(episode, env):
    other = replace(episode, simulator_states=episode.simulator_states[:, :-1])
    with pytest.raises(DemoError, match=r"step 0, has a simulator state that does not fit .*versions"):
        show_states(other, env)
    with pytest.raises(DemoError, match="does not fit"):
        show_states(replace(episode, snapshot={"start": np.zeros(3, np.uint8)}), env)


def test_measured_states_differ_from_the_true_ones_that_are_shown(tmp_path, run):
    noisy = recorded_with(tmp_path / "noisy", randomization=RandomizationConfig(object_position_noise=0.005))
    assert not is_exact(noisy)
    code, out, _ = run(noisy, mode="both")
    assert code == 0
    replayed, shown = out.splitlines()
    assert ": reproduced; largest deviation: joints 0 rad" in replayed  # with the same noise
    assert ": shown; largest deviation: joints 0 rad, TCP 0 m, object 0.0" in shown
    assert shown.endswith("was measured with noise, latency or error, what is shown is true")


def test_the_deviations_of_every_step_are_a_table(episode, run, tmp_path):
    wrong = with_other_actions(episode)
    table = tmp_path / "tables" / "out.csv"
    code, _, _ = run(wrong, mode="both", csv=table)
    assert code == 1
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "file",
        "episode",
        "mode",
        "step",
        "time_s",
        "joint_deviation_rad",
        "tcp_deviation_m",
        "object_deviation_m",
        "opening_deviation_m",
    ]
    shown = [row for row in rows if row["mode"] == "states"]
    assert [int(row["step"]) for row in shown] == list(range(len(episode) + 1))
    assert all(float(row["tcp_deviation_m"]) == 0.0 for row in shown)
    assert [float(row["time_s"]) for row in shown] == episode.states[:, -1].tolist()
    replayed = [row for row in rows if row["mode"] == "actions"]
    assert float(replayed[0]["tcp_deviation_m"]) > 0.0
    assert [p.name for p in table.parent.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("modes", [("states",), ("actions", "states")])
def test_a_film_shows_every_moment_the_modes_side_by_side(episode, env, tmp_path, modes):
    short = first_steps(episode, 3)
    other = registry.make("pybullet-lift")
    path = tmp_path / "films" / "out.mp4"
    reports = film(short, dict(zip(modes, (other, env), strict=False)), path)
    other.close()
    assert [report.mode for report in reports] == list(modes)
    assert all(report[:4] == (0.0, 0.0, 0.0, 0.0) for report in reports)
    with imageio.get_reader(path) as film_again:
        frames = [frame for frame in film_again]  # noqa: C416  (it claims an infinite length)
    assert len(frames) == 4
    assert frames[0].shape == (480, 640 * len(modes), 3)
    assert np.ptp(frames[0]) > 100
    assert [p.name for p in path.parent.iterdir()] == ["out.mp4"]
    if len(modes) == 2:  # Both show the same; the captions differ.
        left, right = frames[2][:430, :640].astype(int), frames[2][:430, 640:].astype(int)
        assert np.abs(left - right).mean() < 1.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "state"}, "Did you mean 'states'?"),
        ({"csv": "''"}, "csv= must end in .csv"),
        ({"video": "out.txt"}, "must end in one of .mp4, .gif, .mkv"),
        ({"video": "out.mp4"}, "add episode=N"),
    ],
)
def test_a_wrong_request_is_one_line(episode, run, settings, expected):
    altered = replace(episode, observations=encode_rows(episode.states))
    code, _, errors = run(altered, episode, **settings)
    assert code == 2
    assert expected in errors
    assert errors.count("\n") == 1


def with_snapshot(episode, **arrays):
    return replace(episode, snapshot={**episode.snapshot, **arrays})


def text(content):
    return np.frombuffer(content.encode(), np.uint8)


@pytest.mark.parametrize("mode", ["actions", "states"])
@pytest.mark.parametrize("start", ["[" * 100_000, "", "5", "{}", '{"object": 5}', "\0"])
def test_a_start_that_is_none_is_one_line(episode, run, mode, start):
    code, _, errors = run(with_snapshot(episode, start=text(start)), mode=mode)
    assert (code, len(errors.strip().splitlines())) == (2, 1)
    assert "the snapshot's start cannot be read" in errors


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"progress": np.array([3, 1])}, "of an episode that is over"),
        ({"progress": np.array([3.0, 0.0])}, "progress is float64; it must be int64"),
        ({"progress": np.array(["3", "0"])}, "progress is <U1"),
        ({"delayed": np.full((1, 6), "x")}, "delayed is <U1"),
    ],
)
def test_a_snapshot_that_is_no_start_is_one_line(episode, run, arrays, problem):
    code, _, errors = run(with_snapshot(episode, **arrays))
    assert (code, len(errors.strip().splitlines())) == (2, 1)
    assert problem in errors


def test_one_defective_episode_is_named_and_the_others_are_played(episode, run, tmp_path):
    misshapen = replace(episode, rewards=episode.rewards[:-1])
    over = with_snapshot(episode, progress=np.array([3, 1]))
    folder = tmp_path / "demos"
    folder.mkdir()
    (folder / "episode_000009.npz").write_text("damaged")
    code, out, errors = run(episode, misshapen, over, episode, csv=tmp_path / "x.csv")
    assert code == 1
    assert [line.split(":")[1].split(";")[0] for line in out.splitlines()] == [" reproduced", " reproduced"]
    lines = errors.strip().splitlines()
    assert len(lines) == 3
    for index in (1, 2, 9):
        assert sum(f"episode_{index:06d}.npz" in line for line in lines) == 1
    assert {row["episode"] for row in csv.DictReader((tmp_path / "x.csv").open())} == {"0", "3"}
    assert run(episode=3)[0] == 0  # Nothing is wrong with what was asked for.
    code, _, errors = run(episode=1)
    assert code == 2
    assert "episode_000001.npz" in errors
    code, _, errors = run(episode=9)
    assert code == 2
    assert "episode_000009.npz" in errors
