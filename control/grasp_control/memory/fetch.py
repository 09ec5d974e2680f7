"""Reading many far-apart rows of a large array without waiting for each.

A processor waits about 100 ns for a row that is not in its caches. It can have dozens of cache lines under
way, but what it finds by itself are the few that the next instructions need; asking for the lines of rows
some steps ahead keeps the queue full and halves the time of a gather.

Shapes: N rows held, R values of a row, B rows read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LINE = 64
"""Bytes of a cache line."""
AHEAD = 8
"""Rows asked for ahead of the one being read. With 4 the queue runs dry, from 8 on nothing is gained."""


def _prefetch(_context: Any, _address: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        # To read; into the second-level cache, to which more lines may be under way than to the first; data.
        builder.call(hint, [builder.inttoptr(arguments[0], pointer), number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


prefetch = cast(Callable[[Any], None], intrinsic(_prefetch))
"""Ask, in a compiled function, for the cache line at an address. It never faults and changes no value."""


@njit(cache=True)
def prefetch_row(rows: np.ndarray, row: int) -> None:
    """Ask for one row of a C-contiguous (N, R) array."""
    start = rows.ctypes.data + row * rows.strides[0]
    for offset in range(0, rows.strides[0], LINE):
        prefetch(start + offset)
    prefetch(start + rows.strides[0] - 1)  # On a line of its own where rows do not begin with a line.


@njit(cache=True)
def gather(rows: np.ndarray, slots: np.ndarray, width: int) -> np.ndarray:
    """(B, width) copies of the first `width` values of the rows `slots` (B,) of a C-contiguous (N, R)."""
    out = np.empty((slots.size, width), rows.dtype)
    for i in range(min(AHEAD, slots.size)):
        prefetch_row(rows, slots[i])
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch_row(rows, slots[i + AHEAD])
        row = slots[i]
        for j in range(width):
            out[i, j] = rows[row, j]
    return out


def aligned(count: int, width: int) -> np.ndarray:
    """Uninitialised (count, width) float32 that begins with a cache line."""
    size = 4 * count * width
    memory = np.empty(size + LINE, np.uint8)  # Unlike `zeros`, this gets huge pages: far fewer TLB misses.
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(np.float32).reshape(count, width)
