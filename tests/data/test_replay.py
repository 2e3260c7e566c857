"""Replay of a log, against brute force: who searches when, in which order, and whose searches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.data.logs.generated import generated_log
from quorank.data.logs.records import UserSelection
from quorank.data.logs.splitting import log_collection
from quorank.data.partition import LogUsers
from quorank.data.partition.shares import MINUTE, LogReplay, by_arrival, side_by_side
from quorank.data.source import DataSource, load


def turns(replay: LogReplay) -> list[list[tuple[int, list[int]]]]:
    """The searches of each client of each round."""
    found = []
    for round_ in range(replay.rounds):
        clients, first, count = (column.tolist() for column in replay.turns(round_))
        found.append([(c, list(range(f, f + n))) for c, f, n in zip(clients, first, count, strict=True)])
    return found


def people(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    searches = np.array(counts, dtype=np.int64)
    return np.concatenate(([0], np.cumsum(searches)[:-1])).astype(np.int64), searches


def test_side_by_side_by_hand() -> None:
    replay = side_by_side(*people([5, 1, 4]), 2)
    assert turns(replay) == [[(0, [0, 1]), (2, [6, 7])], [(0, [2, 3]), (2, [8, 9])]]
    assert (replay.busiest, replay.smallest) == (2, 2)


def test_arrival_by_hand() -> None:
    """Clients A (searches 0 to 3 at 1, 2, 3, 9) and B (4, 5 at 2, 8): they come at 2 (A), 8 (B), 9 (A)."""
    first, searches = people([4, 2])
    times = np.array([1, 2, 3, 9, 2, 8]) * MINUTE
    assert turns(by_arrival(first, searches, times, 2, 1, None)) == [[(0, [0, 1])], [(1, [4, 5])], [(0, [2, 3])]]
    assert turns(by_arrival(first, searches, times, 2, 2, None)) == [[(0, [0, 1]), (1, [4, 5])], [(0, [2, 3])]]
    assert turns(by_arrival(first, searches, times, 2, 9, None)) == [[(0, [0, 1, 2, 3]), (1, [4, 5])]]
    assert turns(by_arrival(first, searches, times, 2, 9, 3.0)) == [[(0, [0, 1])], [(0, [2, 3]), (1, [4, 5])]]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 5)
)
def test_arrival_is_that_of_a_queue(moments: list[list[int]], batch: int, together: int) -> None:
    """Played one search after the other: whoever has done `batch` more joins the round, which ends with `together`."""
    moments = [sorted(own) for own in moments]
    first, searches = people([len(own) for own in moments])
    times = np.array([moment for own in moments for moment in own], dtype=np.int64) * MINUTE
    events = sorted((moment, client, place) for client, own in enumerate(moments) for place, moment in enumerate(own))
    waiting: dict[int, list[int]] = {client: [] for client in range(len(moments))}
    arrivals = []
    for _, client, place in events:
        waiting[client].append(int(first[client]) + place)
        if len(waiting[client]) == batch:
            arrivals.append((client, waiting[client]))
            waiting[client] = []
    expected = []
    for start in range(0, len(arrivals), together):
        round_: dict[int, list[int]] = {}
        for client, done in arrivals[start : start + together]:
            round_.setdefault(client, []).extend(done)
        expected.append(sorted(round_.items()))
    assert turns(by_arrival(first, searches, times, batch, together, None)) == expected


def test_the_busiest_users_are_taken_and_the_future_is_for_testing() -> None:
    log = generated_log("clicks", 500, 2)
    collection = log_collection(log, "x", UserSelection(4, 2))
    assert collection.log is not None
    train, test = collection.log.train, collection.log.test
    assert train.time.max() <= test.time.min()
    counts = np.bincount(log.user[:400], minlength=len(log.users))
    assert sorted(np.bincount(train.user).tolist()) == sorted(counts.tolist())[-4:]
    assert (np.diff(train.user) >= 0).all() and {*test.user.tolist()} <= {0, 1, 2, 3}
    for who in range(4):
        own = np.flatnonzero(train.user == who)
        number = list(log.users).index(train.users[who])
        assert [collection.train.query_ids[q] for q in own] == [
            str(s) for s in np.flatnonzero(log.user[:400] == number)
        ]
        rows = np.flatnonzero(np.repeat(log.user[:400] == number, 10))
        mine = np.concatenate([np.arange(collection.train.offsets[q], collection.train.offsets[q + 1]) for q in own])
        assert np.array_equal(collection.train.padded[mine], log.features[rows])
    with refused("log.too-few-users", "x"):
        log_collection(log, "x", UserSelection(400))
    with refused("log.unknown-user", "x"):
        log_collection(log, "x", UserSelection(2, without=("nobody",)))
    whole = log_collection(log, "x")
    assert np.array_equal(whole.train.padded, log.features[:4000]) and whole.test.n_queries == 100


def test_users_that_are_left_out_are_not_there() -> None:
    log = generated_log("clicks", 500, 2)
    chosen = log_collection(log, "x", UserSelection(3))
    assert chosen.log is not None
    busiest = chosen.log.train.users[int(np.argmax(np.bincount(chosen.log.train.user)))]
    without = log_collection(log, "x", UserSelection(3, without=(busiest,)))
    assert without.log is not None and busiest not in without.log.train.users


def test_the_twin_deals_the_same_searches_evenly() -> None:
    source = DataSource("synthetic:clicks", queries=400)
    collection = load(source, UserSelection(5))
    own = LogUsers(order="time").split(collection, 5, 3, 7)
    dealt = LogUsers(order="arrival", together=2, iid=True).split(collection, 5, 3, 7)
    assert sorted(own.data.query_ids) == sorted(dealt.data.query_ids)
    assert np.ptp(dealt.query_count) <= 1 < np.ptp(own.query_count)
    numbers = np.array([int(name) for name in dealt.data.query_ids])  # generated logs are in order of time
    for first, count in zip(dealt.first_query, dealt.query_count, strict=True):
        assert (np.diff(numbers[first : first + count]) > 0).all()
    row = {name: own.data.padded[own.data.rows_of(q)] for q, name in enumerate(own.data.query_ids)}
    for q, name in enumerate(dealt.data.query_ids):
        assert np.array_equal(dealt.data.padded[dealt.data.rows_of(q)], row[name])
    assert dealt.replay is not None and dealt.ranks is not None and len(dealt.ranks) == dealt.data.n_rows
    again = LogUsers(order="arrival", together=2, iid=True).split(collection, 5, 3, 8)
    assert again.data.query_ids != dealt.data.query_ids


@pytest.mark.parametrize("name", ["synthetic:mq2007", "synthetic:mslr"])
def test_collections_without_users_are_refused(name: str) -> None:
    with refused("log.no-users", "data.source"):
        load(DataSource(name, queries=10), UserSelection(2))
