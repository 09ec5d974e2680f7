"""`grasp-bundle <what> ...`: look into policy bundles, and check them before they move an arm."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grasp_control.bundle import MANIFEST_FILE, PARITY_TOLERANCE, check_bundle, load_bundle, read_manifest
from grasp_control.manifest import BundleError, Expectation, Manifest, contract_faults
from grasp_demos.words import printable, run_on_paths
from grasp_sim import registry
from grasp_sim.cli import run_named, say
from grasp_sim.env import ACTION_SCALES
from grasp_sim.errors import UserError

COMMANDS = {
    "check": (
        "grasp_control.bundle_command:run_check",
        "whether a bundle fits the robot and is what it says",
    ),
    "show": ("grasp_control.bundle_command:run_show", "what a bundle says of itself; its network is not run"),
}
"""Names, each with a function `(arguments) -> exit code`, imported when it is asked for, and what it does."""

_ASKED = Expectation()

CHECK_HELP = """\
Check a policy bundle before it is deployed; a line for each fault.

The manifest must be whole and of this schema, name the observations, actions, units and contract of the
installed version, and fit the robot that is asked for: robot, gripper, control mode, rate, what an action
of 1 means, and the servo's limits. The network must be the one that was exported (SHA-256), hold only what
an export writes, and on 1,000 random and extreme inputs give finite actions in [-1, 1], the commands of the
contract in physical units, and, within 1e-5, what the network gave that was trained. That one lies in the
bundle as it is exported; for a copy without it, name where it comes from with run=.

The exit code is 0 when the bundle fits, 1 when something is wrong with it, 2 when something is wrong with the
request. Nothing is changed.

Examples:
  grasp-bundle check runs/robosuite-lift-servo-seed0/bundle
  grasp-bundle check robot/bundle run=runs/robosuite-lift-servo-seed0
  grasp-bundle check runs/osc/bundle control_mode=osc
"""

SHOW_HELP = """\
Show what a policy bundle says of itself: what it was made for, from which runs, with what success.

Example: grasp-bundle show runs/robosuite-lift-servo-seed0/bundle
"""


@dataclass
class CheckConfig:
    """Settings of `grasp-bundle check`."""

    run: str = ""
    """The run, or another copy of the bundle, that holds the network as it was trained."""
    robot: str = _ASKED.robot
    """The arm that is to be moved."""
    gripper: str = _ASKED.gripper
    """Its gripper."""
    control_mode: str = _ASKED.control_mode
    """What the robot's side makes of actions; a real arm has 'servo'."""
    rate_hz: float = _ASKED.rate_hz
    """Policy steps per second."""

    def __post_init__(self) -> None:
        if self.control_mode not in registry.CONTROL_MODES:
            modes = ", ".join(registry.CONTROL_MODES)
            raise ValueError(f"control_mode={self.control_mode} is not known. Choices: {modes}.")


@dataclass
class ShowConfig:
    """Settings of `grasp-bundle show`: none."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; the entry point of `grasp-bundle`."""
    return run_named(
        "grasp-bundle",
        "command",
        COMMANDS,
        list(sys.argv[1:] if arguments is None else arguments),
        usage="<what> BUNDLE ... [key=value ...]",
        closing="grasp-bundle <what> --help explains one. grasp-train and grasp-distill make bundles.",
    )


def run_check(arguments: Sequence[str]) -> int:
    """Check the bundles among `arguments`; returns the exit code."""
    return run_on_paths(CheckConfig, check, CHECK_HELP, arguments, "grasp-bundle check", **_WORDS)


def run_show(arguments: Sequence[str]) -> int:
    """Show the bundles among `arguments`; returns the exit code."""
    return run_on_paths(ShowConfig, show, SHOW_HELP, arguments, "grasp-bundle show", **_WORDS)


_WORDS = {"kind": "bundle's folder", "example": "runs/robosuite-lift-servo-seed0/bundle"}


def check(paths: list[str], config: CheckConfig) -> int:
    """Print a table and a line for each fault of the bundles; 1 where there is one."""
    expect = Expectation(
        robot=config.robot,
        gripper=config.gripper,
        control_mode=config.control_mode,
        rate_hz=config.rate_hz,
        action_scale=ACTION_SCALES[config.control_mode],
    )
    originals = [_original(Path(path), config.run) for path in paths]  # a wrong run= before the work
    faulty = 0
    for path, original in zip(map(Path, paths), originals, strict=True):
        try:
            manifest = read_manifest(path)
        except BundleError as error:
            faulty += _report(path, str(error).splitlines())
            continue
        misfits = contract_faults(manifest) + expect.faults(manifest)
        measured, broken = _run_network(path, manifest, original)
        _print_table(path, manifest, {_subject(line) for line in misfits}, measured)
        faulty += _report(path, [*misfits, *broken])
    return int(faulty > 0)


def show(paths: list[str], _: ShowConfig) -> int:
    """Print what the manifests say; 1 where one cannot be read."""
    faulty = 0
    for path in map(Path, paths):
        try:
            _print_table(path, read_manifest(path), None, {})
        except BundleError as error:
            faulty += _report(path, str(error).splitlines())
    return int(faulty > 0)


def _original(bundle: Path, run: str) -> Path | None:
    """The network as it was trained; None where it does not lie in the bundle and no run is named."""
    name = "original.safetensors"  # `original.ORIGINAL_FILE`, whose module needs torch
    if not run:
        return bundle / name if (bundle / name).is_file() and find_spec("torch") else None
    found = [place for place in (Path(run) / "bundle" / name, Path(run) / name) if place.is_file()]
    if not found:
        raise UserError(
            f"run={run} holds no bundle/{name} and no {name}: name the folder of a run made by grasp-train, "
            "or a bundle as it was exported."
        )
    if not find_spec("torch"):
        raise UserError("comparing with the network that was trained needs torch, which is not installed.")
    return found[0]


def _run_network(
    path: Path, manifest: Manifest, original: Path | None
) -> tuple[dict[str, tuple[str, bool | None]], list[str]]:
    """What running the network showed, for the table: texts and verdicts by subject; and the faults."""
    digest = f"SHA-256 {manifest.network_sha256[:16]}..."
    if contract_faults(manifest):
        return {"network": (f"{digest}, not run, as it follows another contract", None)}, []
    try:
        load_bundle(path, expect=None)
    except BundleError as error:
        return {"network": (digest, False)}, str(error).splitlines()
    measured: dict[str, tuple[str, bool | None]] = {"network": (f"{digest}, unchanged", True)}
    network = None
    if original is None:
        measured["as trained"] = ("not compared: name the run with run=", None)
    try:
        if original is not None:
            from grasp_control.original import load_original

            network = load_original(original)
        done = check_bundle(path, network)
    except BundleError as error:
        measured["as trained" if original else "outputs"] = ("see below", False)
        return measured, str(error).splitlines()
    measured["outputs"] = (f"finite, in [-1, 1] and the contract's on {done.probes:,} inputs", True)
    if original is not None:
        difference = f"{done.action_difference:.1e} at most on {done.probes:,} inputs"
        measured["as trained"] = (f"differs by {difference} (allowed {PARITY_TOLERANCE:g})", True)
    return measured, []


def _print_table(
    path: Path, manifest: Manifest, wrong: set[str] | None, measured: dict[str, tuple[str, bool | None]]
) -> None:
    """The manifest, with a verdict for each subject unless `wrong`, the subjects of faults, is None."""
    table = Table(title=escape(f"Policy bundle {path}"), title_justify="left")
    for heading in ("what", "in the bundle", *(["fits"] if wrong is not None else [])):
        table.add_column(heading, overflow="fold")
    for name, (subjects, text) in _described(manifest).items():
        verdict = [] if wrong is None else ["no" if wrong & subjects else "yes" if subjects else ""]
        table.add_row(name, escape(printable(text)), *verdict)
    for name, (text, good) in measured.items():
        table.add_row(name, escape(printable(text)), {True: "yes", False: "no", None: ""}[good])
    console = Console()
    (console if console.is_terminal else Console(width=130)).print(table)


def _described(manifest: Manifest) -> dict[str, tuple[set[str], str]]:
    """By name: the manifest's fields of which something is asked, and what stands there in words."""
    scale, limits, success = manifest.action_scale, manifest.limits, manifest.success
    lines: dict[str, tuple[set[str], str]] = {
        "robot": ({"robot"}, manifest.robot),
        "gripper": ({"gripper"}, manifest.gripper),
        "control mode": ({"control_mode"}, manifest.control_mode),
        "rate": ({"rate_hz"}, f"{manifest.rate_hz:g} Hz"),
        "contract": ({"contract"}, f"version {manifest.contract_version}"),
        "observation": (
            {"observation_names", "observation_units"},
            ", ".join(map(_with_unit, manifest.observation_names, manifest.observation_units)),
        ),
        "action": (
            {"action_names", "command_units"},
            ", ".join(map(_with_unit, manifest.action_names, manifest.command_units)),
        ),
        "action of 1": (
            {"action_scale"},
            f"{scale.position * 1e3:g} mm and {scale.yaw:g} rad a step, {scale.opening * 1e3:g} mm open, "
            f"{scale.force_min:g} to {scale.force_max:g} N",
        ),
        "limits": (
            {"limits"},
            f"joints {min(limits.joint_velocity):.3g} rad/s, the servo {limits.position_lead * 1e3:g} mm and "
            f"{limits.yaw_lead:g} rad ahead of the tool",
        ),
        "window": (set(), f"{manifest.context} steps, {manifest.window_width} values"),
        "success": (
            set(),
            ", ".join(f"{name} {value:g}" for name, value in success.items()) or "not measured",
        ),
    }
    for number, run in enumerate(manifest.training, start=1):
        figures = ", ".join(f"{name} {value:g}" for name, value in run.success.items()) or "not measured"
        lines[f"teacher {number}"] = (
            set(),
            f"{run.run_id}: {run.task} ({run.control_mode}), seed {run.seed}, {run.env_steps:,} steps, "
            f"{run.demonstrations} demonstrations; {figures}",
        )
    return lines


def _with_unit(name: str, unit: str) -> str:
    return name if unit == "1" else f"{name} [{unit}]"


def _subject(fault: str) -> str:
    """The field that a line of `Expectation.faults` or `contract_faults` begins with."""
    return (re.match(r"[a-z_]+", fault) or [""])[0]


def _report(path: Path, faults: Sequence[str]) -> int:
    """Print a line for each fault, the path in front; how many there are."""
    for fault in faults:
        text = fault.removeprefix(f"{path}: ").removeprefix(f"{path / MANIFEST_FILE}: ")
        say(f"grasp-bundle: {path}: {printable(text)}")
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
