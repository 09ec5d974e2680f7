"""What `make` says on a machine that lacks what the installation needs: one line, and nothing is made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDED = ("Makefile", "pyproject.toml", "requirements.lock")


@pytest.mark.parametrize(
    ("python", "compiler", "said"),
    [
        (
            "no-such-python",
            "cc",
            "error: Python 3.11 with its venv module is needed: install it, or name it as in "
            "make PYTHON=path/to/python3.11",
        ),
        (
            sys.executable,
            "no-such-compiler -O2",
            "error: a C compiler (no-such-compiler) is needed to build evdev, which robosuite depends on and "
            "which comes as source only: install gcc, or set CC",
        ),
    ],
)
def test_what_is_missing_is_one_line_and_nothing_is_installed(tmp_path, python, compiler, said):
    for name in NEEDED:
        shutil.copy2(ROOT / name, tmp_path)
    environment = {**os.environ, "CC": compiler, "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        ["make", "install", f"PYTHON={python}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert errors == [said]
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NEEDED)
