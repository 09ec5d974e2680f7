"""Importing MuJoCo and what builds on it without loading OpenGL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gl() -> Iterator[None]:
    """For imports: hides MUJOCO_GL, and puts it back as it was.

    MuJoCo loads the OpenGL that it names when it is imported, and fails where there is none of that name;
    robosuite sets it for the whole process. `grasp_sim.rendering` reads it when a picture is asked for.
    """
    before = os.environ.pop("MUJOCO_GL", None)
    try:
        yield
    finally:
        os.environ.pop("MUJOCO_GL", None)
        if before is not None:
            os.environ["MUJOCO_GL"] = before
