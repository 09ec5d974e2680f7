"""Nested state as JSON and safetensors, exactly and without pickling.

The tree goes to `state.json`; a tensor or an array in it is replaced by the number of its entry in
`tensors.safetensors` or `arrays.safetensors`. Containers come back with their own types (any mapping as a
dict) and keys, so an optimiser's state (integer keys, tuples of betas) survives unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

_TREE, _TENSORS, _ARRAYS = "state.json", "tensors.safetensors", "arrays.safetensors"


def write_tree(directory: Path, state: dict[str, Any]) -> None:
    """Write three files into `directory`; TypeError names the place of a value that cannot be stored."""
    tensors: dict[str, torch.Tensor] = {}
    arrays: dict[str, np.ndarray] = {}

    def encode(value: Any, place: str) -> Any:
        # Exact types only: a subclass (an enum, a named tuple) would silently come back as its base.
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, torch.Tensor):
            # A copy of its own for each, since safetensors refuses tensors that share memory.
            tensors[str(len(tensors))] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            native = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
            arrays[str(len(arrays))] = native
            return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}
        if isinstance(value, list | tuple) and kind in (list, tuple):
            return {kind.__name__: [encode(item, f"{place}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and all(type(key) in (str, int) for key in value):
            return {"dict": [[key, encode(item, f"{place}[{key!r}]")] for key, item in value.items()]}
        raise TypeError(
            f"{place} is a {kind.__module__}.{kind.__qualname__}; a checkpoint holds dict (text or integer "
            "keys), list, tuple, tensors, numeric arrays, int, float, str, bool and None."
        )

    tree = encode(state, "state")
    (directory / _TREE).write_text(json.dumps(tree))
    safetensors.torch.save_file(tensors, directory / _TENSORS)
    safetensors.numpy.save_file(arrays, directory / _ARRAYS)


def read_tree(directory: Path) -> dict[str, Any]:
    """Inverse of `write_tree`; the tensors are on the CPU."""
    tensors = safetensors.torch.load_file(directory / _TENSORS)
    arrays = safetensors.numpy.load_file(directory / _ARRAYS)

    def decode(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        match kind:
            case "tensor":
                return tensors[str(content)]
            case "array":
                return arrays[str(content)]
            case "scalar":
                return arrays[str(content)][()]
            case "list":
                return [decode(item) for item in content]
            case "tuple":
                return tuple(decode(item) for item in content)
            case "dict":
                return {key: decode(item) for key, item in content}
        raise ValueError(f"{kind!r} is not a kind of node")

    return decode(json.loads((directory / _TREE).read_text()))
