"""Commands: settings, presets, help, and errors of one clear line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grasp_sim.cli import parse_config, require_choice, run_command
from grasp_sim.contract import ContractError
from grasp_sim.errors import UserError


@dataclass
class Memory:
    capacity: int = 500_000
    """Rows held."""
    quotas: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"memory.capacity={self.capacity} must be positive.")


@dataclass
class Config:
    path: str = "???"
    """The data set. It must exist."""
    episodes: int = 5
    seed: int | None = None
    kind: str = field(default="clean", metadata={"help": "How it is recorded."})
    sizes: list[int] = field(default_factory=lambda: [256, 256])
    memory: Memory = field(default_factory=lambda: Memory(capacity=1000))

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, ["clean", "human-like"])


def test_overrides_reach_nested_dataclasses_with_their_types():
    config = parse_config(
        Config, ["path=runs/a", "memory.capacity=7", "sizes=[1,2]", "kind=human-like", "seed=3"]
    )
    assert isinstance(config.memory, Memory)
    assert (config.path, config.memory.capacity, config.sizes, config.seed) == ("runs/a", 7, [1, 2], 3)
    assert parse_config(Config, ["path=x"]).memory.capacity == 1000


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["path=x", "episods=3"], "no setting 'episods'. Did you mean 'episodes'? Settings: path, episodes,"),
        (["path=x", "memory.capcity=3"], "Did you mean 'memory.capacity'? Settings: memory.capacity,"),
        (["path=x", "capacity=3"], "Did you mean 'memory.capacity'?"),
        (["path=x", "episodes=five"], "episodes=five does not fit: episodes takes int (default 5)."),
        (["path=x", "memory.capacity=a"], "memory.capacity takes int (default 1000)"),
        (["path=x", "seed=1.5"], "seed takes int or null (default null)"),
        (["path=x", "sizes=3"], "sizes takes list[int] (default [256,256])"),
        (["path=x", "memory.quotas.slip=much"], "memory.quotas takes dict[str, float]"),
        (["path=x", "memory.capacity=0"], "memory.capacity=0 must be positive."),
        (["path=x", "kind=humanlike"], "Did you mean 'human-like'? Choices: clean, human-like."),
        (["path=x", "memory=3"], "is a group of settings"),
        (["path=x", "seed=1,2"], "gives several values"),
        (["path=x", "+seed=1"], "changed, not added"),
        (["path=x", "~seed"], "not a setting"),
        (["--episodes", "3"], "'--episodes' is not a setting"),
        (["path=a(b"], "put it in quotes: \"path='a(b'\""),
        (["path=[a=b, c=d]"], "put it in quotes: \"path=['a=b','c=d']\""),
        ([], "must be given: path=... (The data set)"),
    ],
)
def test_a_bad_setting_is_one_clear_line(overrides, expected):
    with pytest.raises(UserError) as caught:
        parse_config(Config, overrides)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dictionary_takes_new_entries():
    assert parse_config(Config, ["path=x", "memory.quotas.slip=0.1"]).memory.quotas == {"slip": 0.1}
    assert parse_config(Config, ["path=x", "memory.quotas={slip: 0.1}"]).memory.quotas == {"slip": 0.1}


def test_the_quoting_that_the_message_proposes_works():
    assert parse_config(Config, ["path='a(b'"]).path == "a(b"


def test_presets_are_merged_and_overridden(tmp_path: Path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "large.yaml").write_text("capacity: 2000000\n")
    assert parse_config(Config, ["path=x", "memory=large"], tmp_path).memory.capacity == 2_000_000
    assert (
        parse_config(Config, ["path=x", "memory=large", "memory.capacity=9"], tmp_path).memory.capacity == 9
    )
    with pytest.raises(UserError, match=r"no preset memory=huge\. Presets: large\."):
        parse_config(Config, ["path=x", "memory=huge"], tmp_path)
    (tmp_path / "memory" / "large.yaml").write_text("capcity: 1\n")
    with pytest.raises(UserError, match="capcity"):
        parse_config(Config, ["path=x", "memory=large"], tmp_path)


def run(main, *argv: str) -> int:
    return run_command(Config, main, "Do it.", argv=argv, program="grasp-do")


def test_exit_codes_and_lines(capsys: pytest.CaptureFixture[str]):
    assert run(lambda config: None, "path=x") == 0
    assert run(lambda config: 3, "path=x") == 3
    for error in (UserError("no\nluck."), ContractError("no luck.")):

        def fail(config: Config, error: Exception = error) -> int:
            raise error

        assert run(fail, "path=x") == 2
        assert capsys.readouterr().err == "grasp-do: no luck.\n"

    def full(config: Config) -> int:
        raise OSError(28, "No space left on device", "runs/a")

    assert run(full, "path=x") == 2
    assert capsys.readouterr().err == "grasp-do: No space left on device: 'runs/a'.\n"
    with pytest.raises(ZeroDivisionError):  # A fault of the program keeps its traceback.
        run(lambda config: 1 // 0, "path=x")


@pytest.mark.parametrize(
    ("resumes", "hint"), [(False, ""), (True, "; the same command goes on where it stopped")]
)
def test_a_stopped_command_says_whether_it_can_go_on(resumes, hint, capsys: pytest.CaptureFixture[str]):
    def stop(config: Config) -> int:
        raise KeyboardInterrupt

    code = run_command(Config, stop, "Do it.", argv=["path=x"], program="grasp-do", resumes=resumes)
    assert code == 130
    assert capsys.readouterr().err == f"grasp-do: stopped by the keyboard{hint}.\n"


def test_help_lists_every_setting_with_its_meaning(capsys: pytest.CaptureFixture[str]):
    assert run(lambda config: 1, "--help") == 0
    text = capsys.readouterr().out
    for part in (
        "Do it.",
        "path=<required>  (str)",
        "The data set. It must exist.",
        "seed=null  (int or null)",
    ):
        assert part in text
    for part in (
        "memory.capacity=1000  (int)",
        "Rows held.",
        "kind=clean",
        "How it is recorded.",
        "sizes=[256,256]",
    ):
        assert part in text


def test_print_config_shows_what_would_run(capsys: pytest.CaptureFixture[str]):
    assert run(lambda config: 1, "path=x", "memory.capacity=4", "--print-config") == 0
    assert "capacity: 4" in capsys.readouterr().out


def test_nothing_is_written_where_the_command_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run(lambda config: None, "path=x")
    assert list(tmp_path.iterdir()) == []


def test_a_current_folder_that_is_gone_is_said(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    code = (
        "import os; from dataclasses import dataclass; from grasp_sim.cli import run_command\n"
        "@dataclass\nclass Config:\n    seed: int = 0\n"
        "os.rmdir(os.getcwd())\n"
        "raise SystemExit(run_command(Config, lambda config: os.getcwd() and 0, '', argv=[], program='x'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "x: No such file or directory: the current folder, which was deleted; change into another.\n"
    )
