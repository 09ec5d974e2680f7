"""A run's folder: what is in it, and whether a command may begin, resume or must refuse there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from grasp_control.config import TrainConfig
from grasp_sim.errors import UserError

CONFIG_FILE, PARTIAL_FILE, LOCK_FILE = "config.yaml", "config.partial", ".lock"
WALL_FILE = "wall_s"
"""Seconds of wall time over all calls, as a number."""
# These may change between the start of a run and its end without changing what is learned.
_FREE = {"video", "metrics_every", "curve_every", "curve_episodes"}


class RunFolder:
    """Paths of a run, and the check that it may begin or resume there. Nothing is written before `begin`."""

    def __init__(self, config: TrainConfig) -> None:
        """Raise UserError where the folder belongs to a run with other settings, naming each difference."""
        self._name_paths(config)
        stored = self.path / CONFIG_FILE
        if stored.exists():
            check_same(_plain(config), OmegaConf.to_container(_read(stored)), self.path)
        elif self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: choose a folder with out=...")
        elif self.path.exists() and any(p.name not in (PARTIAL_FILE, LOCK_FILE) for p in self.path.iterdir()):
            raise UserError(
                f"{self.path} is not empty and holds no {CONFIG_FILE}, so it is not a run: "
                "choose another folder with out=..."
            )
        self._config = config

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Make the folder, store the settings and hold the folder until the end of the `with` block.

        Raises UserError when another process is training there.
        """
        with held(self.path):
            stored = self.path / CONFIG_FILE
            if not stored.exists():
                partial = self.path / PARTIAL_FILE
                with partial.open("w") as file:
                    file.write(OmegaConf.to_yaml(OmegaConf.structured(self._config)))
                    file.flush()
                    os.fsync(file.fileno())
                partial.rename(stored)
            yield

    @classmethod
    def existing(cls, config: TrainConfig) -> RunFolder:
        """The paths of a run whose settings were loaded from it, and perhaps changed for reading only."""
        folder = cls.__new__(cls)
        folder._config = config
        folder._name_paths(config)
        return folder

    def _name_paths(self, config: TrainConfig) -> None:
        default = f"runs/{config.env.name}-{config.env.control_mode}-seed{config.seed}"
        self.path = Path(config.out or default)
        self.demos = self.path / "demos"
        self.checkpoints = self.path / "checkpoints"
        self.bundle = self.path / "bundle"
        self.video = self.path / "grasps.mp4"
        self.wall_s = self.path / WALL_FILE
        self.report = self.path / "report" / "REPORT.md"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make the folder and hold it until the end of the `with` block; UserError where another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released by the system if we are killed
        except OSError:
            raise UserError(
                f"{folder} is in use by another training: wait for it, or choose another folder."
            ) from None
        yield


def load_config(run: Path) -> TrainConfig:
    """The settings a run was started with; UserError when `run` is no run's folder."""
    stored = run / CONFIG_FILE
    if not stored.is_file():
        raise UserError(f"{run} holds no {CONFIG_FILE}: give the folder of a run made by grasp-train.")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(TrainConfig), _read(stored))
        config = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{stored} does not fit this version ({reason}): use the version that made it, or train anew."
        ) from error
    assert isinstance(config, TrainConfig)
    return config


def check_same(asked: Mapping[str, Any], stored: Any, folder: Path) -> None:
    """Raise UserError naming each setting in which a resumed run would differ from the one begun."""
    before = _flat(stored)
    now = _flat(asked)
    different = [
        f"{key} {before.get(key)!r} -> {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if key not in _FREE and key != "out" and before.get(key) != now.get(key)
    ]
    if different:
        raise UserError(
            f"{folder} holds a run with other settings ({'; '.join(different)}): "
            "resume it with the same ones, or choose another folder with out=..."
        )


def _read(stored: Path) -> DictConfig:
    """The settings as they were stored; UserError where the file is damaged. Empty ones would be defaults."""
    try:
        settings = OmegaConf.load(stored)
    except (OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{stored} is damaged ({reason}): restore it, or train anew elsewhere.") from error
    if not isinstance(settings, DictConfig) or not settings:
        raise UserError(f"{stored} is damaged (it holds no settings): restore it, or train anew elsewhere.")
    return settings


def _plain(config: TrainConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(OmegaConf.structured(config))
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
