"""One thread for linear algebra, so that a simulation does not depend on how many cores there are."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def one_linear_algebra_thread() -> None:
    """From now on NumPy's and SciPy's linear algebra uses one thread in this process.

    With several, LAPACK solves even a 6 by 6 system by another algorithm: the last bit of a joint target
    differs, and contacts make 0.3 rad of it within an episode. The matrices here are too small to gain by
    threads. What Torch does is its own affair.
    """
    threadpool_limits(1, user_api="blas")
