"""What tests expect of the machine, and of how they are started."""

import os
import signal
import subprocess
import sys

import pytest

PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"


def pytest_configure() -> None:
    """Undo what starting in the background does: there, signals that tests send would be ignored."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def opengl() -> None:
    """Skips where OpenGL itself does not work, asked of MuJoCo alone in a process of its own: where it does,
    a picture that this project cannot make is a failure."""
    said = []
    for backend in ("egl", "osmesa"):
        probe = subprocess.run(
            [sys.executable, "-c", PROBE],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
        )
        if probe.returncode == 0:
            return
        said.append(f"{backend}: {(probe.stderr.strip().splitlines() or ['it crashed'])[-1]}")
    pytest.skip(f"this machine has no OpenGL: {'; '.join(said)}")
