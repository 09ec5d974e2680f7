"""The distilled network as it was trained, kept in the bundle to compare the exported one with.

Nothing is pickled, so a file from elsewhere cannot run code. Needs torch; the robot's side never reads it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from grasp_control.manifest import BundleError
from grasp_control.networks import DistilledPolicy, Normaliser, mlp

ORIGINAL_FILE = "original.safetensors"


def save_original(path: Path, network: DistilledPolicy) -> None:
    """Write the network's weights and its normaliser."""
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, path)


def load_original(path: Path) -> DistilledPolicy:
    """Inverse of `save_original`; BundleError where the file is damaged or holds another kind of network."""
    try:
        weights = load_file(path)
        mean, std = weights["normaliser.mean"], weights["normaliser.std"]
        layers = [name for name, value in weights.items() if name.startswith("network.") and value.ndim == 2]
        # A file sorts its names as texts, which is not the order of the layers.
        outputs = [weights[name].shape[0] for name in sorted(layers, key=lambda n: int(n.split(".")[1]))]
        generator = torch.Generator().manual_seed(0)  # whatever it draws is replaced
        network = mlp(mean.shape[0], outputs[-1], generator, hidden=outputs[:-1])
        policy = DistilledPolicy(Normaliser(mean, std), network)
        policy.load_state_dict(weights)
    except (SafetensorError, LookupError, RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"{path} cannot be read ({reason}): copy the bundle again.") from error
    return policy.eval()
