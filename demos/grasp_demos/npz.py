"""Read the arrays of an `.npz` that anybody may have written: nothing is executed and memory is bounded.

`numpy.load` believes an array's header: one that claims 10^12 elements is allocated before the first byte
is read. Here what the zip's directory and each header claim is added up and compared before.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from functools import lru_cache

import numpy as np

from grasp_demos.episode import DemoError

MAX_BYTES = 256 * 2**20
"""Of one episode's arrays together, and of its file: five hours at 20 Hz. Ten minutes take 10 MB."""
MAX_ARRAYS = 1000

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADER_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
"""How the length of an array's header is written, by the format's version."""


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` by name, each a writable copy.

    Raises DemoError, worded to follow a file's name, where the content is no such archive, claims more than
    `MAX_BYTES` or `MAX_ARRAYS`, or holds anything but plain numbers and text.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_claims(members)
            return {info.filename.removesuffix(".npy"): _read_array(archive, info) for info in members}
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        tokenize.TokenError,
        ArithmeticError,
        EOFError,
        LookupError,
        RuntimeError,  # encrypted, an unknown compression, brackets nested without end
        SyntaxError,
        TypeError,
        ValueError,
    ) as error:
        raise DemoError(f"is no archive of arrays ({error})") from error


def _check_claims(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_ARRAYS:
        raise DemoError(f"claims {len(members)} arrays; an episode has at most {MAX_ARRAYS}")
    claimed = sum(info.file_size for info in members)
    if claimed > MAX_BYTES:
        raise DemoError(
            f"claims {claimed / 2**20:,.0f} MiB of arrays; an episode has at most {MAX_BYTES // 2**20} MiB"
        )
    seen: set[str] = set()
    for info in members:
        if info.filename in seen:
            raise DemoError(f"holds {info.filename!r} twice")
        seen.add(info.filename)
        if not info.filename.endswith(".npy"):
            raise DemoError(f"holds {info.filename!r}, which is no array (.npy)")
        if info.compress_type not in _COMPRESSIONS:
            raise DemoError(
                f"holds {info.filename!r} in compression {info.compress_type}; it must be deflate"
            )


@lru_cache(maxsize=1024)  # Parsing it takes longer than reading the array, and most of them recur.
def _read_header(head: bytes, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran's order, and type. NumPy refuses a header above 10,000 characters."""
    stream = io.BytesIO(head)
    stream.seek(np.lib.format.MAGIC_LEN)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One member. The zip reader stops at the size that the directory claims, which has been checked."""
    with archive.open(info) as member:
        content = member.read(info.file_size)
    version = np.lib.format.read_magic(io.BytesIO(content))
    if version not in _HEADER_LENGTHS:
        raise DemoError(f"holds {info.filename!r} in array format {version}, which this program cannot read")
    length = _HEADER_LENGTHS[version]
    start = np.lib.format.MAGIC_LEN + length.size + length.unpack_from(content, np.lib.format.MAGIC_LEN)[0]
    shape, fortran_order, dtype = _read_header(content[:start], version)
    if dtype.hasobject:
        raise DemoError(f"holds Python objects in {info.filename!r}, which could run code: they are not read")
    count = 1
    for length in shape:  # In Python's integers, which do not overflow.
        if length < 0:
            raise DemoError(f"claims a length of {length} in {info.filename!r}")
        count *= length
    held = len(content) - start
    if count * dtype.itemsize != held or (dtype.itemsize == 0 and count > 1):
        raise DemoError(
            f"claims {count:,} elements of {dtype.itemsize} bytes in {info.filename!r}, which holds {held:,}"
            " bytes of them"
        )
    if count == 0:
        return np.zeros(shape, dtype)
    if dtype.itemsize == 0:
        return np.empty(shape, dtype)
    flat = np.frombuffer(content, dtype, count, start)
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()
