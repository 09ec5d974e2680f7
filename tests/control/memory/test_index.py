"""Retrieval index: the laws that FAISS itself does not hold."""

from typing import Any

import faiss
import numpy as np
import pytest

from grasp_control.memory.index import VectorIndex, list_count

DIM = 64


def clustered(rows, rng):
    """Vectors around paths, as neighbouring steps of episodes give."""
    starts = rng.standard_normal((rows // 50 + 1, 1, DIM)) * 2
    steps = rng.standard_normal((len(starts), 50, DIM)) * 0.3
    return (starts + steps.cumsum(axis=1)).reshape(-1, DIM)[:rows].astype(np.float32)


def make(vectors, **settings):
    index = VectorIndex(DIM, lambda ids: vectors[ids], **settings)
    index.add(np.arange(len(vectors)), vectors)
    return index


def brute_force(vectors, ids, queries, k):
    distances = np.linalg.norm(queries[:, None] - vectors[None], axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return ids[order], np.take_along_axis(distances, order, axis=1)


@pytest.mark.parametrize("queries", [1, 3, 40])
def test_exact_search_equals_brute_force(queries):
    rng = np.random.default_rng(0)
    vectors = clustered(900, rng)
    index = make(vectors)
    index.remove(np.arange(100, 400))
    kept = np.setdiff1d(np.arange(900), np.arange(100, 400))
    asked = rng.standard_normal((queries, DIM)).astype(np.float32)
    ids, distances, late = index.search(asked, 8)
    expected_ids, expected_distances = brute_force(vectors[kept], kept, asked, 8)
    assert index.exact
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-4)
    assert not late.any()


def test_approximate_search_recalls_and_removes():
    rng = np.random.default_rng(1)
    vectors = clustered(12_000, rng)
    index = make(vectors, exact_below=5_000)
    assert not index.exact
    gone = rng.permutation(12_000)[:6_000]
    index.remove(gone)
    kept = np.setdiff1d(np.arange(12_000), gone)
    asked = vectors[rng.integers(12_000, size=100)] + 0.05 * rng.standard_normal((100, DIM)).astype(
        np.float32
    )
    ids, distances, _ = index.search(asked, 8)
    expected, _ = brute_force(vectors[kept], kept, asked, 8)
    assert np.isin(ids, kept).all()
    recall = np.mean([len(np.intersect1d(a, b)) / 8 for a, b in zip(ids, expected, strict=True)])
    assert recall >= 0.95
    true = np.linalg.norm(asked[:, None] - vectors[ids], axis=-1)
    np.testing.assert_allclose(distances, true, rtol=1e-4, atol=1e-3)


def test_a_saved_index_searches_as_widely_as_a_new_one_and_reads_a_bounded_number_of_codes():
    rng = np.random.default_rng(8)
    vectors = clustered(20_000, rng)
    index = make(vectors, exact_below=5_000)
    state = index.state()
    older: Any = faiss.deserialize_index(state["faiss"])
    older.nprobe = 1
    restored = VectorIndex(DIM, lambda ids: vectors[ids])
    restored.restore({**state, "faiss": faiss.serialize_index(older)})
    asked = rng.standard_normal((50, DIM)).astype(np.float32)
    for one, two in zip(index.search(asked, 8), restored.search(asked, 8), strict=True):
        np.testing.assert_array_equal(one, two)
    assert restored._ivf is not None
    assert restored._ivf.nprobe > 1
    assert restored._ivf.max_codes > 0


def test_grows_through_the_threshold_in_small_steps_and_shrinks_below_it():
    rng = np.random.default_rng(2)
    vectors = clustered(3_000, rng)
    index = VectorIndex(DIM, lambda ids: vectors[ids], exact_below=500)
    for start in range(0, 3_000, 50):
        index.add(np.arange(start, start + 50), vectors[start : start + 50])
        assert index.exact == (len(index) < 500)
        assert (index.search(vectors[[start]], 1)[0] == start).all()
    index.remove(np.arange(100, 3_000))
    assert index.exact
    ids, distances, _ = index.search(vectors[[5]], 3)
    np.testing.assert_array_equal(ids, brute_force(vectors[:100], np.arange(100), vectors[[5]], 3)[0])
    assert distances[0, 0] == pytest.approx(0.0, abs=1e-3)


def test_missing_neighbours_are_minus_one_and_infinitely_far():
    vectors = clustered(3, np.random.default_rng(3))
    ids, distances, _ = make(vectors).search(vectors[:2], 5)
    assert (ids[:, 3:] == -1).all()
    assert np.isinf(distances[:, 3:]).all()
    assert set(ids[0, :3]) == {0, 1, 2}
    empty = VectorIndex(DIM, lambda ids: vectors[ids])
    assert (empty.search(vectors, 2)[0] == -1).all()


def test_lists_that_run_out_give_minus_one():
    rng = np.random.default_rng(4)
    # Only some of the lists are probed: they cannot hold three quarters of all rows.
    vectors = clustered(20_000, rng)
    ids, distances, _ = make(vectors, exact_below=1_000).search(vectors[:1], 15_000)
    missing = ids == -1
    assert missing.any()
    assert np.isinf(distances[missing]).all()
    assert np.isfinite(distances[~missing]).all()


def test_too_few_rows_for_the_quantiser_stay_exact():
    vectors = clustered(60, np.random.default_rng(5))
    index = make(vectors, exact_below=10)
    assert index.exact
    assert index.search(vectors[[7]], 1)[0][0, 0] == 7


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_refused_in_rows_and_queries(value):
    vectors = clustered(20, np.random.default_rng(6))
    index = make(vectors)
    bad = vectors[:2].copy()
    bad[1, 3] = value
    with pytest.raises(ValueError, match="NaN"):
        index.add(np.array([20, 21]), bad)
    with pytest.raises(ValueError, match="NaN"):
        index.search(bad, 2)
    assert len(index) == 20


@pytest.mark.parametrize("ids", [[5, 6], [30, 30], [31, 30]])
def test_duplicate_or_falling_ids_are_refused(ids):
    vectors = clustered(20, np.random.default_rng(7))
    index = make(vectors)
    with pytest.raises(ValueError, match="duplicates"):
        index.add(np.array(ids), vectors[:2])


def test_equal_vectors_are_all_found():
    vectors = np.repeat(clustered(1, np.random.default_rng(8)), 5, axis=0)
    ids, distances, _ = make(vectors).search(vectors[:1], 5)
    assert set(ids[0]) == set(range(5))
    np.testing.assert_allclose(distances, 0.0, atol=1e-3)


def test_only_queries_over_the_deadline_are_late():
    vectors = clustered(30, np.random.default_rng(9))
    times = iter([0.0, 0.049, 1.0, 1.051])
    index = make(vectors, deadline_ms=50.0, clock=lambda: next(times))
    late = index.search(np.repeat(vectors[:1], 100, axis=0), 2)[2]
    assert not late[:64].any()
    assert late[64:].all()


@pytest.mark.parametrize("exact_below", [100, 100_000])
def test_restored_index_gives_the_same_answers(exact_below):
    vectors = clustered(3_000, np.random.default_rng(10))
    index = make(vectors, exact_below=exact_below)
    index.remove(np.arange(0, 500))
    twin = VectorIndex(DIM, lambda ids: vectors[ids], exact_below=exact_below)
    twin.restore(index.state())
    for one, two in zip(index.search(vectors[:50], 8), twin.search(vectors[:50], 8), strict=True):
        np.testing.assert_array_equal(one, two)


def test_list_count_follows_the_root():
    assert [list_count(rows) for rows in (1, 20_000, 200_000, 500_000, 2_000_000)] == [
        2,
        512,
        1024,
        2048,
        4096,
    ]


def test_a_copy_on_the_gpu_follows_the_index(monkeypatch):
    # The functions of the GPU build, played by copies on the CPU: what counts is that no copy falls behind.
    copies = []

    def copy(resources, device, index):
        copies.append(faiss.clone_index(index))
        return copies[-1]

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", copy, raising=False)
    vectors = clustered(3_000, np.random.default_rng(11))
    index = VectorIndex(DIM, lambda ids: vectors[ids], exact_below=500)
    for start in range(0, 3_000, 300):
        index.add(np.arange(start, start + 300), vectors[start : start + 300])
    index.remove(np.arange(1_000, 2_000))
    assert copies[-1].ntotal == len(index) == 2_000
    ids = index.search(vectors[::50], 1)[0][:, 0]
    kept = (np.arange(0, 3_000, 50) < 1_000) | (np.arange(0, 3_000, 50) >= 2_000)
    np.testing.assert_array_equal(ids == np.arange(0, 3_000, 50), kept)


def test_a_coarse_search_finds_near_rows_in_few_lists():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((200, 16)).astype(np.float32).repeat(30, axis=0)
    vectors += 0.05 * rng.standard_normal(vectors.shape).astype(np.float32)
    index = VectorIndex(16, lambda ids: vectors[ids], exact_below=1000)
    index.add(np.arange(len(vectors)), vectors)
    assert not index.exact
    ids, distances, _ = index.search(vectors[::97], 4, coarse=True)
    assert (ids[:, 0] == np.arange(len(vectors))[::97]).mean() > 0.9  # itself
    assert np.median(distances[:, 1:]) < 0.5  # of its own cluster; another one lies about 5 away
