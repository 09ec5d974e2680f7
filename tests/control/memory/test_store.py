"""Sum tree and rows."""

import numpy as np
import pytest

from grasp_control.memory.store import RowStore, SumTree
from grasp_control.types import Source


def test_sum_tree_draws_in_proportion_to_priority():
    rng = np.random.default_rng(0)
    priorities = rng.random(37) ** 3
    priorities[[0, 7, 36]] = 0.0
    tree = SumTree(37)
    tree.update(np.arange(37), priorities)
    draws = 400_000
    counts = np.bincount(tree.sample(draws, rng), minlength=37)
    expected = priorities / priorities.sum()
    assert counts[expected == 0].sum() == 0
    np.testing.assert_allclose(counts / draws, expected, atol=5e-3)


def test_sum_tree_finds_the_slot_that_cumulative_sums_give():
    rng = np.random.default_rng(1)
    priorities = rng.integers(0, 5, 1000).astype(np.float64)
    tree = SumTree(1000)
    tree.assign(np.arange(1000), priorities)
    batch = 4096
    targets = (np.arange(batch) + np.random.default_rng(2).random(batch)) * (priorities.sum() / batch)
    expected = np.searchsorted(np.cumsum(priorities), targets, side="right")
    np.testing.assert_array_equal(tree.sample(batch, np.random.default_rng(2)), expected)


def test_sum_tree_stays_exact_through_many_updates_with_duplicates():
    rng = np.random.default_rng(3)
    tree, priorities = SumTree(500), np.zeros(500)
    for _ in range(300):
        slots, values = rng.integers(500, size=64), rng.random(64)
        tree.update(slots, values)
        for slot, value in zip(slots, values, strict=True):
            priorities[slot] = value
    np.testing.assert_array_equal(tree[np.arange(500)], priorities)
    fresh = SumTree(500)
    fresh.assign(np.arange(500), priorities)
    assert tree.total == fresh.total


def test_sum_tree_never_gives_a_slot_without_priority():
    # 0.1 + 0.2 + 0.3 has no exact sum: targets at the very end would fall behind the last mass.
    tree = SumTree(8)
    tree.update(np.array([0, 1, 2]), np.array([0.1, 0.2, 0.3]))

    class LastOfEach:
        def random(self, count):
            return np.full(count, np.nextafter(1.0, 0.0))

    assert set(tree.sample(10_000, LastOfEach())) == {0, 1, 2}


def test_empty_sum_tree_refuses_to_draw():
    with pytest.raises(ValueError, match="nothing to draw"):
        SumTree(4).sample(1, np.random.default_rng(0))


def test_ids_rise_and_go_stale_when_their_slot_is_reused():
    store = RowStore(10, 3, 1, 64)
    online = np.full(10, Source.ONLINE, np.int8)
    first = store.labels["id"][store.take(10, online)].copy()
    store.release(np.array([2, 5]))
    assert len(store) == 8
    second = store.labels["id"][store.take(2, online[:2])].copy()
    assert second.min() > first.max()
    np.testing.assert_array_equal(store.slots_of(second), [2, 5])
    np.testing.assert_array_equal(store.slots_of(first)[[2, 5]], [-1, -1])
    np.testing.assert_array_equal(store.slots_of(np.array([-1, 10**12])), [-1, -1])


def test_groups_follow_taking_and_releasing():
    store = RowStore(100, 3, 1, 64)
    sources = np.array([Source.DEMO] * 50 + [Source.SLIP] * 20 + [Source.ONLINE] * 30, np.int8)
    slots = store.take(100, sources)
    store.release(slots[::2])
    assert [len(store.group(source)) for source in Source] == [15, 0, 25, 10]
    assert (store.labels["source"][store.group(Source.SLIP)] == Source.SLIP).all()
    with pytest.raises(ValueError, match="51 slots"):
        store.take(51, sources[:51])
