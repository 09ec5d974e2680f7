"""Launch files: what they name exists. The static part runs everywhere, the rest where ROS 2's launch is."""

from __future__ import annotations

import ast
import re
import runpy
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from grasp_sim.cli_help import list_settings

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "launch").glob("*.launch.py"))
SETTINGS_FILES = sorted((ROOT / "launch").glob("*.yaml"))


def setup_arguments(monkeypatch) -> dict:
    """What ros_nodes/setup.py asks setuptools for."""
    asked: dict = {}
    monkeypatch.chdir(ROOT / "ros_nodes")
    monkeypatch.setattr("setuptools.setup", lambda **settings: asked.update(settings))
    runpy.run_path("setup.py")
    return asked


def entry_points(monkeypatch) -> dict[str, str]:
    lines = setup_arguments(monkeypatch)["entry_points"]["console_scripts"]
    return dict(line.split(" = ") for line in lines)


def config_class(target: str) -> type:
    """The dataclass of the settings of the node whose entry point this is: what `run_node` is given."""
    pytest.importorskip("rclpy")
    module = import_module(target.split(":")[0])
    for call in calls(Path(module.__file__), "run_node"):
        return getattr(module, call.args[1].id)
    raise AssertionError(f"{target} does not call run_node")


def calls(path: Path, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((part.value for part in call.keywords if part.arg == name), None)


def text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_of_mapping(node: ast.AST) -> set[str]:
    return {
        text(key)
        for part in ast.walk(node)
        if isinstance(part, ast.Dict)
        for key in part.keys
        if key is not None
    } - {""}


def nodes_of(path: Path) -> dict[str, set[str]]:
    """Executables that a file starts, and the parameters that it gives them by name."""
    found = {
        text(keyword(call, "executable")): names_of_mapping(keyword(call, "parameters"))
        for call in calls(path, "Node")
        if text(keyword(call, "executable"))
    }
    assigned = {
        target.id: names_of_mapping(statement.value)
        for statement in ast.walk(ast.parse(path.read_text()))
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for call in calls(path, "node"):
        given = set()
        for argument in call.args[1:]:
            given |= assigned[argument.id] if isinstance(argument, ast.Name) else names_of_mapping(argument)
        found[text(call.args[0])] = given
    return found


def test_all_four_are_there():
    assert [path.name.split(".")[0] for path in FILES] == ["record", "sim", "stack", "ur"]


def test_setup_installs_every_launch_file_and_every_node(monkeypatch):
    pytest.importorskip("rclpy")
    asked = setup_arguments(monkeypatch)
    installed = dict(asked["data_files"])["share/grasp_ros/launch"]
    assert {Path(name).name for name in installed} == {path.name for path in FILES + SETTINGS_FILES}
    assert all(Path(name).is_file() for name in installed)
    for target in entry_points(monkeypatch).values():
        module, function = target.split(":")
        assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_argument_has_a_description(path):
    declared = calls(path, "DeclareLaunchArgument")
    assert declared
    for call in declared:
        assert text(keyword(call, "description")).endswith("."), ast.unparse(call)
    names = [text(call.args[0]) for call in declared]
    assert len(names) == len(set(names))
    used = set(re.findall(r'(?:LaunchConfiguration|text|number|flag)\("(\w+)"\)', path.read_text()))
    assert used <= set(names), "used without being declared"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_executable_and_parameter_exists(path, monkeypatch):
    known = entry_points(monkeypatch)
    for executable, parameters in nodes_of(path).items():
        assert executable in known
        settings = {setting.key for setting in list_settings(config_class(known[executable]))}
        assert parameters <= settings, f"{executable} has no {parameters - settings}"


def test_the_stack_starts_each_node_of_a_policy_and_the_simulation_the_robot():
    started = {path.name: set(nodes_of(path)) for path in FILES}
    assert started["stack.launch.py"] == {"gripper_bridge", "safety", "servo", "policy_server"}
    assert started["sim.launch.py"] == {"sim_robot"}
    assert "shadow" in nodes_of(ROOT / "launch" / "stack.launch.py")["policy_server"]


@pytest.mark.parametrize("path", SETTINGS_FILES, ids=lambda path: path.name)
def test_settings_files_fit_the_nodes(path, monkeypatch):
    known = entry_points(monkeypatch)
    for name, section in yaml.safe_load(path.read_text()).items():
        assert name.startswith("/**/"), "a bare name does not match under a namespace"
        build(config_class(known[name.removeprefix("/**/")]), section["ros__parameters"])


def build(kind: type, values: dict):
    """A dataclass of nested values; fails where a name is unknown or a value is refused."""
    arguments = {"bundle": "somewhere"} if "bundle" in {field.name for field in fields(kind)} else {}
    for name, value in values.items():
        inner = getattr(kind(**arguments), name)
        arguments[name] = build(type(inner), value) if is_dataclass(inner) else value
    return kind(**arguments)


def test_the_recorders_settings_exist():
    from grasp_demos.record import RecordConfig

    known = {setting.key for setting in list_settings(RecordConfig)}
    (assigned,) = [
        statement.value
        for statement in ast.walk(ast.parse((ROOT / "launch" / "record.launch.py").read_text()))
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SETTINGS"
    ]
    assert set(ast.literal_eval(assigned).values()) <= known


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_launch_itself_reads_the_files(path):
    pytest.importorskip("launch.actions")
    pytest.importorskip("launch_ros.actions")
    from launch.launch_description_sources import get_launch_description_from_python_launch_file

    description = get_launch_description_from_python_launch_file(str(path))
    assert description.get_launch_arguments()
