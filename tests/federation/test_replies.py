"""Replies that come together: verdicts and bits as one by one, one wait for the disk, memory that does not grow."""

from __future__ import annotations

import errno
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.federation import Federation
from quorank.federation import coordinator as coordinators
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.reply import Reply, encode_reply
from quorank.federation.rules import Median
from quorank.federation.storage import JOURNAL, DirectoryStorage, Journal
from quorank.privacy import Plain

SIZE = 7


def coordinator_of(clients=8, folder=None, size=SIZE, federation=None, **options) -> Coordinator:
    federation = federation or Federation(clients, 4)
    start = federation.start(np.zeros(size))
    return Coordinator(federation, Plain(), start, 3, storage=folder and DirectoryStorage(folder), **options)


def reply_of(client: int, size: int = SIZE, **changes) -> Reply:
    release = np.random.default_rng(client).normal(size=size)
    return replace(Reply("run", 0, client, release, 1 + client % 4, False, (1.0, 0.5, 2.0)), **changes)


def test_the_round_s_update_is_the_weighted_mean_of_the_replies() -> None:
    coordinator = coordinator_of(8)
    coordinator.plan()
    replies = [reply_of(client) for client in range(8)]
    coordinator.receive_many(replies)
    report = coordinator.advance()
    weights = np.array([reply.interactions for reply in replies], dtype=float)
    expected = weights @ np.array([reply.release for reply in replies]) / weights.sum()
    np.testing.assert_allclose(coordinator.state.theta, expected, atol=1e-14)
    assert report.interactions == weights.sum()
    assert report.clicks == pytest.approx(8 * 2.0 / weights.sum())


KINDS = st.sampled_from(["good", "again", "nan", "shape", "cut", "other run", "stranger"])


@settings(max_examples=40)
@given(st.lists(st.tuples(KINDS, st.integers(0, 7)), max_size=25), st.integers(1, 300))
def test_together_is_the_same_as_one_by_one(sent, group) -> None:
    rules = RoundLimits(minimum_fraction=0.1)
    contents: list[bytes] = []
    for kind, client in sent:
        good = reply_of(client)
        contents.append(
            {
                "nan": lambda good=good: encode_reply(replace(good, release=good.release * np.nan)),
                "shape": lambda good=good: encode_reply(replace(good, release=np.zeros(3))),
                "cut": lambda good=good: encode_reply(good)[:-2],
                "other run": lambda good=good: encode_reply(replace(good, run="other")),
                "stranger": lambda good=good: encode_reply(replace(good, client=99)),
            }.get(kind, lambda good=good: encode_reply(good))()
        )
    single, together = coordinator_of(limits=rules), coordinator_of(limits=rules)
    single.plan(), together.plan()
    verdicts = [single.receive(content) for content in contents]
    before = coordinators.GROUP_BYTES
    try:
        coordinators.GROUP_BYTES = group
        assert together.receive_many(contents) == verdicts
    finally:
        coordinators.GROUP_BYTES = before
    assert together.refused == single.refused
    assert together.waiting == single.waiting
    assert together.cohort_sum().total.tobytes() == single.cohort_sum().total.tobytes()


class Disk:
    """Counts how often the disk is waited for, and is full when told."""

    def __init__(self, monkeypatch) -> None:
        self.waits, self.full_after = 0, 10**9
        monkeypatch.setattr("quorank.federation.storage.os.fsync", self)

    def __call__(self, _: int) -> None:
        self.waits += 1
        if self.waits > self.full_after:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_the_disk_is_waited_for_once_and_nothing_is_lost(tmp_path, monkeypatch) -> None:
    disk, coordinator = Disk(monkeypatch), coordinator_of(folder=tmp_path)
    coordinator.plan()
    verdicts = coordinator.receive_many([reply_of(client) for client in (0, 1, 1, 2, 3)])
    assert [verdict.accepted for verdict in verdicts] == [True, True, False, True, True]
    assert disk.waits == 2  # for the replies, and for the name of a journal that is new
    coordinator.receive_many([])
    assert disk.waits == 2
    assert coordinator.receive(reply_of(4)).accepted
    assert disk.waits == 3
    again = coordinator_of(folder=tmp_path)  # killed here
    assert again.waiting == {5, 6, 7}
    assert again.cohort_sum().total.tobytes() == coordinator.cohort_sum().total.tobytes()


def test_on_a_full_disk_none_of_a_group_is_accepted(tmp_path, monkeypatch) -> None:
    disk, coordinator = Disk(monkeypatch), coordinator_of(folder=tmp_path)
    monkeypatch.setattr(coordinators, "GROUP_BYTES", 3 * 8 * SIZE)  # groups of three
    coordinator.plan()
    for first in (0, 1):  # the content of a new journal, and its name
        disk.full_after = disk.waits + first
        with pytest.raises(OSError, match="No space left"):
            coordinator.receive_many([reply_of(0)])
        assert coordinator.accepted_count == 0 and not (tmp_path / JOURNAL).exists()
    disk.full_after = disk.waits + 2
    with pytest.raises(OSError, match="No space left"):
        coordinator.receive_many([reply_of(client) for client in range(7)])
    assert coordinator.cohort - coordinator.waiting == {0, 1, 2}
    again = coordinator_of(folder=tmp_path)
    assert again.cohort - again.waiting == {0, 1, 2}
    disk.full_after = 10**9
    assert all(verdict.accepted for verdict in coordinator.receive_many([reply_of(c) for c in range(3, 8)]))
    coordinator.advance()


def test_what_broke_off_in_the_middle_of_a_group_is_cut(tmp_path) -> None:
    journal, records = Journal(tmp_path / JOURNAL), [bytes([n]) * (50 + n) for n in range(5)]
    journal.append(records)
    content = journal.path.read_bytes()
    ends = np.cumsum([20 + len(record) for record in records])
    assert ends[-1] == len(content)
    for size in (0, 10, 20, int(ends[0]), int(ends[2]) + 5, len(content) - 1, len(content)):
        journal.path.write_bytes(content[:size])
        whole = int(np.count_nonzero(ends <= size))
        assert list(journal.read()) == records[:whole]
        assert journal.path.stat().st_size == (ends[whole - 1] if whole else 0)


@pytest.mark.parametrize("statistics", [(1e30, 0.0, 0.0), (0.0, -1e12, 0.0)])
def test_statistics_that_cannot_be_summed_do_not_end_the_run(statistics) -> None:
    coordinator = coordinator_of(2)
    coordinator.plan()
    verdict = coordinator.receive(reply_of(0, statistics=statistics))
    assert "too large to be summed" in verdict.reason
    coordinator.receive_many([reply_of(0), reply_of(1)])
    assert coordinator.advance().participants == 2


def test_no_cohort_of_accepted_replies_is_too_large_to_be_summed() -> None:
    coordinator = coordinator_of(5, limits=RoundLimits(max_norm=1e300, max_interactions=4))
    coordinator.plan()
    largest = (2.0**36 - 1.0) / 4.0
    for client in range(5):
        release = np.full(SIZE, largest)
        assert coordinator.receive(reply_of(client, release=release, interactions=4)).accepted
    coordinator.advance()
    np.testing.assert_allclose(coordinator.state.theta, largest)


def peak_of(clients: int, federation: Federation) -> int:
    """The most memory that a round's replies, made one by one, held."""
    size = 2000
    coordinator = coordinator_of(clients, size=size, federation=federation)
    coordinator.plan()
    tracemalloc.start()
    for client in range(clients):
        coordinator.receive(Reply("run", 0, client, np.full(size, 0.1), 4))
    coordinator.cohort_sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_memory_of_a_mean_does_not_grow_with_its_cohort() -> None:
    peak_of(2, Federation(2, 4))  # what is compiled is loaded
    few, many = peak_of(20, Federation(20, 4)), peak_of(400, Federation(400, 4))
    assert many < few + 400 * 1000  # a client's number, not its 16,000 bytes
    kept = peak_of(400, Federation(400, 4, aggregation=Median()))
    assert kept > 400 * 16_000  # rules that look at single updates do keep them
