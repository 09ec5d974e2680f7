"""`grasp-demos import` and `grasp-demos export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from grasp_demos.convert import FORMATS, find_format, recognise
from grasp_demos.convert.format import ImportSettings
from grasp_demos.episode import DemoError
from grasp_demos.outputs import naming, require_outside
from grasp_demos.reader import demonstrations, read_dataset
from grasp_demos.validate import require_valid
from grasp_demos.writer import DatasetWriter
from grasp_sim.cli import require_choice, require_path, run_command
from grasp_sim.errors import UserError

_WRITTEN = [name for name, known in FORMATS.items() if known.write is not None]
_LISTING = "\n".join(f"  {name:16} {known.description}" for name, known in FORMATS.items())


@dataclass
class ImportConfig(ImportSettings):
    """Settings of `grasp-demos import`."""

    path: str = "???"
    """File or folder to read."""
    out: str = "runs/demos"
    """Folder of the new data set; it must not hold episodes yet."""
    format: str = ""
    """Format of the path; empty recognises it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_path("path", self.path)
        require_path("out", self.out)
        if self.format:
            require_choice("format", self.format, FORMATS)


@dataclass
class ExportConfig:
    """Settings of `grasp-demos export`."""

    path: str = "???"
    """A data set's folder, or one episode's file."""
    out: str = "???"
    """File or folder to write; it must not exist yet."""
    format: str = "???"
    """Format to write."""
    failures: bool = False
    """Also write episodes that failed or broke off, which no policy should imitate."""

    def __post_init__(self) -> None:
        require_path("path", self.path)
        require_path("out", self.out)
        require_choice("format", self.format, _WRITTEN)


IMPORT_HELP = f"""\
Read demonstrations of another program into a data set.

Examples:
  grasp-demos import path=lift.hdf5 out=runs/imported
  grasp-demos import path=lift.hdf5 out=runs/imported format=robomimic

Formats:
{_LISTING}
What was left out or had to be assumed is said, a line each. Nothing is written where something is refused.
"""

EXPORT_HELP = f"""\
Write demonstrations in the format of another program.

Examples:
  grasp-demos export path=runs/demos out=lift.hdf5 format=robomimic

Formats:
{_LISTING}
"""


def import_command(config: ImportConfig) -> int:
    """Import as configured and say what was imported."""
    path, out = Path(config.path), Path(config.out)
    if not path.exists():
        raise DemoError(f"{path} does not exist: check path=.")
    if not (path.is_file() or path.is_dir()):
        raise DemoError(f"{path} is neither a regular file nor a folder: check path=.")
    if path.is_dir():
        require_outside("out", out, path)
    if out.is_dir() and any(out.glob("episode_*")):
        raise DemoError(f"{out} holds episodes already: choose another out=.")
    known = find_format(config.format) if config.format else recognise(path)
    settings = ImportSettings(config.task, config.control_mode, config.kind, config.topics)
    console = Console(stderr=True)
    with console.status(f"reading {path}"):
        episodes, warnings = known.read(path, settings)
    for line in warnings:
        print(f"warning: {line}")
    if not episodes:
        raise DemoError(f"{path} holds no episode that can be imported.")
    require_valid(episodes)
    with DatasetWriter(out) as writer:
        for episode in track(episodes, "writing", console=console):
            writer.add(episode)
    good, steps = len(demonstrations(episodes)), sum(map(len, episodes))
    print(f"{out} holds {len(episodes)} episodes ({steps} steps) of {path}, {good} of them successful.")
    return 0


def export_command(config: ExportConfig) -> int:
    """Export as configured and say what was written."""
    out, known = Path(config.out), find_format(config.format)
    if os.path.lexists(out):
        raise DemoError(f"{out} exists already: choose another out= or delete it.")
    if known.write is None:
        raise UserError(f"the format {known.name} is only read; written are: {', '.join(_WRITTEN)}.")
    held = read_dataset(config.path)
    source = Path(config.path)
    require_outside("out", out, source if source.is_dir() else source.parent)
    episodes = held if config.failures else demonstrations(held)
    left = len(held) - len(episodes)
    if not episodes:
        raise DemoError(
            f"none of the {left} episodes of {config.path} is successful and complete: failures=true "
            "exports them all the same."
        )
    require_valid(episodes)
    out.parent.mkdir(parents=True, exist_ok=True)
    with Console(stderr=True).status(f"writing {out}"), naming(out):
        known.write(episodes, out)
    tail = f"; {left} that failed or broke off were left out (failures=true includes them)" if left else ""
    print(f"{out} holds {len(episodes)} episodes ({sum(map(len, episodes))} steps) as {known.name}{tail}.")
    return 0


def run_import(arguments: Sequence[str]) -> int:
    """`grasp-demos import`."""
    return run_command(
        ImportConfig, import_command, IMPORT_HELP, argv=arguments, program="grasp-demos import"
    )


def run_export(arguments: Sequence[str]) -> int:
    """`grasp-demos export`."""
    return run_command(
        ExportConfig, export_command, EXPORT_HELP, argv=arguments, program="grasp-demos export"
    )
