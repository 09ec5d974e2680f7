"""The treasure hunt and the reward structures by hand (R1, R6)."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from grasp_sim import grid, registry
from grasp_sim.config import EnvConfig
from grasp_sim.errors import UnknownName, UserError
from grasp_sim.grid import GRID_REWARDS, GridEnv, cells_of, distances, moved
from grasp_sim.structures import (
    NOISE,
    TRAP_LOSS,
    TRAP_LUCK,
    TRAP_WIN,
    Payment,
    Structure,
    check_delay,
    delayed,
    noisy,
)

UP, DOWN, LEFT, RIGHT = range(4)


def test_sparse_and_dense_by_hand():
    assert (grid.sparse(True), grid.sparse(False)) == (1.0, 0.0)
    assert grid.dense(5, 4) == pytest.approx(0.05 - 0.01)
    assert grid.dense(4, 5) == pytest.approx(-0.05 - 0.01)
    assert grid.dense(4, 4) == pytest.approx(-0.01)
    assert grid.dense(1, 0) == pytest.approx(1.0 + 0.05 - 0.01)


def test_delayed_by_hand():
    earned = [1.0, 2.0, 4.0, 8.0]
    paid = [delayed(earned[:t], 2, t == 4) for t in range(1, 5)]
    assert paid == [0.0, 0.0, 1.0, 14.0]
    assert [delayed(earned[:t], 0, t == 4) for t in range(1, 5)] == [0.0, 0.0, 0.0, 15.0]
    assert delayed(earned[:1], 3, True) == 1.0


@pytest.mark.parametrize("delay", range(7))
def test_whatever_the_delay_all_that_was_earned_is_paid(delay):
    earned = np.random.default_rng(delay).normal(size=6).tolist()
    paid = [delayed(earned[: t + 1], delay, t == 5) for t in range(6)]
    assert sum(paid) == pytest.approx(sum(earned))


def test_noisy_by_hand():
    assert noisy(0.3, False, 1.5, 0.0) == pytest.approx(0.3 + NOISE * 1.5)
    assert noisy(0.3, False, -1.5, 0.9) == pytest.approx(0.3 - NOISE * 1.5)
    assert noisy(0.3, True, 1.5, TRAP_LUCK - 1e-9) == TRAP_WIN
    assert noisy(0.3, True, 1.5, TRAP_LUCK) == TRAP_LOSS


def test_a_trap_deceives_it_costs_on_average_and_pays_more_than_the_task_now_and_then():
    assert TRAP_LUCK * TRAP_WIN + (1.0 - TRAP_LUCK) * TRAP_LOSS < 0.0
    longest = max(distances()[cells_of("s")])
    assert sum(grid.dense(int(d), int(d) - 1) for d in range(longest, 0, -1)) < TRAP_WIN


def test_the_map_has_one_treasure_and_every_cell_but_walls_leads_to_it():
    assert len("".join(grid.MAP)) == grid.CELLS
    assert (len(cells_of("T")), len(cells_of("x"))) == (1, 2)
    found = distances()
    assert [int(found[cell]) for cell in cells_of("s")] == [15, 14, 14, 13]
    assert set(np.flatnonzero(found < 0)) == set(cells_of("#"))


def test_moves_stop_at_edges_and_walls():
    assert moved(0, UP) == moved(0, LEFT) == 0
    assert (moved(0, DOWN), moved(0, RIGHT)) == (10, 1)
    assert grid.MAP[1][5] == "#"
    assert moved(14, RIGHT) == 14


def follow(env: GridEnv, seed: int, actions: list[int]) -> list[float]:
    env.reset(seed=seed)
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        if terminated or truncated:
            break
    return rewards


def way(env: GridEnv, seed: int) -> list[int]:
    """The shortest way from where the seed begins."""
    cell, found, actions = env.reset(seed=seed)[1]["cell"], distances(), []
    while found[cell]:
        action = next(a for a in range(4) if found[moved(cell, a)] == found[cell] - 1)
        actions.append(action)
        cell = moved(cell, action)
    return actions


def test_the_shortest_way_earns_the_same_under_every_structure_but_noise():
    dense = follow(GridEnv("dense"), 3, way(GridEnv(), 3))
    sparse = follow(GridEnv("sparse"), 3, way(GridEnv(), 3))
    late = follow(GridEnv("delayed", delay=4), 3, way(GridEnv(), 3))
    ended = follow(GridEnv("delayed"), 3, way(GridEnv(), 3))
    assert sparse == [0.0] * (len(sparse) - 1) + [1.0]
    assert dense == pytest.approx([0.04] * (len(dense) - 1) + [1.04])
    assert late == pytest.approx([0.0] * 4 + [0.04] * (len(dense) - 5) + [0.04 * 4 + 1.04])
    assert ended == pytest.approx([0.0] * (len(dense) - 1) + [sum(dense)])


def test_noise_has_no_mean_and_follows_from_the_seed_alone():
    env = GridEnv("noisy")
    noise = np.concatenate([follow(env, seed, [UP] * 60) for seed in range(50)])
    walls = noise + 0.01
    assert abs(walls.mean()) < 4 * NOISE / np.sqrt(len(walls)) + 0.05 * 50 / len(walls)
    assert walls.std() == pytest.approx(NOISE, rel=0.1)
    np.random.seed(5)  # noqa: NPY002 (global state must not matter)
    assert follow(GridEnv("noisy", seed=9), 1, [UP] * 60) == follow(env, 1, [UP] * 60)
    assert follow(env, 1, [UP] * 60) != follow(env, 2, [UP] * 60)


def test_traps_are_there_under_the_noisy_structure_alone_and_end_the_episode():
    (first, _) = cells_of("x")
    beside = first - 1
    for reward in GRID_REWARDS:
        env = GridEnv(reward)
        env.reset(seed=0)
        env._cell = beside
        _, paid, terminated, _, info = env.step(RIGHT)
        assert info["cell"] == first
        assert terminated == (reward == "noisy")
        assert not info["success"]
        assert (paid in (TRAP_WIN, TRAP_LOSS)) == (reward == "noisy")


def test_a_trap_counts_when_it_is_entered_and_not_while_one_stays():
    payment = Payment(Structure.NOISY, 0, 10)
    payment.begin(3)
    paid = [payment.pay(0.0, lured=lured, over=False) for lured in (False, True, True, False, True)]
    assert [value in (TRAP_WIN, TRAP_LOSS) for value in paid] == [False, True, False, False, True]


def test_an_account_goes_on_where_it_was_saved():
    for structure, delay in ((Structure.DELAYED, 2), (Structure.NOISY, 0)):
        one, other = Payment(structure, delay, 10), Payment(structure, delay, 10)
        one.begin(2**62 + 1)
        for step in range(4):
            one.pay(float(step), lured=step == 3, over=False)
        other.load(one.save())
        for step in range(4):
            assert one.pay(1.0, lured=True, over=step == 3) == other.pay(1.0, lured=True, over=step == 3)


def test_gymnasium_finds_nothing_to_complain_of_and_makes_it_by_its_id():
    env = gymnasium.make(registry.GRID_ID, reward="delayed", delay=3)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=1)
    assert (observation.shape, observation.sum()) == ((100,), 1.0)


def test_terminated_and_truncated_are_never_both():
    env = GridEnv(horizon=15)
    (*_, last) = [env.step(action) for action in (env.reset(seed=3), way(env, 3))[1]]
    assert last[2:4] == (True, False)
    env.reset(seed=3)
    (*_, last) = [env.step(UP) for _ in range(15)]
    assert last[2:4] == (False, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(UP)


@pytest.mark.parametrize("name", GRID_REWARDS)
def test_an_environment_says_in_one_line_what_it_was_given(name):
    line = GridEnv(name).describe
    assert f" {name}: " in line
    assert "\n" not in line
    assert "delay 7" in GridEnv("delayed", delay=7).describe


def test_what_contradicts_itself_is_refused_in_a_line():
    with pytest.raises(UnknownName, match=r"'dens'.*sparse, dense, delayed, noisy"):
        GridEnv("dens")
    with pytest.raises(UserError, match="delay=61 is longer than an episode of horizon=60 steps"):
        GridEnv("delayed", delay=61)
    with pytest.raises(UserError, match="delay=3 is for the delayed reward"):
        GridEnv("dense", delay=3)
    with pytest.raises(ValueError, match=r"env.delay=200 is longer than an episode of env.horizon=100"):
        EnvConfig(reward="delayed", delay=200)
    with pytest.raises(ValueError, match="must not be negative"):
        check_delay(Structure.DELAYED, -1, 10)


def test_grasping_is_paid_by_the_same_structures():
    def rewards(**settings: object) -> list[float]:
        env = registry.make("pybullet-lift", horizon=6, seed=0, **settings)  # type: ignore[arg-type]
        env.reset(seed=1)
        paid = [env.step(np.array([0.1, 0, -0.5, 0, -1, 0], np.float32))[1] for _ in range(6)]
        env.close()
        return paid

    dense = rewards(reward="dense")
    assert rewards(reward="delayed") == pytest.approx([0.0] * 5 + [sum(dense)])
    assert rewards(reward="delayed", delay=2) == pytest.approx([0.0, 0.0, *dense[:3], sum(dense[3:])])
    loud = rewards(reward="noisy")
    assert loud == rewards(reward="noisy")
    assert 0.3 * NOISE < np.std(np.subtract(loud, dense)) < 3 * NOISE


def test_a_snapshot_of_grasping_holds_what_was_not_paid_yet():
    for reward, delay in (("delayed", 3), ("noisy", 0)):
        env = registry.make("pybullet-lift", reward=reward, delay=delay, horizon=8, seed=0)
        env.reset(seed=1)
        action = np.array([0.1, 0, -0.5, 0, -1, 0], np.float32)
        for _ in range(4):
            env.step(action)
        saved = env.snapshot()
        rest = [env.step(action)[1] for _ in range(4)]
        env.reset(seed=2)
        env.restore(saved)
        assert [env.step(action)[1] for _ in range(4)] == rest
        env.close()
