"""What a UR5e could not have done, and what does not belong together, is named; real recordings are not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from grasp_demos import commands
from grasp_demos.consistency import Consistency
from grasp_demos.plausibility import implausible
from grasp_demos.reader import read_dataset
from grasp_demos.recording import record_expert
from grasp_demos.validate import state_names, validate
from grasp_demos.writer import write_episode
from grasp_sim import registry
from grasp_sim.config import RandomizationConfig
from grasp_sim.contract import encode_rows
from grasp_sim.scene import TABLE_HEIGHT

RECORDED = [
    ("robosuite-lift", "servo"),
    ("robosuite-lift", "osc"),
    ("pybullet-lift", "servo"),
    ("pybullet-lift", "osc"),
    ("pybullet-objects", "servo"),
    ("pybullet-objects", "osc"),
    ("pybullet-slippery", "servo"),
    ("pybullet-slippery", "osc"),
]


def record(folder, task, mode, *, episodes=1, seed=3, **settings):
    """Real recordings as grasp-record makes them."""
    env = registry.make(task, control_mode=mode, **settings)
    rng = np.random.default_rng(0)
    rng.spawn(seed)
    record_expert(env, folder, task=task, episodes=episodes, rng=rng, seed=seed, keep_failures=True)
    env.close()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for task, mode in RECORDED:
        drops = (task, mode) == ("pybullet-slippery", "servo")  # its object, with this seed
        record(folder / f"{task}-{mode}", task, mode, seed=36 if drops else 3)
    return folder


@pytest.fixture
def lift(recordings):
    """One good episode."""
    return read_dataset(recordings / "pybullet-lift-servo")[0]


@pytest.fixture
def dataset(tmp_path, lift):
    """Three different episodes of one data set, all of them good."""
    folder = tmp_path / "demos"
    folder.mkdir()
    for index in range(3):
        rng = np.random.default_rng(index)
        actions = rng.uniform(-1.0, 1.0, lift.executed_actions.shape).astype(np.float32)
        same = {f"{name}_actions": actions for name in ("intended", "requested", "executed")}
        episode = replace(lift, metadata=replace(lift.metadata, index=index, seed=index), **same)
        write_episode(folder / f"episode_{index:06d}.npz", episode)
    return folder


def altered(episode, column, value, steps=slice(None)):
    """The episode with another state, its observations being those of it."""
    states = episode.states.copy()
    states[steps, state_names().index(column)] = value
    return replace(episode, states=states, observations=encode_rows(states))


def with_last(episode, **values):
    """The episode with other values at its last step."""
    arrays = {}
    for name, value in values.items():
        arrays[name] = getattr(episode, name).copy()
        arrays[name][-1] = value
    return replace(episode, **arrays)


def errors(episode, **settings):
    assert validate(episode) == []
    return [(d.step, d.dimension) for d in implausible(episode, **settings) if not d.warning]


def warned(episode):
    return [str(d) for d in implausible(episode) if d.warning]


# ---- no false alarm


def test_real_recordings_of_both_simulators_and_control_modes_raise_no_alarm(recordings, capsys):
    assert commands.main(["check", *map(str, sorted(recordings.iterdir()))]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert ", 0 errors, 0 warnings" in said
    failures = [e for p in recordings.iterdir() for e in read_dataset(p) if not e.metadata.success]
    assert any(e.drops.any() for e in failures)


def test_noise_latency_and_perception_errors_raise_no_alarm(tmp_path):
    randomization = RandomizationConfig(
        joint_latency=[0.0, 0.05],
        object_latency=[0.05, 0.15],
        gripper_latency=[0.0, 0.05],
        object_position_offset=0.004,
        object_position_noise=0.002,
        joint_noise=0.002,
        joint_velocity_noise=0.02,
        opening_noise=0.001,
        force_noise=2.0,
    )
    record(tmp_path, "pybullet-lift", "servo", episodes=2, randomization=randomization)
    for episode in read_dataset(tmp_path):
        assert validate(episode) == implausible(episode) == []


# ---- time


def test_gaps_and_another_rate_are_named(lift):
    names = ("time", "joint_time", "gripper_time", "object_time")
    late = lift
    for name in names:
        late = altered(late, name, lift.states[10:, state_names().index(name)] + 0.2, slice(10, None))
    (defect,) = implausible(late)
    assert (defect.step, defect.dimension) == (9, "time")
    assert "0.250 s pass until the next state, 5.0 periods of 0.050 s" in defect.problem
    assert errors(late, max_gap=6.0) == []
    (defect,) = implausible(replace(lift, metadata=replace(lift.metadata, rate_hz=10.0)))
    assert str(defect).endswith("rate_hz: is 10, but the stamps tell 20.0 Hz")


def test_an_uneven_step_and_sources_ahead_or_far_behind_are_remarkable(lift):
    now = lift.states[:, -1]
    assert "0.090 s pass" in warned(altered(lift, "time", now[7] + 0.09 - 0.05, 7))[0]
    assert "the clocks differ" in warned(altered(lift, "object_time", now + 0.01))[0]
    assert "gripper_time: was measured 0.60 s before" in warned(altered(lift, "gripper_time", now - 0.6))[0]
    assert implausible(altered(lift, "object_time", now - 5.0)) == []


# ---- joints and TCP


def test_joints_beyond_their_limits_or_their_speed_are_named(lift):
    assert (5, "elbow_joint") in errors(altered(lift, "joint_positions[2]", np.pi + 0.1, 5))
    # At most 1.05 * pi * 0.05 s + 0.02 = 0.185 rad a step; the other joints stay where they were.
    apart = altered(lift, "joint_positions[5]", lift.states[5, 5] + 0.3, 5)
    assert {(4, "wrist_3_joint"), (5, "tcp_quaternion")} <= set(errors(apart))
    assert "limit is 3.14" in warned(altered(lift, "joint_velocities[0]", 4.0, 5))[0]


def test_joints_in_degrees_are_named(lift):
    states = lift.states.copy()
    states[:, :6] = np.degrees(states[:, :6])
    found = errors(replace(lift, states=states, observations=encode_rows(states)))
    assert (0, "elbow_joint") in found
    assert (0, "tcp_position") in found


def test_a_tcp_that_is_not_where_the_joints_put_it_is_named(lift):
    moved = lift.states[4, state_names().index("tcp_position[0]")] + 0.003
    (defect,) = implausible(altered(lift, "tcp_position[0]", moved, 4))
    assert (defect.step, defect.dimension) == (4, "tcp_position")
    assert defect.problem == "is 3.0 mm from where the joints put it"
    swapped = lift.states.copy()  # wxyz in place of xyzw, the classic
    swapped[:, 15:19] = swapped[:, [18, 15, 16, 17]]
    assert errors(replace(lift, states=swapped, observations=encode_rows(swapped))) == [(0, "tcp_quaternion")]
    negated = lift.states.copy()
    negated[::2, 15:19] *= -1.0  # the same rotation
    assert errors(replace(lift, states=negated, observations=encode_rows(negated))) == []


# ---- object and gripper


def test_objects_that_jump_sink_or_have_no_size_are_named(lift):
    x = state_names().index("object_position[0]")
    (defect,) = implausible(altered(lift, "object_position[0]", lift.states[8:, x] + 0.25, slice(8, None)))
    assert (defect.step, defect.dimension) == (7, "object_position")
    assert "jumps 0.2" in defect.problem
    sunk = altered(lift, "object_position[2]", TABLE_HEIGHT - 0.02)
    assert (0, "object_position") in errors(sunk)
    assert "20.0 mm below the table's top" in implausible(sunk)[0].problem
    elsewhere = replace(sunk, metadata=replace(sunk.metadata, task="my-own-cell"))
    assert errors(elsewhere) == []
    assert errors(altered(lift, "object_size[1]", 0.0)) == [(0, "object_size")]
    assert errors(altered(lift, "object_symmetry", 2.5)) == [(0, "object_symmetry")]


def test_an_object_that_fell_off_the_table_is_remarkable(lift):
    states = lift.states.copy()
    x, z = (state_names().index(f"object_position[{k}]") for k in (0, 2))
    states[:, x] = 1.2
    states[-5:, z] = TABLE_HEIGHT - np.arange(1, 6) * 0.1
    fallen = replace(lift, states=states, observations=encode_rows(states))
    assert errors(fallen) == []
    assert "it fell off (5 steps)" in warned(fallen)[0]


def test_quaternions_that_are_no_rotations_and_openings_in_millimetres_are_named(lift):
    assert errors(altered(lift, "object_quaternion[3]", 2.0, 3)) == [(3, "object_quaternion")]
    assert errors(altered(lift, "gripper_opening", 85.0)) == [(0, "gripper_opening")]


# ---- outcome and length


def test_a_success_that_the_last_step_contradicts_is_named(lift):
    last = len(lift) - 1
    assert errors(with_last(lift, terminations=False, truncations=True)) == [(last, "success")]
    assert errors(with_last(lift, rewards=0.0)) == [(last, "success")]
    failed = replace(lift, metadata=replace(lift.metadata, success=False))
    assert errors(failed) == []
    assert "is not set, but the last step terminated with reward 1" in warned(failed)[0]
    assert implausible(with_last(failed, rewards=0.0)) == []  # an object that broke
    word = replace(with_last(lift, terminations=False, truncations=True), snapshot={})
    assert errors(word) == []  # the operator's word
    assert "did not terminate" in warned(word)[0]


def test_short_broken_off_and_unmoving_episodes_are_remarkable(lift):
    short = {name: getattr(lift, name)[-3:] for name in ("rewards", "terminations", "truncations", "slips")}
    short |= {name: getattr(lift, name)[-3:] for name in ("drops", "actors")}
    short |= {f"{name}_actions": lift.executed_actions[-3:] for name in ("intended", "requested", "executed")}
    short |= {name: getattr(lift, name)[-4:] for name in ("states", "observations", "simulator_states")}
    assert warned(replace(lift, **short)) == [f"{lift}: has only 3 steps"]
    broken = replace(lift.metadata, success=False, complete=False, note="the recorder was killed")
    lines = warned(with_last(replace(lift, metadata=broken), rewards=0.0))
    assert lines[0].endswith("complete: is false, the recording broke off: the recorder was killed")
    still = np.zeros_like(lift.executed_actions)
    same = {f"{name}_actions": still for name in ("intended", "requested", "executed")}
    assert "never change" in warned(replace(lift, **same))[0]


# ---- the data set


def test_copies_are_errors_in_one_data_set_and_warnings_between_two(dataset, lift, tmp_path, capsys):
    shutil.copy(dataset / "episode_000001.npz", dataset / "episode_000007.npz")
    assert commands.main(["check", str(dataset)]) == 1
    said = capsys.readouterr().out
    assert "episode_000007.npz, episode 1: holds the same episode as " in said
    assert "index: is 1 inside, 7 by the file's name; episode_000001.npz is 1 too" in said
    assert f"4 files, 4 episodes, {4 * len(lift)} steps, 4 successes, 1 error, 1 warning" in said
    (dataset / "episode_000007.npz").unlink()
    shutil.copytree(dataset, tmp_path / "backup")
    assert commands.main(["check", str(dataset), str(tmp_path / "backup")]) == 0
    assert capsys.readouterr().out.count("warning: ") == 3
    assert commands.main(["check", str(dataset), str(dataset / "episode_000001.npz")]) == 0  # once each
    assert "3 files, 3 episodes" in capsys.readouterr().out


def test_metadata_that_differs_within_a_data_set_is_named(lift):
    def odd_one_out(**changes):
        consistency = Consistency()
        for index in range(3):
            metadata = replace(lift.metadata, index=index, **(changes if index == 1 else {}))
            moved = altered(lift, "gripper_force", float(index))
            consistency.add(replace(moved, metadata=metadata, path=None))
        return [(d.episode, d.dimension, d.warning) for d in consistency.defects()]

    assert odd_one_out() == []
    assert odd_one_out(control_mode="osc") == [("episode 1", "control_mode", False)]
    assert odd_one_out(versions={"pybullet": "9"}) == [("episode 1", "versions", True)]
    assert odd_one_out(source="keyboard") == [("episode 1", "source", True)]


def test_what_may_differ_within_a_data_set_is_said_once(make_episode):
    consistency = Consistency()
    for index in range(5):
        consistency.add(make_episode(index=index, source="keyboard" if index > 2 else "expert"))
    (defect,) = consistency.defects()
    assert str(defect) == "episode 3, source: is keyboard; 3 of the data set's 5 have expert (2 episodes)"


def test_odd_lengths_are_remarkable_from_five_successes_on(make_episode):
    def lines(*lengths):
        consistency = Consistency()
        for index, steps in enumerate(lengths):
            consistency.add(make_episode(steps=steps, index=index, horizon=0))
        return [str(d) for d in consistency.defects()]

    assert lines(40, 41, 42, 200) == []
    (line,) = lines(40, 41, 42, 43, 200)
    assert line == "episode 4: has 200 steps; half of the data set's successes have at most 42"


# ---- the command


def test_damaged_and_foreign_files_are_named_beside_the_good_ones(dataset, lift, tmp_path, capsys):
    cut = dataset / "episode_000001.npz"
    cut.write_bytes(cut.read_bytes()[:-100])
    np.savez(dataset / "episode_000005.npz", actions=np.zeros(3))
    (dataset / "notes.txt").write_text("mine")
    (dataset / "episode_000009.log").write_bytes(b"")
    report = tmp_path / "out" / "check.json"
    assert commands.main(["check", str(dataset), f"report={report}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("error: " in line and "episode_000001.npz: is cut off" in line for line in lines)
    assert any("error: " in line and "episode_000005.npz: is cut off, or is no" in line for line in lines)
    assert any("warning: " in line and line.endswith("holds notes.txt, which is no episode and was left out")
               for line in lines)  # fmt: skip
    assert any("episode_000009.log: is a recording that runs or was killed" in line for line in lines)
    assert lines[-1] == f"4 files, 2 episodes, {2 * len(lift)} steps, 2 successes, 2 errors, 2 warnings"
    content = json.loads(report.read_text())
    assert content["summary"]["errors"] == 2
    assert [entry["readable"] for entry in content["files"]] == [True, False, True, False]
    assert {f["severity"] for f in content["findings"]} == {"error", "warning"}
    assert [p.name for p in report.parent.iterdir()] == ["check.json"]


def test_every_defect_is_one_line_with_file_episode_step_and_dimension(dataset, lift, capsys):
    bad = altered(lift, "tcp_position[0]", 5.0, 4)
    write_episode(dataset / "episode_000003.npz", replace(bad, metadata=replace(bad.metadata, index=3)))
    assert commands.main(["check", str(dataset), "warnings=false"]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"error: {dataset}/episode_000003.npz, episode 3, step 4, tcp_position: is ")


def test_another_task_than_the_one_asked_for_is_an_error(dataset, capsys):
    assert commands.main(["check", str(dataset), "task=pybullet-lift"]) == 0
    assert commands.main(["check", str(dataset), "task=robosuite-lift"]) == 1
    assert "task: is pybullet-lift, not robosuite-lift" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("executed_actions", np.float32(1.0), "executed_actions: has shape ()"),
        ("states", np.zeros((2, 3)), "states: has shape (2, 3)"),
        ("states", np.full((37, 36), np.inf), "states holds inf, which is not finite (37 steps)"),
        ("rewards", np.zeros(0, np.float32), "rewards: has shape (0,)"),
    ],
)
def test_absurd_arrays_are_named_and_stop_nothing(dataset, lift, capsys, name, value, expected):
    bad = replace(lift, metadata=replace(lift.metadata, index=3), **{name: value})
    write_episode(dataset / "episode_000003.npz", bad)
    assert commands.main(["check", str(dataset)]) == 1
    said = capsys.readouterr().out
    assert expected in said
    assert "4 files, 4 episodes" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Usage: grasp-demos"),
        (["chek"], "Did you mean 'check'?"),
        (["check"], "name at least one episode file or data set's folder"),
        (["check", "nowhere"], "nowhere does not exist"),
        (["check", ".", "raport=x"], "Did you mean 'report'?"),
        (["check", ".", "--report"], "'--report' is not a setting"),
        (["check", ".", "max_gap=0"], "max_gap=0.0 must be at least 1"),
        (["check", "."], "holds no episodes"),
    ],
)
def test_a_wrong_request_is_exit_code_two_and_says_what_to_do(words, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert commands.main(words) == 2
    said = capsys.readouterr()
    assert expected in said.out + said.err


def test_every_command_explains_itself(capsys):
    for name in commands.COMMANDS:
        assert commands.main([name, "--help"]) == 0
        assert f"Usage: grasp-demos {name} " in capsys.readouterr().out
    assert commands.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in commands.COMMANDS)


def test_hostile_names_and_notes_stay_on_one_line(dataset, lift, capsys):
    note = "\x1b[2Jgone\nerror: forged line"
    metadata = replace(lift.metadata, index=3, success=False, complete=False, note=note)
    episode = with_last(replace(lift, metadata=metadata), rewards=0.0, drops=True)
    write_episode(dataset / "episode_000003.npz", episode)
    assert commands.main(["check", str(dataset)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert not any(line.startswith("error: forged") for line in said.splitlines())
