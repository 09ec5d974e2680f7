"""The network of a policy bundle, opened for running once it is known to hold only what an export holds.

onnxruntime cannot be interrupted while it runs, so a network that may never end is refused before it is run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError

from grasp_control.manifest import BundleError, Manifest
from grasp_sim.contract import ACTION_DIM

FOREIGN = "it was not made by grasp-distill: export the policy with that."
"""Ends what is said of a network that no export of this project gives."""

_DOMAINS = ("", "ai.onnx")


def open_network(path: Path, content: bytes, manifest: Manifest) -> onnxruntime.InferenceSession:
    """The network in the file `path`, whose bytes are `content`, for running on one thread.

    Raises BundleError where it is damaged, holds what no export writes, or takes and gives other arrays.
    """
    try:
        faults = _foreign_parts(content)
    except ValueError as error:
        raise BundleError(f"{path} cannot be loaded ({error}): export the bundle again.") from error
    if faults:
        raise BundleError(f"{path} holds {', '.join(faults)}: {FOREIGN}")
    options = onnxruntime.SessionOptions()
    # A second thread gains nothing on a network this small and disturbs the control loop.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # Errors are raised; onnxruntime would print each of them as well.
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exception classes have no public base
        raise BundleError(f"{path} cannot be loaded ({error}): export the bundle again.") from error
    found = {port.name: port.shape[1:] for port in [*session.get_inputs(), *session.get_outputs()]}
    wanted = {"window": [manifest.window_width], "action": [ACTION_DIM], "command": [ACTION_DIM]}
    if found != wanted:
        raise BundleError(
            f"{path} has inputs and outputs {found}, the manifest asks for {wanted}: export the bundle again."
        )
    return session


def _foreign_parts(content: bytes) -> list[str]:
    """What the ONNX file `content` holds that the export never writes; empty where there is none of it.

    That is nodes with a graph inside (Loop, If, Scan), operators of other domains than ONNX's own, functions,
    and arrays in other files, which the bundle's digest does not cover. Raises ValueError where `content` is
    no ONNX file.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise ValueError("it is no ONNX file") from error
    parts = [f"the function {function.name}" for function in model.functions]
    tensors = list(model.graph.initializer)
    if model.graph.sparse_initializer:
        parts.append("sparse arrays")
    for node in model.graph.node:
        if node.domain not in _DOMAINS:
            parts.append(f"the operator {node.domain}.{node.op_type}")
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            parts.append(f"the control flow {node.op_type}")
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
    if _outside(tensors):
        parts.append("arrays in other files")
    return sorted(set(parts))


def _outside(tensors: Iterable[onnx.TensorProto]) -> bool:
    return any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors)
