"""Partitions: what every kind promises, who owns which documents, what is refused."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from chance import assert_follows
from hypothesis import given
from hypothesis import strategies as st
from numbered import collections, numbered

from quorank.data.partition import ANY_CLICK_MODEL, PARTITIONS, Clicks, Even, LabelSplit, Preferences, Quantity
from quorank.errors import BadInput
from quorank.users import CLICK_MODELS, Cascade, PositionBased

KINDS = [
    Even(),
    Preferences(),
    Preferences(overlap=0.5, preferences=2, noise=0.0),
    LabelSplit(per_client=2),
    LabelSplit(shared=0.2),
    Clicks(model="position"),
    Quantity(),
]
TWINS = [
    Preferences(overlap=0.3, iid=True, quantity=(1, 9)),
    LabelSplit(iid=True, quantity=(2, 3)),
    LabelSplit(iid=True, shared=0.1),
    Clicks(iid=True, quantity=(2,)),
]


@pytest.mark.parametrize("part", [*KINDS, *TWINS], ids=str)
def test_every_partition_gives_each_client_something_to_search(tiny_graded, part) -> None:
    shares = part.split(tiny_graded, 23, 5, 7)
    for column in (shares.group, shares.click_model, shares.interactions):
        assert column.shape == (23,) and column.dtype == np.int64
    groups = len(shares.first_query)
    assert shares.query_count.shape == shares.test_of_group.shape == (groups,)
    assert set(shares.group) == set(range(groups))
    assert (shares.query_count > 0).all() and (shares.interactions > 0).all()
    assert (shares.first_query + shares.query_count).max() == shares.data.n_queries
    assert set(shares.test_of_group) == set(range(len(shares.tests)))
    assert shares.click_model.min() >= ANY_CLICK_MODEL and shares.click_model.max() < len(shares.click_models)
    assert (np.diff(shares.data.offsets) > 0).all()
    assert shares.data.max_label < tiny_graded.grades
    for test in shares.tests:
        assert np.array_equal(test.padded, tiny_graded.test.padded)
    again = part.split(tiny_graded, 23, 5, 7)
    for name in ("first_query", "query_count", "group", "click_model", "interactions", "test_of_group"):
        assert np.array_equal(getattr(shares, name), getattr(again, name))
    for a, b in zip((shares.data, *shares.tests), (again.data, *again.tests), strict=True):
        assert np.array_equal(a.padded, b.padded) and np.array_equal(a.labels, b.labels)
        assert np.array_equal(a.offsets, b.offsets) and list(a.query_ids) == list(b.query_ids)
    if part in TWINS:
        assert set(shares.first_query) == {0} and np.array_equal(shares.data.labels, tiny_graded.train.labels)


def test_even_changes_nothing(tiny_collection) -> None:
    shares = PARTITIONS.read("even", "partition").split(tiny_collection, 7, 4, 1)
    assert next(iter(PARTITIONS.members)) == "even"
    assert shares.data is tiny_collection.train and shares.tests == (tiny_collection.test,)
    assert shares.first_query.tolist() == [0] and shares.query_count.tolist() == [30]
    assert shares.interactions.tolist() == [4] * 7 and shares.click_models == (None,)
    assert not shares.group.any() and not shares.click_model.any()


# ---------------------------------------------------------------------------------------------- type 2: labels


@given(collections(), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_every_document_has_one_owner_and_every_client_its_labels(collection, per_client, clients, seed) -> None:
    train = collection.train
    try:
        shares = LabelSplit(per_client=per_client).split(collection, clients, 5, seed)
    except BadInput as refusal:
        labels = np.unique(train.labels)
        possible = len(list(combinations(labels, per_client)))
        scarce = min(np.bincount(train.labels)[labels]) < clients
        assert per_client > len(labels) or clients < possible or (scarce and "own label" in str(refusal))
        return
    data = shares.data
    rows = data.features[:, 0].astype(int)
    assert sorted(rows) == list(range(train.n_rows))
    assert np.array_equal(data.labels, train.labels[rows])
    query = np.repeat(np.arange(train.n_queries), np.diff(train.offsets))
    for q in range(data.n_queries):
        mine = rows[data.rows_of(q)]
        assert len(mine) and (np.diff(mine) > 0).all()
        assert {train.query_ids[query[row]] for row in mine} == {data.query_ids[q]}
    held, parts = [], {}
    for client in range(clients):
        lists = range(shares.first_query[client], shares.first_query[client] + shares.query_count[client])
        names = [data.query_ids[q] for q in lists]
        assert shares.group[client] == client and len(set(names)) == len(names)
        labels = Counter(int(label) for q in lists for label in data.labels[data.rows_of(q)])
        held.append(tuple(sorted(labels)))
        for label, count in labels.items():
            parts.setdefault(label, []).append(count)
    assert {len(labels) for labels in held} == {per_client}
    of_combination = Counter(held)
    assert set(of_combination) == set(combinations(np.unique(train.labels).tolist(), per_client))
    assert max(of_combination.values()) - min(of_combination.values()) <= 1
    for counts in parts.values():
        assert max(counts) - min(counts) <= 1


def test_documents_are_dealt_by_chance() -> None:
    """Each of a label's three owners gets a given document equally often, and clients get any label."""
    collection = numbered([3] * 4, [0, 1, 0] * 4)
    owners = [LabelSplit().owners(collection.train, 6, seed) for seed in range(1200)]
    assert_follows([int(owner[0]) % 2 for owner in owners], {0: 0.5, 1: 0.5})
    # 8 documents of label 0 among three owners: 3, 3 and 2
    assert_follows([int(owner[2]) // 2 for owner in owners], {0: 3 / 8, 1: 3 / 8, 2: 2 / 8})


@given(collections(), st.integers(1, 2), st.integers(2, 6), st.floats(0.01, 0.99), st.integers(0, 2**64 - 1))
def test_shared_queries_are_whole_everybodys_and_the_rest_has_one_owner(
    collection, per_client, clients, share, seed
) -> None:
    """Zhao et al. 2018 as the thesis uses it: a share of the queries for all, the others divided by label."""
    train, part = collection.train, LabelSplit(per_client=per_client, shared=share)
    sizes = np.diff(train.offsets)
    filled = int(np.count_nonzero(sizes))
    common = max(1, round(share * filled))
    try:
        shares = part.split(collection, clients, 5, seed)
    except BadInput as refusal:
        assert ("leaves none of" in str(refusal)) == (common >= filled)
        return
    data, names = shares.data, np.repeat(np.array(train.query_ids), sizes)
    held = []
    for client in range(clients):
        lists = range(shares.first_query[client], shares.first_query[client] + shares.query_count[client])
        rows = np.concatenate([data.features[data.rows_of(q), 0].astype(int) for q in lists])
        assert [data.query_ids[q] for q in lists] == list(dict.fromkeys(names[rows]))
        held.append(set(rows.tolist()))
        assert len(rows) == len(held[-1])
    rows = data.features[:, 0].astype(int)
    assert np.array_equal(data.labels, train.labels[rows])
    everybodys = set.intersection(*held)
    queries = {names[row] for row in everybodys}
    assert len(queries) == common
    assert everybodys == {row for row in range(train.n_rows) if names[row] in queries}
    counted = Counter(row for own in held for row in own - everybodys)
    assert set(counted) == set(range(train.n_rows)) - everybodys and set(counted.values()) <= {1}
    for own in held:
        assert len({int(train.labels[row]) for row in own - everybodys}) == per_client


def test_any_query_is_shared_equally_often_and_a_share_of_zero_changes_nothing() -> None:
    collection = numbered([3] * 5, [0, 1, 0] * 5)
    chosen = [np.flatnonzero(LabelSplit(shared=0.4).common_queries(collection.train, seed)) for seed in range(1000)]
    assert {len(queries) for queries in chosen} == {2}
    assert_follows([int(q) for queries in chosen for q in queries], dict.fromkeys(range(5), 0.2))
    assert not LabelSplit().common_queries(collection.train, 1).any()


def test_more_copies_of_shared_lists_than_memory_are_refused(tiny_graded, monkeypatch) -> None:
    monkeypatch.setattr("quorank.data.partition.labels.MOST_SHARED", 10_000)
    with pytest.raises(BadInput, match="each of 20 clients holds its own copy of the shared lists"):
        LabelSplit(shared=0.5).split(tiny_graded, 20, 5, 1)


# ---------------------------------------------------------------------------------- type 3 and 4: clicks, quantity


def test_clients_click_like_the_instantiations_in_turn(tiny_collection) -> None:
    cascade = Clicks().split(tiny_collection, 5, 4, 1)
    users = [CLICK_MODELS.read(dict(spec), "users") for spec in cascade.click_models]
    assert users == [Cascade(preset=name) for name in ("perfect", "navigational", "informational")]
    assert cascade.click_model.tolist() == [0, 1, 2, 0, 1]
    position = Clicks(model="position", preset="navigational").split(tiny_collection, 7, 4, 1)
    users = [CLICK_MODELS.read(dict(spec), "users") for spec in position.click_models]
    assert users == [PositionBased(eta=eta, preset="navigational") for eta in (0.0, 0.5, 1.0, 1.5, 2.0)]
    assert position.click_model.tolist() == [0, 1, 2, 3, 4, 0, 1]
    twin = Clicks(model="position", iid=True).split(tiny_collection, 3, 4, 1)
    assert twin.click_model.tolist() == [ANY_CLICK_MODEL] * 3 and len(twin.click_models) == 5
    assert cascade.data is twin.data is tiny_collection.train


def test_clients_search_more_or_less(tiny_collection) -> None:
    assert Quantity().split(tiny_collection, 7, 4, 1).interactions.tolist() == [1, 3, 5, 7, 9, 1, 3]
    assert Quantity(counts=(2, 6)).split(tiny_collection, 3, 4, 1).interactions.tolist() == [2, 6, 2]
    assert Clicks(quantity=(8,)).split(tiny_collection, 2, 4, 1).interactions.tolist() == [8, 8]
    labels = LabelSplit(quantity=(1, 3)).split(tiny_collection, 7, 5, 1)
    assert labels.interactions.tolist() == [1, 3, 1, 3, 1, 3, 1] and len(labels.query_count) == 7
    mixed = Preferences(quantity=(1, 3, 5, 7, 9)).split(tiny_collection, 6, 4, 1)
    assert mixed.interactions.tolist() == [1, 3, 5, 7, 9, 1] and len(mixed.query_count) == 4


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "preferences", "overlap": 1.1}, "overlap: must be at least 0 and at most 1, got 1.1"),
        ({"kind": "preferences", "overlap": float("nan")}, "overlap: expected a finite number"),
        ({"kind": "preferences", "preferences": 1}, "preferences: must be at least 2 and at most 1000, got 1"),
        ({"kind": "preferences", "noise": -1.0}, "noise: must be at least 0 and below"),
        ({"kind": "preferences", "quantity": []}, "quantity: must list the interactions of clients"),
        ({"kind": "labels", "per_client": 0}, "per_client: must be at least 1 and at most 127, got 0"),
        ({"kind": "labels", "quantity": [1, 0]}, "each at least 1, got \\[1, 0\\]"),
        ({"kind": "labels", "shared": 1.0}, "shared: must be at least 0 and below 1, got 1.0"),
        ({"kind": "preferences", "shared": 0.1}, "partition.shared: unknown key 'shared'"),
        ({"kind": "clicks", "model": "lazy"}, "expected one of 'cascade', 'position'"),
        ({"kind": "halves"}, "unknown partition 'halves'"),
    ],
)
def test_partitions_that_are_refused(table, sentence) -> None:
    with pytest.raises(BadInput, match=sentence):
        PARTITIONS.read(table, "partition")


@pytest.mark.parametrize(
    ("part", "clients", "sentence"),
    [
        (LabelSplit(per_client=4), 9, "per_client is 4, but the training documents have only the 3 labels 0, 1, 2"),
        (LabelSplit(), 2, "3 labels make 3 combinations of 1, .* got 2 clients; take at least 3"),
        (LabelSplit(), 3000, "1000 clients own label 0, of which there are only .* take fewer clients"),
        (Preferences(), 3, "4 preferences need a client each, got 3 clients"),
        (Even(), 0, "there must be at least one client, got 0"),
    ],
)
def test_federations_that_a_partition_refuses(tiny_collection, part, clients, sentence) -> None:
    with pytest.raises(BadInput, match=sentence):
        part.split(tiny_collection, clients, 4, 1)
