"""Absurd rows are found, and no others."""

import numpy as np
import pytest

from grasp_control.memory.config import ENCODERS
from grasp_control.memory.outliers import outlier_ids


@pytest.mark.parametrize("encoder", ENCODERS)
def test_no_row_of_an_ordinary_memory_is_an_outlier(make_memory, make_episode, encoder):
    memory = make_memory(encoder=encoder)
    assert len(outlier_ids(memory.store, 5.0)) == 0
    for number in range(20):
        memory.add(make_episode(success=number % 2 == 0))
    memory.refresh_encoder()
    assert len(outlier_ids(memory.store, 5.0)) == 0


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_fifth_of_corrupted_rows_is_found_and_purged(make_memory, make_episode, encoder):
    memory = make_memory(encoder=encoder)
    for number in range(20):
        memory.add(make_episode(success=number % 2 == 0))
    memory.refresh_encoder()
    before = set(memory.store.labels["id"][memory.store.live_slots()].tolist())
    for _ in range(5):
        bad = make_episode()
        memory.add(bad._replace(windows=np.float32(1e4) * (1.0 + np.abs(bad.windows))))
    far = outlier_ids(memory.store, 5.0)
    assert len(far) == 5 * 20
    assert memory.purge(far) == len(far)
    assert set(memory.store.labels["id"][memory.store.live_slots()].tolist()) == before


def test_demonstrations_are_never_outliers(make_memory, make_episode):
    memory = make_memory()
    for _ in range(20):
        memory.add(make_episode())
    odd = make_episode(demonstration=True, success=True)
    memory.add(odd._replace(windows=np.float32(1e4) * odd.windows))
    assert len(outlier_ids(memory.store, 5.0)) == 0
