"""How commands start: an interrupted import is one line, and the scripts lead to commands that exist."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from grasp_sim.threads import same_linear_algebra_everywhere

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

SLOW_IMPORT = """
import os, signal, time
try:
    {moment}
except BaseException:  # as packages do that try which of their extensions can be imported
    pass
def main():
    {inside}
    return 7
"""
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"


def run(tmp_path: Path, moment: str = "pass", inside: str = "pass", *, ignored: bool = False):
    (tmp_path / "slow_import.py").write_text(SLOW_IMPORT.format(moment=moment, inside=inside))
    code = "import sys; from grasp_sim.start import start; sys.exit(start('grasp-slow', 'slow_import:main'))"
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " if ignored else ""
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, "-c", ignore + code], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("moments", [(INTERRUPT, "pass"), ("pass", INTERRUPT)])
def test_ctrl_c_while_a_command_starts_is_one_line(tmp_path, moments):
    done = run(tmp_path, *moments)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "grasp-slow: stopped by the keyboard.\n"


def test_a_command_starts_and_its_exit_code_is_returned(tmp_path):
    restored = "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    done = run(tmp_path, inside=restored)
    assert (done.returncode, done.stderr) == (7, "")


def test_ctrl_c_that_is_ignored_stays_ignored(tmp_path):
    done = run(tmp_path, moment="os.kill(os.getpid(), signal.SIGINT)", ignored=True)
    assert (done.returncode, done.stderr) == (7, "")


AT_NUMPY = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from {module} import {function}
sys.exit({function}())
"""


@pytest.mark.parametrize("script", ["grasp-record", "grasp-replay", "grasp-train", "grasp-eval"])
def test_ctrl_c_while_a_real_command_imports_its_packages_is_quiet(script):
    target = tomllib.loads(PROJECT.read_text())["project"]["scripts"][script]
    module, function = target.split(":")
    code = AT_NUMPY.format(module=module, function=function)
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"{script}: stopped by the keyboard.\n"


def test_every_script_leads_to_a_command_under_its_own_name(monkeypatch):
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    assert len(scripts) >= 7
    started = []
    for name, target in scripts.items():
        module = importlib.import_module(target.split(":")[0])
        monkeypatch.setattr(module, "start", lambda program, command: started.append((program, command)))
        getattr(module, target.split(":")[1])()
        program, command = started[-1]
        assert program == name
        owner, function = command.split(":")
        assert callable(getattr(importlib.import_module(owner), function))


def test_openblas_uses_the_same_routines_on_all_processors():
    """Before NumPy is there; whoever has chosen others keeps them."""
    environment = {}
    same_linear_algebra_everywhere(environment)
    flags = Path("/proc/cpuinfo").read_text()
    assert environment == ({"OPENBLAS_CORETYPE": "Haswell"} if " avx2" in flags and " fma" in flags else {})
    chosen = {"OPENBLAS_CORETYPE": "Zen"}
    same_linear_algebra_everywhere(chosen)
    assert chosen == {"OPENBLAS_CORETYPE": "Zen"}
    import scipy.linalg  # noqa: F401 (loads its own OpenBLAS)

    used = {d["architecture"] for d in threadpool_info() if d["internal_api"] == "openblas"}
    if environment and os.environ["OPENBLAS_CORETYPE"] == "Haswell":
        assert used == {"Haswell"}  # of NumPy and SciPy, in this very process
