"""Tasks: what they draw, what counts as solved, and what a configuration may ask."""

from dataclasses import replace

import numpy as np
import pytest

from grasp_sim import gripper, ur5e
from grasp_sim.errors import UnknownName, UserError
from grasp_sim.objects import MAX_GRASP_WIDTH, ObjectError
from grasp_sim.scene import TABLE_CENTRE, TABLE_HEIGHT, Start
from grasp_sim.tasks import KINDS, TASKS, Difficulty, ObjectsConfig, find_task


def starts(name: str, count: int = 300, difficulty: Difficulty | None = None, **config) -> list[Start]:
    task = find_task(name).configured(ObjectsConfig(**config))
    rng = np.random.default_rng(1)
    return [task.sample(rng, difficulty or Difficulty()) for _ in range(count)]


@pytest.mark.parametrize("name", TASKS)
def test_every_draw_can_be_solved_and_keeps_to_the_ranges(name: str) -> None:
    task = TASKS[name]
    for start in starts(name):
        thing = start.object
        assert thing.grasp_width <= MAX_GRASP_WIDTH
        assert thing.holding_force < 0.8 * task.grip_force < task.breaking_force
        assert task.mass[0] <= thing.mass <= task.mass[1] or task.standard_lift
        assert task.friction[0] <= thing.friction <= task.friction[1]
        assert (np.abs(start.object_position[:2] - TABLE_CENTRE) <= task.spread).all()
        assert start.object_position[2] - thing.size[2] / 2 == pytest.approx(TABLE_HEIGHT, abs=0.001)


def test_objects_draws_every_kind() -> None:
    assert {start.object.name for start in starts("objects")} == set(KINDS)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_generator_draws_the_same_starts(name: str) -> None:
    assert starts(name, 20) == starts(name, 20)


@pytest.mark.parametrize("name", TASKS)
def test_a_start_survives_as_text(name: str) -> None:
    (start,) = starts(name, 1)
    again = Start.from_json(start.to_json())
    assert again.object == start.object
    assert again.physics == start.physics
    assert again.to_json() == start.to_json()
    np.testing.assert_array_equal(again.object_position, start.object_position)
    np.testing.assert_array_equal(again.joint_positions, start.joint_positions)


def test_slippery_slips_at_the_weakest_grip_and_fragile_breaks_at_the_strongest() -> None:
    assert all(start.object.holding_force > gripper.FORCE_MIN for start in starts("slippery"))
    assert TASKS["fragile"].breaking_force < 235.0


def test_lift_is_solved_as_in_robosuite() -> None:
    task = TASKS["lift"]
    (start,) = starts("lift", 1)
    assert not task.solved(start, TABLE_HEIGHT + 0.0399, grasped=True)
    assert task.solved(start, TABLE_HEIGHT + 0.0401, grasped=False)


def test_other_tasks_are_solved_when_raised_and_held() -> None:
    task = TASKS["objects"]
    (start,) = starts("objects", 1)
    rest = TABLE_HEIGHT + start.object.size[2] / 2
    assert not task.solved(start, rest + 0.0499, grasped=True)
    assert task.solved(start, rest + 0.0501, grasped=True)
    assert not task.solved(start, rest + 0.0501, grasped=False)


def test_difficulty_narrows_each_range() -> None:
    easy = starts("objects", 100, Difficulty(distance=0.0, height=0.0, friction=0.0, size=0.0))
    for start in easy:
        np.testing.assert_allclose(start.object_position[:2], TABLE_CENTRE)
        assert start.object_yaw == 0.0
        assert start.object.friction == 1.2
        assert start.object.grasp_width == pytest.approx(0.045)
        rise = start.goal_height - TABLE_HEIGHT - start.object.size[2] / 2
        assert rise == pytest.approx(0.01)
    for wrong in (1.5, -0.1, float("nan"), "abc", None):
        with pytest.raises(ValueError, match=r"difficulty.height=.* must be from 0 to 1"):
            Difficulty(height=wrong)


def test_configured_ranges_replace_the_tasks() -> None:
    found = starts("objects", 100, kinds=["sphere"], width=[0.03, 0.04], mass=[0.1, 0.2], spread=[0.0, 0.1])
    assert {s.object.name for s in found} == {"sphere"}
    assert all(0.03 <= s.object.size[0] <= 0.04 and 0.1 <= s.object.mass <= 0.2 for s in found)
    assert all(s.object_position[0] == pytest.approx(TABLE_CENTRE[0]) for s in found)
    wide = starts("objects", 50, kinds=["box"], width=[0.09, 0.1], unholdable=True)
    assert all(s.object.grasp_width > MAX_GRASP_WIDTH for s in wide)


def test_ranges_may_be_tuples_and_what_is_empty_is_the_tasks() -> None:
    empty = dict.fromkeys(("kinds", "width", "mass", "friction", "spread"), ())
    assert TASKS["objects"].configured(ObjectsConfig(**empty)) == TASKS["objects"]
    lists = {"width": [0.03, 0.04], "mass": [0.1, 0.2], "friction": [0.5, 0.6], "spread": [0.1, 0.1]}
    tuples = {name: tuple(given) for name, given in lists.items()}
    assert starts("objects", 5, **tuples) == starts("objects", 5, **lists)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kinds": ["teapot"]}, "no kind of object 'teapot'.*box"),
        ({"width": [0.05, 0.09]}, "opens 85 mm and holds up to 79 mm"),
        ({"width": [0.06, 0.05]}, r"width=\[0.06, 0.05\].*low <= high"),
        ({"width": [0.05]}, "low, high"),
        ({"mass": [0.0, 1.0]}, "objects.mass"),
        ({"friction": [float("nan"), 1.0]}, "objects.friction"),
        ({"spread": [0.5, 0.1]}, "off the table"),
        ({"spread": 0.1}, "off the table"),
        ({"spread": ["a", "b"]}, "off the table"),
        ({"mass": 0.5}, "objects.mass=0.5 must be"),
        ({"mass": None}, "objects.mass=None must be"),
        ({"mass": ["a", "b"]}, "objects.mass"),
        ({"kinds": "box"}, "objects.kinds=box must be a list"),
    ],
)
def test_contradictory_object_settings_are_refused(config: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ObjectsConfig(**config)


def test_the_standard_lift_keeps_its_cube() -> None:
    with pytest.raises(ObjectError, match=r"objects.mass is given.*choose the task 'objects'"):
        TASKS["lift"].configured(ObjectsConfig(mass=[0.1, 0.2]))


def test_an_unknown_task_lists_what_exists() -> None:
    with pytest.raises(UnknownName, match="no task 'juggle'; there are: lift, objects, slippery, fragile"):
        find_task("juggle")


def test_kinds_fit_any_width_the_gripper_holds() -> None:
    rng = np.random.default_rng(0)
    for kind in KINDS.values():
        for width in (0.01, 0.02, 0.05, 0.079):
            thing = kind(rng, width, 0.1, 0.5)
            assert thing.grasp_width == pytest.approx(width)
            assert replace(thing, mass=0.2).inertia[0, 0] == pytest.approx(2 * thing.inertia[0, 0])


@pytest.mark.parametrize("name", sorted(TASKS))
def test_reach_brings_the_tool_down_about_the_object_and_changes_nothing_else(name: str) -> None:
    def start(reach: float) -> Start:
        return TASKS[name].sample(np.random.default_rng(7), Difficulty(reach=reach))

    def offset(begin: Start) -> np.ndarray:
        return ur5e.Kinematics().pose(begin.joint_positions)[0] - begin.object_position

    home = start(1.0)
    about, above, between = start(0.0), start(0.5), start(0.75)
    grasp = gripper.grasp_height(float(home.object.size[2]))
    np.testing.assert_allclose(offset(about), (0.0, 0.0, grasp), atol=1e-5)
    np.testing.assert_allclose(offset(above), (0.0, 0.0, offset(home)[2]), atol=1e-5)
    np.testing.assert_allclose(offset(between)[:2], 0.5 * offset(home)[:2], atol=1e-5)
    for begin in (about, above, between):
        assert replace(begin, joint_positions=home.joint_positions).to_json() == home.to_json()


def test_the_tool_stays_at_home_where_an_object_is_too_wide_to_be_about() -> None:
    task = TASKS["objects"].configured(ObjectsConfig(width=[0.15, 0.2], unholdable=True))
    easy, home = (
        task.sample(np.random.default_rng(3), Difficulty(reach=reach)).joint_positions for reach in (0.0, 1.0)
    )
    np.testing.assert_array_equal(easy, home)
