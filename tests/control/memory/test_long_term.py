"""The long-term memory as its users see it."""

import numpy as np
import pytest

from grasp_control.memory.config import ENCODERS, MemoryConfig
from grasp_control.memory.remembered import DRAWS
from grasp_control.memory.score import TD_WEIGHT
from grasp_control.types import Source

RNG = np.random.default_rng


def slipping(steps, at):
    slips = np.zeros(steps, np.bool_)
    slips[at] = True
    return slips


def test_rows_come_back_as_they_were_added(make_memory, make_episode):
    memory = make_memory(n_step=3, gamma=0.5)
    episode = make_episode(steps=4, rewards=[1, 2, 4, 8], success=True)
    assert memory.add(episode) == 0
    assert memory.add(make_episode()) == 1
    batch = memory.sample_successes(200, RNG(1))
    steps = memory.store.labels["step"][memory.store.slots_of(batch.ids)]
    assert set(steps) == {0, 1, 2, 3}
    np.testing.assert_array_equal(batch.windows, episode.windows[steps])
    np.testing.assert_array_equal(batch.actions, episode.actions[steps])
    np.testing.assert_array_equal(batch.intended_actions, episode.intended_actions[steps])
    np.testing.assert_array_equal(batch.bootstrap_windows, episode.windows[np.minimum(steps + 3, 4)])
    np.testing.assert_allclose(batch.n_step_rewards, np.array([3.0, 6.0, 8.0, 8.0])[steps])
    # A time-out: the last rows bootstrap from the true final window.
    np.testing.assert_allclose(batch.discounts, np.array([0.125, 0.125, 0.25, 0.5])[steps])
    np.testing.assert_allclose(batch.returns_to_go, np.array([4.0, 6.0, 8.0, 8.0])[steps])
    assert batch.successes.all()
    assert (batch.sources == Source.SUCCESS).all()
    assert (batch.weights == 1).all()


def test_termination_cuts_the_bootstrap(make_memory, make_episode):
    memory = make_memory(n_step=2)
    memory.add(make_episode(steps=3, terminated=True))
    batch = memory.sample(100, RNG(0))
    steps = memory.store.labels["step"][memory.store.slots_of(batch.ids)]
    np.testing.assert_array_equal(batch.discounts == 0, steps >= 1)


@pytest.mark.parametrize("field", ["windows", "actions", "intended_actions", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_episodes_are_counted_and_never_stored(make_memory, make_episode, field, value):
    memory = make_memory()
    memory.add(make_episode())
    bad = make_episode()
    getattr(bad, field)[-1] = value
    assert memory.add(bad) == -1
    assert (len(memory), memory.counters.rejected_episodes, memory.counters.episodes) == (20, 1, 1)


def test_wrong_shapes_are_named(make_memory, make_episode):
    memory = make_memory()
    with pytest.raises(ValueError, match=r"windows has shape \(20, 12\), not \(21, 12\)"):
        memory.add(make_episode()._replace(windows=np.zeros((20, 12), np.float32)))
    with pytest.raises(ValueError, match="without steps"):
        memory.add(
            make_episode(
                steps=1,
                windows=np.zeros((1, 12)),
                rewards=[],
                slips=slipping(0, []),
                forces=[],
                actions=np.zeros((0, 3)),
                intended_actions=np.zeros((0, 3)),
                gated=slipping(0, []),
            )
        )


def test_batches_hold_their_shares_of_demonstrations_and_slips(make_memory, make_episode):
    memory = make_memory(demo_bonus=0.0)
    for _ in range(30):
        memory.add(make_episode())
    memory.add(make_episode(success=True, demonstration=True))
    memory.add(make_episode(slips=slipping(20, 10)))
    sources = np.concatenate([memory.sample(1000, RNG(seed)).sources for seed in range(20)])
    # 100 of each 1000 by share; of the 850 drawn by priority those rows' mass: 20 and 6 of 640 rows.
    assert np.mean(sources == Source.DEMO) == pytest.approx(0.1 + 0.85 * 20 / 640, abs=0.006)
    assert np.mean(sources == Source.SLIP) == pytest.approx(0.05 + 0.85 * 6 / 640, abs=0.006)


def test_demonstrations_have_raised_priority(make_memory, make_episode):
    memory = make_memory(demo_fraction=0.0, demo_bonus=5.0)
    memory.add(make_episode(success=True, demonstration=True))
    memory.add(make_episode(success=True))
    assert np.mean(memory.sample(2000, RNG(0)).sources == Source.DEMO) > 0.65


def test_priorities_and_weights_follow_the_scores(make_memory, make_episode):
    memory = make_memory(alpha=1.0, beta=1.0)
    memory.add(make_episode(steps=50))
    ids = memory.store.labels["id"][:50]
    errors = RNG(0).uniform(0.1, 3, 50)
    assert memory.update_scores(ids, errors) == 50
    labels = memory.store.labels[:50]
    scale = errors.mean()
    np.testing.assert_allclose(labels["td_term"], TD_WEIGHT * errors / scale, rtol=1e-5)
    novelty = memory.scorer.novelty_terms(memory.store.embeddings[:50]) / memory.config.novelty_weight
    assert ((novelty >= 0) & (novelty <= 2)).all()
    expected = labels["td_term"] + memory.config.novelty_weight * novelty
    np.testing.assert_allclose(labels["score"], expected, rtol=1e-5)
    batch = memory.sample(100_000, RNG(1))
    slots = memory.store.slots_of(batch.ids)
    priorities = labels["score"].astype(np.float64) + 1e-3
    frequency = np.bincount(slots, minlength=50) / 100_000
    np.testing.assert_allclose(frequency, priorities / priorities.sum(), atol=3e-3)
    np.testing.assert_allclose(batch.weights, (priorities.min() / priorities)[slots], rtol=1e-4)


def test_stale_and_non_finite_updates_are_left_out(make_memory, make_episode):
    memory = make_memory(capacity=100, keep_share=0.3)
    memory.add(make_episode(steps=60))
    old = memory.sample(64, RNG(0)).ids
    memory.add(make_episode(steps=60))
    before = memory.store.labels["score"].copy()
    errors = np.full(64, 100.0)
    errors[0] = np.nan
    live = memory.store.slots_of(old) >= 0
    assert memory.update_scores(old, errors) == (live & np.isfinite(errors)).sum()
    assert memory.counters.rejected_td_errors == 1
    changed = memory.store.labels["score"] != before
    assert set(np.flatnonzero(changed)) <= set(memory.store.slots_of(old)[live])
    assert memory.update_scores(np.array([-1, 10**15]), np.ones(2)) == 0


def test_eviction_keeps_the_best_newest_and_the_quotas(make_memory, make_episode):
    memory = make_memory(capacity=1000, keep_share=0.3, demo_quota=0.1, slip_quota=0.02)
    memory.add(make_episode(steps=50, success=True, demonstration=True))
    memory.add(make_episode(steps=60, slips=slipping(60, np.arange(10, 60))))
    for _ in range(8):
        memory.add(make_episode(steps=100))
    demos = memory.store.labels["id"][memory.store.group(Source.DEMO)].copy()
    slips = memory.store.labels["id"][memory.store.group(Source.SLIP)].copy()
    others = np.setdiff1d(memory.store.labels["id"][:910], np.concatenate([demos, slips]))
    memory.update_scores(demos, np.full(len(demos), 1e-3))
    memory.update_scores(others, np.linspace(1, 2, len(others)))
    scores = memory.store.labels["score"][memory.store.slots_of(others)].copy()
    memory.add(make_episode(steps=200))
    # 300 places: 50 demonstrations whatever their score, 20 slip rows (their quota), the best 230 others.
    assert (memory.store.slots_of(demos) >= 0).all()
    assert (memory.store.slots_of(slips) >= 0).sum() == 20
    kept = memory.store.slots_of(others) >= 0
    assert kept.sum() == 230
    assert scores[kept].min() >= scores[~kept].max()
    assert memory.eviction_threshold == pytest.approx(scores[kept].min())
    assert len(memory) == 500
    assert (memory.counters.evictions, memory.counters.evicted_rows) == (1, 610)
    assert len(memory.space.successes) == 50
    assert len(memory.space.slips) == 20


def test_demonstrations_cannot_take_over(make_memory, make_episode):
    memory = make_memory(capacity=1000, demo_quota=0.1)
    for _ in range(9):
        memory.add(make_episode(steps=100, success=True, demonstration=True))
    memory.add(make_episode(steps=100))
    memory.add(make_episode(steps=100))
    assert memory.composition()["demo_rows"] == 100


def test_among_equal_scores_the_newest_survive(make_memory, make_episode):
    # Novelty of equal windows differs in the last bit: by which row of a matrix product they are.
    memory = make_memory(capacity=100, novelty_weight=0.0)
    windows = np.tile(make_episode().windows[:1], (51, 1))
    memory.add(make_episode(steps=50, windows=windows))
    memory.add(make_episode(steps=50, windows=windows))
    memory.add(make_episode(steps=10))
    held = memory.store.labels[memory.store.live_slots()]
    assert sorted(held["step"][held["episode"] == 1]) == list(range(20, 50))


def test_an_episode_that_can_never_fit_is_refused(make_memory, make_episode):
    with pytest.raises(ValueError, match="150 steps does not fit"):
        make_memory(capacity=100).add(make_episode(steps=150))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_retrieval_equals_brute_force_over_rows_of_successes(make_memory, make_episode, encoder):
    memory = make_memory(encoder=encoder)
    memory.add(make_episode(success=True, demonstration=True))
    memory.add(make_episode(success=True, slips=slipping(20, 12)))
    memory.add(make_episode())
    memory.refresh_encoder()
    windows = make_episode().windows[:7]
    found = memory.retrieve(windows, 5)
    labels = memory.store.labels[:60]
    good = np.flatnonzero(np.isin(labels["source"], [Source.DEMO, Source.SUCCESS]))
    assert len(good) == 34
    z, version = memory.encoder.encode(windows)
    assert version == 1
    assert (labels["version"] == 1).all()
    distances = np.linalg.norm(z[:, None] - memory.store.embeddings[good], axis=-1)
    order = np.argsort(distances, axis=1)[:, :5]
    np.testing.assert_array_equal(found.ids, labels["id"][good[order]])
    np.testing.assert_allclose(found.distances, np.take_along_axis(distances, order, axis=1), rtol=1e-3)
    np.testing.assert_array_equal(found.actions, memory.store.rows[good[order], memory.store.intended_action])
    assert found.valid.all()


def test_slip_rows_have_their_own_retrieval(make_memory, make_episode):
    memory = make_memory(slip_lookback=2)
    episode = make_episode(slips=slipping(20, 12))
    memory.add(episode)
    found = memory.retrieve_slips(episode.windows[[11]], 5)
    assert found.valid.tolist() == [[True, True, True, False, False]]
    np.testing.assert_array_equal(found.actions[0, 0], episode.actions[11])  # what led to the slip
    assert not memory.retrieve(episode.windows[[11]], 5).valid.any()


def test_missing_neighbours_are_marked_and_blank(make_memory, make_episode):
    memory = make_memory()
    empty = memory.retrieve(make_episode().windows[:3], 4)
    assert not empty.valid.any()
    assert (memory.counters.queries, memory.counters.empty) == (3, 3)
    memory.add(make_episode(steps=2, success=True))
    found = memory.retrieve(make_episode().windows[:3], 4)
    np.testing.assert_array_equal(found.valid, [[True, True, False, False]] * 3)
    assert (found.ids[:, 2:] == -1).all()
    assert (found.actions[:, 2:] == 0).all()
    assert np.isinf(found.distances[:, 2:]).all()


def test_a_query_with_nan_gets_no_answer_and_spoils_no_other(make_memory, make_episode):
    memory = make_memory()
    memory.add(make_episode(success=True))
    windows = make_episode().windows[:3].copy()
    sound = memory.retrieve(windows, 4)
    windows[1, 5] = np.nan
    found = memory.retrieve(windows, 4)
    assert found.valid.all(axis=1).tolist() == [True, False, True]
    np.testing.assert_array_equal(found.ids[[0, 2]], sound.ids[[0, 2]])
    assert (found.ids[1] == -1).all()
    assert memory.counters.rejected_queries == 1


def test_a_late_query_is_answered_with_random_successes_and_counted(make_memory, make_episode):
    ticks = iter(np.arange(0.0, 100.0, 0.06))
    memory = make_memory(clock=lambda: next(ticks), deadline_ms=50.0)
    memory.add(make_episode(success=True))
    memory.add(make_episode())
    found = memory.retrieve(make_episode().windows[:2], 4)
    assert memory.counters.fallbacks == 2
    assert found.valid.all()
    slots = memory.store.slots_of(found.ids)
    assert (memory.store.labels["source"][slots] == Source.SUCCESS).all()
    np.testing.assert_array_equal(found.actions, memory.store.rows[slots, memory.store.intended_action])
    again = memory.retrieve(make_episode().windows[:2], 4)
    assert not np.array_equal(found.ids, again.ids)


def test_a_learner_is_answered_with_its_neighbours_however_late(make_memory, make_episode):
    ticks = iter(np.arange(0.0, 100.0, 0.06))
    memory = make_memory(clock=lambda: next(ticks), deadline_ms=50.0)
    memory.add(make_episode(success=True))
    slots = memory.store.live_slots()[:2]
    stored, ids = memory.store.rows[slots, memory.store.window], memory.store.labels["id"][slots]
    found = memory.recall(ids, stored, 1)
    np.testing.assert_allclose(found.distances, 0.0, atol=1e-3)
    assert memory.counters.fallbacks == 0


def batch_of(memory, count):
    slots = memory.store.live_slots()[:count]
    store = memory.store
    return (
        store.labels["id"][slots],
        store.rows[slots, store.window],
        store.rows[slots, store.bootstrap_window],
    )


def test_a_learner_finds_what_anyone_finds_and_is_answered_from_memory_for_some_draws(
    make_memory, make_episode
):
    memory = make_memory()
    for _ in range(5):
        memory.add(make_episode(success=True, slips=slipping(20, 9)))
    ids, windows, later = batch_of(memory, 30)
    for found, expected in (
        (memory.recall(ids, windows, 3), memory.retrieve(windows, 3)),
        (memory.recall(ids, later, 2, later=True), memory.retrieve(later, 2)),
        (memory.recall_repelled(ids, windows, 3), memory.retrieve_repelled(windows, 3)),
    ):
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-3)
        np.testing.assert_array_equal(found.actions, expected.actions)
        np.testing.assert_allclose(found.support, expected.support, atol=1e-3)
    memory.add(make_episode(success=True)._replace(windows=np.repeat(windows[:1], 21, axis=0)))
    # Each window was asked for twice above: the answer serves as many draws less, then the new rows are seen.
    answers = [memory.recall(ids[:1], windows[:1], 3).ids for _ in range(DRAWS)]
    current = memory.retrieve(windows[:1], 3).ids
    assert [bool((answer == current).all()) for answer in answers] == [False] * (DRAWS - 2) + [True] * 2


def test_what_is_remembered_is_forgotten_with_the_row_and_with_the_encoder(make_memory, make_episode):
    memory = make_memory()
    memory.add(make_episode(success=True))
    ids, windows, _ = batch_of(memory, 10)
    memory.recall(ids, windows, 2)
    memory.purge(memory.store.labels["id"][memory.store.live_slots()[10:]])
    left = memory.recall(ids, windows, 2)
    assert (memory.store.slots_of(left.ids[left.valid]) >= 0).all()
    memory.refresh_encoder()
    np.testing.assert_array_equal(memory.recall(ids, windows, 2).ids, memory.retrieve(windows, 2).ids)
    memory.purge(ids)
    with pytest.raises(ValueError, match="10 of 10 rows asked for are not held"):
        memory.recall(ids, windows, 2)
    memory.add(make_episode(success=True))  # into the same slots
    ids, windows, _ = batch_of(memory, 10)
    np.testing.assert_array_equal(memory.recall(ids, windows, 2).ids, memory.retrieve(windows, 2).ids)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_refresh_swaps_everything_at_once(make_memory, make_episode, encoder):
    memory = make_memory(capacity=5000, exact_below=400, encoder=encoder)
    for _ in range(40):
        memory.add(make_episode(success=True))
    old = memory.space
    windows = make_episode().windows[:5]
    before = [index.copy() for index in old.successes.search(old.encoder.encode(windows)[0], 3)[:2]]
    memory.refresh_encoder()
    assert memory.encoder.version == 1
    assert (memory.store.labels["version"][: len(memory)] == 1).all()
    assert len(memory.space.successes) == len(old.successes) == 800
    # Whoever still holds the old space gets the old answers.
    after = old.successes.search(old.encoder.encode(windows)[0], 3)[:2]
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])
    own = memory.store.rows[:10, memory.store.window]
    np.testing.assert_allclose(memory.retrieve(own, 1).distances, 0.0, atol=1e-3)
    labels = memory.store.labels[:800]
    novelty = memory.scorer.novelty_terms(memory.store.embeddings[:800])
    np.testing.assert_allclose(labels["score"], labels["td_term"] + novelty, rtol=1e-5)


def test_purge_removes_rows_everywhere(make_memory, make_episode):
    memory = make_memory()
    memory.add(make_episode(success=True))
    ids = memory.store.labels["id"][[3, 4]].copy()
    assert memory.purge(np.r_[ids, ids, -1]) == 2
    assert (len(memory), memory.success_rows, len(memory.space.successes)) == (18, 18, 18)
    assert not np.isin(memory.sample(500, RNG(0)).ids, ids).any()
    assert not np.isin(memory.retrieve(make_episode().windows, 18).ids, ids).any()


def test_imitation_batches_are_uniform_over_demonstrations_and_own_successes(make_memory, make_episode):
    memory = make_memory()
    with pytest.raises(ValueError, match="success_rows"):
        memory.sample_successes(4, RNG(0))
    memory.add(make_episode(success=True, demonstration=True))
    assert (memory.sample_successes(64, RNG(0)).sources == Source.DEMO).all()
    for _ in range(9):
        memory.add(make_episode(success=True))
    share = np.mean(memory.sample_successes(4000, RNG(1)).sources == Source.DEMO)
    assert share == pytest.approx(0.1, abs=0.02)


def test_statistics(make_memory, make_episode):
    memory = make_memory()
    assert np.isnan(memory.hit_rate())
    assert memory.composition()["size"] == 0
    memory.add(make_episode(steps=10, success=True, gated=np.arange(10) < 6))
    memory.add(make_episode(steps=10, gated=np.arange(10) < 2, slips=slipping(10, 9)))
    assert memory.hit_rate() == 6 / 8
    composition = memory.composition()
    assert (composition["size"], composition["success_share"], composition["slip_share"]) == (20, 0.5, 0.3)
    assert (composition["successful_episode_share"], composition["slip_flagged_share"]) == (0.5, 0.05)
    counts, edges = memory.score_histogram(5)
    assert (counts.sum(), len(edges)) == (20, 6)


def test_same_generator_same_batch(make_memory, make_episode):
    memory = make_memory()
    for _ in range(3):
        memory.add(make_episode())
    for one, two in zip(memory.sample(64, RNG(4)), memory.sample(64, RNG(4)), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 2_000_001}, "2000001"),
        ({"embedding_dim": 32}, "32"),
        ({"gamma": 1.2}, r"gamma.*1\.2"),
        ({"n_step": 0}, "n_step.*0"),
        ({"keep_share": 1.0}, r"keep_share.*1\.0"),
        ({"demo_fraction": 0.7, "slip_fraction": 0.6}, r"0\.7.*0\.6"),
        ({"demo_quota": 0.2, "slip_quota": 0.2}, r"0\.2.*0\.2.*0\.3"),
        ({"deadline_ms": float("nan")}, "nan"),
        ({"encoder": "vea"}, "encoder=vea is not known.* Choices: projection, vae"),
        ({"vae_beta": -1.0}, r"vae_beta.*-1\.0"),
        ({"vae_updates": 0}, "vae_updates.*0"),
        ({"refresh_every": -1}, "refresh_every.*-1"),
    ],
)
def test_settings_are_checked_and_quoted(settings, message):
    with pytest.raises(ValueError, match=message):
        MemoryConfig(**settings)


def test_sampling_an_empty_memory_says_so(make_memory):
    with pytest.raises(ValueError, match="empty memory"):
        make_memory().sample(8, RNG(0))


def test_retrieval_that_is_left_out_answers_as_an_empty_memory_does(make_memory, make_episode):
    empty, silent = make_memory(), make_memory(retrieval=False)
    windows = make_episode().windows[:3]
    nothing = empty.retrieve(windows, 4)
    silent.add(make_episode(success=True))
    for there, expected in zip(silent.retrieve(windows, 4), nothing, strict=True):
        np.testing.assert_array_equal(there, expected)
        assert there.dtype == expected.dtype


def test_without_novelty_the_score_is_surprise_alone(make_memory, make_episode):
    memory = make_memory(novelty_weight=0.0)
    for _ in range(3):
        memory.add(make_episode())
    labels = memory.store.labels[memory.store.live_slots()]
    np.testing.assert_array_equal(labels["score"], labels["td_term"])
