"""SIGTERM, SIGHUP and a terminal that goes away, while a person records."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time

import pytest

from grasp_demos.reader import read_dataset
from grasp_demos.termination import SIGNALS, Terminated, orderly_termination


def end_by(number: signal.Signals, *, then: signal.Signals | None = None) -> None:
    with orderly_termination():
        try:
            signal.raise_signal(number)
        finally:
            if then is not None:
                signal.raise_signal(then)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_raises_once_and_the_handlers_come_back(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(Terminated, match=number.name) as caught:
        end_by(number, then=signal.SIGTERM)
    assert caught.value.signal == number
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it
    try:
        end_by(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_changes_no_handlers():
    before, within = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with orderly_termination():
            within.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert within == [before]


class Recorder:
    """`grasp-record source=keyboard` in a terminal of its own, with its errors in a file."""

    def __init__(self, folder) -> None:
        self.out, self._errors = folder / "demos", folder / "errors"
        self.screen, self.terminal = pty.openpty()
        self.before = termios.tcgetattr(self.terminal)
        command = [sys.executable, "-m", "grasp_demos.record", "source=keyboard", f"out={self.out}"]
        environment = {**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm"}
        with open(self._errors, "w") as errors:
            self.process = subprocess.Popen(
                [*command, "env.name=pybullet-lift", "page.show=false"],
                **{"stdin": self.terminal, "stdout": self.terminal, "stderr": errors},
                env=environment,
                start_new_session=True,
            )
        self.written = ""

    def until(self, text: str) -> None:
        end = time.monotonic() + 120.0
        while not re.search(text, self.written):
            assert time.monotonic() < end, self.written[-3000:]
            self.read()

    def read(self) -> None:
        while select.select([self.screen], [], [], 0.05)[0]:
            self.written += os.read(self.screen, 65536).decode(errors="replace")

    def said(self) -> str:
        return self._errors.read_text()

    def record(self) -> None:
        """Until some steps of an episode are recorded."""
        self.until("press enter")
        os.write(self.screen, b"\r")
        self.until(r"step [1-9]")


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(tmp_path)
    yield recorder
    recorder.process.kill()
    recorder.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_a_recording_in_order(recorder, number):
    recorder.record()
    recorder.process.send_signal(number)
    assert recorder.process.wait(timeout=30) == 128 + number
    recorder.read()
    line = f"grasp-record: stopped by {number.name}; the same command goes on where it stopped.\n"
    assert recorder.said() == line
    assert termios.tcgetattr(recorder.terminal) == recorder.before
    assert recorder.written.rindex("\x1b[?25h") > recorder.written.rindex("\x1b[?25l")  # the cursor is shown
    (episode,) = read_dataset(recorder.out)
    assert not episode.metadata.complete
    assert len(episode) > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGHUP])
def test_a_terminal_that_goes_away_ends_a_recording_in_order(recorder, number):
    recorder.record()
    os.close(recorder.terminal)
    os.close(recorder.screen)
    if number is not None:
        recorder.process.send_signal(number)
    code = recorder.process.wait(timeout=30)
    said = recorder.said()
    assert said.count("\n") == 1, said
    # The closed terminal may be noticed before the signal that tells of it.
    assert (code, "stopped by SIGHUP" in said) in ((2, False), (129, number is not None))
    assert "the terminal was closed" in said or code == 129
    (episode,) = read_dataset(recorder.out)
    assert not episode.metadata.complete
