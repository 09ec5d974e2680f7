"""Distillation of hybrid policies into one network that needs no memory (E11).

On-policy distillation (DAgger, Ross et al. 2011): the student acts in each teacher's environment, that
teacher says what it would have done, the student is fitted to everything labelled so far. The first data are
successful episodes of the teachers' memories.

Shapes: B batch, W policy input of the student, A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from grasp_control.config import DistillConfig
from grasp_control.empo2.schedules import cosine
from grasp_control.memory.window import ShortTermMemory
from grasp_control.networks import DistilledPolicy, Normaliser, mlp, pooled_normaliser
from grasp_control.rollout import EpisodeResult, episode_seeds, rollout
from grasp_sim.contract import ACTION_DIM, ACTION_NAMES, OBSERVATION_DIM, OBSERVATION_NAMES

Label = Callable[[np.ndarray], np.ndarray]
"""Raw windows (B, W of its own) -> actions (B, A)."""

_SIZES = [OBSERVATION_NAMES.index(f"object_size_{axis}") for axis in "xyz"]
_HEIGHTS = [OBSERVATION_NAMES.index(name) for name in ("tcp_height", "object_height")]

FORCE = ACTION_NAMES.index("force_limit")


@dataclass
class Teacher:
    """A policy that says what it would have done, and where the student practises what it says."""

    label: Label
    """The hybrid policy; its windows are the newest pairs of the student's."""
    normaliser: Normaliser
    """Of its own windows; the student's is made of all teachers'."""
    windows: np.ndarray
    """(rows, W) of successful episodes, as wide as the student's."""
    env: gymnasium.Env
    """Its task in its simulator, in the student's control mode."""
    seed: int
    """Fixes the student's episodes there."""
    episodes: list[EpisodeResult] = field(default_factory=list)
    """Those that the student ran there to collect windows."""


class Distilled(NamedTuple):
    """A distilled policy and how it did on the way."""

    student: DistilledPolicy
    episodes: list[EpisodeResult]
    """The episodes that the student ran to collect windows, teacher by teacher."""


def make_student(normaliser: Normaliser, action_dim: int, generator: torch.Generator) -> DistilledPolicy:
    """An untrained student: raw windows (B, W) -> actions (B, A)."""
    network = mlp(normaliser.mean.shape[0], action_dim, generator, output_gain=0.01)
    return DistilledPolicy(normaliser, network)


def student_actions(student: DistilledPolicy, windows: np.ndarray) -> np.ndarray:
    """Raw windows (B, W) -> actions (B, A)."""
    with torch.no_grad():
        return student(torch.from_numpy(windows)).numpy()


def newest_pairs(windows: np.ndarray, width: int) -> np.ndarray:
    """The part (B, `width`) of windows (B, W) that a policy with a shorter window sees."""
    return np.ascontiguousarray(windows[:, windows.shape[1] - width :])


def imitation_loss(predicted: Tensor, wanted: Tensor, force_expectile: float) -> Tensor:
    """Squared error of actions (B, A), summed over A, mean over B; of the grip force asymmetric.

    Where the same window is labelled with several forces, the fit is their mean at an expectile of 0.5 and
    tends to the gentlest towards 0 (Newey and Powell 1987). Too little force counts as it does at 0.5, so the
    few windows in which an object slips still teach.
    """
    error = predicted - wanted
    weight = torch.ones_like(error)
    weight[:, FORCE] = torch.where(error[:, FORCE] > 0.0, 1.0 / force_expectile - 1.0, 1.0)
    return (weight * error.square()).sum(dim=1).mean()


def blurred(windows: np.ndarray, size_noise: float, rng: np.random.Generator) -> np.ndarray:
    """Windows (B, W) of objects and tables that are a little larger, smaller, higher or lower.

    All pairs of a window alike: each of the object's sizes, and all heights in the base frame together, are
    off by a standard deviation of `size_noise` m. Labels stay, so the student cannot know an object by its
    measures, and with it the task.
    """
    if not size_noise:
        return windows
    pairs = windows.reshape(len(windows), -1, OBSERVATION_DIM + ACTION_DIM).copy()
    pairs[:, :, _SIZES] += rng.normal(0.0, size_noise, (len(pairs), 1, len(_SIZES)))
    pairs[:, :, _HEIGHTS] += rng.normal(0.0, size_noise, (len(pairs), 1, 1))
    return pairs.reshape(windows.shape)


def distill(
    config: DistillConfig,
    teachers: Sequence[Teacher],
    *,
    context: int,
    rng: np.random.Generator,
    torch_generator: torch.Generator,
    on_update: Callable[[], object],
) -> Distilled:
    """Fit a student to the teachers' actions on their windows and on windows that the student itself reaches.

    Args:
        config: sizes for each teacher, and how many environment steps the student may act for in each
            teacher's environment; no noise, and nothing is learned by reinforcement.
        teachers: one or more.
        context: C, pairs in the student's window; no teacher's is longer.
        rng: draws batches.
        torch_generator: initialises the student.
        on_update: called after every update.
    """
    student = make_student(
        pooled_normaliser([teacher.normaliser for teacher in teachers], context), ACTION_DIM, torch_generator
    )
    optimizer = torch.optim.AdamW(student.network.parameters(), config.learning_rate, weight_decay=1e-4)
    windows = np.concatenate([teacher.windows for teacher in teachers])
    actions = np.concatenate([_labelled(teacher, teacher.windows) for teacher in teachers])
    practices = [_practice(config, teacher, student, context) for teacher in teachers]
    updates = config.updates * len(teachers)
    for update in range(updates):
        # Rounds of collecting are spread over the first half of the updates; the rest fits all of it.
        due = min(2 * update / updates, 1.0) * config.env_steps
        for teacher, practice in zip(teachers, practices, strict=True):
            while sum(episode.length for episode in teacher.episodes) < due:
                visited = next(practice)
                windows = np.concatenate([windows, visited])
                actions = np.concatenate([actions, _labelled(teacher, visited)])
        rows = rng.integers(len(windows), size=config.batch_size)
        seen = blurred(windows[rows], config.size_noise, rng)
        predicted = student(torch.from_numpy(seen))
        loss = imitation_loss(predicted, torch.from_numpy(actions[rows]), config.force_expectile)
        for group in optimizer.param_groups:
            group["lr"] = cosine(config.learning_rate, 0.0, update / updates)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        on_update()
    return Distilled(student, [episode for teacher in teachers for episode in teacher.episodes])


def _labelled(teacher: Teacher, windows: np.ndarray) -> np.ndarray:
    """The teacher's actions (B, A) for windows (B, W) of the student."""
    return teacher.label(newest_pairs(windows, teacher.normaliser.mean.shape[0]))


def _practice(
    config: DistillConfig, teacher: Teacher, student: DistilledPolicy, context: int
) -> Iterator[np.ndarray]:
    """Episodes of the student in the teacher's environment: the windows (T, W) it acted on, none where the
    simulator broke down."""
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=context)
    used = 0
    for start in episode_seeds(teacher.seed, "distill", config.env_steps + 1):
        done = rollout(
            teacher.env,
            lambda window: (student_actions(student, window[None])[0], False),
            short_term,
            seed=start,
            max_steps=config.env_steps - used,
        )
        used += done.result.length
        teacher.episodes.append(done.result)
        yield done.trajectory.windows[: 0 if done.faulty else -1]
