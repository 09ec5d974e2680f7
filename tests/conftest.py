"""What tests expect of the machine, and of how they are started."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from grasp_sim.threads import same_linear_algebra_everywhere

same_linear_algebra_everywhere()  # before anything imports NumPy; also what tests start as processes

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


def wait_for(condition, seconds: float = 60.0, what=lambda: ""):
    """Poll until it holds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what()}"
        time.sleep(0.05)
    return value


class Terminal:
    """A Python command in a terminal of its own, whose picture is read and whose keys are pressed."""

    def __init__(self, *command: str) -> None:
        self._screen, inside = pty.openpty()
        environment = {**os.environ, "COLUMNS": "200", "LINES": "30", "TERM": "xterm", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environment,
            start_new_session=True,
        )
        os.close(inside)
        self.text = ""

    def read(self) -> str:
        """What it wrote last, without colours."""
        while select.select([self._screen], [], [], 0.02)[0]:
            try:
                data = os.read(self._screen, 65536)
            except OSError:  # the command has ended
                break
            self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        self.text = self.text[-20000:]
        return self.text

    def saw(self, text: str, seconds: float = 60.0) -> None:
        """Wait until it has written that."""
        wait_for(lambda: text in self.read(), seconds, lambda: f"{text!r} in {self.text[-3000:]}")

    def press(self, key: str) -> None:
        """Press a key, and look at what is shown from now on."""
        self.read()
        self.text = ""
        os.write(self._screen, key.encode())

    def wait(self) -> int:
        """Its exit code; what it writes is read meanwhile, or it would be held up."""
        wait_for(lambda: self.read() and self.process.poll() is not None, 30, lambda: self.text[-3000:])
        self.read()
        return self.process.returncode

    wait_for = staticmethod(wait_for)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal():
    """Starts commands in terminals, and kills what is left of them."""
    running: list[Terminal] = []

    def start(*command: str) -> Terminal:
        running.append(Terminal(*command))
        return running[-1]

    yield start
    for one in running:
        one.end()


@pytest.fixture(name="wait_for")
def _wait_for():
    """Polls until a condition holds."""
    return wait_for
