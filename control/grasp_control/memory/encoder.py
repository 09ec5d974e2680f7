"""The trajectory feature z (E4): the policy's window, standardised and projected.

An encoder is immutable and has a version. `refit` makes a new one, so whoever still holds the old one keeps
reading vectors that agree with each other. Any object with `dim`, `version`, `encode` and `refit` can take
its place.

Shapes: B batch, W window width, D embedding dimension.
"""

from __future__ import annotations

import numpy as np

MIN_DIM, MAX_DIM = 64, 128

_CLIP = 10.0
_LEAST_STD = 1e-6


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
        if not MIN_DIM <= dim <= MAX_DIM:
            raise ValueError(f"embedding dimension {dim} is outside {MIN_DIM}-{MAX_DIM}.")
        if window_width < 1:
            raise ValueError(f"window width must be at least 1, got {window_width}.")
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
        standardised = (windows - self.mean) / self.std
        # A feature that hardly moved when the encoder was fitted must not drown all others when it moves.
        np.clip(standardised, -_CLIP, _CLIP, out=standardised)
        return standardised.astype(np.float32, copy=False) @ self.projection, self.version

    def refit(self, windows: np.ndarray) -> WindowEncoder:
        """A new version standardised by the mean and standard deviation of `windows` (B, W)."""
        if len(windows) < 2:
            raise ValueError(f"an encoder is fitted to at least 2 windows, got {len(windows)}.")
        std = windows.std(axis=0, dtype=np.float64)
        return WindowEncoder(
            self.projection,
            windows.mean(axis=0, dtype=np.float64),
            np.where(std < _LEAST_STD, 1.0, std),
            self.version + 1,
        )
