"""The training loop on a small arm-free environment: what is stored, how it resumes, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from grasp_control.build import generator, torch_generator
from grasp_control.checkpoint import CheckpointStore
from grasp_control.config import TrainConfig
from grasp_control.empo2 import critics
from grasp_control.empo2.agent import Agent
from grasp_control.empo2.config import EMPO2Config
from grasp_control.empo2.curriculum import Curriculum, CurriculumConfig
from grasp_control.empo2.gate import GateConfig, MemoryGate
from grasp_control.empo2.safeguards import SafeguardsConfig
from grasp_control.memory.config import MemoryConfig
from grasp_control.memory.long_term import LongTermMemory
from grasp_control.memory.window import ShortTermMemory, episode_windows, window_width
from grasp_control.metrics import MetricsWriter
from grasp_control.networks import fit_normaliser
from grasp_control.rollout import evaluate
from grasp_control.runtime.local import LocalTrainer
from grasp_control.train import learn
from grasp_control.types import Trajectory
from grasp_sim.contract import ACTION_DIM, OBSERVATION_DIM, executed_action
from grasp_sim.errors import UserError
from grasp_sim.tasks import Difficulty

CONTEXT = 4


class Reach(gymnasium.Env):
    """A point is moved by the first two action dimensions; success is to come within 0.2 of the origin.

    Keeps to the contract of `grasp_sim.registry`: same widths, same `info`, terminated and truncated apart.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION_DIM,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)
    horizon = 20
    difficulty = Difficulty()
    force = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._point = self.difficulty.distance * self.np_random.uniform(-1.0, 1.0, 2)
        self._steps = 0
        return self._observe(), {}

    def step(self, action):
        sent = executed_action(action)
        self._point = self._point + 0.2 * sent[:2]
        self._steps += 1
        success = bool(np.linalg.norm(self._point) < 0.2)
        nothing = dict.fromkeys(("slip", "drop", "broken", "sim_fault"), False)
        info = {"executed_action": sent, "success": success, "contact_force": self.force, **nothing}
        truncated = self._steps >= self.horizon and not success
        return self._observe(), float(success), success, truncated, info

    def _observe(self):
        observation = np.zeros(OBSERVATION_DIM, np.float32)
        observation[3:5] = self._point
        return observation


def demonstration(seed: int) -> tuple[Trajectory, np.ndarray]:
    env = Reach()
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards, done = [observation], [], [], False
    while not done:
        action = np.zeros(ACTION_DIM, np.float32)
        action[:2] = np.clip(-5.0 * observation[3:5], -1.0, 1.0)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
        done = terminated or truncated
    windows = episode_windows(np.stack(observations), np.stack(actions), CONTEXT)
    none, forces = np.zeros(len(actions), bool), np.zeros(len(actions), np.float32)
    stacked, earned = np.stack(actions), np.asarray(rewards, np.float32)
    trajectory = Trajectory(
        windows, stacked, stacked, earned, none, forces, terminated, terminated, True, none
    )
    return trajectory, np.stack(observations)


def make_trainer(
    seed: int = 0,
    total_steps: int = 400,
    *,
    demonstrations: int = 5,
    memory_settings: dict[str, Any] | None = None,
    force_limit: float = math.inf,
    **settings: Any,
) -> LocalTrainer:
    config = EMPO2Config(
        batch_size=32,
        warmup_steps=32,
        imitation_batch=32,
        cloning_batch=32,
        improvement_batch=16,
        hidden_width=16,
        actors=2,
        critics=2,
        choice_after_updates=10,
        symmetry_angle=0.0,
        **settings,
    )
    memory = LongTermMemory(
        MemoryConfig(capacity=2000, **(memory_settings or {})),
        window_width(CONTEXT, OBSERVATION_DIM, ACTION_DIM),
        ACTION_DIM,
        rng=generator(seed, "memory"),
    )
    shown = [demonstration(s) for s in range(5)]
    for trajectory, _ in shown[:demonstrations]:
        memory.add(trajectory)
    if demonstrations:
        memory.refresh_encoder()
    agent = Agent(
        config,
        fit_normaliser(np.concatenate([o for _, o in shown]), ACTION_DIM, CONTEXT),
        ACTION_DIM,
        generator=torch_generator(seed, "agent"),
        total_updates=int((total_steps - config.warmup_steps) * config.updates_per_step),
        force_limit=force_limit,
    )
    short_term = ShortTermMemory(OBSERVATION_DIM, ACTION_DIM, context=CONTEXT)
    return LocalTrainer(
        Reach(),
        agent,
        memory,
        short_term,
        seed=seed,
        rng=generator(seed, "training"),
        total_steps=total_steps,
    )


def advance(trainer: LocalTrainer, until: int) -> None:
    while trainer.env_steps < until:
        trainer.sample_episode()
        while trainer.updates_owed > 0:
            trainer.learn()


def parameters(trainer: LocalTrainer) -> torch.Tensor:
    networks = vars(trainer.agent.networks).values()
    return torch.cat([p.detach().flatten() for network in networks for p in network.parameters()])


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_never_a_step_more_than_asked_for():
    trainer = make_trainer(total_steps=203)
    advance(trainer, 203)
    assert trainer.finished
    assert trainer.env_steps == 203
    assert trainer.agent.updates == int((203 - 32) * trainer.agent.config.updates_per_step)


def test_the_same_seed_gives_the_same_networks_whatever_the_global_random_state():
    runs = []
    for disturbance in (1, 2):
        np.random.seed(disturbance)  # noqa: NPY002
        torch.manual_seed(disturbance)
        trainer = make_trainer()
        advance(trainer, 150)
        runs.append(parameters(trainer))
    assert torch.equal(runs[0], runs[1])


def test_another_seed_gives_other_networks():
    first, second = make_trainer(0), make_trainer(1)
    advance(first, 100)
    advance(second, 100)
    assert not torch.equal(parameters(first), parameters(second))


@pytest.mark.parametrize("settings", [{}, {"encoder": "vae", "vae_updates": 5, "refresh_every": 60}])
def test_a_resumed_run_continues_exactly(tmp_path, settings):
    """Networks, optimisers, targets, memory, priorities, counters and random state all return."""
    store = CheckpointStore(tmp_path)
    straight = make_trainer(memory_settings=settings)
    advance(straight, 150)
    straight.save(store)
    advance(straight, 300)

    resumed = make_trainer(memory_settings=settings)
    resumed.resume(store.load_latest())
    advance(resumed, 300)
    assert resumed.memory.encoder.version == straight.memory.encoder.version == (6 if settings else 1)
    assert torch.equal(parameters(resumed), parameters(straight))
    assert resumed.env_steps == straight.env_steps
    assert resumed.episodes == straight.episodes
    assert resumed.failed_starts == straight.failed_starts
    assert resumed.memory.composition() == straight.memory.composition()
    window = np.linspace(-1, 1, straight.agent.normaliser.mean.shape[0], dtype=np.float32)
    assert np.array_equal(resumed.label(window[None]), straight.label(window[None]))


def test_own_successes_and_failures_are_told_apart_from_demonstrations():
    trainer = make_trainer()
    advance(trainer, 200)
    held = trainer.memory.composition()
    assert held["demo_rows"] == sum(len(demonstration(s)[0].actions) for s in range(5))
    assert held["size"] == held["demo_rows"] + 200
    row = trainer.metrics_row(trainer.learn())
    shares = [row[f"share_{source}"] for source in ("demo", "online", "success", "slip")]
    assert sum(shares) == pytest.approx(1)


def test_an_episode_with_a_simulator_fault_is_counted_and_not_learned_from():
    trainer = make_trainer()
    step = trainer.env.step

    def broken(action):
        observation, reward, terminated, truncated, info = step(action)
        return observation, reward, terminated, truncated, info | {"sim_fault": True}

    held = len(trainer.memory)
    trainer.env.step = broken  # type: ignore[method-assign]
    trainer.sample_episode()
    assert trainer.metrics_row({})["faulty_episodes"] == 1
    assert len(trainer.memory) == held


def test_cloning_lowers_the_loss_and_learning_solves_the_task():
    trainer = make_trainer(total_steps=600)
    first = trainer.clone()
    for _ in range(300):
        last = trainer.clone()
    assert last < 0.2 * first
    advance(trainer, 600)
    wins = 0
    for seed in range(1000, 1020):
        observation, _ = trainer.env.reset(seed=seed)
        trainer.short_term.reset(observation)
        done = False
        while not done:
            action, _ = trainer.hybrid(trainer.short_term.policy_input())
            observation, _, done, late, info = trainer.env.step(action)
            trainer.short_term.append(info["executed_action"], observation)
            wins += info["success"]
            done = done or late
    assert wins >= 17


def test_a_failed_start_is_repeated_until_it_succeeds():
    trainer = make_trainer()
    trainer.agent.config.hard_start_share = 1.0
    trainer.failed_starts = [77]
    assert trainer._choose_start() == 77
    trainer.failed_starts = []
    fresh = trainer._choose_start()
    assert fresh == trainer._seeds[0]


def test_a_stopped_run_measures_where_one_that_was_never_stopped_does(tmp_path):
    config = TrainConfig(curve_every=60, curve_episodes=1, checkpoint_every=100, metrics_every=70)

    def go(folder: Path, resume: bool, stop_at: int) -> None:
        trainer, checkpoints = make_trainer(), CheckpointStore(folder / "checkpoints")
        if resume:
            trainer.resume(checkpoints.load_latest())
        sample = trainer.sample_episode

        def sample_or_stop():
            if trainer.env_steps >= stop_at:
                raise KeyboardInterrupt
            return sample()

        trainer.sample_episode = sample_or_stop  # type: ignore[method-assign]
        with MetricsWriter(folder, resume_step=trainer.env_steps if resume else None) as metrics:
            learn(config, trainer, checkpoints, metrics)

    go(tmp_path / "whole", False, 1000)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "stopped", False, 170)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "stopped", True, 290)
    go(tmp_path / "stopped", True, 1000)
    for stream in ("evaluation", "train", "episodes", "score_histogram"):
        whole, stopped = ((tmp_path / name / f"{stream}.csv").read_text() for name in ("whole", "stopped"))
        assert whole == stopped
    assert len((tmp_path / "whole" / "evaluation.csv").read_text().splitlines()) == 7  # 60, 120, ... 360


def test_a_network_of_nans_ends_the_training_with_what_to_do():
    trainer = make_trainer()
    advance(trainer, 60)
    with torch.no_grad():
        next(trainer.agent.networks.conservative.parameters()).fill_(torch.nan)
    with pytest.raises(
        UserError, match=r"diverged at environment step \d+: .* lower algo.learning_rate than"
    ):
        trainer.learn()
    with torch.no_grad():
        for parameter in trainer.agent.networks.average_policy.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(UserError, match=r"diverged .*actions are not finite"):
        trainer.sample_episode()


def guarded(tmp_path: Path, until: int) -> tuple[LocalTrainer, CheckpointStore]:
    """A trainer that has learned, with checkpoints, and whose safeguards judge by few episodes."""
    trainer = make_trainer(total_steps=20_000)
    trainer.agent.config.hard_start_share = 0.0
    trainer.safeguards.config = SafeguardsConfig(recent_episodes=10, reference_episodes=30, patience=10)
    for _ in range(1000):
        trainer.clone()
    store = CheckpointStore(tmp_path)
    assert run_guarded(trainer, store, until) == []
    return trainer, store


def run_guarded(trainer: LocalTrainer, store: CheckpointStore, until: int) -> list[dict]:
    events: list[dict] = []
    while trainer.env_steps < until:
        before = trainer.env_steps
        trainer.sample_episode()
        events += trainer.protect(store)
        if trainer.env_steps // 100 > before // 100:
            trainer.save(store)
    return events


def success_rate(trainer: LocalTrainer) -> float:
    results = evaluate(trainer.env, trainer.hybrid, trainer.short_term, range(1000, 1030))
    return float(np.mean([r.success for r in results]))


def test_a_policy_that_was_reset_is_rolled_back_and_works_again(tmp_path):
    trainer, store = guarded(tmp_path, until=600)
    assert success_rate(trainer) > 0.9
    agent = trainer.agent
    with torch.no_grad():
        for name, network in vars(agent.networks).items():
            if "policy" in name:
                for parameter in network.parameters():
                    parameter.copy_(3.0 * torch.randn(parameter.shape, generator=agent.generator))
    assert success_rate(trainer) < 0.7
    events = run_guarded(trainer, store, until=trainer.env_steps + 900)
    actions = [event["action"] for event in events]
    assert actions[0] == "raise lambda"
    assert "roll back" in actions
    assert "networks and optimisers are those of step" in events[actions.index("roll back")]["cause"]
    assert success_rate(trainer) > 0.9


def test_critics_that_blew_up_are_rolled_back_at_once(tmp_path):
    trainer, store = guarded(tmp_path, until=600)
    for _ in range(20):
        trainer.learn()
    trainer.save(store)
    sound = parameters(trainer).clone()
    with torch.no_grad():
        for network in (trainer.agent.networks.conservative, trainer.agent.networks.target_conservative):
            for parameter in network.parameters():
                parameter.mul_(30.0)
    trainer.learn()
    trainer.sample_episode()
    (event,) = trainer.protect(store)
    assert event["action"] == "roll back"
    assert "the critics' mean value is" in event["cause"]
    assert torch.equal(parameters(trainer), sound)
    trainer.learn()
    trainer.sample_episode()
    assert trainer.protect(store) == []


def test_a_fifth_of_corrupted_rows_is_purged(tmp_path):
    trainer, store = guarded(tmp_path, until=600)
    held = len(trainer.memory)
    while len(trainer.memory) < 1.3 * held:
        bad, _ = demonstration(len(trainer.memory))
        wild = bad.windows * np.float32(1e4) + np.float32(1e4)
        trainer.memory.add(bad._replace(windows=wild, demonstration=False, success=False))
    events = run_guarded(trainer, store, until=trainer.env_steps + 200)
    assert [event["action"] for event in events] == ["purge outliers"]
    windows = trainer.memory.store.rows[trainer.memory.store.live_slots(), trainer.memory.store.window]
    assert np.abs(windows).max() < 1e3
    assert success_rate(trainer) > 0.9


def test_the_curriculum_makes_training_easier_and_leaves_evaluation_alone(tmp_path):
    trainer = make_trainer()
    trainer.curriculum = Curriculum(CurriculumConfig(enabled=True, start=0.1, step=0.2, episodes=3))
    results = [trainer.sample_episode() for _ in range(12)]
    assert all(result.success and result.length == 1 for result in results[:2])  # begun next to the goal
    assert trainer.curriculum.share > 0.1
    assert trainer.metrics_row({})["difficulty"] == trainer.curriculum.share
    assert trainer.env.unwrapped.difficulty == Difficulty()
    assert len(trainer.safeguards.state()["returns"]) < 12  # those of an easier task are no measure of a drop
    store = CheckpointStore(tmp_path)
    trainer.save(store)
    other = make_trainer()
    other.resume(store.load_latest())
    assert other.curriculum.share == trainer.curriculum.share


def test_without_demonstrations_it_learns_from_what_its_noise_found():
    steps = {"learning_rate": 1e-3, "final_learning_rate": 1e-3, "training_horizon": 20}
    trainer = make_trainer(0, 2000, demonstrations=0, noise_exponent=1.0, exploration_noise=0.8, **steps)

    def success() -> float:
        results = evaluate(trainer.env, trainer.hybrid, trainer.short_term, range(30))
        return sum(result.success for result in results) / 30

    before = success()
    assert trainer.memory.success_rows == 0  # nothing to imitate
    advance(trainer, 2000)
    assert success() > before + 0.4
    assert trainer.memory.composition()["demo_rows"] == 0


def test_the_gate_follows_the_rewards_and_is_resumed(tmp_path):
    trainer = make_trainer()
    assert trainer.agent.participation == 1.0
    trainer.env.unwrapped.difficulty = Difficulty(distance=0.1)  # begins at the goal: every step is rewarded
    advance(trainer, 40)
    assert trainer.agent.participation == trainer.gate.participation < 1.0
    assert trainer.metrics_row({})["reward_density"] == trainer.gate.density
    store = CheckpointStore(tmp_path)
    trainer.save(store)
    other = make_trainer()
    other.resume(store.load_latest())
    assert other.agent.participation == trainer.agent.participation
    assert other.gate.state() == trainer.gate.state()


def test_newness_counts_only_while_rewards_are_very_sparse():
    trainer = make_trainer()
    trainer.env.unwrapped.difficulty = Difficulty(distance=0.1)  # begins at the goal: every step is rewarded
    advance(trainer, 60)
    assert trainer.agent.very_sparse == 0.0
    assert trainer.learn()["rnd_bonus"] == 0.0
    trainer.agent.very_sparse = 1.0
    assert trainer.learn()["rnd_bonus"] > 0.0


def test_shaping_lifts_values_on_the_way_to_a_success_by_the_potentials_difference():
    """Q with the shaping is Q without it less the potential of the state: the best action stays."""
    targets = {}
    for very_sparse in (0.0, 1.0):
        trainer = make_trainer()
        trainer.agent.very_sparse = very_sparse
        batch = trainer.memory.sample(64, np.random.default_rng(0))
        batch = batch._replace(returns_to_go=np.full(64, -np.inf, np.float32))
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                critics, "conservative_targets", lambda *args, seen=seen: seen.append(args) or args[0]
            )
            trainer.agent._update_critics(batch, trainer.memory)
        targets[very_sparse] = seen[0][0].numpy()
    here = trainer.memory.retrieve(batch.windows, 1)
    there = trainer.memory.retrieve(batch.bootstrap_windows, 1)
    reach = trainer.agent.config.similarity_reach
    potentials = [np.exp(-0.5 * (f.distances[:, 0] / reach) ** 2) * f.returns[:, 0] for f in (here, there)]
    expected = targets[0.0] + batch.discounts * potentials[1] - potentials[0]
    np.testing.assert_allclose(targets[1.0], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(targets[1.0] - targets[0.0]).max() > 0.05
    assert (potentials[1][batch.discounts == 0] * batch.discounts[batch.discounts == 0] == 0).all()


def test_equal_values_leave_the_policy_where_it_is():
    """An executed action that is no better than the policy's draws is no candidate."""
    trainer = make_trainer(demonstrations=0, retrieval_share=0.5)
    advance(trainer, 40)
    with torch.no_grad():
        for network in (
            trainer.agent.networks.target_conservative,
            trainer.agent.networks.target_exploratory,
        ):
            for parameter in network.parameters():
                parameter.zero_()
    batch, fresh = (trainer.memory.sample(16, trainer.rng), trainer.memory.sample_fresh(8, trainer.rng))
    stats = trainer.agent._update_policy(batch, None, fresh, trainer.memory)
    assert stats["retrieved_mass"] == 0.0


def test_quiet_episodes_carry_no_noise_and_alone_move_the_curriculum():
    trainer = make_trainer(quiet_share=0.5, curriculum=CurriculumConfig(enabled=True, start=0.1, episodes=1))
    quiet = []
    for _ in range(12):
        before, cursor = trainer.curriculum.share, trainer.memory.counters.episodes
        trainer.sample_episode()
        rows = trainer.memory.store.labels["episode"] == cursor
        rows &= trainer.memory.store.labels["id"] >= 0
        stored = trainer.memory.store.rows[rows]
        noise = stored[:, trainer.memory.store.action] - stored[:, trainer.memory.store.intended_action]
        assert (np.abs(noise[:, :5]).max() < 1e-6) == trainer.quiet
        if not trainer.quiet:
            assert trainer.curriculum.share == before
        quiet.append(trainer.quiet)
    assert any(quiet)
    assert not all(quiet)


def test_a_constrained_run_learns_in_bf16_and_resumes_exactly(tmp_path):
    """With every part at work: multiplier, newness, a VAE that is fitted anew, rounded products."""
    vae = {"encoder": "vae", "vae_updates": 5, "refresh_every": 60}

    def make() -> LocalTrainer:
        trainer = make_trainer(memory_settings=vae, precision="bf16", force_limit=1e-3, force_budget=0.0)
        trainer.gate = MemoryGate(GateConfig(structure="sparse"))
        trainer.env.force = 1.0
        return trainer

    store, straight = CheckpointStore(tmp_path), make()
    advance(straight, 150)
    straight.save(store)
    assert straight.agent.networks.risk.multiplier > 0.0
    assert straight.agent.networks.rnd.scale > 0.0
    advance(straight, 250)
    resumed = make()
    resumed.resume(store.load_latest())
    advance(resumed, 250)
    assert torch.equal(parameters(straight), parameters(resumed))
    assert torch.equal(straight.agent.networks.risk.multiplier, resumed.agent.networks.risk.multiplier)
    assert torch.equal(straight.agent.networks.rnd.scale, resumed.agent.networks.rnd.scale)


def test_the_grip_force_explores_with_a_noise_of_its_own():
    trainer = make_trainer(exploration_noise=0.3, force_noise=0.0, demonstrations=0)
    done = trainer.run_episode(0).trajectory
    tried = np.abs(done.actions - done.intended_actions)
    assert tried[:, :5].max(axis=0).min() > 0.0
    assert tried[:, 5].max() == 0.0
