"""How a command starts: its modules take seconds to import, and Ctrl-C is one line in these seconds too."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any

from grasp_sim.threads import same_linear_algebra_everywhere

_EXIT_INTERRUPTED = 130


def start(program: str, target: str) -> Any:
    """Import `target`, written `module:function`, call the function, and return its exit code."""
    same_linear_algebra_everywhere()
    module, function = target.split(":")
    before = signal.getsignal(signal.SIGINT)
    # Raised inside of an import, KeyboardInterrupt is at times taken for a missing module. Nothing is open
    # yet, so the process may end on the spot. What ignores Ctrl-C, as in a script's background, goes on so.
    if before == signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: _leave(program, number, frame))
    main = getattr(importlib.import_module(module), function)
    signal.signal(signal.SIGINT, before)
    try:
        return main()
    except KeyboardInterrupt:  # before or after the command looks out for it itself
        _leave(program, signal.SIGINT, None)


def _leave(program: str, number: int, frame: FrameType | None) -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    os.write(2, f"{program}: stopped by the keyboard.\n".encode())
    os._exit(_EXIT_INTERRUPTED)
