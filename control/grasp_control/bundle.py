"""The policy bundle (C3): a directory with `policy.onnx` and `manifest.json`, all that a robot needs.

Beside them lie the network as it was trained (`original.py`) and every episode of its proof (`proof.py`).

The network holds its own normalisation and bounds: raw windows in, actions in [-1, 1] and the same actions as
commands in physical units out. Only exporting, and checking against the original, need torch.

Shapes: B batch, O observation dimension, A = 6 action dimension, W = context * (O + A) flattened window (see
`memory.window`). Arrays are float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnxruntime

from grasp_control.durable import sha256_of, whole_directory
from grasp_control.manifest import BundleError, Expectation, Manifest, contract_faults
from grasp_control.memory.window import MIN_LENGTH, ShortTermMemory
from grasp_control.network_file import FOREIGN, open_network
from grasp_control.probes import command_difference_of, probes
from grasp_sim.contract import (
    ACTION_DIM,
    OBSERVATION_DIM,
    OBSERVATION_NAMES,
    ContractError,
)

if TYPE_CHECKING:
    import torch

NETWORK_FILE, MANIFEST_FILE = "policy.onnx", "manifest.json"
PARITY_TOLERANCE = 1e-5
"""Largest difference allowed between the exported network and the original, in action units."""


class Check(NamedTuple):
    """What `check_bundle` measured over its probes."""

    probes: int
    action_difference: float
    """Largest |exported - original| in action units; 0 when no original was given."""
    command_difference: float
    """Largest |command output - contract.decode(action)|, relative to each output's range."""


class BundlePolicy:
    """A loaded bundle acting for one robot: `reset`, then `act` and `observe` in turn."""

    def __init__(self, manifest: Manifest, session: onnxruntime.InferenceSession) -> None:
        """Use `load_bundle`, which checks that the two belong together."""
        self.manifest = manifest
        self._session = session
        self._memory = ShortTermMemory(
            OBSERVATION_DIM, ACTION_DIM, context=manifest.context, length=max(manifest.context, MIN_LENGTH)
        )

    def reset(self, observation: np.ndarray) -> None:
        """Begin an episode at `observation` (O,), from `contract.encode`; ContractError if non-finite."""
        self._memory.reset(_observation(observation))

    def observe(self, executed_action: np.ndarray, next_observation: np.ndarray) -> None:
        """Add one step: the action (A,) that was really sent, and the observation (O,) that followed.

        Raises ContractError, leaving the window as it was, on a wrong shape, a non-finite value, or an action
        outside [-1, 1], which cannot have been sent.
        """
        executed = np.asarray(executed_action, dtype=np.float32)
        if executed.shape != (ACTION_DIM,) or not (np.abs(executed) <= 1.0 + 1e-6).all():
            raise ContractError(
                f"the executed action {executed.tolist()} must be {ACTION_DIM} values in [-1, 1]."
            )
        self._memory.append(executed, _observation(next_observation))

    def act(self, observation: np.ndarray) -> np.ndarray:
        """The action (A,) in [-1, 1] at `observation` (O,), the one last given to `reset` or `observe`.

        Another observation raises ContractError: the window would then miss a step, and the policy would act
        on something it has never seen in training. Acting does not change the window.
        """
        newest = self._memory.last(1)[0, :OBSERVATION_DIM]
        if not np.array_equal(newest, _observation(observation)):
            raise ContractError(
                "act was given an observation that the window does not end with: "
                "call reset at the start of an episode and observe after every step."
            )
        return self.act_batch(self._memory.policy_input()[None])[0]

    def act_batch(self, windows: np.ndarray) -> np.ndarray:
        """Actions (B, A) in [-1, 1] for raw windows (B, W); BundleError if it gives others."""
        actions = self.run(windows)[0]
        if not np.isfinite(actions).all():
            raise BundleError(
                "the bundle's network gives actions that are not finite, so its training diverged: do not "
                "deploy it; train again with lower learning rates."
            )
        if not (np.abs(actions) <= 1.0).all():
            raise BundleError(
                f"the bundle's network gives an action of {np.abs(actions).max():.3g}, beyond [-1, 1]: "
                f"{FOREIGN}"
            )
        return actions

    def run(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both outputs for raw windows (B, W): actions (B, A), and commands (B, 6) in m, m, m, rad, m, N.

        Raises BundleError where the network breaks off, or gives arrays of other shapes or no float32.
        """
        windows = np.ascontiguousarray(windows, dtype=np.float32)
        if windows.ndim != 2 or windows.shape[1] != self.manifest.window_width:
            raise ContractError(
                f"windows have shape {windows.shape}; they must be (B, {self.manifest.window_width})."
            )
        try:
            action, command = map(np.asarray, self._session.run(["action", "command"], {"window": windows}))
        except Exception as error:  # onnxruntime's own exception classes have no public base
            raise BundleError(f"the bundle's network broke off ({error}): {FOREIGN}") from error
        for name, output in (("action", action), ("command", command)):
            if output.shape != (len(windows), ACTION_DIM) or output.dtype != np.float32:
                raise BundleError(
                    f"the bundle's network gives {name} as {output.dtype} {output.shape}, not as float32 "
                    f"{(len(windows), ACTION_DIM)}: {FOREIGN}"
                )
        return action, command


def export_bundle(
    path: Path | str,
    network: torch.nn.Module,
    *,
    manifest: Manifest,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Check:
    """Write the bundle directory `path`, whole or not at all, replacing a bundle that is there.

    A `DistilledPolicy` is kept as it was trained, too (`original.py`): the robot has no use for it, but
    `grasp-bundle check` compares the exported network with it.

    Args:
        path: the bundle's directory.
        network: (B, W) raw windows -> (B, A) actions in [-1, 1], float32; it is not changed.
        manifest: what the network was trained for; the digest is filled in here.
        notes: names and texts of further files for people.

    Returns:
        The parity check of the written file. Raises BundleError if that fails, if the manifest has a fault,
        or if `path` is something other than a bundle; nothing at `path` is touched then.
    """
    from grasp_control.bundle_export import write_onnx
    from grasp_control.networks import DistilledPolicy
    from grasp_control.original import ORIGINAL_FILE, save_original

    path = Path(path)
    require_bundle_or_nothing(path)
    manifest.check()
    with whole_directory(path) as partial:
        write_onnx(partial / NETWORK_FILE, network, manifest)
        manifest = replace(manifest, network_sha256=sha256_of(partial / NETWORK_FILE))
        (partial / MANIFEST_FILE).write_text(manifest.to_json())
        if isinstance(network, DistilledPolicy):
            save_original(partial / ORIGINAL_FILE, network)
        for name, text in notes.items():
            (partial / name).write_text(text)
        return _check(load_bundle(partial, expect=None), network, path)


def require_bundle_or_nothing(path: Path) -> None:
    """Raise BundleError if `path` is something other than a bundle, which an export must not replace."""
    if path.exists() and not (path / MANIFEST_FILE).is_file():
        raise BundleError(f"{path} exists and is not a policy bundle: choose another path.")


def load_bundle(path: Path | str, *, expect: Expectation | None) -> BundlePolicy:
    """Open a bundle for running on one thread.

    Args:
        path: the bundle's directory.
        expect: what the robot asks of it; the network is then run on a few windows, too. None checks only
            that the bundle is whole and follows the installed contract, for looking at a bundle.

    Raises:
        BundleError: one line for each fault: what was asked, what the bundle has, what to do.
    """
    path = Path(path)
    manifest = read_manifest(path)
    faults = contract_faults(manifest) + (expect.faults(manifest) if expect else [])
    if faults:
        raise BundleError("\n".join(f"{path}: {fault}" for fault in faults))
    # The very bytes that were hashed are run, whatever happens to the file meanwhile.
    content = (path / NETWORK_FILE).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != manifest.network_sha256:
        raise BundleError(
            f"{path / NETWORK_FILE} was changed after its export: SHA-256 {digest[:12]}..., the manifest has "
            f"{manifest.network_sha256[:12]}...: copy the bundle again."
        )
    policy = BundlePolicy(manifest, open_network(path / NETWORK_FILE, content, manifest))
    if expect is not None:
        _probe(policy, path)
    return policy


def read_manifest(path: Path) -> Manifest:
    """What the bundle in the directory `path` says of itself; BundleError where files are missing or damaged.

    Neither is it compared with the installed contract, nor the network with its digest.
    """
    for name in (NETWORK_FILE, MANIFEST_FILE):
        if not (path / name).is_file():
            inside = path / "bundle"
            if (inside / MANIFEST_FILE).is_file():
                raise BundleError(f"{path} is not a policy bundle, but {inside} is: give that directory.")
            held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else "no such directory"
            raise BundleError(
                f"{path / name} is missing (found: {held}): give the directory that grasp-distill wrote."
            )
    return Manifest.from_json((path / MANIFEST_FILE).read_text(errors="replace"), str(path / MANIFEST_FILE))


def _probe(policy: BundlePolicy, path: Path) -> None:
    """Raise BundleError unless the network gives actions in [-1, 1] and their commands, whatever it sees."""
    width = policy.manifest.window_width
    windows = probes(np.zeros(width), np.ones(width))[::10]
    try:
        policy.act_batch(windows[:1])  # as it is run, one window at a time
        actions = policy.act_batch(windows)
        difference = command_difference_of(actions, policy.run(windows)[1], policy.manifest.action_scale)
        if not difference <= PARITY_TOLERANCE:
            raise BundleError(
                f"the bundle's network gives commands that differ from the contract's by {difference:.2g} of "
                f"their range: {FOREIGN}"
            )
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error


def check_bundle(path: Path | str, network: torch.nn.Module | None = None) -> Check:
    """Run a bundle on 1,000 random and extreme windows; BundleError if it is not what it says.

    Without `network`: actions are finite and in [-1, 1], commands equal `contract.decode`, and a batch gives
    what single windows give. With the original `network` (needs torch), actions also agree within
    PARITY_TOLERANCE; the probes then follow the network's own statistics.
    """
    return _check(load_bundle(path, expect=None), network, Path(path))


def _check(policy: BundlePolicy, network: torch.nn.Module | None, path: Path) -> Check:
    width = policy.manifest.window_width
    mean, std = np.zeros(width), np.ones(width)
    if network is not None:
        from grasp_control.bundle_export import run_network, statistics

        mean, std = statistics(network, width)
        if len(mean) != width:
            raise BundleError(
                f"{path}: the bundle takes windows of {width} values, the original network of {len(mean)}: "
                "they do not belong together; name the run that the bundle was made of."
            )
    windows = probes(mean, std)
    actions, commands = policy.run(windows)
    if not (np.isfinite(actions).all() and (np.abs(actions) <= 1.0).all()):
        raise BundleError(
            f"{path}: actions are not all finite and in [-1, 1]: do not deploy it; export a network that "
            "clips its inputs (networks.Normaliser), trained without divergence."
        )
    faults = []
    singles = np.concatenate([policy.act_batch(window[None]) for window in windows[::20]])
    if not np.allclose(singles, actions[::20], rtol=0.0, atol=PARITY_TOLERANCE):
        faults.append("a batch and its single windows give different actions")
    command_difference = command_difference_of(actions, commands, policy.manifest.action_scale)
    if not command_difference <= PARITY_TOLERANCE:
        faults.append(f"commands differ from the contract's by {command_difference:.2g} of their range")
    original = actions if network is None else run_network(network, windows)
    action_difference = float(np.abs(actions - original).max())
    if not action_difference <= PARITY_TOLERANCE:
        faults.append(f"actions differ from the original network's by {action_difference:.2g}")
    if faults:
        raise BundleError("\n".join(f"{path}: {fault}: do not deploy it, export again." for fault in faults))
    return Check(len(windows), action_difference, command_difference)


def _observation(observation: np.ndarray) -> np.ndarray:
    observation = np.asarray(observation, dtype=np.float32)
    if observation.shape != (OBSERVATION_DIM,):
        raise ContractError(f"an observation has shape {observation.shape}; it must be ({OBSERVATION_DIM},).")
    if not np.isfinite(observation).all():
        bad = [name for name, v in zip(OBSERVATION_NAMES, observation, strict=True) if not np.isfinite(v)]
        raise ContractError(f"an observation is not finite in {bad}.")
    return observation
