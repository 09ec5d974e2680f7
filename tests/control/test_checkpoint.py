"""Checkpoints: exact round trips, damage at every kind of place, and kill -9 while saving."""

from __future__ import annotations

import logging
import math
import resource
import shutil
import subprocess
import sys
from collections import OrderedDict
from enum import IntEnum

import numpy as np
import pytest
import torch

from grasp_control.checkpoint import CheckpointError, CheckpointStore, capture, restore
from grasp_control.networks import mlp


def assert_same(one, two, place="state"):
    """Equal in value, type, dtype, shape and order, all the way down; NaN equals NaN."""
    if isinstance(one, dict):
        assert list(one) == list(two), place
        for key in one:
            assert_same(one[key], two[key], f"{place}[{key!r}]")
        return
    assert type(one) is type(two), place
    if isinstance(one, list | tuple):
        assert len(one) == len(two), place
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{place}[{i}]")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype, place
        assert one.shape == two.shape, place
        assert torch.equal(torch.nan_to_num(one.double()), torch.nan_to_num(two.double())), place
    elif isinstance(one, np.ndarray | np.generic):
        assert one.dtype == two.dtype, place
        np.testing.assert_array_equal(one, two, err_msg=place)
    elif isinstance(one, float) and math.isnan(one):
        assert math.isnan(two), place
    else:
        assert one == two, place


def test_every_kind_of_value_comes_back_exactly(tmp_path):
    grid = torch.arange(12.0).reshape(3, 4)
    state = {
        "tensors": [
            torch.tensor(1.5),
            torch.empty(0, 3),
            grid.T,  # not contiguous
            grid[1:],  # shares memory with the one above
            torch.tensor([1, 2], dtype=torch.int64),
            torch.tensor([True]),
            torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
            torch.tensor([float("nan"), float("inf")], dtype=torch.float64),
        ],
        "arrays": [
            np.array(3.0),
            np.zeros((0, 2), np.float32),
            np.asfortranarray(np.arange(6).reshape(2, 3)),
            np.arange(6.0)[::2],
            np.array([2**32 - 1], np.uint32),
            np.array([True, False]),
            np.float32(0.1),
            np.float64(0.1),
            np.int64(-3),
        ],
        "numbers": [0, -1, 2**200, 0.1, -0.0, 1e-323, float("nan"), float("-inf"), True, False, None],
        "text": ["", "λ\n", "tensor"],
        "nested": {
            1: {"a": (1, [2, (3,)])},
            "1": OrderedDict(b=2),
            "tensor": {"dict": {}},
            "empty": ([], (), {}),
        },
    }
    store = CheckpointStore(tmp_path)
    store.save(7, state)
    loaded = store.load_latest()
    assert loaded.step == 7
    assert_same(state, loaded.state)
    assert list(loaded.extra.iterdir()) == []
    assert math.copysign(1.0, loaded.state["numbers"][4]) == -1.0


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({1, 2}, r"state\['a'\]\[0\]"),
        (Colour.RED, "Colour"),
        (np.array([object()]), "numpy.ndarray"),
        (np.array(["x"]), "numpy.ndarray"),
        ({(1, 2): 3}, "builtins.dict"),
        ({True: 3}, "builtins.dict"),
        (b"raw", "builtins.bytes"),
    ],
)
def test_what_cannot_be_stored_exactly_is_refused_by_place(tmp_path, value, place):
    store = CheckpointStore(tmp_path)
    with pytest.raises(TypeError, match=place):
        store.save(1, {"a": [value]})
    assert list(tmp_path.iterdir()) == []


def training_parts(seed: int, learning_rate: float = 1e-3):
    network = mlp(5, 2, torch.Generator().manual_seed(seed), hidden=(8, 8))
    return {
        "network": network,
        "adam": torch.optim.AdamW(network.parameters(), lr=learning_rate, betas=(0.8, 0.95), amsgrad=True),
        "sgd": torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9),
        "torch": torch.Generator().manual_seed(seed),
        "pcg": np.random.default_rng(seed),
        "mt": np.random.Generator(np.random.MT19937(seed)),
    }


def train(parts, steps):
    """A few updates that use every part; returns what was drawn and lost."""
    trace = []
    for _ in range(steps):
        inputs = torch.randn(4, 5, generator=parts["torch"])
        noise = torch.as_tensor(
            parts["pcg"].normal(size=(4, 2)) + parts["mt"].integers(0, 9, dtype=np.uint32)
        )
        loss = (parts["network"](inputs) - noise.float()).square().mean()
        for name in ("adam", "sgd"):
            parts[name].zero_grad()
        loss.backward()
        parts["adam"].step()
        parts["sgd"].step()
        trace.append(loss.item())
    return trace


def test_training_resumed_from_a_checkpoint_is_bit_equal_to_training_on(tmp_path):
    store = CheckpointStore(tmp_path)
    parts = training_parts(0)
    train(parts, 3)
    store.save(3, {"parts": capture(parts)})
    saved = store.load(3).state["parts"]
    assert_same(capture(parts), saved)
    expected = train(parts, 5)
    other = training_parts(1, learning_rate=0.5)
    train(other, 2)
    restore(other, saved)
    assert other["adam"].param_groups[0]["lr"] == 1e-3
    assert train(other, 5) == expected
    assert_same(capture(parts), capture(other))


def test_restoring_into_something_else_says_what_does_not_fit():
    parts = training_parts(0)
    states = capture(parts)
    without = {name: state for name, state in states.items() if name != "mt"} | {"critic": {}}
    with pytest.raises(CheckpointError, match=r"lacks \['mt'\] and has \['critic'\]"):
        restore(parts, without)
    with pytest.raises(CheckpointError, match=r"network does not fit .*size mismatch") as raised:
        restore({"network": mlp(6, 2, torch.Generator(), hidden=(8, 8))}, {"network": states["network"]})
    assert str(raised.value).count("size mismatch") == 1  # the first tensor says it
    with pytest.raises(CheckpointError, match="pcg does not fit"):
        restore({"pcg": np.random.default_rng(0)}, {"pcg": states["mt"]})


def test_only_the_newest_are_kept_and_extra_files_travel_with_them(tmp_path):
    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=3)
    assert store.steps() == []
    for step in (0, 10, 20, 30, 40):
        store.save(
            step,
            {"x": step},
            lambda path, s=step: (path / "memory.bin").write_bytes(bytes([s] * 100)),
        )
    assert store.steps() == [20, 30, 40]
    assert len(list(store.directory.iterdir())) == 3
    loaded = store.load(30)
    assert loaded.state == {"x": 30}
    assert (loaded.extra / "memory.bin").read_bytes() == bytes([30] * 100)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 10; it has \[20, 30, 40\]"):
        store.load(10)


def test_after_a_rollback_the_newest_is_the_one_saved_last(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1000, 2000, 3000):
        store.save(step, {"branch": "first"})
    assert store.load(2000).step == 2000
    store.save(2500, {"branch": "second"})
    store.save(3000, {"branch": "second"})
    assert store.load_latest().state == {"branch": "second"}
    assert store.load(3000).state == {"branch": "second"}
    assert store.steps() == [1000, 2000, 3000, 2500, 3000]


def test_an_interrupted_extra_file_leaves_no_trace(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"x": 1})

    def fail(path):
        (path / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.save(2, {"x": 2}, fail)
    assert store.steps() == [1]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    path = tmp_path_factory.mktemp("store")
    store = CheckpointStore(path)
    for step in (100, 200):
        state = {"w": torch.arange(300.0) + step, "a": np.arange(50) + step, "n": step}
        store.save(step, state, lambda p: (p / "memory.bin").write_bytes(bytes(range(256))))
    return path


FILES = ("state.json", "tensors.safetensors", "arrays.safetensors", "extra/memory.bin", "checksums.json")


def falls_back(path, caplog, reason: str) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        loaded = CheckpointStore(path).load_latest()
    assert loaded.step == 100
    assert loaded.state["n"] == 100
    assert torch.equal(loaded.state["w"], torch.arange(300.0) + 100)
    assert len(caplog.records) == 1
    assert reason in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_truncation_at_any_offset_falls_back_naming_the_file(two_checkpoints, tmp_path, caplog, name):
    path = tmp_path / "store"
    shutil.copytree(two_checkpoints, path)
    file = next(path.glob("*-step-200")) / name
    content = file.read_bytes()
    for size in sorted(
        {0, 1, 7, 8, 9, len(content) - 1, *range(0, len(content), max(1, len(content) // 25))}
    ):
        file.write_bytes(content[:size])
        falls_back(path, caplog, str(file))
    file.unlink()
    falls_back(path, caplog, file.name)
    file.write_bytes(content)
    assert CheckpointStore(path).load_latest().step == 200


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_anywhere_is_never_loaded_as_if_it_were_good(two_checkpoints, tmp_path, name):
    path = tmp_path / "store"
    shutil.copytree(two_checkpoints, path)
    file = next(path.glob("*-step-200")) / name
    content = file.read_bytes()
    for offset in range(0, len(content), max(1, len(content) // 40)):
        damaged = bytearray(content)
        damaged[offset] ^= 0x41
        file.write_bytes(damaged)
        loaded = CheckpointStore(path).load_latest()
        # A flip in the white space of the checksum file may be harmless; anything else falls back.
        assert loaded.step == 100 or name == "checksums.json"
        assert loaded.state["n"] == loaded.step
        assert torch.equal(loaded.state["w"], torch.arange(300.0) + loaded.step)


def test_an_empty_directory_falls_back_and_none_usable_is_one_line(two_checkpoints, tmp_path, caplog):
    path = tmp_path / "store"
    shutil.copytree(two_checkpoints, path)
    newest = next(path.glob("*-step-200"))
    shutil.rmtree(newest)
    newest.mkdir()
    falls_back(path, caplog, "half-written: it has no checksums.json")
    (next(path.glob("*-step-100")) / "state.json").write_text("")
    caplog.clear()
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints") as raised:
        CheckpointStore(path).load_latest()
    assert str(raised.value).count("\n") == 0
    assert f"(the newest: {newest} is half-written: it has no checksums.json)" in str(raised.value)
    assert "restore one from a copy" in str(raised.value)
    assert not caplog.records
    with pytest.raises(CheckpointError, match="0 bytes instead of"):
        CheckpointStore(path).load(100)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        CheckpointStore(tmp_path / "absent").load_latest()
    # Training goes on past the damaged ones.
    CheckpointStore(path).save(150, {"n": 150})
    assert CheckpointStore(path).load_latest().step == 150


def test_a_rollback_goes_to_before_the_drop_and_further_each_time(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1000, 2000, 3000, 4000, 5000):
        store.save(step, {"n": step})
    assert [store.load_before(3500, further).step for further in range(4)] == [3000, 2000, 1000, 1000]
    assert store.load_before(500).step == 1000  # all were saved after the drop: the oldest is the least bad
    (store.directory / "000002-step-3000" / "state.json").write_text("broken")
    assert store.load_before(3500).step == 2000
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        CheckpointStore(tmp_path / "empty").load_before(500)


def test_checkpoints_from_before_a_drop_stay_while_it_lasts(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1000, 2000):
        store.save(step, {"n": step})
    for step in (3000, 4000, 5000):
        store.save(step, {"n": step}, hold_until=2500)
    assert store.steps() == [1000, 2000, 4000, 5000]
    store.save(6000, {"n": 6000})
    assert store.steps() == [5000, 6000]


KILLS = """
import os, signal, sys, time
import numpy as np, torch
from grasp_control.checkpoint import CheckpointStore
store, last = CheckpointStore(sys.argv[1], keep=2), 0
for kill in range(40):
    child = os.fork()
    if child == 0:
        step = last
        while True:
            step += 1
            state = {"w": torch.full((50_000,), float(step)), "a": np.full(1000, step), "n": step}
            fill = bytes([step % 256]) * 100_000
            store.save(step, state, lambda p: (p / "memory.bin").write_bytes(fill))
    deadline = time.monotonic() + 20  # every other kill comes after a whole save, however busy the machine is
    while kill % 2 == 0 and store.steps()[-1:] in ([], [last]) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.002 * kill + 0.0007 * (kill % 7))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    newest = store.steps()[-1]
    found = store.load_latest()
    assert found.step == newest == found.state["n"] >= last, (found.step, newest, last)
    assert (found.state["w"] == newest).all() and (found.state["a"] == newest).all()
    assert (found.extra / "memory.bin").read_bytes() == bytes([newest % 256]) * 100_000
    last = newest
partial = sum(name.startswith(".") for name in os.listdir(sys.argv[1]))
print(last, partial)
"""


def test_kill_9_while_saving_never_costs_the_newest_whole_checkpoint(tmp_path):
    command = [sys.executable, "-W", "error::UserWarning", "-c", KILLS, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "passed over" not in run.stderr
    assert int(run.stdout.split()[0]) > 10
    # What the kills left behind goes with the next save.
    CheckpointStore(tmp_path, keep=2).save(10**6, {"n": 0})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_is_one_line_and_costs_no_earlier_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(1, {"weights": torch.ones(4)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"000001-step-2 cannot be written .*make room"):
            store.save(2, {"weights": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.load_latest().step == 1
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["000000-step-1"]
