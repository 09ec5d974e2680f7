"""Saving and resuming."""

import numpy as np
import pytest

from grasp_control.memory.persistence import MemoryFileError
from grasp_control.types import Source
from grasp_sim.errors import UserError

RNG = np.random.default_rng


def fill(memory, make_episode, episodes=30):
    rng = RNG(0)
    for i in range(episodes):
        slips = rng.random(20) < 0.02
        memory.add(make_episode(success=i % 2 == 0, demonstration=i % 6 == 0, slips=slips, gated=slips))
        batch = memory.sample(32, rng)
        memory.update_scores(batch.ids, rng.standard_normal(32))


def assert_equal(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def recall(memory, batch):
    """As a learner asks, with what it remembers."""
    return (
        memory.recall_repelled(batch.ids, batch.windows, 4),
        memory.recall(batch.ids, batch.bootstrap_windows, 1, later=True),
    )


@pytest.mark.parametrize("exact_below", [160, 20_000])
@pytest.mark.parametrize(("capacity", "encoder"), [(400, "projection"), (2000, "projection"), (400, "vae")])
def test_a_loaded_memory_goes_on_as_the_saved_one(
    make_memory, make_episode, tmp_path, capacity, exact_below, encoder
):
    settings = {"capacity": capacity, "exact_below": exact_below, "keep_share": 0.6, "encoder": encoder}
    memory = make_memory(**settings)
    fill(memory, make_episode, 10)
    memory.refresh_encoder()
    fill(memory, make_episode, 30)
    recall(memory, memory.sample(64, RNG(1)))
    assert (memory.counters.evictions > 0) == (capacity == 400)
    memory.save(tmp_path / "new" / "memory.safetensors")
    twin = make_memory(seed=77, **settings)
    twin.add(make_episode())
    twin.load(tmp_path / "new" / "memory.safetensors")
    assert twin.counters == memory.counters
    assert twin.composition() == memory.composition()
    later = [make_episode(success=i % 2 == 0) for i in range(40)]
    windows = make_episode().windows
    for i, episode in enumerate(later):
        batches = [m.sample(64, RNG(i)) for m in (memory, twin)]
        assert_equal(*batches)
        assert_equal(*(m.sample_successes(64, RNG(i)) for m in (memory, twin)))
        assert_equal(*(m.retrieve(windows, 8) for m in (memory, twin)))
        assert_equal(*(m.retrieve_slips(windows, 8) for m in (memory, twin)))
        for first, second in zip(*(recall(m, batches[0]) for m in (memory, twin)), strict=True):
            assert_equal(first, second)
        for m in (memory, twin):
            m.update_scores(batches[0].ids, RNG(i).standard_normal(64))
            m.add(episode)
    for m in (memory, twin):
        m.refresh_encoder()
    assert_equal(memory.sample(64, RNG(0)), twin.sample(64, RNG(0)))
    assert memory.rng.random() == twin.rng.random()
    np.testing.assert_array_equal(memory.store.labels["id"], twin.store.labels["id"])


def test_an_empty_memory_can_be_saved(make_memory, tmp_path):
    make_memory().save(tmp_path / "m")
    twin = make_memory(seed=5)
    twin.load(tmp_path / "m")
    assert len(twin) == 0
    np.testing.assert_array_equal(twin.encoder.projection, make_memory().encoder.projection)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "text", "absent"])
def test_a_damaged_file_is_one_clear_error_and_changes_nothing(make_memory, make_episode, tmp_path, damage):
    memory = make_memory()
    fill(memory, make_episode, 10)
    path = tmp_path / "memory.safetensors"
    memory.save(path)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    contents = {"flip": content, "truncate": content[:-100], "empty": b"", "text": b"not a memory at all"}
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(contents[damage])
    before = memory.sample(32, RNG(0))
    with pytest.raises(MemoryFileError, match=r"memory\.safetensors") as caught:
        memory.load(path)
    assert isinstance(caught.value, UserError)
    assert "\n" not in str(caught.value)
    assert_equal(memory.sample(32, RNG(0)), before)


def test_a_file_for_another_memory_is_refused_with_both_values(make_memory, tmp_path):
    make_memory(capacity=500).save(tmp_path / "m")
    with pytest.raises(MemoryFileError, match="capacity 500, this memory 1000"):
        make_memory().load(tmp_path / "m")


@pytest.mark.parametrize(("saved", "loading"), [("vae", "projection"), ("projection", "vae")])
def test_a_file_with_the_other_encoder_is_refused_with_both_names(
    make_memory, make_episode, tmp_path, saved, loading
):
    make_memory(encoder=saved).save(tmp_path / "m")
    memory = make_memory(encoder=loading)
    memory.add(make_episode())
    with pytest.raises(MemoryFileError, match=f"encoder {saved}, this memory {loading}: ") as raised:
        memory.load(tmp_path / "m")
    assert len(str(raised.value).splitlines()) == 1
    assert len(memory) == 20


def test_a_kill_while_writing_leaves_the_old_file(make_memory, make_episode, tmp_path, monkeypatch):
    memory = make_memory()
    memory.save(tmp_path / "m")
    fill(memory, make_episode, 4)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            memory.save(tmp_path / "m")
    twin = make_memory()
    twin.load(tmp_path / "m")
    assert len(twin) == 0
    memory.save(tmp_path / "m")
    twin.load(tmp_path / "m")
    assert len(twin) == len(memory)
    assert len(twin.store.group(Source.DEMO)) == len(memory.store.group(Source.DEMO)) > 0
