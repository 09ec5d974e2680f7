"""Recording with an expert, and replaying what was recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_demos import record, recording
from grasp_demos.episode import DemoError
from grasp_demos.reader import demonstrations, read_dataset
from grasp_demos.recording import record_expert
from grasp_demos.replay import replay
from grasp_demos.storage import episode_bytes
from grasp_demos.validate import require_valid


@pytest.fixture
def run(arm, fake_expert, tmp_path):
    def call(folder: str = "demos", episodes: int = 4, seed: int = 0, **settings):
        settings = {"expert": fake_expert, "rng": np.random.default_rng(seed), "task": "fake", **settings}
        return record_expert(arm, tmp_path / folder, episodes=episodes, seed=seed, **settings)

    return call


def test_what_is_recorded_is_valid_noisy_and_executed_as_clipped(run, tmp_path):
    episodes = run(episodes=20)
    require_valid(read_dataset(tmp_path / "demos"))
    assert len(demonstrations(read_dataset(tmp_path / "demos"))) == len(episodes) == 20
    noise = np.concatenate([e.requested_actions - e.intended_actions for e in episodes])
    assert len(noise) > 400
    # Standard error of a standard deviation: sigma / sqrt(2 n), here 0.15 / sqrt(5000).
    assert np.std(noise) == pytest.approx(0.15, abs=4 * 0.15 / np.sqrt(2 * noise.size))
    assert np.abs(noise.mean(axis=0)).max() < 5 * 0.15 / np.sqrt(len(noise))
    executed = np.concatenate([e.executed_actions for e in episodes])
    requested = np.concatenate([e.requested_actions for e in episodes])
    assert np.abs(requested).max() > 1.0
    assert np.array_equal(executed, np.clip(requested, -1.0, 1.0))
    assert all(e.terminations[-1] and not e.truncations.any() and e.rewards[-1] == 1.0 for e in episodes)


def test_the_kind_decides_what_is_learnt_not_what_is_executed(run):
    human, clean = run("a"), run("b", kind="clean")
    for a, b in zip(human, clean, strict=True):
        assert np.array_equal(a.executed_actions, b.executed_actions)
        assert np.array_equal(a.training_actions, a.executed_actions)
        assert np.array_equal(b.training_actions, a.intended_actions)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(run):
    a, b, c = run("a"), run("b"), run("c", seed=50)
    assert [episode_bytes(e) for e in a] == [episode_bytes(e) for e in b]
    assert not np.array_equal(a[0].executed_actions[:5], c[0].executed_actions[:5])


def test_an_interrupted_run_and_its_repetition_give_the_episodes_of_one_run(run, tmp_path):
    whole = run("whole", episodes=5)

    def interrupt(held: int, failures: int) -> None:
        if held == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("parts", episodes=5, progress=interrupt)
    assert len(read_dataset(tmp_path / "parts")) == 2
    calls = []
    parts = run("parts", episodes=5, progress=lambda *counts: calls.append(counts))
    assert calls == [(3, 0), (4, 0), (5, 0)]
    assert [episode_bytes(e) for e in parts] == [episode_bytes(e) for e in whole]
    calls.clear()
    assert len(run("parts", episodes=3, progress=lambda *counts: calls.append(counts))) == 3
    assert calls == []


def test_failures_are_thrown_away_or_kept_as_failures(run, arm, tmp_path):
    arm.horizon = 24  # Tries take 23 to 27 steps.
    counts = []
    run("a", episodes=5, progress=lambda *both: counts.append(both))
    held, failures = counts[-1]
    assert held == 5
    assert failures > 0
    assert len(read_dataset(tmp_path / "a")) == 5
    run("b", episodes=5, keep_failures=True)
    episodes = read_dataset(tmp_path / "b")
    assert len(episodes) == 5 + failures
    failed = [e for e in episodes if not e.metadata.success]
    assert len(failed) == failures
    assert all(e.truncations[-1] and not e.terminations.any() and e.metadata.complete for e in failed)


def test_an_expert_that_never_succeeds_is_given_up(run, arm):
    arm.horizon = 2
    with pytest.raises(DemoError, match=r"20 tries failed in a row .* holds 0 of 4 demonstrations"):
        run()


def test_a_simulator_fault_ends_and_flags_the_episode(run, arm, tmp_path):
    arm.fault_at = 7
    with pytest.raises(DemoError, match="in a row"):
        run("a")
    assert list((tmp_path / "a").glob("episode_*")) == []
    with pytest.raises(DemoError, match="in a row"):
        run("b", keep_failures=True)
    episodes = read_dataset(tmp_path / "b")
    assert {(len(e), e.metadata.success) for e in episodes} == {(6, False)}
    assert "non-finite" in episodes[0].metadata.note
    arm.fault_at = 1  # Nothing is left of a first step that broke.
    with pytest.raises(DemoError, match="in a row"):
        run("c", keep_failures=True)
    assert list((tmp_path / "c").glob("episode_*")) == []


def test_another_sort_of_demonstration_is_refused(run):
    run()
    for settings, name in (
        ({"kind": "clean"}, "kind"),
        ({"noise": 0.3}, "noise"),
        ({"task": "other"}, "task"),
    ):
        with pytest.raises(DemoError, match=rf"holds episodes with {name} .*choose another"):
            run(**settings)


def test_a_replay_is_the_recording(run, arm):
    for episode in run():
        report = replay(episode, arm)
        assert report[:3] == (0.0, 0.0, 0.0)
        assert report.success
        assert report.steps == len(episode)
        assert report.reproduced(tolerance_rad=0.0, tolerance_m=0.0)


def test_a_replay_of_other_actions_is_measured(run, arm):
    episode = run(episodes=1)[0]
    actions = episode.executed_actions.copy()
    actions[0, 0] -= 0.5
    report = replay(replace(episode, executed_actions=actions), arm)
    # Half of the position scale of 0.0125 m, for ever after.
    assert report.tcp_deviation == pytest.approx(0.00625, abs=1e-6)
    assert not report.reproduced(tolerance_rad=0.001, tolerance_m=0.001)
    assert not report._replace(success=False).reproduced(tolerance_rad=1.0, tolerance_m=1.0)


def test_what_cannot_be_replayed_is_said(run, arm):
    episode = run(episodes=1)[0]
    with pytest.raises(DemoError, match="has no simulator snapshot"):
        replay(replace(episode, snapshot={}), arm)
    arm.control_mode = "osc"
    with pytest.raises(DemoError, match="was recorded with control_mode servo; the environment has osc"):
        replay(episode, arm)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("episods=3", "Did you mean 'episodes'?"),
        ("kind=humanlike", "Did you mean 'human-like'?"),
        ("noise=2", "noise=2.0 must lie between 0 and 1"),
        ("env.name=lift", "Choices: "),
        ("episodes=0", "episodes=0 must be at least 1."),
    ],
)
def test_the_command_answers_a_mistake_with_one_line(argument, expected, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["grasp-record", argument])
    assert record.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("grasp-record: ")
    assert expected in said
    assert said.count("\n") == 1


def test_training_finds_record_expert_beside_the_command():
    assert record.record_expert is recording.record_expert


def test_a_snapshot_of_another_simulator_is_said(run, arm):
    episode = run(episodes=1)[0]

    class Picky(type(arm)):
        def restore(self, snapshot):
            self.numbers[:] = snapshot["numbers"]

    with pytest.raises(DemoError, match=r"snapshot that does not fit the simulator here .*'fake': '1'"):
        replay(replace(episode, snapshot={"numbers": np.zeros(3)}), Picky())
