"""Preferences: overlaps, who shares what, twins, intents, and generated directions against linear algebra of NumPy."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from chance import assert_follows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numbered import collections

from quorank.data import Collection, RankingData
from quorank.data.intents import IntentCollection
from quorank.data.normalisation import normalize_queries
from quorank.data.partition import Preferences
from quorank.data.partition.preferences import (
    preference_directions,
    preference_labels,
    share_out,
    shared_part,
    shuffle_intents,
)
from quorank.data.synthetic import generate
from quorank.errors import BadInput


@pytest.fixture(scope="module")
def generated() -> Collection:
    return generate("mq2007", 300, 5)


def overlaps(labels) -> np.ndarray:
    """|A ∩ B| / |A| for every ordered pair of preferences."""
    sets = [set(np.flatnonzero(row)) for row in labels]
    return np.array([len(a & b) / len(a) for a, b in permutations(sets, 2)])


@pytest.mark.parametrize("preferences", [2, 4])
@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_any_two_preferences_share_what_was_chosen(generated, overlap, preferences) -> None:
    part = Preferences(overlap=overlap, preferences=preferences)
    for labels in part.labels(generated, 1):
        assert overlaps(labels) == pytest.approx(overlap, abs=0.0 if overlap in (0.0, 1.0) else 0.05)
    shares = part.split(generated, 8, 5, 1)
    assert np.array_equal(shares.data.labels.reshape(preferences, -1), part.labels(generated, 1)[0])
    assert np.array_equal(shares.data.padded[-generated.train.n_rows :], generated.train.padded)
    assert shares.group.tolist() == [i % preferences for i in range(8)]
    assert shares.first_query.tolist() == [300 * p for p in range(preferences)]


@settings(max_examples=40)
@given(collections(), st.floats(0, 1), st.integers(2, 5), st.floats(0, 3), st.integers(0, 2**64 - 1))
def test_relevant_documents_are_shared_by_all_or_belong_to_one_evenly(
    collection, overlap, preferences, noise, seed
) -> None:
    train = collection.train
    part = Preferences(overlap=overlap, preferences=preferences, noise=noise)
    if not train.max_label:
        with pytest.raises(BadInput, match="preferences divide relevant documents, and the training data have none"):
            part.split(collection, 9, 5, seed)
        return
    labels, _ = part.labels(collection, seed)
    assert np.array_equal(labels.max(axis=0), train.labels)
    having = np.count_nonzero(labels, axis=0)
    assert set(having[train.labels > 0]) <= {1, preferences}
    assert set(np.unique(labels)) <= {0, *train.labels}
    kappa = overlap / (overlap + preferences * (1 - overlap))
    for q in range(train.n_queries):
        own = (labels > 0) & (having == 1)
        counts = np.count_nonzero(own[:, train.rows_of(q)], axis=1)
        assert counts.max(initial=0) - counts.min(initial=9) <= 1 or not counts.any()
        relevant = np.count_nonzero(train.labels[train.rows_of(q)])
        assert abs(np.count_nonzero(having[train.rows_of(q)] == preferences) - kappa * relevant) < 1 + 1e-9


def test_the_twin_is_judged_by_merged_labels_or_as_its_counterpart(generated) -> None:
    counterpart = Preferences(overlap=0.3).split(generated, 4, 5, 2)
    merged = Preferences(overlap=0.3, iid=True).split(generated, 4, 5, 2)
    assert len(merged.tests) == 1 and np.array_equal(merged.tests[0].labels, generated.test.labels)
    judged = Preferences(overlap=0.3, iid=True, judged="preferences").split(generated, 4, 5, 2)
    assert judged.test_of_group.tolist() == counterpart.test_of_group.tolist() == [0, 1, 2, 3]
    for a, b in zip(judged.tests, counterpart.tests, strict=True):
        assert np.array_equal(a.labels, b.labels)


def intent_data(seed: int, queries: int) -> IntentCollection:
    train, test = (generate("mslr", queries, seed + i).train for i in range(2))
    random = np.random.default_rng(seed)
    made = [(random.random((4, s.n_rows)) < [[0.5], [0.3], [0.2], [0.1]]).astype(np.int8) for s in (train, test)]
    return IntentCollection("made", train, test, train_intents=made[0], test_intents=made[1])


def test_intents_are_numbered_anew_for_each_query() -> None:
    collection = intent_data(3, 400)
    train, intents = collection.train, collection.train_intents
    marked = np.repeat(np.arange(4, dtype=np.int8)[:, None], train.n_rows, axis=1)
    orders = shuffle_intents(train, marked, 9)
    seen = [tuple(orders[:, start].tolist()) for start in train.offsets[:-1]]
    assert_follows(seen, dict.fromkeys(permutations(range(4)), 1 / 24))
    shuffled = shuffle_intents(train, intents, 9)
    for q in range(train.n_queries):
        rows, order = train.rows_of(q), orders[:, train.offsets[q]]
        assert np.array_equal(shuffled[:, rows], intents[order][:, rows])
    sizes = shuffled.sum(axis=1)
    assert sizes.max() / sizes.min() < 1.3 < intents.sum(axis=1).max() / intents.sum(axis=1).min()


def test_a_collection_s_own_intents_are_its_preferences() -> None:
    collection = intent_data(5, 20)
    shares = Preferences().split(collection, 4, 5, 1)
    labels = shares.data.labels.reshape(4, -1)
    assert set(np.unique(labels)) == {0, 4}, "a relevant document is clicked like one of the highest grade"
    any_intent = collection.train_intents.any(axis=0)
    assert np.array_equal(labels.sum(axis=0), 4 * collection.train_intents.sum(axis=0, dtype=np.int64))
    twin = Preferences(iid=True).split(collection, 4, 5, 1)
    assert np.array_equal(twin.data.labels, 4 * any_intent)
    two = Preferences(preferences=2).labels(collection, 1)[0]
    assert np.array_equal(two, labels[:2])
    chosen = Preferences(overlap=0.5).split(collection, 4, 5, 1)
    assert np.array_equal(chosen.data.labels.reshape(4, -1).max(axis=0), collection.train.labels)


def test_more_preferences_than_intents_are_refused() -> None:
    with pytest.raises(BadInput, match="made has 4 intents for each query, got preferences = 5"):
        Preferences(preferences=5).split(intent_data(1, 12), 8, 4, 1)


@pytest.fixture(scope="module")
def normalised() -> Collection:
    made = generate("mq2007", 300, 5)
    return Collection("made", normalize_queries(made.train), normalize_queries(made.test))


def centred(data: RankingData) -> np.ndarray:
    """Features minus their mean over the list, of all documents."""
    out = data.features.astype(np.float64)
    for q in range(data.n_queries):
        out[data.rows_of(q)] -= out[data.rows_of(q)].mean(axis=0)
    return out


def test_the_shared_part_of_known_overlaps() -> None:
    assert shared_part(0.5, 4) == 1 / 5  # 1/5 shared, 1/5 of one's own: half of 2/5 is shared
    assert (shared_part(0.0, 4), shared_part(1.0, 4)) == (0.0, 1.0)


def test_directions_say_what_kind_and_not_whether_relevant(normalised) -> None:
    """On relevant documents they have mean 0 and are uncorrelated with variance 1."""
    train = normalised.train
    found = centred(train)[train.labels > 0] @ preference_directions(train, 4, 1).T
    assert np.abs(found.mean(axis=0)).max() < 1e-6
    assert np.cov(found.T, bias=True) == pytest.approx(np.eye(4), abs=0.02)


def test_directions_lie_in_the_space_of_the_strongest_components(normalised) -> None:
    train = normalised.train
    relevant = centred(train)[train.labels > 0]
    mean, scale = relevant.mean(axis=0), relevant.std(axis=0)
    used = scale > 0
    standard = (relevant - mean)[:, used] / scale[used]
    toward = (mean[used] / scale[used]) / np.linalg.norm(mean[used] / scale[used])
    without = standard - np.outer(standard @ toward, toward)
    strongest = np.linalg.svd(without, full_matrices=False)[2][:4]
    weights = preference_directions(train, 4, 1)
    assert not weights[:, ~used].any()
    space = np.linalg.qr((weights[:, used] * scale[used]).T)[0]
    assert np.linalg.svd(strongest @ space)[1].min() > 0.99  # cosine of the largest angle between the spaces


@pytest.mark.parametrize(("features", "preferences"), [(1, 2), (2, 4), (3, 3), (5, 2)])
def test_few_features_are_enough(features, preferences) -> None:
    random = np.random.default_rng(features)
    data = RankingData.from_arrays(random.random((40, features)), random.integers(0, 3, 40), [0, 20, 40])
    weights = preference_directions(data, preferences, 1)
    assert weights.shape == (preferences, features) and np.isfinite(weights).all()
    labels = preference_labels(data, weights, 0.0, 0.5, 1)
    assert np.array_equal(labels.max(axis=0), data.labels)


def test_nothing_relevant_is_refused() -> None:
    with pytest.raises(BadInput, match="preferences divide relevant documents, and the training data have none"):
        preference_directions(RankingData.from_arrays(np.eye(3), [0, 0, 0], [0, 3]), 2, 1)


def slow_share_out(fit) -> list[int]:
    """The same rule in plain Python: best pairs first, parts that differ by one at most."""
    documents, preferences = fit.shape
    owner = [-1] * documents
    had = [0] * preferences
    pairs = sorted((-fit[i, p], i, p) for i in range(documents) for p in range(preferences))
    for _, i, p in pairs:
        larger = sum(count > documents // preferences for count in had)
        room = had[p] < documents // preferences or (
            had[p] == documents // preferences and larger < documents % preferences
        )
        if owner[i] < 0 and room:
            owner[i] = p
            had[p] += 1
    return owner


@given(
    st.tuples(st.integers(0, 14), st.integers(2, 6)).flatmap(
        lambda shape: arrays.arrays(np.float64, shape, elements=st.integers(-5, 5).map(float))
    )
)
def test_documents_are_shared_out_by_fit_and_evenly(fit) -> None:
    owner = share_out(fit)
    assert owner.tolist() == slow_share_out(fit)
    counts = np.bincount(owner, minlength=fit.shape[1])
    assert counts.max() - counts.min() <= 1 and counts.sum() == len(fit)
