"""Rules that hold over the whole repository."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent

PACKAGES = {
    "grasp_sim": ROOT / "sim" / "grasp_sim",
    "grasp_demos": ROOT / "demos" / "grasp_demos",
    "grasp_control": ROOT / "control" / "grasp_control",
    "grasp_ros": ROOT / "ros_nodes" / "grasp_ros",
}

MAY_IMPORT = {
    "grasp_sim": set(),
    "grasp_demos": {"grasp_sim"},
    "grasp_control": {"grasp_demos", "grasp_sim"},
    "grasp_ros": {"grasp_control", "grasp_demos", "grasp_sim"},
}

ROS_MODULES = {"rclpy", "launch", "launch_ros"}

SOURCES = sorted(
    path
    for folder in ("control", "sim", "demos", "ros_nodes", "launch")
    for path in (ROOT / folder).rglob("*.py")
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_modules(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_in_one_direction_only(package):
    forbidden = set(PACKAGES) - MAY_IMPORT[package] - {package}
    if package != "grasp_ros":
        forbidden |= ROS_MODULES
    wrong = {
        f"{relative(path)} imports {module}"
        for path in PACKAGES[package].rglob("*.py")
        for module in imported_modules(path)
        if module.split(".")[0] in forbidden
    }
    assert not wrong


def test_launch_is_no_package():
    assert not (ROOT / "launch" / "__init__.py").exists()


GLOBAL_RANDOM = re.compile(
    r"^(np|numpy)\.random\.(?!default_rng$|Generator$|SeedSequence$|PCG64$|BitGenerator$|RandomState$)\w+$"
    r"|^random\.(?!Random$|SystemRandom$)\w+$"
    r"|^torch\.(manual_seed|seed|set_rng_state|random\.\w+)$"
    r"|^torch\.cuda\.manual_seed(_all)?$"
)

TORCH_DRAWS = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "normal",
    "bernoulli",
    "multinomial",
}
"""Functions of torch that draw from the global state unless a generator is passed."""

TORCH_DRAWS_WITHOUT_GENERATOR = {"rand_like", "randn_like", "randint_like"}


def dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def global_random_uses(path: Path) -> list[str]:
    found = []
    tree = ast.parse(path.read_text())
    imports_random = "random" in imported_modules(path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted_name(node.func)
        keywords = {keyword.arg for keyword in node.keywords}
        if name.startswith("random.") and not imports_random:
            continue
        unseeded = name.endswith((".default_rng", ".SeedSequence", ".RandomState", "random.Random")) and not (
            node.args or keywords
        )
        torch_draw = name.startswith("torch.") and (
            (name.split(".")[-1] in TORCH_DRAWS and "generator" not in keywords)
            or name.split(".")[-1] in TORCH_DRAWS_WITHOUT_GENERATOR
        )
        if GLOBAL_RANDOM.match(name) or unseeded or torch_draw:
            found.append(f"{relative(path)}:{node.lineno} {name}")
    return found


def test_nothing_draws_from_or_seeds_global_random_state():
    used = [use for path in SOURCES for use in global_random_uses(path)]
    assert not used, "pass a generator in: " + ", ".join(used)


def test_the_check_of_random_state_sees_what_it_should(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    source = tmp_path / "sample.py"
    lines = {
        "np.random.seed(0)": True,
        "np.random.normal()": True,
        "np.random.default_rng()": True,
        "np.random.default_rng(3)": False,
        "rng.normal()": False,
        "random.random()": True,
        "random.Random(4)": False,
        "torch.manual_seed(0)": True,
        "torch.randn(3)": True,
        "torch.randn(3, generator=g)": False,
        "torch.randn_like(x)": True,
    }
    source.write_text("import random\n" + "\n".join(lines))
    flagged = {int(use.split(":")[1].split()[0]) for use in global_random_uses(source)}
    assert flagged == {number for number, bad in enumerate(lines.values(), start=2) if bad}


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_every_command_explains_itself(command):
    module, function = PROJECT["scripts"][command].split(":")
    code = f"import sys; from {module} import {function}; sys.argv[0] = {command!r}; sys.exit({function}())"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"Usage: {command}" in done.stdout


STATE_ONLY = """
import sys
import glfw
import numpy as np
from grasp_sim import registry

def refuse(*_):
    sys.exit("a window system was asked for")

glfw.init = refuse
for name in registry.names():
    env = registry.make(name, seed=0)
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape, np.float32))
    env.close()
print(sorted(name for name in sys.modules if name.split(".")[0] in ("OpenGL", "pyglet")))
"""
"""MuJoCo itself imports glfw; only initialising it would need a display."""


def test_state_only_simulation_never_loads_opengl():
    """No display and no EGL are needed, so OpenGL's bindings are not even imported."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-c", STATE_ONLY], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def locked_versions() -> dict[str, Version]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in pins}


def test_the_lock_pins_exact_releases_by_name_only():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line), line


def test_the_lock_satisfies_the_bounds_of_the_project():
    locked = locked_versions()
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(line for name in extras if name != "gpu" for line in extras[name])]
    for line in wanted:
        requirement = Requirement(line)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in requirements.lock"
        assert version in requirement.specifier, f"requirements.lock has {requirement.name} {version}: {line}"
