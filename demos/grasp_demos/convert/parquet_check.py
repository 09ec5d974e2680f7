"""Read Parquet files once in a process of its own, with its memory limited, before anybody trusts them.

A file of 600 bytes can unpack to gigabytes in one row, and a damaged one can end the whole process inside of
Arrow. This module is run as a script: it imports nothing of this program, and only its exit code and its one
line of output are believed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

BATCH = 4096
"""Rows in memory at a time."""
_MEMORY = 4 * 2**30
_SECONDS = 3600.0


def check(files: Sequence[Path], widths: Mapping[str, int]) -> str | None:
    """What is wrong with the files, in one line; None where every row has `widths` numbers in each column."""
    command = [sys.executable, "-I", __file__, json.dumps(dict(widths)), *map(str, files)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"reading them takes more than {_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    if done.returncode == 1 and done.stdout.strip():
        return " ".join(done.stdout.split())[:300]
    return "they end the Parquet reader itself, so they are damaged or ask for more memory than there is"


def _scan(widths: Mapping[str, int], files: Sequence[str]) -> str | None:
    import pyarrow
    from pyarrow import parquet

    for file in files:
        content = parquet.ParquetFile(file, page_checksum_verification=True)
        for batch in content.iter_batches(BATCH, columns=list(widths), use_threads=False):
            for name, width in widths.items():
                column = batch.column(batch.schema.names.index(name))
                if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
                    column = column.flatten()
                if column.null_count or len(column) != len(batch) * width:
                    return f"{file}: column {name} has not {width} numbers in every row"
    return None


def _main() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        import pyarrow

        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
        pyarrow.set_cpu_count(1)
        problem = _scan(json.loads(sys.argv[1]), sys.argv[2:])
    except MemoryError:
        problem = f"a row unpacks to more than {_MEMORY >> 30} GB"
    except Exception as error:  # Whatever it is, it is the file's fault.
        problem = f"{type(error).__name__}: {error}"
    if problem:
        print(problem)
    return int(bool(problem))


if __name__ == "__main__":
    sys.exit(_main())
