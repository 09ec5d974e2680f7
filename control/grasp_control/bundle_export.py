"""The part of a policy bundle's export that needs torch; see `bundle.export_bundle`.

Shapes: B batch, W flattened window, A action dimension.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from grasp_control.manifest import Manifest
from grasp_control.networks import Normaliser
from grasp_control.probes import commands_of
from grasp_sim.contract import ACTION_DIM, ACTION_NAMES, OPENING_GAIN, ActionScale

_OPSET = 17  # the first with LayerNormalization as one node


class _Deployed(nn.Module):
    """A network with bounds, and with its actions in physical units as a second output."""

    steepness: Tensor
    offset: Tensor
    gain: Tensor

    def __init__(self, network: nn.Module, scale: ActionScale) -> None:
        super().__init__()
        self.network = _for_running(network)
        # decode is affine once the opening has saturated: two of its values then give it exactly, and it
        # stays the owner of every scale.
        self.register_buffer("steepness", torch.ones(ACTION_DIM))
        self.steepness[ACTION_NAMES.index("opening")] = OPENING_GAIN
        middle, upper = commands_of(np.stack([np.zeros(ACTION_DIM), np.ones(ACTION_DIM)]), scale)
        self.register_buffer("offset", torch.tensor(middle, dtype=torch.float32))
        self.register_buffer("gain", torch.tensor(upper - middle, dtype=torch.float32))

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        action = self.network(windows).clamp(-1.0, 1.0)
        return action, self.offset + self.gain * (action * self.steepness).clamp(-1.0, 1.0)


def write_onnx(path: Path, network: nn.Module, manifest: Manifest) -> None:
    """Write `network`, (B, W) raw windows -> (B, A) actions, as ONNX with outputs action and command."""
    with warnings.catch_warnings():
        # Its successor needs a further package. This one needs none, and each export is checked for parity.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            _Deployed(network, manifest.action_scale),
            (torch.zeros(2, manifest.window_width),),
            str(path),
            dynamo=False,
            opset_version=_OPSET,
            input_names=["window"],
            output_names=["action", "command"],
            dynamic_axes={name: {0: "batch"} for name in ("window", "action", "command")},
        )
    model = onnx.load(path)
    notes = {
        "observation_names": ",".join(manifest.observation_names),
        "action_names": ",".join(manifest.action_names),
        "command_units": ",".join(manifest.command_units),
        "contract_version": str(manifest.contract_version),
    }
    onnx.helper.set_model_props(model, notes)
    onnx.save(model, path)


def run_network(network: nn.Module, windows: np.ndarray) -> np.ndarray:
    """Actions (B, A) of the original network for raw windows (B, W)."""
    with torch.no_grad():
        return _for_running(network)(torch.from_numpy(windows)).numpy()


def statistics(network: nn.Module, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (W,) of the network's own inputs; 0 and 1 if it does not normalise."""
    for module in network.modules():
        if isinstance(module, Normaliser):
            return module.mean.cpu().numpy(), module.std.cpu().numpy()
    return np.zeros(width), np.ones(width)


def _for_running(network: nn.Module) -> nn.Module:
    return copy.deepcopy(network).cpu().eval()
