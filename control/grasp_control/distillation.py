"""Distillation of the hybrid policy into one network that needs no memory (E11).

On-policy distillation (DAgger, Ross et al. 2011): the student acts, the teacher says what it would have done,
the student is fitted to everything labelled so far. The first data are the memory's successful episodes.

Shapes: B batch, W policy input, A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


class Distilled(NamedTuple):
    """A distilled policy and how it did on the way."""

    student: DistilledPolicy
    episodes: list[EpisodeResult]
    """The episodes that the student ran to collect windows."""


def distill(
    config: DistillConfig,
    teacher: Label,
    normaliser: Normaliser,
    windows: np.ndarray,
    *,
    env: gymnasium.Env,
    short_term: ShortTermMemory,
    seed: int,
    rng: np.random.Generator,
    torch_generator: torch.Generator,
    on_update: Callable[[], object],
) -> Distilled:
    """Fit a student to the teacher's actions on `windows` and on windows that the student itself reaches.

    Args:
        config: sizes, and how many environment steps the student may act for.
        teacher: the hybrid policy.
        normaliser: the teacher's, shared by the student.
        windows: (rows, W) of successful episodes.
        env: where the student acts; no noise, and nothing is learned by reinforcement.
        short_term: the student's window.
        seed: of the student's episodes.
        rng: draws batches.
        torch_generator: initialises the student.
        on_update: called after every update.
    """
    actions = teacher(windows)
    student = make_student(normaliser, actions.shape[1], torch_generator)
    optimizer = torch.optim.AdamW(student.network.parameters(), config.learning_rate, weight_decay=1e-4)
    starts = iter(episode_seeds(seed, "distill", config.env_steps + 1))
    episodes: list[EpisodeResult] = []
    used = 0
    for update in range(config.updates):
        # Rounds of collecting are spread over the first half of the updates; the rest fits all of it.
        due = min(2 * update / config.updates, 1.0) * config.env_steps
        while used < due:
            done = rollout(
                env,
                lambda window: (student_actions(student, window[None])[0], False),
                short_term,
                seed=next(starts),
                max_steps=config.env_steps - used,
            )
            used += done.result.length
            episodes.append(done.result)
            if not done.faulty:
                visited = done.trajectory.windows[:-1]
                windows = np.concatenate([windows, visited])
                actions = np.concatenate([actions, teacher(visited)])
        rows = rng.integers(len(windows), size=config.batch_size)
        predicted = student(torch.from_numpy(windows[rows]))
        loss = (predicted - torch.from_numpy(actions[rows])).square().sum(dim=1).mean()
        for group in optimizer.param_groups:
            group["lr"] = cosine(config.learning_rate, 0.0, update / config.updates)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        on_update()
    return Distilled(student, episodes)
