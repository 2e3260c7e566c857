"""Data that a program gives: rows in any order become lists, what does not fit is refused with its place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from refusals import refused

from quorank.data import Collection, DataSource, RankingData, load
from quorank.data.normalisation import normalize_queries
from quorank.data.partition import Assigned
from quorank.data.ranking import grouped_rows
from quorank.data.source import array_source_name, normalised_arrays


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.booleans())
def test_rows_of_a_query_stand_together_in_their_order(group: list[int], texts: bool) -> None:
    """Against a dictionary of lists, which keeps queries as they occur."""
    expected: dict[str, list[int]] = {}
    for row, query in enumerate(group):
        expected.setdefault(str(query), []).append(row)
    order, offsets, names = grouped_rows([str(query) for query in group] if texts else group, len(group))
    assert names == [*expected]
    lists = [order[a:b].tolist() for a, b in pairwise(offsets.tolist())]
    assert lists == [*expected.values()]


def test_sizes_are_lists_one_behind_the_other() -> None:
    order, offsets, names = grouped_rows([2, 0, 2], 4)
    assert (order.tolist(), offsets.tolist(), names) == ([0, 1, 2, 3], [0, 2, 4], ["0", "2"])
    assert grouped_rows(None, 3)[1].tolist() == [0, 3]
    for wrong in ([2, 2], [[1], [2], [3]], [4, -1]):
        with refused("ranking-data.length", "group"):
            grouped_rows(wrong, 3)
    with refused("ranking-data.not-names", "group"):
        grouped_rows([1.0, float("nan"), 2.0], 3)


def test_rows_become_ranking_data() -> None:
    data = RankingData.from_rows([[1, 2], [3, 4], [5, 6]], [0, 1, 2], ["b", "a", "b"], ["x", "y", "z"])
    assert data.features.tolist() == [[1, 2], [5, 6], [3, 4]] and data.labels.tolist() == [0, 2, 1]
    assert [*data.query_ids] == ["b", "a"] and data.document_ids == ["x", "z", "y"]
    assert RankingData.from_rows([[1, 2]]).labels.tolist() == [0]
    with refused("ranking-data.length", "document_ids"):
        RankingData.from_rows([[1, 2]], document_ids=["x", "y"])


def test_the_digest_is_of_all_that_a_run_reads(tiny_collection: Collection) -> None:
    known = {array_source_name(tiny_collection), array_source_name(replace(tiny_collection, name="other"))}
    assert len(known) == 1
    train, test = tiny_collection.train, tiny_collection.test
    labels = train.labels.copy()
    labels[3] ^= 1
    features = train.features.copy()
    features[5, 2] += 1.0
    offsets = train.offsets.copy()
    offsets[2] -= 1
    for changed in (
        replace(tiny_collection, train=replace(train, labels=labels)),
        replace(tiny_collection, train=train.with_features(features)),
        replace(tiny_collection, train=replace(train, offsets=offsets)),
        replace(tiny_collection, train=replace(train, query_ids=[f"{name}x" for name in train.query_ids])),
        replace(tiny_collection, validation=test),
        replace(tiny_collection, train=test),
    ):
        known.add(array_source_name(changed))
    assert len(known) == 7


def test_given_data_are_normalised_as_the_source_says(tiny_collection: Collection) -> None:
    source = DataSource(array_source_name(tiny_collection))
    found = normalised_arrays(tiny_collection, source)
    assert np.array_equal(found.train.features, normalize_queries(tiny_collection.train).features)
    raw = normalised_arrays(tiny_collection, replace(source, normalize="none"))  # type: ignore[arg-type]
    assert np.array_equal(raw.test.features, tiny_collection.test.features)
    with refused("data.other-arrays"):
        normalised_arrays(replace(tiny_collection, train=tiny_collection.test), source)
    with refused("data.not-in-a-file"):
        load(source)


def test_an_assignment_gives_each_client_its_queries(tiny_collection: Collection) -> None:
    train, random = tiny_collection.train, np.random.default_rng(1)
    owner = np.concatenate((np.arange(4), random.integers(0, 4, train.n_queries - 4)))
    random.shuffle(owner)
    shares = Assigned(tuple(owner.tolist())).split(tiny_collection, 4, 3, 1)
    for client in range(4):
        group = shares.group[client]
        first, count = shares.first_query[group], shares.query_count[group]
        queries = [shares.data.query_ids[q] for q in range(first, first + count)]
        assert queries == [train.query_ids[q] for q in np.flatnonzero(owner == client)]
        for at, query in enumerate(np.flatnonzero(owner == client)):
            rows = shares.data.rows_of(first + at)
            assert np.array_equal(shares.data.features[rows], train.features[train.rows_of(query)])
            assert np.array_equal(shares.data.labels[rows], train.labels[train.rows_of(query)])
    assert shares.interactions.tolist() == [3] * 4


def test_assignments_that_are_refused(tiny_collection: Collection) -> None:
    queries = tiny_collection.train.n_queries
    for clients, code in (
        ((0,) * (queries - 1), "partition.other-queries"),
        ((0,) * (queries - 1) + (3,), "partition.unknown-client"),
        ((0,) * (queries - 1) + (2,), "partition.client-without-queries"),
    ):
        with refused(code):
            Assigned(clients).split(tiny_collection, 3, 1, 1)


X, Y, OFFSETS = np.arange(8.0).reshape(4, 2), [0, 1, 2, 4], [0, 1, 4]


def test_what_fits_is_taken_as_it_is() -> None:
    for labels in (Y, np.array(Y, dtype=np.float32), np.array(Y, dtype=np.uint8), [False, True, False, True]):
        data = RankingData.from_arrays(X, labels, OFFSETS)
        assert data.labels.tolist() == [int(label) for label in labels]
        assert (data.n_queries, data.features.tolist()) == (2, X.tolist())
    assert RankingData.from_arrays(X, [0, 1, 2, 127], [0.0, 4.0]).max_label == 127
    assert RankingData.from_arrays(X, Y, [0, 0, 4]).longest == 4  # a query without documents
    assert RankingData.from_arrays(np.zeros((0, 3)), [], [0]).n_queries == 0


@pytest.mark.parametrize(
    ("features", "labels", "offsets", "code", "where"),
    [
        (X, [0, 0.5, 1, 2], OFFSETS, "ranking-data.label-fractional", "labels row 1"),
        (X, [0, 1, -1, -2], OFFSETS, "ranking-data.label-negative", "labels row 2"),
        (X, [0, 1, 1, 300], OFFSETS, "ranking-data.label-too-high", "labels row 3"),  # 44 as a byte
        (X, [0, np.nan, 1, 2], OFFSETS, "ranking-data.not-finite", "labels row 1"),
        (X, ["0", "1", "1", "2"], OFFSETS, "ranking-data.not-numbers", "labels"),
        (X, [0, 1, 1], OFFSETS, "ranking-data.length", "labels"),
        (X, [[0], [1], [1], [2]], OFFSETS, "ranking-data.shape", "labels"),
        (X, Y, [0, 3, 1, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [0, 3], "ranking-data.offsets", "offsets"),
        (X, Y, [1, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [0, 1.5, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [], "ranking-data.offsets", "offsets"),
        (np.where(X == 5.0, np.nan, X), Y, OFFSETS, "ranking-data.not-finite", "features row 2"),
        (np.where(X == 2.0, 1e39, X), Y, OFFSETS, "ranking-data.not-finite", "features row 1"),  # infinite as float32
        (X.ravel(), Y, OFFSETS, "ranking-data.shape", "features"),
        ([[1.0], [1.0, 2.0]], [0, 1], [0, 2], "ranking-data.shape", "features"),
        (X + 1j, Y, OFFSETS, "ranking-data.not-numbers", "features"),
    ],
)
def test_what_does_not_fit_is_refused(features, labels, offsets, code, where) -> None:
    with refused(code, where):
        RankingData.from_arrays(features, labels, offsets)


def test_names_must_be_as_many_as_what_they_name() -> None:
    with refused("ranking-data.length", "query_ids"):
        RankingData.from_arrays(X, Y, OFFSETS, ["a"])
    with refused("ranking-data.length", "document_ids"):
        RankingData.from_arrays(X, Y, OFFSETS, document_ids=["a"])


NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, (7, 5), elements=NUMBER), st.sampled_from([[0, 7], [0, 1, 7], [0, 3, 3, 7]]))
def test_each_query_and_feature_is_brought_to_0_1(features, offsets):
    data = RankingData.from_arrays(features, np.zeros(7), offsets)
    before = data.padded.copy()
    found = normalize_queries(data).features
    assert np.array_equal(before, data.padded)
    for first, last in pairwise(offsets):
        block = features[first:last].astype(np.float64)
        if first == last:
            continue
        low, high = block.min(axis=0), block.max(axis=0)
        spread = np.where(high > low, high - low, 1)
        expected = np.where(high > low, (block - low) / spread, 0).astype(np.float32)
        assert np.array_equal(found[first:last], expected)
    normal = normalize_queries(data)
    assert not normal.padded[:, 5:].any() and np.array_equal(normalize_queries(normal).padded, normal.padded)
