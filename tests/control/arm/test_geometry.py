"""The fast kinematics against MuJoCo's, the capsules against robosuite's meshes, the bound on changes."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import robosuite

from grasp_control.arm import geometry
from grasp_sim import gripper, ur5e
from grasp_sim.scene import TABLE_HEIGHT

POSTURES = np.random.default_rng(0).uniform(-2 * np.pi, 2 * np.pi, size=(1000, 6))
LIMITS = np.array([0.2, 0.9, -0.45, 0.45, -0.15, 0.5, TABLE_HEIGHT, 0.01, 0.01])
LINKS = ("fixed_base", "shoulder", "upper_arm", "forearm", "wrist_1", "wrist_2", "wrist_3")
MODEL = Path(robosuite.__file__).parent / "models/assets/robots/ur5e/robot.xml"


def clearances(joints: np.ndarray) -> np.ndarray:
    out = np.empty(geometry.COUNT)
    geometry.clearances(joints, LIMITS, out)
    return out


def test_kinematics_equals_mujocos_on_1000_postures():
    kinematics, positions, rotations = ur5e.Kinematics(), np.empty((8, 3)), np.empty((8, 3, 3))
    for posture in POSTURES:
        geometry.frames(posture, positions, rotations)
        position, rotation, jacobian = kinematics.pose_and_jacobian(posture)
        np.testing.assert_allclose(positions[7], position, rtol=0, atol=1e-9)
        np.testing.assert_allclose(rotations[7], rotation, rtol=0, atol=1e-9)
        np.testing.assert_allclose(geometry.jacobian(posture), jacobian, rtol=0, atol=1e-9)
        determinant = abs(np.linalg.det(jacobian))
        assert geometry.manipulability(posture) == pytest.approx(determinant, abs=1e-9)


def mesh_of(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """(N, 3) vertices of a geom's mesh in its body's frame."""
    mesh, turn = model.geom_dataid[geom], np.empty(9)
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    return model.mesh_vert[first : first + count] @ turn.reshape(3, 3).T + model.geom_pos[geom]


def outside(capsule: geometry.Capsule, points: np.ndarray) -> float:
    """m by which the furthest point is outside a capsule."""
    start, end = np.array(capsule.start), np.array(capsule.end)
    share = np.clip((points - start) @ (end - start) / ((end - start) @ (end - start)), 0.0, 1.0)
    return (
        float(np.linalg.norm(points - start - share[:, None] * (end - start), axis=1).max()) - capsule.radius
    )


def test_every_capsule_encloses_robosuites_mesh_of_its_link():
    model = mujoco.MjModel.from_xml_path(str(MODEL))
    enclosed = set()
    for geom in range(model.ngeom):
        if model.geom_group[geom] != 0 or model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        frame = LINKS.index(model.body(model.geom_bodyid[geom]).name.removesuffix("_link"))
        capsule = next(c for c in geometry.CAPSULES if c.frame == frame)
        assert outside(capsule, mesh_of(model, geom)) < 0.0, capsule.name
        enclosed.add(frame)
    assert enclosed == set(range(7))


def corners(box: gripper.Box, shift: float = 0.0, side: float = 1.0) -> np.ndarray:
    signs = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T
    points = np.array(box.centre) + (shift, 0.0, 0.0) + signs * np.array(box.half_size)
    return points * (side, 1.0, 1.0)


def test_the_grippers_capsules_and_tips_enclose_it_at_any_opening():
    palm, fingers = (next(c for c in geometry.CAPSULES if c.name == name) for name in ("palm", "fingers"))
    assert outside(palm, corners(gripper.PALM)) < 0.001
    for opening in (0.0, gripper.STROKE):
        for side in (-1.0, 1.0):
            for box in (gripper.PAD, gripper.FINGER):
                points = corners(box, opening / 2.0, side)
                assert outside(fingers, points) < 0.0
                tips = np.array(geometry.TIPS)
                low = points[points[:, 2] > gripper.TIP - 1e-9]
                assert (np.abs(low) <= np.abs(tips).max(0) + 1e-9).all()


def test_distances_between_segments_by_hand():
    def distance(*ends):
        return geometry.segment_distance(*(np.array(end, dtype=float) for end in ends))

    crossed = distance((-1, 0, 0), (1, 0, 0), (0, -1, 2), (0, 1, 2))
    assert crossed == pytest.approx(2.0)
    beside = distance((0, 0, 0), (1, 0, 0), (0.5, 3, 0), (4, 3, 0))  # parallel
    assert beside == pytest.approx(3.0)
    in_line = distance((0, 0, 0), (1, 0, 0), (3, 0, 0), (5, 0, 0))
    assert in_line == pytest.approx(2.0)
    corner = distance((0, 0, 0), (1, 0, 0), (4, 4, 0), (4, 9, 0))
    assert corner == pytest.approx(5.0)


def test_home_is_well_inside_and_a_stretched_arm_is_singular():
    assert clearances(ur5e.HOME).min() > 0.02
    stretched = ur5e.HOME.copy()
    stretched[2] = 0.0
    assert geometry.manipulability(stretched) == pytest.approx(0.0, abs=1e-12)


def test_a_folded_elbow_brings_the_forearm_to_the_shoulder():
    folded = ur5e.HOME.copy()
    folded[2] = 3.1
    pair = geometry.CONSTRAINTS.index(geometry.Constraint("self_collision", "shoulder and forearm"))
    assert clearances(folded)[pair] < 0.0 < clearances(ur5e.HOME)[pair]


def test_no_clearance_changes_faster_than_its_bound():
    """What every proof of a way rests on."""
    rng = np.random.default_rng(1)
    tightest = np.zeros(geometry.COUNT)
    for posture in POSTURES:
        move = rng.normal(0.0, 0.02, 6) * (rng.random(6) < 0.5)
        bound = geometry.REACH @ np.abs(move)
        change = np.abs(clearances(posture + move) - clearances(posture))
        assert (change <= bound + 1e-12).all()
        tightest = np.maximum(tightest, change / np.maximum(bound, 1e-12))
    assert tightest.min() > 0.2  # a bound far too high would only make the arm slow
