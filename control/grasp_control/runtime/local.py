"""Training in one process: sample an episode, store it, learn as many updates as it owes.

Sampling, memory and learning meet only here and only at episode boundaries, so a checkpoint never holds half
an episode and a resumed run continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from grasp_control.empo2.agent import Agent, Stats
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import EpisodeResult, Rollout, episode_seeds, rollout


class LocalTrainer:
    """The training loop of one environment and one learner."""

    def __init__(
        self,
        env: gymnasium.Env,
        agent: Agent,
        memory: LongTermMemory,
        short_term: ShortTermMemory,
        *,
        seed: int,
        rng: np.random.Generator,
        total_steps: int,
    ) -> None:
        """Take the parts of a run.

        Args:
            env: an environment of `grasp_sim.registry`.
            agent: acts and learns.
            memory: seeded with demonstrations.
            short_term: the policy's window.
            seed: the run's seed, from which the episodes' seeds follow.
            rng: draws exploration noise and batches.
            total_steps: environment steps after which `finished` is true.
        """
        self.env, self.agent, self.memory, self.short_term = env, agent, memory, short_term
        self.rng = rng
        self.total_steps = total_steps
        self.env_steps = 0
        self.episodes = 0
        self.faulty_episodes = 0
        # No episode is shorter than one step, so there are never more than total_steps of them.
        self._seeds = episode_seeds(seed, "train", total_steps)

    @property
    def finished(self) -> bool:
        """All environment steps are used."""
        return self.env_steps >= self.total_steps

    @property
    def updates_owed(self) -> int:
        """Learner updates that the steps taken so far call for and that have not been done."""
        config = self.agent.config
        due = max(self.env_steps - config.warmup_steps, 0) * config.updates_per_step
        return int(due) - self.agent.updates

    def sample_episode(self, on_step: Callable[[], None] | None = None) -> EpisodeResult:
        """Act for one episode with exploration and store it in memory."""
        done = self.run_episode(on_step)
        self.env_steps += done.result.length
        self.episodes += 1
        if done.faulty:
            self.faulty_episodes += 1
        else:
            self.memory.add(done.trajectory)
        return done.result

    def run_episode(self, on_step: Callable[[], None] | None = None) -> Rollout:
        """One exploring episode, cut where the steps run out."""

        def act(window: np.ndarray) -> tuple[np.ndarray, bool]:
            decision = self.agent.act(window[None], self.memory, explore=True)
            return decision.actions[0], bool(decision.gated[0])

        return rollout(
            self.env,
            act,
            self.short_term,
            seed=self._seeds[self.episodes],
            max_steps=self.total_steps - self.env_steps,
            noise=self.agent.config.exploration_noise,
            rng=self.rng,
            on_step=on_step,
        )

    def learn(self) -> Stats:
        """One learner update."""
        config = self.agent.config
        batch = self.memory.sample(config.batch_size, self.rng)
        successes = self.memory.sample_successes(config.imitation_batch, self.rng)
        return self.agent.update(batch, successes, self.memory)

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state; agent and memory are saved beside it."""
        return {
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "faulty_episodes": self.faulty_episodes,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.env_steps = int(state["env_steps"])
        self.episodes = int(state["episodes"])
        self.faulty_episodes = int(state["faulty_episodes"])
        self.rng.bit_generator.state = state["rng"]
