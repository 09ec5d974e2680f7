"""Episode files from anybody: what they claim is compared before it is believed."""

from __future__ import annotations

import io
import json
import os
import resource
import zipfile
import zlib

import numpy as np
import pytest

from grasp_demos import npz, storage
from grasp_demos.episode import DemoError
from grasp_demos.npz import read_arrays
from grasp_demos.reader import read_episode
from grasp_demos.storage import episode_bytes, parse_episode


def signed(members: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of any content with the comment and checksum of an episode file, as an attacker makes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.comment = storage._COMMENT + b"0" * 8
        for name, content in members.items():
            archive.writestr(name, content)
    content = buffer.getvalue()[:-8]
    return content + f"{zlib.crc32(content):08x}".encode()


def npy(shape: str, descr: str = "<f8", body: bytes = b"") -> bytes:
    """An array file whose header claims what it is told to."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def real_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4)),
        np.zeros((5, 0)),
        np.array(3.5),
        np.array([True, False]),
        np.array("text with ü"),
        np.array(""),
        np.arange(3, dtype=">i2"),
    ],
)
def test_arrays_are_read_as_numpy_reads_them_and_can_be_written_to(array):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, some=array)
    read = read_arrays(buffer.getvalue())["some"]
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)
    assert read.shape == array.shape
    assert read.flags.writeable


@pytest.mark.parametrize(
    ("shape", "descr", "expected"),
    [
        ("(1000000000000,)", "<f8", r"claims 1,000,000,000,000 elements of 8 bytes in 'states.npy'"),
        (
            "(4294967296, 4294967296)",
            "<f8",
            "claims 18,446,744,073,709,551,616 elements",
        ),  # 2**64, no overflow
        ("(1000000000000,)", "|V0", "claims 1,000,000,000,000 elements of 0 bytes"),
        ("(-1,)", "<f8", "claims a length of -1"),
        ("(2,)", "|O", "Python objects"),
        ("(" * 5000, "<f8", "no archive of arrays"),
    ],
)
def test_what_a_header_claims_is_refused_before_it_is_allocated(shape, descr, expected):
    data = signed({"metadata.npy": real_npy(np.array("{}")), "states.npy": npy(shape, descr, b"1234")})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DemoError, match=expected):
        parse_episode(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_zip_bomb_is_refused_by_what_its_directory_claims(tmp_path):
    bomb = signed({"states.npy": npy("(38400000,)", body=bytes(300 * 2**20))})
    assert len(bomb) < 2**20
    path = tmp_path / "episode_000000.npz"
    path.write_bytes(bomb)
    with pytest.raises(DemoError, match=r"episode_000000.npz claims 300 MiB of arrays; .* at most 256 MiB"):
        read_episode(path)


def test_a_directory_that_lies_about_a_members_size_is_not_believed():
    true_size, said = 100_000, 5_000
    data = bytearray(signed({"states.npy": npy("(12500,)", body=bytes(true_size))}))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        size = archive.infolist()[0].file_size
    data = data.replace(size.to_bytes(4, "little"), said.to_bytes(4, "little"))
    with pytest.raises(DemoError):
        read_arrays(bytes(data))


def test_too_many_arrays_twins_and_other_members_are_refused(monkeypatch):
    one = real_npy(np.zeros(1))
    monkeypatch.setattr(npz, "MAX_ARRAYS", 3)
    with pytest.raises(DemoError, match="claims 4 arrays; an episode has at most 3"):
        read_arrays(signed({f"{k}.npy": one for k in range(4)}))
    with pytest.raises(DemoError, match=r"holds '../evil.sh', which is no array"):
        read_arrays(signed({"../evil.sh": b"echo"}))
    with pytest.raises(DemoError, match="in compression 12"):
        read_arrays(signed({"a.npy": one}, compression=zipfile.ZIP_BZIP2))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", one)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", one)
    with pytest.raises(DemoError, match=r"holds 'a.npy' twice"):
        read_arrays(buffer.getvalue())


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00\x01\x00{", b"hello" * 100]
)
def test_what_is_no_array_is_an_error_of_one_line(content):
    with pytest.raises(DemoError) as caught:
        read_arrays(signed({"a.npy": content}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 100_000, "metadata that is no JSON"),
        ("[1]", "metadata that is a list"),
        ("{", "metadata that is no JSON"),
        ('{"action_scale": 7}', "action scale 7; it must give position"),
        ('{"action_scale": {"position": "far"}}', "it must give position"),
    ],
)
def test_hostile_metadata_is_named(text, expected):
    whole = {"task": "t", "control_mode": "servo", "kind": "clean", "contract_version": 1}
    if text.startswith('{"'):
        text = json.dumps(whole | json.loads(text))
    with pytest.raises(DemoError, match=expected):
        parse_episode(signed({"metadata.npy": real_npy(np.array(text))}))


def test_an_action_scale_of_no_number_is_named(make_episode):
    data = episode_bytes(make_episode())
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive.items())
    values = json.loads(str(arrays["metadata"]))
    for bad in ("far", None, True, float("inf")):
        values["action_scale"]["position"] = bad
        members = {f"{name}.npy": real_npy(array) for name, array in arrays.items()}
        members["metadata.npy"] = real_npy(np.array(json.dumps(values)))
        with pytest.raises(DemoError, match=r"action scale's position of .*; it must be a finite number"):
            parse_episode(signed(members))


def test_a_device_or_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "episode_000000.npz")
    for path in ("/dev/zero", tmp_path / "episode_000000.npz"):
        with pytest.raises(DemoError, match="is no regular file"):
            read_episode(path)


def test_a_file_larger_than_any_episode_is_not_read(tmp_path):
    path = tmp_path / "episode_000000.npz"
    with open(path, "wb") as file:
        file.truncate(npz.MAX_BYTES + 1)
    with pytest.raises(DemoError, match=r"has 256 MiB; an episode has at most 256 MiB"):
        read_episode(path)
