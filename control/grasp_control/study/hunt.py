"""The grid world's loop: hunt, learn, remember, and measure now and then.

Policy, memory and measurement draw from streams of their own, so that arms with the same seed act alike until
the memory has something to say.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from grasp_control.build import generator, torch_generator
from grasp_control.rollout import episode_seeds
from grasp_control.study.agent import Agent, AgentConfig, Walk
from grasp_control.study.arms import Arm, Participation
from grasp_control.study.memory import EpisodicMemory
from grasp_sim.grid import GridEnv


class Hunt:
    """One run of one arm."""

    def __init__(self, env: GridEnv, arm: Arm, seed: int, config: AgentConfig, env_steps: int) -> None:
        self.env, self.config, self.seed = env, config, seed
        self.agent = Agent(config, torch_generator(seed, "agent"))
        memory = EpisodicMemory(config.capacity, config.discount, filtered=arm.filtered)
        self.memory = None if arm.gate == "off" else memory
        self.participation = Participation(arm, env.reward.name)
        self.env_steps = 0
        self._budget = env_steps
        self._latest: deque[Walk] = deque(maxlen=config.episodes)
        self._policy_rng = generator(seed, "policy")
        self._memory_rng = generator(seed, "memory")
        self._seeds = iter(episode_seeds(seed, "train", env_steps))  # no episode is shorter than a step

    @property
    def finished(self) -> bool:
        """All environment steps are used."""
        return self.env_steps >= self._budget

    def episode(self) -> Walk:
        """One episode of training."""
        walk = self.act(next(self._seeds), self._policy_rng, self._memory_rng, self._budget - self.env_steps)
        self.env_steps += len(walk.actions)
        self._latest.append(walk)
        self.participation.observe(walk.rewards)
        remembered = None
        if self.memory is not None:
            self.memory.write(walk.cells, walk.actions, walk.rewards, walk.last)
            if len(self.memory):
                remembered = self.memory.sample(self.config.imitated, self._memory_rng)
        self.agent.update(list(self._latest), remembered, self.participation.value)
        return walk

    def act(
        self,
        seed: int,
        policy_rng: np.random.Generator,
        memory_rng: np.random.Generator,
        most: float = math.inf,
    ) -> Walk:
        """One episode of at most `most` steps, from which nothing is learned yet."""
        observation, _ = self.env.reset(seed=seed)
        table = self.agent.probabilities()
        share = self.config.retrieved_share * self.participation.value
        cells, actions, probabilities, rewards = [], [], [], []
        retrieved, distances = [], []
        cell = int(observation.argmax())
        terminated = truncated = success = False
        while not (terminated or truncated) and len(actions) < most:
            # Drawn in every step, whether the memory or the policy chooses: the stream stays the same.
            action = int((policy_rng.random() < table[cell].cumsum()).argmax())
            found = self.memory.retrieve(cell) if self.memory is not None and share else None
            asked = found is not None and memory_rng.random() < share
            probability = table[cell, action]
            if found is not None:
                action = found.action if asked else action
                probability = (1.0 - share) * table[cell, action] + share * (action == found.action)
            cells.append(cell)
            actions.append(action)
            probabilities.append(probability)
            retrieved.append(asked)
            distances.append(found.distance if found is not None and asked else math.nan)
            _, reward, terminated, truncated, info = self.env.step(action)
            rewards.append(reward)
            cell, success = info["cell"], info["success"]
        return Walk(
            cells=np.array(cells),
            actions=np.array(actions),
            probabilities=np.array(probabilities),
            rewards=np.array(rewards),
            last=cell,
            terminated=terminated,
            success=success,
            retrieved=np.array(retrieved),
            distances=np.array(distances),
        )

    def measure(self, episodes: int) -> tuple[float, float]:
        """The share of `episodes` that find the treasure, as the arm acts, and the policy's entropy (nats).

        The same episodes and draws at every measurement; nothing is learned from them.
        """
        policy_rng, memory_rng = (generator(self.seed, f"evaluate {part}") for part in ("policy", "memory"))
        seeds = episode_seeds(self.seed, "evaluate", episodes)
        walks = [self.act(seed, policy_rng, memory_rng) for seed in seeds]
        table = self.agent.probabilities()
        policies = table[np.concatenate([walk.cells for walk in walks])]
        entropy = -(policies * np.log(np.maximum(policies, 1e-12))).sum(axis=1).mean()
        return float(np.mean([walk.success for walk in walks])), float(entropy)
