"""A policy bundle that acts while a person may take over, for `grasp-record source=policy`.

Found by the recorder through the entry point `policy` of the group `grasp_demos.pilots`, since demonstrations
know nothing of learning.
"""

from __future__ import annotations

from grasp_control.bundle import BundlePolicy, load_bundle
from grasp_control.manifest import Expectation
from grasp_sim.contract import ActionScale


def load(path: str, control_mode: str, action_scale: ActionScale) -> tuple[BundlePolicy, str]:
    """The bundle's policy, and its name for the episodes: path and the network's digest.

    Raises BundleError where it is not whole, or does not fit the environment.
    """
    policy = load_bundle(path, expect=Expectation(control_mode=control_mode, action_scale=action_scale))
    return policy, f"{path} sha256:{policy.manifest.network_sha256[:16]}"
