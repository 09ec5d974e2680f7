"""Training in one process: sample an episode, store it, learn as many updates as it owes.

Sampling, memory and learning meet only here and only at episode boundaries, so a checkpoint never holds half
an episode and a resumed run continues exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from grasp_control.checkpoint import Checkpoint, CheckpointError, CheckpointStore, capture, restore
from grasp_control.empo2.agent import Agent, Decision, Stats
from grasp_control.empo2.curriculum import Curriculum
from grasp_control.empo2.exploration import coloured_noise
from grasp_control.empo2.gate import MemoryGate
from grasp_control.empo2.safeguards import Action, Event, Safeguards
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.outliers import outlier_ids
from grasp_control.memory.window import ShortTermMemory
from grasp_control.rollout import EpisodeResult, Rollout, episode_seeds, rollout
from grasp_control.symmetry import turned
from grasp_control.types import MemoryBatch, Source
from grasp_sim.contract import ACTION_NAMES
from grasp_sim.errors import UserError
from grasp_sim.tasks import Difficulty

MEMORY_FILE = "memory.safetensors"
FORCE = ACTION_NAMES.index("force_limit")
OUTLIERS_EVERY = 10
"""Episodes between looks for outliers in the memory, which take 30 ms at 500k rows."""


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
        self.fresh_starts = 0
        self.repeated = False
        self.quiet = False
        self.failed_starts: list[int] = []
        self.safeguards = Safeguards(agent.config.safeguards)
        self.curriculum = Curriculum(agent.config.curriculum)
        self.gate = MemoryGate(agent.config.gate)
        config = agent.config
        self._noise_scale = np.full(memory.action_dim, config.exploration_noise, np.float32)
        self._noise_scale[FORCE] = config.force_noise
        self._asked: Event | None = None
        self._values = 0.0
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

    def sample_episode(self) -> EpisodeResult:
        """Act for one episode with exploration and store it in memory."""
        start = self._choose_start()
        with self._as_hard_as_the_curriculum_says():
            done = self.run_episode(start)
        self.env_steps += done.result.length
        self.episodes += 1
        if done.result.success:
            self.failed_starts = [s for s in self.failed_starts if s != start]
        elif start not in self.failed_starts:
            self.failed_starts.append(start)
        if done.faulty:
            self.faulty_episodes += 1
        elif self.memory.add(done.trajectory) >= 0:
            self.gate.observe(done.trajectory.rewards)
            self._apply_gate()
        if self._encoder_is_due(self.env_steps - done.result.length):
            self.memory.refresh_encoder()
        if not (self.repeated or done.faulty):  # repeated starts are hard ones: they are no measure
            self._asked = self.safeguards.observe(done.result.total_reward, self.env_steps)
            judged = self.quiet or not self.agent.config.quiet_share
            if judged and self.curriculum.observe(done.result.success):
                self._asked = None  # returns of another difficulty are no measure either
                self.safeguards.restart()
            self.agent.lambda_factor = self.safeguards.lambda_factor
        return done.result

    def _encoder_is_due(self, before: int) -> bool:
        """The encoder is to be fitted after an episode that began `before` this many environment steps: the
        first time without demonstrations at the end of the warm-up, then as the memory's settings say."""
        every, now = self.memory.config.refresh_every, self.env_steps
        if not self.memory.encoder.version:
            return now >= self.agent.config.warmup_steps
        return bool(every) and now // every > before // every

    def _apply_gate(self) -> None:
        self.agent.participation, self.agent.very_sparse = self.gate.participation, self.gate.very_sparse

    @contextmanager
    def _as_hard_as_the_curriculum_says(self) -> Iterator[None]:
        """Outside of it, where policies are measured, the environment is the whole task."""
        if not self.curriculum.config.enabled:
            yield
            return
        env: Any = self.env.unwrapped
        env.difficulty = self.curriculum.difficulty
        try:
            yield
        finally:
            env.difficulty = Difficulty()

    def protect(self, checkpoints: CheckpointStore) -> list[dict[str, int | str]]:
        """Do what the safeguards ask after an episode (E13); rows of events.csv, one for each action."""
        done = []
        if self.episodes % OUTLIERS_EVERY == 0:
            far = outlier_ids(self.memory.store, self.agent.config.safeguards.outlier_ratio)
            share = len(far) / max(len(self.memory), 1)
            if share > self.agent.config.safeguards.outlier_share:
                self.memory.purge(far)
                done.append((Action.PURGE, f"{share:.1%} of the rows in memory are outliers"))
        events = [self._asked, self.safeguards.observe_values(self._values, self.env_steps)]
        self._asked, self._values = None, 0.0
        for event in filter(None, events):
            cause = event.cause
            if event.action is Action.ROLL_BACK:
                try:
                    found = checkpoints.load_before(event.before_step, event.number)
                    restore(self.agent.learned(), self._learned_in(found))
                    cause += f"; networks and optimisers are those of step {found.step}"
                except CheckpointError as error:
                    cause += f"; nothing was changed, since {error}"
            done.append((event.action, cause))
        return [{"env_step": self.env_steps, "action": a.value, "cause": cause} for a, cause in done]

    def _learned_in(self, checkpoint: Checkpoint) -> dict[str, Any]:
        return {name: checkpoint.state["parts"][name] for name in self.agent.learned()}

    def _choose_start(self) -> int:
        """A start that failed when last tried, or a fresh one."""
        hard = self.rng.random() < self.agent.config.hard_start_share
        self.repeated = hard and bool(self.failed_starts)
        if self.repeated:
            return self.failed_starts[int(self.rng.integers(len(self.failed_starts)))]
        self.fresh_starts += 1
        return self._seeds[self.fresh_starts - 1]

    def run_episode(self, start: int) -> Rollout:
        """One exploring episode from the seed `start`, cut where the steps run out."""
        config = self.agent.config
        steps = min(config.training_horizon, self.total_steps - self.env_steps)
        member = int(self.rng.integers(config.actors))
        noise = coloured_noise(steps, self.memory.action_dim, config.noise_exponent, self.rng)
        self.quiet = bool(config.quiet_share) and self.rng.random() < config.quiet_share

        def act(window: np.ndarray) -> tuple[np.ndarray, bool]:
            decision = self._act(window[None], member)
            return decision.actions[0], bool(decision.gated[0])

        return rollout(
            self.env,
            act,
            self.short_term,
            seed=start,
            max_steps=steps,
            noise=None if self.quiet else noise * self._noise_scale,
        )

    def label(self, windows: np.ndarray) -> np.ndarray:
        """The hybrid policy's actions (B, A) for raw windows (B, W): actors, retrieval and critics."""
        return self._act(windows, None).actions

    def hybrid(self, window: np.ndarray) -> tuple[np.ndarray, bool]:
        """The hybrid policy for one window (W,), as a rollout asks."""
        decision = self._act(window[None], None)
        return decision.actions[0], bool(decision.gated[0])

    def _act(self, windows: np.ndarray, member: int | None) -> Decision:
        decision = self.agent.act(windows, self.memory, member=member)
        if not np.isfinite(decision.actions).all():
            raise self._diverged("the policy's actions are not finite")
        return decision

    def _diverged(self, what: str) -> UserError:
        return UserError(
            f"training diverged at environment step {self.env_steps}: {what}. Start another run with a lower "
            f"algo.learning_rate than {self.agent.config.learning_rate}."
        )

    def learn(self) -> Stats:
        """One learner update."""
        config = self.agent.config
        batch = self.memory.sample(config.batch_size, self.rng)
        successes = self.imitation_batch(config.imitation_batch) if self.memory.success_rows else None
        fresh = self.memory.sample_fresh(int(config.fresh_share * config.improvement_batch), self.rng)
        stats = self.agent.update(batch, successes, fresh, self.memory)
        wrong = [name for name, value in stats.items() if not math.isfinite(value)]
        if wrong:
            raise self._diverged(f"{', '.join(wrong)} of update {self.agent.updates} are not finite")
        self._values = max(stats["q_mean"], stats["q_exploratory"], key=abs)
        return stats

    def clone(self) -> float:
        """One update of behaviour cloning on the memory's successful episodes; returns the loss."""
        return self.agent.clone(self.imitation_batch(self.agent.config.cloning_batch))

    def imitation_batch(self, rows: int) -> MemoryBatch:
        """Rows of successful episodes, uniform, turned about the vertical axis."""
        successes = self.memory.sample_successes(rows, self.rng)
        return turned(successes, self.agent.config.symmetry_angle, self.rng)

    def episode_row(self, result: EpisodeResult) -> dict[str, float]:
        """A row of episodes.csv, after `sample_episode`."""
        return {
            "env_step": self.env_steps,
            "episode": self.episodes,
            "success": int(result.success),
            "return": result.total_reward,
            "length": result.length,
            "slip": int(result.slips > 0),
            "drop": int(result.drops > 0),
            "broken": int(result.broken),
            "gated_share": result.gated_steps / result.length,
            "repeated_start": int(self.repeated),
            "quiet": int(self.quiet),
        }

    def metrics_row(self, stats: Stats) -> dict[str, float]:
        """A row of train.csv: the last update's statistics and what the memory holds."""
        held = self.memory.composition()
        shares = {f"share_{s.name.lower()}": held[f"{s.name.lower()}_share"] for s in Source}
        return {
            "env_step": self.env_steps,
            "update": self.agent.updates,
            **stats,
            "memory_size": held["size"],
            **shares,
            "hit_rate": self.memory.hit_rate(),
            "slips_total": held["slip_rows"],
            "retrieval_fallbacks": self.memory.counters.fallbacks,
            "faulty_episodes": self.faulty_episodes,
            "failed_starts": len(self.failed_starts),
            "difficulty": self.curriculum.share,
            "force_limit": self.agent.networks.risk.force_limit,
            "reward_density": self.gate.density,
            "reward_delay": self.gate.delay,
            "reward_noise": self.gate.noise,
        }

    def histogram_rows(self) -> list[dict[str, float]]:
        """Rows of score_histogram.csv."""
        counts, edges = self.memory.score_histogram()
        return [
            {"env_step": self.env_steps, "bin_low": float(low), "bin_high": float(high), "count": int(count)}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]

    def save(self, checkpoints: CheckpointStore) -> None:
        """Write a checkpoint of agent, memory, counters and random state."""
        state = {
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "faulty_episodes": self.faulty_episodes,
            "fresh_starts": self.fresh_starts,
            "failed_starts": self.failed_starts,
            "updates": self.agent.updates,
            "safeguards": self.safeguards.state(),
            "curriculum": self.curriculum.state(),
            "gate": self.gate.state(),
            "parts": capture({**self.agent.parts(), "rng": self.rng}),
        }
        checkpoints.save(
            self.env_steps,
            state,
            lambda folder: self.memory.save(folder / MEMORY_FILE),
            hold_until=self.safeguards.drop_step,
        )

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue exactly where `save` was called, with the configuration of that run."""
        state = checkpoint.state
        restore({**self.agent.parts(), "rng": self.rng}, state["parts"])
        self.memory.load(checkpoint.extra / MEMORY_FILE)
        self.env_steps, self.episodes = state["env_steps"], state["episodes"]
        self.faulty_episodes, self.agent.updates = state["faulty_episodes"], state["updates"]
        self.safeguards.load(state["safeguards"])
        self.curriculum.load(state["curriculum"])
        self.gate.load(state["gate"])
        self._apply_gate()
        self.agent.lambda_factor = self.safeguards.lambda_factor
        self.fresh_starts, self.failed_starts = state["fresh_starts"], list(state["failed_starts"])
