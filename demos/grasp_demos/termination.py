"""An orderly stop on SIGTERM and SIGHUP, which by default end a process on the spot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """The process was asked to end. Like KeyboardInterrupt no Exception, so that nothing takes it for one."""

    def __init__(self, number: int) -> None:
        """`number` is the signal's."""
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise Terminated, once; afterwards they do what they did before.

    A signal that is ignored, as SIGHUP is below nohup, stays ignored. Outside the main thread, where Python
    takes no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {
        number: handler for number in SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }

    def terminate(number: int, frame: FrameType | None) -> None:
        # Often both come, one after the other: the second must not break off what the first began.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    try:
        for number in before:
            signal.signal(number, terminate)
        yield
    finally:
        for number, handler in before.items():
            # None: not set from Python, so Python cannot set it again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
