"""Run folders: begin, resume, refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from grasp_control.config import DistillConfig, TrainConfig
from grasp_control.empo2.config import EMPO2Config
from grasp_control.memory.config import MemoryConfig
from grasp_control.run import RunFolder, load_config
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UserError


def config(out: Path | str, **changes) -> TrainConfig:
    # YAML 1.1 readers take 1e-05 for a string unless it is written with a dot.
    algo = EMPO2Config(learning_rate=1e-5)
    return TrainConfig(**({"out": str(out), "algo": algo, "env_steps": 5000} | changes))


def begun(settings: TrainConfig) -> RunFolder:
    run = RunFolder(settings)
    with run.begin():
        pass
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_run_stores_its_settings_and_nothing_else(tmp_path):
    run = begun(config(tmp_path / "deep" / "run"))
    assert run.path == tmp_path / "deep" / "run"
    assert set(contents(run.path)) == {"config.yaml", ".lock"}
    assert load_config(run.path) == config(run.path)


def test_nothing_is_written_before_the_run_begins(tmp_path):
    run = RunFolder(config(tmp_path / "deep" / "run"))
    assert list(tmp_path.iterdir()) == []
    with run.begin():
        before = contents(tmp_path)
    with run.begin():  # the settings are stored once
        pass
    assert contents(tmp_path) == before


def test_an_empty_folder_may_be_used(tmp_path):
    begun(config(tmp_path))
    assert load_config(tmp_path) == config(tmp_path)


def test_a_run_is_named_after_its_task_mode_and_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = begun(config("", seed=4, env=EnvConfig(control_mode="osc")))
    assert run.path == Path("runs/robosuite-lift-osc-seed4")
    assert (tmp_path / run.path / "config.yaml").is_file()
    assert run.demos == run.path / "demos"


def test_the_same_settings_resume_and_change_no_file(tmp_path):
    begun(config(tmp_path / "run"))
    (tmp_path / "run" / "train.csv").write_text("step\n")
    before = contents(tmp_path / "run")
    assert begun(config(tmp_path / "run")).path == tmp_path / "run"
    assert contents(tmp_path / "run") == before


def test_settings_that_change_nothing_learned_may_differ(tmp_path):
    begun(config(tmp_path / "run"))
    RunFolder(config(tmp_path / "run", video=False, metrics_every=9))


def test_a_run_may_be_moved(tmp_path):
    begun(config(tmp_path / "run"))
    (tmp_path / "run").rename(tmp_path / "moved")
    RunFolder(config(tmp_path / "moved"))


def test_other_settings_are_refused_naming_each_and_both_values(tmp_path):
    begun(config(tmp_path / "run"))
    before = contents(tmp_path / "run")
    other = config(
        tmp_path / "run",
        seed=5,
        video=False,
        algo=EMPO2Config(learning_rate=1e-5, actors=7),
        memory=MemoryConfig(n_step=3),
        distill=DistillConfig(updates=10),
    )
    with pytest.raises(UserError) as raised:
        RunFolder(other)
    message = str(raised.value)
    for difference in (
        "seed 0 -> 5",
        f"algo.actors {EMPO2Config().actors} -> 7",
        f"memory.n_step {MemoryConfig().n_step} -> 3",
        f"distill.updates {DistillConfig().updates} -> 10",
    ):
        assert difference in message
    assert message.count("->") == 4
    assert "video" not in message
    assert str(tmp_path / "run") in message
    assert "out=" in message
    assert len(message.splitlines()) == 1
    assert contents(tmp_path / "run") == before


def test_settings_that_one_version_knows_and_the_other_does_not_are_named(tmp_path):
    begun(config(tmp_path, context=4))
    stored = tmp_path / "config.yaml"
    stored.write_text(stored.read_text().replace("context: 4\n", "old_setting: 4\n"))
    with pytest.raises(UserError, match=r"context None -> 4; old_setting 4 -> None"):
        RunFolder(config(tmp_path, context=4))


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("keep")
    with pytest.raises(UserError, match=r"not empty and holds no config.yaml.*out="):
        RunFolder(config(tmp_path))
    assert contents(tmp_path) == {"thesis.tex": b"keep"}


def test_the_settings_of_no_run_cannot_be_loaded(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match=r"holds no config.yaml.*grasp-train"):
            load_config(folder)


def test_loaded_settings_are_typed_and_checked(tmp_path):
    begun(config(tmp_path))
    loaded = load_config(tmp_path)
    assert isinstance(loaded.algo, EMPO2Config)
    assert loaded.algo.learning_rate == 1e-5
    stored = tmp_path / "config.yaml"
    stored.write_text(stored.read_text().replace("env_steps: 5000", "env_steps: 10"))
    with pytest.raises(Exception, match=r"env_steps=10 "):
        load_config(tmp_path)


def test_paths_of_an_existing_run_need_no_matching_settings(tmp_path):
    begun(config(tmp_path / "run"))
    changed = load_config(tmp_path / "run")
    changed.distill.updates = 1
    run = RunFolder.existing(changed)
    assert run.path == tmp_path / "run"
    assert run.checkpoints.parent == run.bundle.parent == run.path


def test_two_trainings_never_share_a_folder(tmp_path):
    first, second = RunFolder(config(tmp_path / "run")), RunFolder(config(tmp_path / "run"))
    with first.begin(), pytest.raises(UserError, match="in use by another training"), second.begin():
        pass
    with second.begin():
        pass


@pytest.mark.parametrize("text", ["", "[1, 2]", "seed: [", "\x00", "# settings"])
def test_damaged_settings_are_named_and_never_taken_for_the_defaults(tmp_path, text):
    begun(config(tmp_path))
    (tmp_path / "config.yaml").write_text(text)
    for read in (lambda: RunFolder(config(tmp_path)), lambda: load_config(tmp_path)):
        with pytest.raises(UserError, match=r"config.yaml (is damaged|does not fit)") as raised:
            read()
        assert len(str(raised.value).splitlines()) == 1
    assert (tmp_path / "config.yaml").read_text() == text
