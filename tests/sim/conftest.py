"""What several test modules of the simulation use."""

from collections.abc import Callable

import pytest

from grasp_sim import ur5e
from grasp_sim.contract import GraspState
from grasp_sim.judging import TOUCH
from grasp_sim.scene import Scene


@pytest.fixture(scope="session")
def read() -> Callable[[Scene], tuple[GraspState, bool]]:
    """A scene's state as environments read it, and whether both fingers hold the object."""
    kinematics = ur5e.Kinematics()

    def read(scene: Scene) -> tuple[GraspState, bool]:
        positions, velocities = scene.joints()
        tcp_position, rotation = kinematics.pose(positions)
        forces = scene.pad_forces(rotation[:, 0])
        object_position, object_quaternion = scene.object_pose()
        state = GraspState(
            joint_positions=positions,
            joint_velocities=velocities,
            tcp_position=tcp_position,
            tcp_quaternion=ur5e.quaternion_of(rotation),
            gripper_opening=scene.opening(),
            gripper_force=float(forces.mean()),
            object_position=object_position,
            object_quaternion=object_quaternion,
            object_size=[0.04, 0.04, 0.04],
        )
        return state, bool((forces > TOUCH).all())

    return read
