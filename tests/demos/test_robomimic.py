"""robomimic's HDF5 files: written, read back, played back by robosuite, and read from others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import h5py
import mujoco
import numpy as np
import pytest

from grasp_demos import commands
from grasp_demos.convert import FORMATS, ImportSettings, recognise, robosuite_actions, robosuite_demos
from grasp_demos.convert.robomimic import read, write
from grasp_demos.episode import DemoError, Episode
from grasp_demos.reader import read_dataset
from grasp_demos.recording import record_expert
from grasp_demos.storage import ARRAYS, episode_bytes
from grasp_demos.validate import require_valid, validate
from grasp_sim import registry
from grasp_sim.contract import ACTION_NAMES, unpack_state
from grasp_sim.scene import Start
from grasp_sim.simulators import find_simulator
from grasp_sim.tasks import find_task

SORTS = {
    "servo": ("robosuite-lift", "servo"),
    "osc": ("robosuite-lift", "osc"),
    "objects": ("robosuite-objects", "servo"),
    "pybullet": ("pybullet-lift", "servo"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> dict[str, list[Episode]]:
    """Two demonstrations of each sort, recorded by the scripted expert."""
    held = {}
    for name, (task, mode) in SORTS.items():
        env = registry.make(task, control_mode=mode)
        out = tmp_path_factory.mktemp(name)
        rng = np.random.default_rng(0)
        held[name] = record_expert(env, out, task=task, episodes=2, rng=rng, noise=0.1)
        env.close()
    return held


@pytest.fixture(scope="module")
def exported(recorded, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    for name, episodes in recorded.items():
        write(episodes, folder / f"{name}.hdf5")
    return {name: folder / f"{name}.hdf5" for name in recorded}


@pytest.fixture
def foreign(exported, tmp_path) -> Path:
    """An exported file as if robosuite's own tools had recorded it."""
    path = tmp_path / "foreign.hdf5"
    shutil.copy(exported["osc"], path)
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            del demo["grasp_episode"]
    return path


# ---- round trip and layout


@pytest.mark.parametrize("sort", SORTS)
def test_an_exported_episode_comes_back_bit_for_bit(recorded, exported, sort):
    back, warnings = read(exported[sort], ImportSettings())
    assert warnings == []
    assert [episode_bytes(e) for e in back] == [episode_bytes(e) for e in recorded[sort]]
    require_valid(back)


@pytest.mark.parametrize("sort", SORTS)
def test_a_file_has_the_layout_of_robomimic(recorded, exported, sort):
    episodes = recorded[sort]
    with h5py.File(exported[sort]) as file:
        data = file["data"]
        assert data.attrs["total"] == sum(map(len, episodes))
        assert list(file["mask/train"]) == [b"demo_0"]
        assert list(file["mask/valid"]) == [b"demo_1"]
        for number, episode in enumerate(episodes):
            demo, steps = data[f"demo_{number}"], len(episode)
            assert demo.attrs["num_samples"] == steps
            for name in ("actions", "states", "rewards", "dones"):
                assert len(demo[name]) == steps
            np.testing.assert_array_equal(demo["states"], episode.simulator_states[:-1])
            np.testing.assert_array_equal(demo["dones"], np.arange(steps) == steps - 1)
            assert set(demo["obs"]) == set(demo["next_obs"])
            np.testing.assert_array_equal(demo["obs/policy_observation"], episode.observations[:-1])
            for name in demo["obs"]:
                np.testing.assert_array_equal(demo["obs"][name][1:], demo["next_obs"][name][:-1])
            assert ("model_file" in demo.attrs) == (sort != "pybullet")
            if sort != "osc":
                np.testing.assert_array_equal(demo["actions"], episode.training_actions)
        arguments = json.loads(data.attrs["env_args"])
        assert set(arguments) == {"env_name", "env_version", "type", "env_kwargs"}
        assert ("No controller of robosuite takes them" in data.attrs["action_meaning"]) == (
            sort in ("servo", "objects")
        )


def test_what_a_policy_learns_is_what_is_written(recorded, tmp_path):
    episode = recorded["pybullet"][0]
    clean = replace(episode, metadata=replace(episode.metadata, kind="clean"))
    write([clean], tmp_path / "clean.hdf5")
    with h5py.File(tmp_path / "clean.hdf5") as file:
        np.testing.assert_array_equal(file["data/demo_0/actions"], episode.intended_actions)
        assert "intended" in file["data"].attrs["action_meaning"]
        assert (list(file["mask/train"]), len(file["mask/valid"])) == ([b"demo_0"], 0)


def test_episodes_whose_actions_differ_in_meaning_are_not_mixed(recorded, tmp_path):
    out = tmp_path / "mixed.hdf5"
    with pytest.raises(DemoError, match=r"control_mode osc.*servo.*two files"):
        write([recorded["servo"][0], recorded["osc"][0]], out)
    assert list(tmp_path.iterdir()) == []


def test_an_episode_without_simulator_states_is_not_exported(recorded, tmp_path):
    episode = recorded["servo"][0]
    bare = replace(episode, simulator_states=np.zeros((len(episode) + 1, 0)))
    with pytest.raises(DemoError, match="holds 0 numbers of the simulator's state, and 38 are needed"):
        write([bare], tmp_path / "x.hdf5")
    assert list(tmp_path.iterdir()) == []


# ---- robosuite


def test_a_model_file_is_the_model_that_was_simulated(recorded, exported):
    from robosuite.environments.base import MujocoEnv

    for sort, (task, mode) in SORTS.items():
        if sort == "pybullet":
            continue
        scene = find_simulator("robosuite").make_scene(mode, find_task(task.split("-")[1]))
        for number, episode in enumerate(recorded[sort]):
            start = Start.from_json(np.asarray(episode.snapshot["start"]).tobytes().decode())
            scene.show(start, episode.simulator_states[-1])  # type: ignore[union-attr]
            with h5py.File(exported[sort]) as file:
                text = file[f"data/demo_{number}"].attrs["model_file"]
            held, model = (
                mujoco.MjModel.from_xml_string(MujocoEnv.edit_model_xml(scene.suite, text)),
                scene.model,
            )
            for name in (
                "body_mass", "body_inertia", "body_ipos", "geom_type", "geom_size", "geom_pos", "geom_quat",
                "geom_contype", "geom_conaffinity", "geom_condim", "geom_friction", "geom_solref",
                "geom_solimp", "dof_armature", "dof_damping", "body_gravcomp", "actuator_gainprm",
                "actuator_biasprm", "actuator_biastype", "actuator_ctrlrange", "opt.impratio",
                "opt.tolerance", "opt.timestep", "opt.enableflags",
            ):  # fmt: skip
                one, other = held, model
                for part in name.split("."):
                    one, other = getattr(one, part), getattr(other, part)
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"{sort} {name}")


@pytest.mark.parametrize("sort", ["servo", "osc"])
def test_robosuite_plays_an_exported_file_back(exported, recorded, sort):
    """As robosuite's playback_demonstrations_from_hdf5.py does; in osc mode from the actions too."""
    import robosuite

    with h5py.File(exported[sort]) as file:
        data, demo = file["data"], file["data/demo_0"]
        env = robosuite.make(
            **json.loads(data.attrs["env_info"]),
            has_renderer=False,
            has_offscreen_renderer=False,
            ignore_done=True,
            use_camera_obs=False,
            control_freq=20,
        )
        env.reset()
        env.reset_from_xml_string(env.edit_model_xml(demo.attrs["model_file"]))
        env.sim.reset()
        for state in demo["states"]:
            env.sim.set_state_from_flattened(state)
            env.sim.forward()
        seen = env._get_observations(force_update=True)
        for name in demo["obs"]:
            if name in seen:
                np.testing.assert_allclose(demo["obs"][name][-1], seen[name], atol=1e-9, err_msg=name)
        np.testing.assert_allclose(demo["obs/object"][-1], seen["object-state"], atol=1e-9)
        last = unpack_state(recorded[sort][0].states[-2])
        height = env.sim.data.body_xpos[env.cube_body_id][2]
        np.testing.assert_allclose(height - robosuite_demos.BASE[2], last.object_position[2], atol=1e-9)
        if sort == "osc":
            env.sim.reset()
            env.sim.set_state_from_flattened(demo["states"][0])
            env.sim.forward()
            for action in demo["actions"]:
                env.step(action)
            assert env._check_success()
        env.close()


# ---- files of others


def test_a_demonstration_of_others_is_the_one_that_was_recorded(recorded, foreign):
    back, warnings = read(foreign, ImportSettings(kind="human-like"))
    assert len(back) == 2
    assert any("grip force" in line for line in warnings)
    for episode, original in zip(back, recorded["osc"], strict=True):
        assert validate(episode) == []
        assert (episode.metadata.task, episode.metadata.control_mode) == ("robosuite-lift", "osc")
        assert episode.metadata.success
        assert episode.terminations[-1]
        assert len(episode) == len(original)
        np.testing.assert_allclose(
            episode.executed_actions[:, :4], original.executed_actions[:, :4], atol=1e-6
        )
        np.testing.assert_array_equal(
            episode.executed_actions[:, 4], np.where(original.executed_actions[:, 4] < 0, -1.0, 1.0)
        )
        for row, held in zip(episode.states, original.states, strict=True):
            one, other = unpack_state(row), unpack_state(held)
            for field in fields(one):
                if field.name not in ("gripper_force", "object_size"):
                    close = 1e-9 if "time" not in field.name else 0.03  # reset to reset
                    np.testing.assert_allclose(
                        getattr(one, field.name), getattr(other, field.name), atol=close, err_msg=field.name
                    )
            np.testing.assert_allclose(one.object_size, other.object_size, atol=1e-9)


def _edit(path: Path, **changes) -> None:
    with h5py.File(path, "r+") as file:
        arguments = json.loads(file["data"].attrs["env_args"])
        for name, value in changes.items():
            if name in arguments:
                arguments[name] = value
            else:
                arguments["env_kwargs"][name] = value
        file["data"].attrs["env_args"] = json.dumps(arguments)


FLAT = {
    "type": "OSC_POSE", "input_max": 1, "input_min": -1, "output_max": [0.05] * 3 + [0.5] * 3,
    "output_min": [-0.05] * 3 + [-0.5] * 3, "kp": 150, "damping_ratio": 1, "impedance_mode": "fixed",
    "control_delta": True, "uncouple_pos_ori": True, "interpolation": None,
}  # fmt: skip


def test_a_flat_controller_of_before_1_5_is_converted_naming_both_versions(foreign):
    _edit(foreign, env_version="1.4.1", controller_configs=FLAT)
    back, warnings = read(foreign, ImportSettings())
    assert len(back) == 2
    assert any("robosuite 1.4.1" in line and "robosuite 1.5.2" in line for line in warnings)


def test_other_gains_are_told(foreign):
    _edit(foreign, controller_configs=FLAT | {"kp": 200})
    assert any("kp 200" in line for line in read(foreign, ImportSettings())[1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env_name": "Stack"}, "task Stack; only Lift"),
        ({"robots": ["Panda"]}, "robot Panda; only a UR5e"),
        ({"robots": ["UR5e", "UR5e"]}, "robot UR5e, UR5e"),
        ({"gripper_types": "PandaGripper"}, "gripper PandaGripper; only a Robotiq85Gripper"),
        ({"control_freq": 10}, "10 Hz; policies here act at 20 Hz"),
        ({"controller_configs": None}, "no controller_configs"),
        ({"controller_configs": FLAT | {"type": "JOINT_VELOCITY"}}, "controller JOINT_VELOCITY"),
        ({"controller_configs": FLAT | {"control_delta": False}}, "absolute poses"),
        ({"controller_configs": FLAT | {"output_max": 0.1}}, "output_max 0.1"),
        ({"controller_configs": FLAT | {"impedance_mode": "variable"}}, "impedance_mode variable"),
        ({"controller_configs": {"body_parts": {"right": FLAT | {"input_type": "absolute"}}}}, "absolute"),
        ({"controller_configs": {"body_parts": [3]}}, "controller None"),
    ],
)
def test_what_means_something_else_is_refused_by_name(foreign, changes, said):
    _edit(foreign, **changes)
    with pytest.raises(DemoError, match=said):
        read(foreign, ImportSettings())


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (
            "data/demo_1/next_obs",
            r"next_obs \(needed for the state after the last action\): missing in demo_1",
        ),
        ("data/demo_0/obs/robot0_joint_vel", r"obs/robot0_joint_vel \(needed for the state of the arm\)"),
        ("data/demo_1/obs/object", r"obs/cube_pos \(needed for the cube's pose\).*obs/cube_quat"),
        ("data/demo_1/rewards", "rewards"),
    ],
)
def test_missing_keys_are_named_with_what_needs_them(foreign, gone, said):
    with h5py.File(foreign, "r+") as file:
        del file[gone]
    with pytest.raises(DemoError, match=said):
        read(foreign, ImportSettings())


def test_a_recording_of_robosuite_itself_is_told_apart(foreign):
    with h5py.File(foreign, "r+") as file:
        del file["data"].attrs["env_args"]
    with pytest.raises(DemoError, match=r"env_args.*a recording of robosuite itself.*convert_robosuite"):
        read(foreign, ImportSettings())


def test_actions_beyond_the_range_are_named_and_never_clipped(foreign):
    with h5py.File(foreign, "r+") as file:
        file["data/demo_1/actions"][3, 2] = 7.5
        file["data/demo_1/actions"][5, 6] = np.nan
    with pytest.raises(DemoError, match=r"demo_1, step 3, delta_z is 7.5 \(2 values\)"):
        read(foreign, ImportSettings())


def test_a_tilting_demonstration_is_left_out_by_name(foreign):
    with h5py.File(foreign, "r+") as file:
        file["data/demo_0/actions"][4, 3] = 0.8
    back, warnings = read(foreign, ImportSettings())
    assert len(back) == 1
    assert any("demo_0 was left out: step 4, rotation_x is 0.8" in line for line in warnings)


def test_another_place_of_the_robot_is_noticed(foreign):
    with h5py.File(foreign, "r+") as file:
        for group in ("obs", "next_obs"):
            file[f"data/demo_1/{group}/robot0_eef_pos"][:, 0] += 0.02
    with pytest.raises(DemoError, match=r"demo_1, step \d+: robot0_eef_pos is 20 mm from"):
        read(foreign, ImportSettings())


def test_a_cube_without_model_file_is_assumed_and_said(foreign):
    with h5py.File(foreign, "r+") as file:
        del file["data/demo_0"].attrs["model_file"]
    back, warnings = read(foreign, ImportSettings())
    np.testing.assert_allclose(unpack_state(back[0].states[0]).object_size, 0.042)
    assert any("demo_0 has no model_file" in line and "42 mm" in line for line in warnings)


def test_what_follows_success_is_left_out_and_said(foreign):
    with h5py.File(foreign, "r+") as file:
        for group in ("obs", "next_obs"):
            file[f"data/demo_0/{group}/object"][10 + (group == "obs") :, 2] = 0.9
        steps = len(file["data/demo_0/actions"])
    back, warnings = read(foreign, ImportSettings())
    assert len(back[0]) == 11
    assert any(f"demo_0: its last {steps - 11} steps" in line for line in warnings)


def test_settings_that_contradict_the_file_are_refused(foreign, exported):
    with pytest.raises(DemoError, match="control_mode osc; control_mode=servo was asked for"):
        read(foreign, ImportSettings(control_mode="servo"))
    with pytest.raises(DemoError, match="kind human-like; kind=clean"):
        read(exported["pybullet"], ImportSettings(kind="clean"))


def test_a_changed_export_is_noticed(exported, tmp_path):
    path = tmp_path / "changed.hdf5"
    shutil.copy(exported["pybullet"], path)
    with h5py.File(path, "r+") as file:
        file["data/demo_0/actions"][0, 0] = 0.5
    with pytest.raises(DemoError, match="its actions were changed after the export"):
        read(path, ImportSettings())


def test_a_flipped_bit_is_noticed(exported, tmp_path):
    path = tmp_path / "flipped.hdf5"
    shutil.copy(exported["pybullet"], path)
    with h5py.File(path, "r+") as file:
        file["data/demo_1/grasp_episode/states"][3, 2] += 1e-9
    with pytest.raises(DemoError, match=r"data/demo_1/grasp_episode is damaged: its checksum"):
        read(path, ImportSettings())


def test_a_lift_recorded_by_robosuite_itself_is_imported(tmp_path):
    """robosuite's environment, controller and observations alone; keys as robosuite names them."""
    import robosuite

    controller = robosuite.load_composite_controller_config(robot="UR5e")
    settings = {"robots": ["UR5e"], "controller_configs": controller, "control_freq": 20}
    env = robosuite.make(
        "Lift", **settings, has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False, seed=3
    )
    seen, actions, rewards = [env.reset()], [], []
    for step in range(90):
        cube, tool = seen[-1]["cube_pos"], seen[-1]["robot0_eef_pos"]
        near = np.linalg.norm((cube - tool)[:2]) < 0.01
        move = cube - tool + (0.0, 0.0, 0.0 if near else 0.05)
        closes = step > 45
        if step > 55:
            move = np.array([0.0, 0.0, 0.03])
        actions.append(np.array([*np.clip(move / 0.05, -1, 1), 0, 0, 0, 1 if closes else -1]))
        after, reward, _, _ = env.step(actions[-1])
        seen.append(after)
        rewards.append(reward)
        if env._check_success():
            break
    assert env._check_success()
    path = tmp_path / "robosuite.hdf5"
    with h5py.File(path, "w") as file:
        arguments = {
            "env_name": "Lift",
            "type": 1,
            "env_version": robosuite.__version__,
            "env_kwargs": settings,
        }
        file.create_group("data").attrs["env_args"] = json.dumps(arguments)
        demo = file.create_group("data/demo_0")
        demo["actions"], demo["rewards"] = actions, rewards
        demo.attrs["model_file"] = env.sim.model.get_xml()
        for name in seen[0]:
            demo[f"obs/{name}"] = [row[name] for row in seen[:-1]]
            demo[f"next_obs/{name}"] = [row[name] for row in seen[1:]]
    (episode,), warnings = read(path, ImportSettings())
    require_valid([episode])
    assert episode.metadata.success
    assert len(episode) == len(actions)
    assert len(warnings) == 2  # the grip force, and who acted
    half = env.sim.model.geom_size[env.sim.model.geom_name2id("cube_g0")]
    last = unpack_state(episode.states[-1])
    np.testing.assert_allclose(last.object_size, 2 * half, atol=1e-6)
    np.testing.assert_allclose(last.object_position[2], last.tcp_position[2], atol=0.02)
    assert 0.03 < last.gripper_opening < 0.06
    assert unpack_state(episode.states[0]).gripper_opening > 0.08
    env.close()


# ---- actions


def test_robosuite_actions_by_hand():
    """A tool pointing down: 0.5 of 0.05 m, 0.2 of 0.5 rad; the gripper by its sign, and on where it is 0."""
    down = np.diag([1.0, -1.0, -1.0])
    scale = registry.make("pybullet-lift", control_mode="osc").action_scale
    ours = np.array([0.5, -1.0, 0.25, 0.2, -0.9, 0.0], np.float32)
    theirs = robosuite_actions.to_robosuite(ours, scale, down)
    np.testing.assert_allclose(theirs, [0.5, -1.0, 0.25, 0.0, 0.0, 0.2, 1.0], atol=1e-7)
    rows = np.tile(theirs, (4, 1))
    rows[:, 6] = 0.0, 0.3, 0.0, -1.0
    back, lost = robosuite_actions.from_robosuite(rows, np.tile(down, (4, 1, 1)), find_task("lift"))
    np.testing.assert_allclose(lost, 0.0, atol=1e-6)
    np.testing.assert_allclose(back[:, :4], np.tile(ours[:4], (4, 1)), atol=1e-7)
    np.testing.assert_array_equal(back[:, 4], [1.0, -1.0, -1.0, 1.0])
    np.testing.assert_allclose(back[:, 5], 2 * (60 - 20) / 215 - 1, atol=1e-7)
    assert len(ACTION_NAMES) == back.shape[1]


def test_the_base_is_where_robosuite_has_it():
    scene = find_simulator("robosuite").make_scene("osc", find_task("lift"))
    np.testing.assert_allclose(scene.base, robosuite_demos.BASE, atol=1e-12)  # type: ignore[attr-defined]


# ---- untrusted files


def test_damaged_and_hostile_files_are_refused(exported, tmp_path):
    whole = exported["pybullet"].read_bytes()
    cut = tmp_path / "cut.hdf5"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DemoError, match=r"cut\.hdf5 cannot be read as HDF5"):
        read(cut, ImportSettings())

    def edited(name: str):
        path = tmp_path / f"{name}.hdf5"
        path.write_bytes(whole)
        return path, h5py.File(path, "r+")

    path, file = edited("huge")
    with file:
        del file["data/demo_0/grasp_episode/states"]
        file["data/demo_0/grasp_episode"].create_dataset("states", (10**12, 34), "f8", chunks=(64, 34))
    with pytest.raises(DemoError, match="claims shape"):
        read(path, ImportSettings())
    path, file = edited("linked")
    with file:
        del file["data/demo_0/grasp_episode/states"]
        file["data/demo_0/grasp_episode/states"] = h5py.ExternalLink(str(exported["servo"]), "/data")
    with pytest.raises(DemoError, match="lacks states"):
        read(path, ImportSettings())
    path, file = edited("outside")
    with file:
        del file["data/demo_0/grasp_episode/rewards"]
        file["data/demo_0/grasp_episode"].create_dataset(
            "rewards", (4,), "f4", external=[("/etc/hostname", 0, 16)]
        )
    with pytest.raises(DemoError, match="lies in another file"):
        read(path, ImportSettings())
    path, file = edited("text")
    with file:
        del file["data/demo_0/grasp_episode/rewards"]
        file["data/demo_0/grasp_episode"].create_dataset("rewards", data=["a", "b"])
    with pytest.raises(DemoError, match="must hold numbers"):
        read(path, ImportSettings())
    path, file = edited("deep")
    with file:
        file["data/demo_0/grasp_episode"].attrs["metadata"] = "[" * 30_000
    with pytest.raises(DemoError, match="is no JSON"):
        read(path, ImportSettings())
    empty = tmp_path / "empty.hdf5"
    h5py.File(empty, "w").close()
    with pytest.raises(DemoError, match="holds no demonstrations"):
        read(empty, ImportSettings())


# ---- the commands


def test_the_commands_export_and_import(recorded, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = recorded["pybullet"][0].path.parent
    assert commands.main(["export", f"path={folder}", "out=a/lift.hdf5", "format=robomimic"]) == 0
    assert "holds 2 episodes" in capsys.readouterr().out
    assert recognise(Path("a/lift.hdf5")) is FORMATS["robomimic"]
    assert commands.main(["import", "path=a/lift.hdf5", "out=back"]) == 0
    assert [episode_bytes(e) for e in read_dataset("back")] == [
        episode_bytes(e) for e in recorded["pybullet"]
    ]
    for words, said in (
        (["import", "path=a/lift.hdf5", "out=back"], "holds episodes already"),
        (["export", f"path={folder}", "out=a/lift.hdf5", "format=robomimic"], "exists already"),
        (["import", "path=nowhere", "out=other"], "does not exist"),
        (["import", f"path={folder}", "out=other"], "looks like no known format: add format="),
        (["export", f"path={folder}", "out=x", "format=zip"], "format=zip is not known"),
        (["exprot"], "Did you mean 'export'?"),
    ):
        assert commands.main(words) == 2
        assert said in capsys.readouterr().err
    assert not Path("other").exists()


def test_failures_are_exported_only_when_asked_for(make_episode, tmp_path, monkeypatch, capsys):
    from grasp_demos.writer import DatasetWriter

    monkeypatch.chdir(tmp_path)
    with DatasetWriter(Path("demos")) as writer:
        writer.add(make_episode())
        writer.add(make_episode(index=1, success=False))
    assert commands.main(["export", "path=demos", "out=a.hdf5", "format=robomimic"]) == 0
    assert "1 that failed or broke off were left out" in capsys.readouterr().out
    assert commands.main(["export", "path=demos", "out=b.hdf5", "format=robomimic", "failures=true"]) == 0
    with h5py.File("b.hdf5") as file:
        assert list(file["mask/train"]) == [b"demo_0"]
        assert set(file["data"]) == {"demo_0", "demo_1"}
        assert set(ARRAYS) <= set(file["data/demo_1/grasp_episode"])


# ---- robomimic itself

_LOAD = """
import sys
import h5py
import robomimic.utils.obs_utils as obs_utils
from robomimic.utils.dataset import SequenceDataset
with h5py.File(sys.argv[1]) as file:
    keys = list(file["data/demo_0/obs"])
obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": keys, "rgb": []}})
for length in (1, 10):
    data = SequenceDataset(
        sys.argv[1], keys, ("actions", "rewards", "dones"), seq_length=length, hdf5_cache_mode="low_dim",
        filter_by_attribute="train",
    )
    print("loaded", length, data.n_demos, len(data), data[0]["actions"].shape, len(data[0]["next_obs"]))
"""


@pytest.mark.skipif(
    "ROBOMIMIC_PYTHON" not in os.environ,
    reason="ROBOMIMIC_PYTHON names no interpreter with robomimic installed",
)
@pytest.mark.parametrize("sort", SORTS)
def test_robomimic_loads_an_exported_file(exported, recorded, sort):
    ran = subprocess.run(
        [os.environ["ROBOMIMIC_PYTHON"], "-c", _LOAD, str(exported[sort])],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert ran.returncode == 0, ran.stderr
    with h5py.File(exported[sort]) as file:
        keys, width = len(file["data/demo_0/obs"]), file["data/demo_0/actions"].shape[1]
    steps = len(recorded[sort][0])
    lines = [line for line in ran.stdout.splitlines() if line.startswith("loaded")]
    assert lines == [f"loaded {n} 1 {steps} ({n}, {width}) {keys}" for n in (1, 10)]
