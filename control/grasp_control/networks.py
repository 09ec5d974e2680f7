"""The torch modules of actor, critics and distilled policy.

Every module takes a `torch.Generator` and initialises its parameters from it alone: torch's global random
state is neither read nor changed, so a seed fixes a network whatever ran before it.

Shapes: B batch, N actions per window, M ensemble members, W flattened policy input (see `memory.window`),
A action dimension, H hidden width. Everything is float32. Actions are in [-1, 1].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from grasp_control.manifest import OBSERVATION_UNITS
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, OBSERVATION_NAMES

STD_FLOOR = 1e-3
"""Smallest standard deviation used for normalising, in the input's own units. A column that was constant in
training (one object size, say) must not turn a millimetre at run time into a thousand deviations."""

CLIP = 10.0
"""Normalised inputs are clipped to +-CLIP, so one broken sensor value cannot saturate every unit."""

STD_MIN, STD_MAX = 0.02, 0.6
"""Bounds of the policy's standard deviation, in action units."""

INITIAL_STD = 0.3

_SCALES = {
    "tcp_height": (0.12, 0.08),
    "gripper_opening": (0.05, 0.03),
    "gripper_force": (10.0, 20.0),
    "object_dx": (0.0, 0.06),
    "object_dy": (0.0, 0.06),
    "object_dz": (-0.08, 0.08),
    "object_yaw_sin": (0.0, 0.7),
    "object_yaw_cos": (0.0, 0.7),
    "object_height": (0.03, 0.03),
    "object_size_x": (0.05, 0.02),
    "object_size_y": (0.05, 0.02),
    "object_size_z": (0.05, 0.02),
    "object_age": (0.0, 0.05),
}
"""Mean and deviation of each observation about a grasp, where there are no episodes to measure them on."""

_UNIT_FLOORS = {"m": 0.01, "N": 5.0, "1": 0.2, "s": 0.05}
OBSERVATION_FLOORS: tuple[float, ...] = tuple(_UNIT_FLOORS[unit] for unit in OBSERVATION_UNITS)
"""Smallest deviation of each observation that counts as information. The demonstrations' own can be far
smaller (one object size, a pose of age 0) and would blow up noise."""

HIDDEN = (256, 256)


class Normaliser(nn.Module):
    """Frozen statistics of the policy's input: (x - mean) / std, clipped to +-10."""

    mean: Tensor
    """(W,)."""
    std: Tensor
    """(W,), at least STD_FLOOR."""

    def __init__(self, mean: np.ndarray | Tensor, std: np.ndarray | Tensor) -> None:
        """Take mean and std, both (W,); raise ValueError if they are not finite, or differ in shape."""
        super().__init__()
        mean = torch.as_tensor(mean, dtype=torch.float32).clone()
        std = torch.as_tensor(std, dtype=torch.float32).clone()
        if mean.ndim != 1 or mean.shape != std.shape:
            raise ValueError(f"mean {tuple(mean.shape)} and std {tuple(std.shape)} must both be (W,).")
        if not (torch.isfinite(mean).all() and torch.isfinite(std).all()):
            raise ValueError("the normaliser's mean and std must be finite.")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std.clamp(min=STD_FLOOR))

    @classmethod
    def fit(cls, windows: np.ndarray) -> Normaliser:
        """Statistics of `windows` (rows, W), summed in float64 so that large means keep their digits."""
        rows = np.asarray(windows, dtype=np.float64)
        return cls(rows.mean(axis=0), rows.std(axis=0))

    def forward(self, windows: Tensor) -> Tensor:
        """(..., W) raw -> (..., W) normalised."""
        return ((windows - self.mean) / self.std).clamp(-CLIP, CLIP)


def fit_normaliser(observations: np.ndarray, action_dim: int, context: int) -> Normaliser:
    """Statistics of the policy's window from demonstrated observations.

    One mean and deviation per observation serves all `context` positions, so that the difference between two
    positions (a velocity) keeps its meaning. Actions, already in [-1, 1], stay as they are.

    Args:
        observations: (rows, O) raw.
        action_dim: A.
        context: C, pairs in a window.
    """
    rows = np.asarray(observations, dtype=np.float64)
    std = np.maximum(rows.std(axis=0), np.asarray(OBSERVATION_FLOORS))
    return _window_normaliser(rows.mean(axis=0), std, action_dim, context)


def usual_normaliser(action_dim: int, context: int) -> Normaliser:
    """As `fit_normaliser`, from what observations usually are, for a run that begins without any episode."""
    mean, std = np.array([_SCALES[name] for name in OBSERVATION_NAMES]).T
    return _window_normaliser(mean, std, action_dim, context)


def pooled_normaliser(normalisers: Sequence[Normaliser], context: int) -> Normaliser:
    """Statistics of windows of `context` pairs that come from all `normalisers` alike.

    A single one with the same context gives itself. Each must repeat one pair's statistics, as
    `fit_normaliser` and `usual_normaliser` do.
    """
    pair = OBSERVATION_DIM + ACTION_DIM
    means = np.stack([one.mean.numpy()[-pair:] for one in normalisers]).astype(np.float64)
    stds = np.stack([one.std.numpy()[-pair:] for one in normalisers]).astype(np.float64)
    mean = means.mean(axis=0)
    std = np.sqrt((stds**2 + (means - mean) ** 2).mean(axis=0))
    return Normaliser(np.tile(mean, context), np.tile(std, context))


def _window_normaliser(mean: np.ndarray, std: np.ndarray, action_dim: int, context: int) -> Normaliser:
    mean = np.concatenate([mean, np.zeros(action_dim)])
    std = np.concatenate([std, np.ones(action_dim)])
    return Normaliser(np.tile(mean, context), np.tile(std, context))


def linear(inputs: int, outputs: int, generator: torch.Generator, *, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights and zero bias, drawn from `generator`."""
    layer = _empty_linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def _empty_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    # nn.Linear's constructor draws from the global generator; skip_init leaves the memory uninitialised.
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    assert isinstance(layer, nn.Linear)
    return layer


def trunk(hidden: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """LayerNorm and ReLU after a first linear layer, then linear, LayerNorm, ReLU for each further width."""
    layers: list[nn.Module] = [nn.LayerNorm(hidden[0]), nn.ReLU()]
    for inputs, outputs in itertools.pairwise(hidden):
        layers += [linear(inputs, outputs, generator, gain=math.sqrt(2.0)), nn.LayerNorm(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def mlp(
    inputs: int,
    outputs: int,
    generator: torch.Generator,
    *,
    hidden: Sequence[int] = HIDDEN,
    output_gain: float = 1.0,
) -> nn.Sequential:
    """A multi-layer perceptron (B, inputs) -> (B, outputs), LayerNorm and ReLU after each hidden layer."""
    first = linear(inputs, hidden[0], generator, gain=math.sqrt(2.0))
    last = linear(hidden[-1], outputs, generator, gain=output_gain)
    return nn.Sequential(first, *trunk(hidden, generator), last)


class GaussianPolicy(nn.Module):
    """A diagonal Gaussian over actions whose mean and standard deviation depend on the window."""

    def __init__(
        self, windows: int, actions: int, generator: torch.Generator, hidden: Sequence[int] = HIDDEN
    ) -> None:
        """Take the widths W and A. Starts with mean near 0 and standard deviation INITIAL_STD everywhere."""
        super().__init__()
        self.net = mlp(windows, 2 * actions, generator, hidden=hidden, output_gain=0.01)
        fraction = (INITIAL_STD - STD_MIN) / (STD_MAX - STD_MIN)
        self.std_offset = math.log(fraction / (1.0 - fraction))

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """(B, W) normalised -> mean (B, A) in [-1, 1] and std (B, A) in [STD_MIN, STD_MAX]."""
        mean, spread = self.net(windows).float().chunk(2, dim=-1)
        std = STD_MIN + (STD_MAX - STD_MIN) * torch.sigmoid(spread + self.std_offset)
        return torch.tanh(mean), std


class PolicyEnsemble(nn.Module):
    """K Gaussian policies that differ by their initial weights and by the rows they are shown."""

    def __init__(
        self,
        windows: int,
        actions: int,
        members: int,
        generator: torch.Generator,
        hidden: Sequence[int] = HIDDEN,
    ) -> None:
        """Take the widths W and A and the number of members K."""
        super().__init__()
        self.members = nn.ModuleList(
            GaussianPolicy(windows, actions, generator, hidden) for _ in range(members)
        )

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """(B, W), or (K, B, W) with rows of its own for each member, -> mean and std (K, B, A)."""
        rows = windows.expand(len(self.members), -1, -1) if windows.ndim == 2 else windows
        pairs = [member(own) for member, own in zip(self.members, rows, strict=True)]
        return torch.stack([mean for mean, _ in pairs]), torch.stack([std for _, std in pairs])

    def sample_member(self, member: int, windows: Tensor, generator: torch.Generator) -> Tensor:
        """(1, B, A): one draw from a single member for windows (B, W), clipped; no gradient."""
        with torch.no_grad():
            mean, std = self.members[member](windows)
            noise = torch.randn(mean.shape, generator=generator, device=mean.device)
            return (mean + std * noise).clamp(-1.0, 1.0)[None]


@torch.no_grad()
def draw(mean: Tensor, std: Tensor, generator: torch.Generator, count: int) -> Tensor:
    """(count * K, B, A): `count` draws from each member of an ensemble's output (K, B, A), clipped."""
    noise = torch.randn((count, *mean.shape), generator=generator, device=mean.device)
    return (mean + std * noise).clamp(-1.0, 1.0).flatten(0, 1)


class _Critic(nn.Module):
    """One Q function whose first layer is split into a window part and an action part."""

    def __init__(self, windows: int, actions: int, generator: torch.Generator, hidden: Sequence[int]) -> None:
        super().__init__()
        # Drawn as one layer, so that the split has the same distribution as a layer over both.
        joint = linear(windows + actions, hidden[0], generator, gain=math.sqrt(2.0))
        self.window = _empty_linear(windows, hidden[0])
        self.action = _empty_linear(actions, hidden[0], bias=False)
        with torch.no_grad():
            self.window.weight.copy_(joint.weight[:, :windows])
            self.window.bias.copy_(joint.bias)
            self.action.weight.copy_(joint.weight[:, windows:])
        self.trunk = trunk(hidden, generator)
        self.value = linear(hidden[-1], 1, generator, gain=0.01)

    def forward(self, windows: Tensor, actions: Tensor) -> Tensor:
        # (B, H) + (N, B, H): the window product is computed once, whatever N is.
        first = self.window(windows) + self.action(actions)
        return self.value(self.trunk(first)).squeeze(-1).float()


class QEnsemble(nn.Module):
    """M independent Q functions. A loop over them is as fast as stacked weights on a CPU."""

    def __init__(
        self,
        windows: int,
        actions: int,
        members: int,
        generator: torch.Generator,
        hidden: Sequence[int] = HIDDEN,
    ) -> None:
        """Take the widths W and A and the number of members M."""
        super().__init__()
        self.members = nn.ModuleList(_Critic(windows, actions, generator, hidden) for _ in range(members))

    def forward(self, windows: Tensor, actions: Tensor) -> Tensor:
        """Windows (B, W) normalised, actions (B, A) -> (M, B); actions (N, B, A) -> (M, N, B)."""
        return torch.stack([member(windows, actions) for member in self.members])


class DistilledPolicy(nn.Module):
    """The one network that is deployed: raw windows in, actions out, nothing else needed at run time."""

    def __init__(self, normaliser: Normaliser, network: nn.Module) -> None:
        """Take the input's statistics and a network (B, W) normalised -> (B, A) before the squashing."""
        super().__init__()
        self.normaliser = normaliser
        self.network = network

    def forward(self, windows: Tensor) -> Tensor:
        """(B, W) raw -> (B, A) in [-1, 1]."""
        return torch.tanh(self.network(self.normaliser(windows)))


@torch.no_grad()
def track(target: Iterable[Tensor], online: Iterable[Tensor], rate: float) -> None:
    """Move target parameters towards the online ones in place: target += rate * (online - target)."""
    for kept, new in zip(target, online, strict=True):
        kept.lerp_(new, rate)
