"""Offscreen images of a MuJoCo model. Nothing here touches OpenGL before the first `FrameRenderer`."""

# MuJoCo's functions live in a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import atexit
import os
from importlib import import_module
from typing import Any

import mujoco
import numpy as np

from grasp_sim import scene
from grasp_sim.errors import UserError

_BACKENDS = ("egl", "osmesa")


class RenderUnavailable(UserError):
    """No OpenGL backend could be loaded on this machine."""


def _make_context(width: int, height: int) -> Any:
    """The first OpenGL context that can be created; MUJOCO_GL picks one. Raises RenderUnavailable."""
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    backends = (asked,) if asked in _BACKENDS else _BACKENDS
    failures = []
    for backend in backends:
        platform = os.environ.get("PYOPENGL_PLATFORM")
        try:
            context = import_module(f"mujoco.{backend}").GLContext(width, height)
            context.make_current()
        except Exception as error:  # loaders raise anything from ImportError to AttributeError
            failures.append(f"{backend}: {error}")
            # MuJoCo's loader leaves its choice behind, which would make the next backend refuse.
            if platform is None:
                os.environ.pop("PYOPENGL_PLATFORM", None)
            continue
        return context
    raise RenderUnavailable(
        "no image can be rendered: install EGL (Debian: libegl1 libgl1-mesa-dri) or OSMesa (libosmesa6,"
        f" then set MUJOCO_GL=osmesa). Tried {'; '.join(failures)}"
    )


class FrameRenderer:
    """Renders one model at one size. Owns an OpenGL context; call `close` when done."""

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._model = model
        self._data = mujoco.MjData(model)
        self._context = _make_context(width, height)
        buffer = model.vis.global_
        buffer.offwidth = max(buffer.offwidth, width)
        buffer.offheight = max(buffer.offheight, height)
        buffer.fovy = scene.FIELD_OF_VIEW
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[0] = 0  # robosuite keeps collision shapes here
        self._gpu = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        # The bindings shut their display down at exit, after which a context can no longer be freed.
        self._closed = False
        atexit.register(self.close)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._gpu)

    def render(self, positions: np.ndarray, base: np.ndarray) -> np.ndarray:
        """(height, width, 3) uint8 of the model at generalised positions (nq,), seen from `scene.CAMERA`.

        `base` (3,) m is the robot's place in the world. Works on its own data, so taking a picture cannot
        change the simulation.
        """
        self._context.make_current()
        self._data.qpos[:] = positions
        mujoco.mj_forward(self._model, self._data)
        view = mujoco.MjvCamera()
        view.type = mujoco.mjtCamera.mjCAMERA_FREE
        along = np.subtract(scene.CAMERA_TARGET, scene.CAMERA)
        view.lookat[:] = base + scene.CAMERA_TARGET
        view.distance = np.linalg.norm(along)
        view.azimuth = np.degrees(np.arctan2(along[1], along[0]))
        view.elevation = np.degrees(np.arcsin(along[2] / view.distance))
        mujoco.mjv_updateScene(
            self._model, self._data, self._option, None, view, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
        )
        area = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_render(area, self._scene, self._gpu)
        image = np.empty((self.height, self.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(image, None, area, self._gpu)
        return np.flipud(image).copy()

    def close(self) -> None:
        """Free the OpenGL context; a second time is harmless."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._gpu.free()
        self._context.free()
