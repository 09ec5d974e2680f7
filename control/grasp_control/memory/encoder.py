"""The trajectory feature z (E4), and its plain encoder: the policy's window, standardised and projected.

An encoder is immutable and has a version. `refit` makes a new one, so whoever still holds the old one keeps
reading vectors that agree with each other. The components of z are of about unit size over the windows it was
fitted to: the score's novelty and the search for outliers rely on it.

Shapes: B batch, W window width, D embedding dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

MIN_DIM, MAX_DIM = 64, 128

_CLIP = 10.0
_LEAST_STD = 1e-6


class Encoder(Protocol):
    """What the memory asks of an encoder."""

    version: int
    """Counts refits."""

    @property
    def dim(self) -> int:
        """D."""
        ...

    @property
    def window_width(self) -> int:
        """W."""
        ...

    def encode(self, windows: np.ndarray) -> tuple[np.ndarray, int]:
        """Embed (B, W) windows. Returns z (B, D) float32 and the version that made it."""
        ...

    def refit(self, windows: np.ndarray) -> Encoder:
        """A new version fitted to `windows` (B, W); ValueError if there are fewer than 2."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restored` makes an encoder that gives the same answers."""
        ...

    def restored(self, state: Mapping[str, np.ndarray], version: int) -> Encoder:
        """The encoder of this kind and these settings whose `state` and version were saved."""
        ...


def check_sizes(window_width: int, dim: int) -> None:
    """Raise ValueError unless D is in its range and W is at least 1."""
    if not MIN_DIM <= dim <= MAX_DIM:
        raise ValueError(f"embedding dimension {dim} is outside {MIN_DIM}-{MAX_DIM}.")
    if window_width < 1:
        raise ValueError(f"window width must be at least 1, got {window_width}.")


def standardised(windows: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(B, W) float32: windows in standard deviations (W,) from the mean (W,), clipped to +-10.

    A feature that hardly moved when the encoder was fitted must not drown all others when it moves.
    """
    values = (windows - mean) / std
    np.clip(values, -_CLIP, _CLIP, out=values)
    return values.astype(np.float32, copy=False)


def statistics_of(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (W,) of `windows` (B, W), B >= 2; where a feature is constant it is 1."""
    if len(windows) < 2:
        raise ValueError(f"an encoder is fitted to at least 2 windows, got {len(windows)}.")
    std = windows.std(axis=0, dtype=np.float64)
    return windows.mean(axis=0, dtype=np.float64), np.where(std < _LEAST_STD, 1.0, std)


class WindowEncoder:
    """z = standardised window times a fixed orthogonal matrix.

    With W <= D Euclidean distances between standardised windows are kept exactly; with W > D they are kept in
    expectation (the projection is scaled by sqrt(W / D)).
    """

    def __init__(
        self,
        projection: np.ndarray,
        mean: np.ndarray | None = None,
        std: np.ndarray | None = None,
        version: int = 0,
    ) -> None:
        """Use `create` for a new encoder; this takes the arrays of an existing one.

        Args:
            projection: (W, D).
            mean: (W,), subtracted; zeros before the first fit.
            std: (W,), divided by; ones before the first fit.
            version: counts refits.
        """
        self.projection = projection.astype(np.float32)
        width = len(projection)
        self.mean = np.zeros(width, np.float32) if mean is None else mean.astype(np.float32)
        self.std = np.ones(width, np.float32) if std is None else std.astype(np.float32)
        self.version = version

    @classmethod
    def create(cls, window_width: int, dim: int, rng: np.random.Generator) -> WindowEncoder:
        """A version 0 encoder: a random orthogonal projection, no standardisation yet."""
        check_sizes(window_width, dim)
        size = max(window_width, dim)
        orthogonal, triangular = np.linalg.qr(rng.standard_normal((size, size)))
        # The signs make the distribution uniform over rotations; QR alone is not.
        orthogonal *= np.sign(np.diag(triangular))
        return cls(orthogonal[:window_width, :dim] * np.sqrt(size / dim))

    @property
    def dim(self) -> int:
        """D."""
        return self.projection.shape[1]

    @property
    def window_width(self) -> int:
        """W."""
        return self.projection.shape[0]

    def encode(self, windows: np.ndarray) -> tuple[np.ndarray, int]:
        """Embed (B, W) windows. Returns z (B, D) float32 and the version that made it."""
        return standardised(windows, self.mean, self.std) @ self.projection, self.version

    def refit(self, windows: np.ndarray) -> WindowEncoder:
        """A new version standardised by the mean and standard deviation of `windows` (B, W)."""
        return WindowEncoder(self.projection, *statistics_of(windows), self.version + 1)

    def state(self) -> dict[str, np.ndarray]:
        """As `Encoder.state`."""
        return {"projection": self.projection, "mean": self.mean, "std": self.std}

    def restored(self, state: Mapping[str, np.ndarray], version: int) -> WindowEncoder:
        """As `Encoder.restored`."""
        return WindowEncoder(state["projection"], state["mean"], state["std"], version)
