"""Directions of generated preferences against linear algebra of NumPy, and the sharing out against a slow one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quorank.data import Collection, RankingData
from quorank.data.normalisation import normalize_queries
from quorank.data.partition.preferences import preference_directions, preference_labels, share_out, shared_part
from quorank.data.synthetic import generate
from quorank.errors import BadInput


@pytest.fixture(scope="module")
def generated() -> Collection:
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


def test_directions_say_what_kind_and_not_whether_relevant(generated) -> None:
    """On relevant documents they have mean 0 and are uncorrelated with variance 1."""
    train = generated.train
    found = centred(train)[train.labels > 0] @ preference_directions(train, 4, 1).T
    assert np.abs(found.mean(axis=0)).max() < 1e-6
    assert np.cov(found.T, bias=True) == pytest.approx(np.eye(4), abs=0.02)


def test_directions_lie_in_the_space_of_the_strongest_components(generated) -> None:
    train = generated.train
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
