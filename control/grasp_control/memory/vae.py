"""A variational autoencoder of windows as encoder of the trajectory feature z (E4).

The window is standardised as for the projection. An encoder network gives the mean and log variance of D
latent variables, a mirrored decoder gives the window back, and both are trained together on (Kingma & Welling
2014, with the weight of Higgins et al. 2017)

    loss = |x - decode(mean + std * noise)|^2 + beta * KL(N(mean, std^2) || N(0, 1)),

summed over the W values and the D variables, mean over the batch. Then z = scale * (mean - centre), where
`centre` is the mean over the fitted windows and the one number `scale` gives z the mean square length D over
them: components of about unit size, which the score's novelty asks for. One scale for all of them keeps the
ratios of latent distances; a scale for each would blow up the noise of variables that the divergence has
switched off. The networks are linear far from their training range (ReLU, no normalisation), so that a window
far from all others gets a long z, by which outliers are found.

Shapes: B batch, W window width, D embedding dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from grasp_control.memory.encoder import check_sizes, standardised, statistics_of
from grasp_control.networks import HIDDEN, linear

BATCH = 256
LEARNING_RATE = 1e-3
_LOG_VARIANCE = 10.0
"""The log variance is clipped to +-10: before the first update that of a far window would overflow."""


class _Autoencoder(nn.Module):
    def __init__(self, window_width: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = _layers(window_width, 2 * dim, generator)
        self.decoder = _layers(dim, window_width, generator)

    def losses(self, windows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Squared error and divergence of standardised windows (B, W), each a mean over the batch."""
        mean, log_variance = self.encoder(windows).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-_LOG_VARIANCE, _LOG_VARIANCE)
        noise = torch.randn(mean.shape, generator=generator)
        error = self.decoder(mean + (0.5 * log_variance).exp() * noise) - windows
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance)
        return error.square().sum(dim=-1).mean(), divergence.sum(dim=-1).mean()


def _layers(inputs: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    first, second = HIDDEN
    gain = math.sqrt(2.0)
    return nn.Sequential(
        linear(inputs, first, generator, gain=gain),
        nn.ReLU(),
        linear(first, second, generator, gain=gain),
        nn.ReLU(),
        linear(second, outputs, generator, gain=1.0),
    )


class VaeEncoder:
    """z = the latent mean of a variational autoencoder, centred and scaled. Immutable once made."""

    def __init__(
        self,
        network: _Autoencoder,
        statistics: Mapping[str, np.ndarray],
        *,
        seed: int,
        beta: float,
        updates: int,
        version: int = 0,
    ) -> None:
        """Use `create` for a new encoder; this takes the parts of an existing one.

        Args:
            network: not changed any more from here on.
            statistics: `mean` and `std` (W,) of the windows, `centre` (D,) and `scale` (1,) of their latents.
            seed: with the version it fixes what every refit draws.
            beta: weight of the divergence.
            updates: minibatches of `BATCH` windows at every refit.
            version: counts refits.
        """
        self.version = version
        self._network = network.requires_grad_(False)
        self._statistics = {name: np.asarray(values, np.float32) for name, values in statistics.items()}
        self._seed, self._beta, self._updates = seed, beta, updates

    @classmethod
    def create(
        cls, window_width: int, dim: int, rng: np.random.Generator, *, beta: float, updates: int
    ) -> VaeEncoder:
        """A version 0 encoder: random weights, no standardisation yet."""
        check_sizes(window_width, dim)
        seed = int(rng.integers(2**62))
        statistics = {
            "mean": np.zeros(window_width),
            "std": np.ones(window_width),
            "centre": np.zeros(dim),
            "scale": np.ones(1),
        }
        network = _Autoencoder(window_width, dim, _generator(seed, 0))
        return cls(network, statistics, seed=seed, beta=beta, updates=updates)

    @property
    def dim(self) -> int:
        """D."""
        return len(self._statistics["centre"])

    @property
    def window_width(self) -> int:
        """W."""
        return len(self._statistics["mean"])

    def encode(self, windows: np.ndarray) -> tuple[np.ndarray, int]:
        """Embed (B, W) windows. Returns z (B, D) float32 and the version that made it."""
        held = self._statistics
        latent = _latent_means(self._network, standardised(windows, held["mean"], held["std"]))
        return (latent - held["centre"]) * held["scale"], self.version

    def refit(self, windows: np.ndarray) -> VaeEncoder:
        """A new version, trained on `windows` (B, W) from these weights on for a fixed number of updates.

        The same encoder and windows always give the same result. Raises ValueError for fewer than 2 windows.
        """
        mean, std = (values.astype(np.float32) for values in statistics_of(windows))
        inputs = standardised(windows, mean, std)
        rows = torch.from_numpy(inputs)
        generator = _generator(self._seed, self.version + 1)
        network = _Autoencoder(self.window_width, self.dim, generator)
        network.load_state_dict(self._network.state_dict())
        optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
        for _ in range(self._updates):
            drawn = torch.randint(len(rows), (BATCH,), generator=generator)
            error, divergence = network.losses(rows[drawn], generator)
            optimizer.zero_grad(set_to_none=True)
            (error + self._beta * divergence).backward()
            optimizer.step()
        latent = _latent_means(network, inputs)
        spread = float(latent.var(axis=0, dtype=np.float64).sum())
        statistics = {
            "mean": mean,
            "std": std,
            "centre": latent.mean(axis=0, dtype=np.float64),
            "scale": np.array([math.sqrt(self.dim / spread) if spread > 0.0 else 1.0]),
        }
        return self._with(network, statistics, self._seed, self.version + 1)

    def state(self) -> dict[str, np.ndarray]:
        """As `Encoder.state`."""
        weights = {name: values.numpy() for name, values in self._network.state_dict().items()}
        return {**weights, **self._statistics, "seed": np.array([self._seed])}

    def restored(self, state: Mapping[str, np.ndarray], version: int) -> VaeEncoder:
        """As `Encoder.restored`."""
        network = _Autoencoder(self.window_width, self.dim, _generator(0, 0))
        network.load_state_dict({name: torch.from_numpy(state[name]) for name in network.state_dict()})
        statistics = {name: state[name] for name in self._statistics}
        return self._with(network, statistics, int(state["seed"][0]), version)

    def _with(
        self, network: _Autoencoder, statistics: Mapping[str, np.ndarray], seed: int, version: int
    ) -> VaeEncoder:
        return VaeEncoder(
            network, statistics, seed=seed, beta=self._beta, updates=self._updates, version=version
        )


@torch.no_grad()
def _latent_means(network: _Autoencoder, inputs: np.ndarray) -> np.ndarray:
    """(B, D) of standardised windows (B, W)."""
    # An embedding must not depend on the precision of the learner that asks for neighbours.
    with torch.autocast("cpu", enabled=False):
        return network.encoder(torch.from_numpy(inputs)).chunk(2, dim=-1)[0].numpy()


def _generator(seed: int, version: int) -> torch.Generator:
    state = np.random.SeedSequence([seed, version]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))
