"""Pictures of a PyBullet scene, drawn in software on a client of their own.

The scene's own client has no coloured meshes, since loading them would take a hundred times as long as a
reset; and taking a picture cannot change the simulation.
"""

from __future__ import annotations

import weakref

import numpy as np
import pybullet

from grasp_sim import scene
from grasp_sim.objects import ObjectSpec
from grasp_sim.pybullet_bodies import (
    TABLE_THICKNESS,
    Pose,
    add_fixed_box,
    add_object,
    add_table,
    place_object,
    place_robot,
)
from grasp_sim.pybullet_urdf import urdf_path

FLOOR = -0.92
"""m, height of the floor below the base, as in robosuite."""

_TABLE_COLOUR = (0.80, 0.68, 0.52, 1.0)
_LEG_COLOUR = (0.45, 0.38, 0.30, 1.0)
_PEDESTAL_COLOUR = (0.33, 0.35, 0.38, 1.0)
_FLOOR_COLOUR = (0.86, 0.87, 0.88, 1.0)
_OBJECT_COLOUR = (0.80, 0.16, 0.14, 1.0)


class PybulletPicture:
    """A client with arm, gripper, table and one object as they are to be seen."""

    def __init__(self) -> None:
        self._client: int = pybullet.connect(pybullet.DIRECT)
        client = self._client
        self._disconnect = weakref.finalize(self, pybullet.disconnect, physicsClientId=client)
        self._robot: int = pybullet.loadURDF(
            str(urdf_path(visible=True)), useFixedBase=True, physicsClientId=client
        )
        self._object: tuple[ObjectSpec, int] | None = None
        self._colour(add_table(client), _TABLE_COLOUR)
        below = scene.TABLE_HEIGHT - TABLE_THICKNESS
        middle, half_height = (FLOOR + below) / 2.0, (below - FLOOR) / 2.0
        for x in (-1, 1):
            for y in (-1, 1):
                centre = [
                    scene.TABLE_CENTRE[0] + x * (scene.TABLE_HALF_SIZE[0] - 0.04),
                    scene.TABLE_CENTRE[1] + y * (scene.TABLE_HALF_SIZE[1] - 0.04),
                    middle,
                ]
                self._colour(add_fixed_box(client, [0.025, 0.025, half_height], centre), _LEG_COLOUR)
        pedestal = add_fixed_box(client, [0.10, 0.10, -FLOOR / 2.0], [0.0, 0.0, FLOOR / 2.0])
        self._colour(pedestal, _PEDESTAL_COLOUR)
        floor = add_fixed_box(client, [4.0, 4.0, 0.01], [0.0, 0.0, FLOOR - 0.01])
        self._colour(floor, _FLOOR_COLOUR)

    def _colour(self, body: int, rgba: tuple[float, ...]) -> None:
        pybullet.changeVisualShape(body, -1, rgbaColor=rgba, physicsClientId=self._client)

    def render(
        self,
        spec: ObjectSpec,
        joints: list[float],
        position: tuple[float, ...],
        quaternion: tuple[float, ...],
        width: int,
        height: int,
    ) -> np.ndarray:
        """(height, width, 3) uint8 of joints (8,) and the pose of the object's inertial frame."""
        client = self._client
        place_robot(client, self._robot, np.array(joints))
        if self._object is None or self._object[0] != spec:
            if self._object is not None:
                pybullet.removeBody(self._object[1], physicsClientId=client)
            self._object = spec, add_object(client, spec)[0]
            self._colour(self._object[1], _OBJECT_COLOUR)
        place_object(client, self._object[1], Pose(np.array(position), np.array(quaternion)))
        pixels = pybullet.getCameraImage(
            width,
            height,
            viewMatrix=pybullet.computeViewMatrix(scene.CAMERA, scene.CAMERA_TARGET, (0.0, 0.0, 1.0)),
            projectionMatrix=pybullet.computeProjectionMatrixFOV(
                scene.FIELD_OF_VIEW, width / height, 0.1, 10.0
            ),
            lightDirection=(0.6, -0.8, 1.6),
            shadow=True,
            renderer=pybullet.ER_TINY_RENDERER,
            flags=pybullet.ER_NO_SEGMENTATION_MASK,
            physicsClientId=client,
        )[2]
        return np.reshape(np.asarray(pixels, dtype=np.uint8), (height, width, 4))[:, :, :3].copy()

    def close(self) -> None:
        """Free the client; a second time is harmless."""
        self._disconnect()
