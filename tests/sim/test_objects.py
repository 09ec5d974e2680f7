"""Objects: geometry against hand-computed numbers and sampling, and what is refused."""

import numpy as np
import pybullet
import pytest

from grasp_sim.objects import ObjectError, ObjectSpec, Part, box
from grasp_sim.pybullet_scene import PybulletScene
from grasp_sim.robosuite_scene import RobosuiteScene
from grasp_sim.scene import Start


def inside(part: Part, points: np.ndarray) -> np.ndarray:
    """Which points (n, 3) lie in the part, straight from the shapes' definitions."""
    points = points - np.array(part.position)
    if part.shape == "box":
        return (np.abs(points) <= np.array(part.size)).all(axis=1)
    if part.shape == "sphere":
        return np.linalg.norm(points, axis=1) <= part.size[0]
    axis = "xyz".index(part.axis)
    along, across = points[:, axis], np.linalg.norm(np.delete(points, axis, axis=1), axis=1)
    if part.shape == "cylinder":
        return (np.abs(along) <= part.size[1]) & (across <= part.size[0])
    return np.hypot(across, np.maximum(np.abs(along) - part.size[1], 0.0)) <= part.size[0]


@pytest.mark.parametrize(
    "part",
    [
        Part("box", (0.03, 0.02, 0.04)),
        Part("sphere", (0.04,)),
        Part("cylinder", (0.02, 0.04)),
        Part("cylinder", (0.02, 0.04), axis="y"),
        Part("capsule", (0.02, 0.02), axis="x"),
        Part("box", (0.03, 0.02, 0.04), axis="x"),
    ],
)
def test_volume_extent_and_inertia_match_sampled_points(part: Part) -> None:
    points = np.random.default_rng(0).uniform(-0.05, 0.05, (400_000, 3))
    held = points[inside(part, points)]
    assert part.volume == pytest.approx(len(held) / len(points) * 0.1**3, rel=0.02)
    np.testing.assert_allclose(np.abs(held).max(axis=0), part.half_extents, rtol=0.05)
    square = held**2
    np.testing.assert_allclose(
        part.unit_inertia, (square.sum(axis=1, keepdims=True) - square).mean(axis=0), rtol=0.02
    )


PARTS = {
    "box": (0.01, 0.02, 0.04),
    "cylinder": (0.01, 0.03),
    "capsule": (0.01, 0.03),
    "sphere": (0.02,),
}


@pytest.fixture(scope="module")
def scenes():
    made = PybulletScene("servo"), RobosuiteScene("servo", own_gripper=True)
    yield made
    for scene in made:
        scene.close()


@pytest.mark.parametrize("axis", ["x", "y", "z"])
@pytest.mark.parametrize("shape", PARTS)
def test_a_part_lies_along_its_axis_in_both_simulators(scenes, shape: str, axis: str) -> None:
    part = Part(shape, PARTS[shape], axis=axis)
    start = Start(ObjectSpec(shape, (part,), 0.1, 0.5, 2), np.array([0.7, 0.3, 0.2]), 0.0, 1.0)
    bullet, mujoco = scenes
    for scene in scenes:
        scene.reset(start)
    low, high = pybullet.getAABB(bullet.object, -1, physicsClientId=bullet.client)
    half = (np.array(high) - low) / 2.0
    np.testing.assert_allclose(half, part.half_extents, atol=2e-3)  # Bullet adds a margin
    geom = mujoco.data.geom("cube_g0")
    along_base = np.abs(geom.xmat.reshape(3, 3)) @ mujoco.model.geom_aabb[geom.id, 3:]
    np.testing.assert_allclose(along_base, part.half_extents, atol=1e-9)


def test_box_inertia_and_holding_force_by_hand() -> None:
    cube = box((0.04, 0.04, 0.04), mass=0.6, friction=0.3)
    np.testing.assert_allclose(cube.inertia, np.eye(3) * 0.6 * (0.04**2) / 6.0)
    assert cube.holding_force == pytest.approx(0.6 * 9.81 / (2 * 0.3))
    assert cube.symmetry == 4
    assert box((0.04, 0.05, 0.04), mass=0.6, friction=0.3).symmetry == 2


def test_compound_of_two_boxes_has_the_weight_where_it_is() -> None:
    # A long box and a short one beside it along y: masses 3 : 1, centres at -0.01 and 0.03.
    parts = (Part("box", (0.01, 0.03, 0.01), (0, -0.01, 0)), Part("box", (0.01, 0.01, 0.01), (0, 0.03, 0)))
    thing = ObjectSpec("two", parts, mass=0.4, friction=1.0, symmetry=2)
    np.testing.assert_allclose(thing.part_masses, [0.3, 0.1])
    np.testing.assert_allclose(thing.centre_of_mass, [0.0, 0.0, 0.0], atol=1e-12)
    whole = box((0.02, 0.08, 0.02), mass=0.4, friction=1.0)
    np.testing.assert_allclose(thing.size, whole.size)
    np.testing.assert_allclose(thing.inertia, whole.inertia)  # together they are one box


def test_what_lies_beside_the_pads_does_not_widen_the_grasp() -> None:
    stem = Part("box", (0.01, 0.04, 0.01))
    bar = Part("box", (0.06, 0.005, 0.01), (0, 0.035, 0))
    assert ObjectSpec("tee", (stem, bar), 0.1, 1.0, 2).grasp_width == pytest.approx(0.02)
    assert ObjectSpec("cross", (stem, Part("box", (0.06, 0.005, 0.01))), 0.1, 1.0, 2).grasp_width == (
        pytest.approx(0.12)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Part("cone", (0.1, 0.1)), "no shape 'cone'.*box, cylinder, sphere, capsule"),
        (lambda: Part("box", (0.1, 0.1)), "3 sizes"),
        (lambda: Part("sphere", (float("nan"),)), "1 sizes"),
        (lambda: Part("cylinder", (0.1, 0.1), axis="w"), "x, y or z"),
        (lambda: box((0.1, 0.1, 0.1), mass=0.0, friction=1.0), "mass 0.0"),
        (lambda: box((0.1, 0.1, 0.1), mass=float("nan"), friction=1.0), "mass nan"),
        (lambda: box((0.1, 0.1, 0.1), mass=1.0, friction=-1.0), "friction -1.0"),
        (lambda: ObjectSpec("none", (), 1.0, 1.0, 2), "0 parts"),
        (lambda: ObjectSpec("off", (Part("sphere", (0.1,), (0.1, 0, 0)),), 1.0, 1.0, 2), "not the origin"),
        (lambda: ObjectSpec("one", (Part("sphere", (0.1,)),), 1.0, 1.0, 1), "symmetry 1"),
    ],
)
def test_impossible_objects_are_refused(make, message: str) -> None:
    with pytest.raises(ObjectError, match=message):
        make()
