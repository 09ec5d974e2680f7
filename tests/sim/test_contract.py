"""The contract's action decoding and its symmetry about the vertical axis, in hand-computed numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grasp_sim.contract import (
    ACTION_DIM,
    OBSERVATION_DIM,
    STATE_WIDTH,
    ActionScale,
    ContractError,
    GraspState,
    decode,
    encode,
    encode_rows,
    pack_state,
    rotate_about_vertical,
    unpack_state,
)


def action(**values: float) -> np.ndarray:
    numbers = {"x": 0.0, "y": 0.0, "z": 0.0, "yaw": 0.0, "opening": 0.0, "force": 0.0} | values
    return np.array(list(numbers.values()), dtype=np.float32)


# ---- decoding


@pytest.mark.parametrize(
    ("opening", "millimetres"),
    [
        (-1.0, 0.0),
        (-0.5, 0.0),
        (-0.25, 21.25),
        (0.0, 42.5),
        (0.25, 63.75),  # three quarters of 85 mm
        (0.5, 85.0),
        (1.0, 85.0),
        (3.0, 85.0),
    ],
)
def test_the_opening_is_reached_at_half_the_action(opening, millimetres):
    assert decode(action(opening=opening), ActionScale()).opening == pytest.approx(millimetres / 1000.0)


def test_jitter_around_open_or_closed_moves_no_finger():
    rng = np.random.default_rng(0)
    for end, opening in ((1.0, 0.085), (-1.0, 0.0)):
        jitter = end * (1.0 - rng.uniform(0.0, 0.5, size=200))
        assert {decode(action(opening=value), ActionScale()).opening for value in jitter} == {opening}


def test_all_other_commands_stay_linear_over_the_whole_range():
    scale = ActionScale(position=0.01, yaw=0.2, force_min=20.0, force_max=220.0)
    command = decode(action(x=0.75, y=-0.75, z=1.0, yaw=0.5, force=0.5), scale)
    np.testing.assert_allclose(command.delta_position, [0.0075, -0.0075, 0.01])
    assert command.delta_yaw == pytest.approx(0.1)
    assert command.force_limit == pytest.approx(170.0)
    assert decode(action(force=-0.75), scale).force_limit == pytest.approx(45.0)


def test_actions_are_clipped_before_they_are_decoded_and_bad_ones_refused():
    command = decode(action(x=5.0, force=-5.0), ActionScale())
    assert command.delta_position[0] == pytest.approx(0.0125)
    assert command.force_limit == pytest.approx(20.0)
    with pytest.raises(ContractError, match="opening"):
        decode(action(opening=float("nan")), ActionScale())
    with pytest.raises(ContractError, match=r"shape \(5,\)"):
        decode(np.zeros(5), ActionScale())


# ---- symmetry about the vertical axis


def quaternion_product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Hamilton product of two xyzw quaternions."""
    vector = p[3] * q[:3] + q[3] * p[:3] + np.cross(p[:3], q[:3])
    return np.array([*vector, p[3] * q[3] - p[:3] @ q[:3]])


def turned_world(state: GraspState, angle: float) -> GraspState:
    """TCP and object turned together about the base frame's z axis."""
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    turn = np.array([0.0, 0.0, np.sin(angle / 2.0), np.cos(angle / 2.0)])
    return replace(
        state,
        tcp_position=matrix @ state.tcp_position,
        tcp_quaternion=quaternion_product(turn, state.tcp_quaternion),
        object_position=matrix @ state.object_position,
        object_quaternion=quaternion_product(turn, state.object_quaternion),
    )


def world(symmetry: int = 4) -> GraspState:
    down = np.array([1.0, 0.0, 0.0, 0.0])  # the tool's z axis points down
    heading = np.array([0.0, 0.0, np.sin(0.2), np.cos(0.2)])
    return GraspState(
        joint_positions=np.zeros(6),
        joint_velocities=np.zeros(6),
        tcp_position=np.array([0.42, 0.11, 0.23]),
        tcp_quaternion=quaternion_product(heading, down),
        gripper_opening=0.06,
        gripper_force=3.0,
        object_position=np.array([0.5, -0.07, 0.02]),
        object_quaternion=np.array([0.0, 0.0, np.sin(0.45), np.cos(0.45)]),
        object_size=np.array([0.04, 0.05, 0.06]),
        object_symmetry=symmetry,
        time=1.0,
        object_time=0.9,
    )


def test_a_quarter_turn_maps_x_to_y_and_y_to_minus_x():
    observation = np.arange(1, OBSERVATION_DIM + 1, dtype=np.float32)  # object_dx 4, object_dy 5
    given = np.array([0.25, 0.5, -0.75, 0.1, 1.0, -1.0], dtype=np.float32)
    before = observation.copy(), given.copy()
    observations, actions = rotate_about_vertical(observation, given, np.array(np.pi / 2))
    expected = observation.copy()
    expected[3:5] = -5.0, 4.0
    np.testing.assert_allclose(observations, expected, atol=1e-6)
    np.testing.assert_allclose(actions, [-0.5, 0.25, -0.75, 0.1, 1.0, -1.0], atol=1e-7)
    assert observations.dtype == actions.dtype == np.float32
    np.testing.assert_array_equal(observation, before[0])
    np.testing.assert_array_equal(given, before[1])


def test_an_action_turned_out_of_its_range_is_clipped():
    _, turned = rotate_about_vertical(
        np.zeros(OBSERVATION_DIM, np.float32), action(x=1.0, y=1.0), np.array(np.pi / 4)
    )
    np.testing.assert_allclose(turned[:2], [0.0, 1.0], atol=1e-6)  # (0, sqrt 2) before the clip


def test_angles_broadcast_against_the_leading_dimensions():
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(3, 2, OBSERVATION_DIM)).astype(np.float32)
    actions = rng.uniform(-0.5, 0.5, size=(3, 2, ACTION_DIM)).astype(np.float32)
    angles = np.array([0.0, 0.3, -1.2])
    turned_observations, turned_actions = rotate_about_vertical(observations, actions, angles[:, None])
    for i, j in np.ndindex(3, 2):
        one, move = rotate_about_vertical(observations[i, j], actions[i, j], angles[i])
        np.testing.assert_array_equal(turned_observations[i, j], one)
        np.testing.assert_array_equal(turned_actions[i, j], move)
    np.testing.assert_array_equal(turned_observations[0], observations[0])


@pytest.mark.parametrize("symmetry", [0, 1, 2, 4])
@pytest.mark.parametrize("angle", [-3.0, -0.5, 0.1, 0.5, 1.9])
def test_turning_the_observation_equals_observing_the_turned_world(symmetry, angle):
    state = world(symmetry)
    expected = encode(turned_world(state, angle))
    observation, _ = rotate_about_vertical(encode(state), action(), np.array(angle))
    np.testing.assert_allclose(observation, expected, atol=1e-6)


@pytest.mark.parametrize("angle", [-0.5, 0.5, 2.5])
def test_the_turned_action_commands_the_turned_motion(angle):
    given = action(x=0.4, y=-0.3, z=0.2, yaw=0.6, opening=0.1, force=0.2)
    _, turned = rotate_about_vertical(np.zeros(OBSERVATION_DIM, np.float32), given, np.array(angle))
    before, after = decode(given, ActionScale()), decode(turned, ActionScale())
    c, s = np.cos(angle), np.sin(angle)
    x, y, z = before.delta_position
    np.testing.assert_allclose(after.delta_position, [c * x - s * y, s * x + c * y, z], atol=1e-8)
    unchanged = (before.delta_yaw, before.opening, before.force_limit)
    assert (after.delta_yaw, after.opening, after.force_limit) == unchanged


# ---- many states at once


def random_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    """Packed states of any heading and symmetry, some with quaternions that are not of unit length."""
    rows = rng.normal(0.0, 1.0, (count, STATE_WIDTH))
    rows[:, -5] = rng.integers(0, 9, count)
    return rows


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 61, 1000])
def test_encoding_many_states_is_bit_equal_to_encoding_each(count):
    rows = random_rows(np.random.default_rng(count), count)
    each = np.stack([encode(unpack_state(row)) for row in rows])
    assert np.array_equal(encode_rows(rows), each)
    assert np.array_equal(encode_rows(np.asfortranarray(rows)), each)
    assert encode_rows(rows).dtype == each.dtype


def test_the_widths_of_many_states_are_checked_and_one_that_is_not_finite_spoils_no_other():
    with pytest.raises(ContractError, match=r"shape \(3, 4\); it must be \(N, 36\)"):
        encode_rows(np.zeros((3, 4)))
    rows = random_rows(np.random.default_rng(0), 3)
    whole = encode_rows(rows)
    rows[1] = np.nan
    assert np.isnan(encode_rows(rows)[1]).all()
    assert np.array_equal(encode_rows(rows)[[0, 2]], whole[[0, 2]])
    assert encode_rows(np.zeros((0, STATE_WIDTH))).shape == (0, OBSERVATION_DIM)
    assert np.array_equal(rows[0], pack_state(unpack_state(rows[0])))
