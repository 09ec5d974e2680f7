"""Distillation of the hybrid policy into one network that needs no memory (E11).

On-policy distillation (DAgger, Ross et al. 2011): the student acts, the teacher says what it would have done,
the student is fitted to everything labelled so far. The first data are the memory's successful episodes.

Shapes: B batch, W policy input, A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import torch

from grasp_control.config import DistillConfig
from grasp_control.empo2.schedules import cosine
from grasp_control.memory.window import ShortTermMemory
from grasp_control.networks import DistilledPolicy, Normaliser, mlp
from grasp_control.rollout import EpisodeResult, episode_seeds, rollout

Label = Callable[[np.ndarray], np.ndarray]
"""The teacher: raw windows (B, W) -> actions (B, A)."""


def make_student(normaliser: Normaliser, action_dim: int, generator: torch.Generator) -> DistilledPolicy:
    """An untrained student: raw windows (B, W) -> actions (B, A)."""
    network = mlp(normaliser.mean.shape[0], action_dim, generator, output_gain=0.01)
    return DistilledPolicy(normaliser, network)


def student_actions(student: DistilledPolicy, windows: np.ndarray) -> np.ndarray:
    """Raw windows (B, W) -> actions (B, A)."""
    with torch.no_grad():
        return student(torch.from_numpy(windows)).numpy()


class Distiller:
    """Fits a student to a teacher's labels on windows that the student itself reaches."""

    def __init__(
        self,
        config: DistillConfig,
        student: DistilledPolicy,
        label: Label,
        windows: np.ndarray,
        *,
        rng: np.random.Generator,
    ) -> None:
        """Take the student, the teacher's labels and the first windows (B, W) to fit."""
        self.config, self.student, self.label, self.rng = config, student, label, rng
        self.windows = windows
        self.actions = label(windows)
        self.optimizer = torch.optim.AdamW(
            student.network.parameters(), config.learning_rate, weight_decay=1e-4
        )
        self.updates = 0

    def fit(self, updates: int, on_update: Callable[[float], None] | None = None) -> None:
        """Gradient steps on the mean squared difference to the teacher, uniformly over all labelled windows."""
        for _ in range(updates):
            rows = self.rng.integers(len(self.windows), size=self.config.batch_size)
            predicted = self.student(torch.from_numpy(self.windows[rows]))
            loss = (predicted - torch.from_numpy(self.actions[rows])).square().sum(dim=1).mean()
            rate = cosine(self.config.learning_rate, 0.0, self.updates / self.config.updates)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.updates += 1
            if on_update is not None:
                on_update(float(loss.detach()))

    def collect(
        self,
        env: gymnasium.Env,
        short_term: ShortTermMemory,
        *,
        seed: int,
        steps: int,
        on_step: Callable[[], None] | None = None,
    ) -> list[EpisodeResult]:
        """Let the student act for `steps` environment steps and add the windows with the teacher's labels."""
        results, used = [], 0
        for episode_seed in episode_seeds(seed, f"distill-{len(self.windows)}", steps):
            if used >= steps:
                break
            done = rollout(
                env,
                lambda window: (student_actions(self.student, window[None])[0], False),
                short_term,
                seed=episode_seed,
                max_steps=steps - used,
                on_step=on_step,
            )
            used += done.result.length
            results.append(done.result)
            if not done.faulty:
                visited = done.trajectory.windows[:-1]
                self.windows = np.concatenate([self.windows, visited])
                self.actions = np.concatenate([self.actions, self.label(visited)])
        return results
