"""Linear algebra that gives the same numbers everywhere, since contacts amplify the last bit."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path


def one_linear_algebra_thread() -> None:
    """From now on NumPy's and SciPy's linear algebra uses one thread in this process.

    With several, LAPACK solves even a 6 by 6 system by another algorithm: the last bit of a joint target
    differs, and contacts make 0.3 rad of it within an episode. The matrices here are too small to gain by
    threads. What Torch does is its own affair.
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def same_linear_algebra_everywhere(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let OpenBLAS use the routines of one processor, Haswell's, on all that have its instructions; before
    NumPy is imported. Whoever has chosen others keeps them.

    By itself it chooses by the processor it finds, and of one that it does not know yet it takes the oldest:
    NumPy and SciPy, which bring one each, then disagree in the last bit, and recordings in every digit.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return
    if " avx2" in flags and " fma" in flags:
        environment.setdefault("OPENBLAS_CORETYPE", "Haswell")
