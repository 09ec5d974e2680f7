"""Train a baseline and evaluate it on the way, on the same episodes and by the same measure as EMPO2.

Shapes: W policy input, A action dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from grasp_control.baselines import methods
from grasp_control.baselines.window import WindowEnv
from grasp_control.config import TrainConfig
from grasp_control.memory.seeding import trajectory_from_episode
from grasp_control.memory.window import ShortTermMemory
from grasp_control.networks import CLIP
from grasp_control.rollout import EpisodeResult, episode_seeds, evaluate
from grasp_demos.episode import Episode
from grasp_sim import registry
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM

LEAST_VARIANCE = 1e-4
"""Added to the running variance of the input: (1 cm)^2. An input that hardly changes, such as the size of
always the same object, must not become noise of deviation 1."""


def train_baseline(
    method: str,
    config: TrainConfig,
    demonstrations: Sequence[Episode],
    points: Collection[int],
    on_point: Callable[[int, list[EpisodeResult]], None],
    on_step: Callable[[int], None],
) -> None:
    """Train up to the last of `points`.

    Args:
        method: one of `methods.make`.
        config: of which the seed, the environment, the window and `evaluation_episodes` are used.
        demonstrations: for `sac-demos`; else empty.
        points: environment steps at which the policy is evaluated without noise.
        on_point: told the step and the evaluation's episodes.
        on_step: told the environment steps taken so far, after every step.
    """

    def fresh_window() -> ShortTermMemory:
        return ShortTermMemory(
            OBSERVATION_DIM, ACTION_DIM, context=config.context, length=config.short_term_length
        )

    train_env = WindowEnv(registry.make(**vars(config.env), seed=config.seed), fresh_window())
    test_env = registry.make(**vars(config.env), seed=config.seed)
    normalised = VecNormalize(
        DummyVecEnv([lambda: train_env]), norm_reward=False, clip_obs=CLIP, epsilon=LEAST_VARIANCE
    )
    model = methods.make(
        method,
        normalised,
        seed=config.seed,
        env_steps=max(points),
        demonstrations=[trajectory_from_episode(episode, config.context) for episode in demonstrations],
    )
    seeds = episode_seeds(config.seed, "evaluate", config.evaluation_episodes)

    def act(window: np.ndarray) -> tuple[np.ndarray, bool]:
        action, _ = model.predict(np.asarray(normalised.normalize_obs(window)), deterministic=True)
        return action, False

    def after_step(step: int) -> None:
        on_step(step)
        if step in points:
            on_point(step, evaluate(test_env, act, fresh_window(), seeds))

    try:
        model.learn(max(points), callback=_EachStep(after_step, max(points)))
    finally:
        normalised.close()
        test_env.close()


class _EachStep(BaseCallback):
    """Calls a function after every environment step, and ends the training after the last."""

    def __init__(self, after_step: Callable[[int], None], last: int) -> None:
        super().__init__()
        self._after_step, self._last = after_step, last

    def _on_step(self) -> bool:
        self._after_step(self.num_timesteps)
        return self.num_timesteps < self._last
