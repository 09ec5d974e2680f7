"""Reading far-apart rows: the values are those of plain indexing, whatever is asked for ahead."""

import numpy as np
import pytest

from grasp_control.memory.fetch import AHEAD, LINE, aligned, gather
from grasp_control.memory.store import LABELS, RowStore
from grasp_control.types import Source


@pytest.mark.parametrize("count", [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_gather_equals_plain_indexing(count, dtype):
    rng = np.random.default_rng(count)
    rows = rng.integers(1000, size=(50, 19)).astype(dtype)
    slots = rng.integers(50, size=count)
    slots[: count // 2] = 49  # The last row again and again: nothing behind it may be read.
    for width in (1, 19):
        found = gather(rows, slots, width)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, rows[slots, :width])


@pytest.mark.parametrize("shape", [(1, 1), (7, 16), (1000, 33)])
def test_aligned_arrays_begin_with_a_cache_line(shape):
    array = aligned(*shape)
    assert array.shape == shape
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % LINE == 0


def test_every_row_of_a_store_begins_a_cache_line_and_is_gathered_without_its_padding():
    rng = np.random.default_rng(0)
    store = RowStore(100, window_width=12, action_dim=3, embedding_dim=64)
    assert store.width == 2 * 12 + 2 * 3 + 4
    assert store.rows.ctypes.data % LINE == store.rows.strides[0] % LINE == 0
    slots = store.take(100, np.full(100, Source.ONLINE))
    store.rows[slots] = np.nan
    store.rows[slots, : store.width] = values = rng.standard_normal((100, store.width)).astype(np.float32)
    store.labels["score"][slots] = scores = rng.random(100).astype(np.float32)
    drawn = rng.integers(100, size=64)
    packed, labels = store.gather(drawn)
    np.testing.assert_array_equal(packed, values[drawn])
    assert labels.dtype == LABELS
    np.testing.assert_array_equal(labels["id"], drawn)
    np.testing.assert_array_equal(labels["score"], scores[drawn])
