"""Group commit: calls that come together are written together, and each gets its own outcome."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorank.errors import BadInput
from quorank.service.store.group_commit import Call, EnrolmentCall, Outcome, Writer
from quorank.service.store.sql_store import SqlStore, open_store


class Slow(SqlStore):
    """A store whose transactions wait for a gate, and fail as told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(folder).database)
        self.gate, self.groups = threading.Event(), list[int]()
        self.fault: Exception | None = None

    def take(self, calls: Sequence[Call | EnrolmentCall]) -> list[Outcome]:
        assert self.gate.wait(10.0)
        self.groups.append(len(calls))
        if self.fault is not None:
            raise self.fault
        return super().take(calls)


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    plain = open_store(tmp_path)
    plain.open_enrolment("word", 100, plain.now() + 60.0)
    plain.enrol(b"k" * 32, token="word")
    plain.close()
    return Slow(tmp_path)


def test_enrolments_are_committed_together_with_other_calls(slow: Slow) -> None:
    """Each has its own outcome: a refused one leaves nothing, and the same key again is the same member."""
    writer, keys = Writer(slow.take), [bytes([number]) * 32 for number in range(5)]
    new = [EnrolmentCall(key, token="word") for key in (*keys, keys[2])]
    wrong = [EnrolmentCall(b"x" * 32, token="other"), EnrolmentCall(b"y" * 32, code=b"c" * 32)]
    first, look, *found = played(writer, slow, [*calls(2), *new, *wrong])
    assert not first.code and not look.code and slow.groups == [1, 9]
    assert [one.member for one in found[:6]] == [1, 2, 3, 4, 5, 3] and [one.again for one in found[:6]] == [
        False
    ] * 5 + [True]
    assert [one.code for one in found[6:]] == ["invitation.unknown"] * 2
    assert [one.key for one in slow.members()][1:] == keys and slow.next_number() == 6
    writer.stop()


def calls(count: int, content: bytes = b"", member: int = 0) -> list[Call]:
    return [Call(member, secrets.token_bytes(16), content=content) for _ in range(count)]


def played(writer: Writer, store: Slow, submitted: Sequence[Call | EnrolmentCall]) -> list[Outcome]:
    """Submit the first, and the others once its transaction has begun; then let it end."""

    async def play() -> list[Outcome]:
        tasks = [asyncio.create_task(writer.submit(submitted[0]))]
        await asyncio.sleep(0.1)
        tasks += [asyncio.create_task(writer.submit(one)) for one in submitted[1:]]
        await asyncio.sleep(0.0)
        store.gate.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(play())


def test_what_comes_during_a_transaction_is_one_group_and_every_call_has_its_outcome(slow: Slow) -> None:
    writer = Writer(slow.take)
    submitted = [*calls(20), *calls(1, member=9)]
    found = played(writer, slow, [*submitted, submitted[3]])
    assert [one.code for one in found] == [""] * 20 + ["request.unknown-member", "request.replayed"]
    assert slow.groups == [1, 21]
    writer.stop()


def test_a_full_queue_is_busy(slow: Slow) -> None:
    writer = Writer(slow.take, most_calls=5)
    found = played(writer, slow, calls(9))
    assert [one.code for one in found] == [""] * 6 + ["service.busy"] * 3
    writer.stop()


def test_long_bodies_fill_the_queue_but_one_is_always_taken(slow: Slow) -> None:
    writer = Writer(slow.take, most_bytes=100)
    found = played(writer, slow, calls(3, b"x" * 60))
    assert [one.code for one in found] == ["", "service.busy", "service.busy"]
    assert asyncio.run(writer.submit(calls(1, b"x" * 200)[0])) == Outcome()
    writer.stop()


@pytest.mark.parametrize(
    ("fault", "code"), [(OSError(28, "full"), "service.storage"), (BadInput("file.damaged", "x"), "file.damaged")]
)
def test_a_store_that_cannot_be_written_refuses_the_group_and_the_next_one_is_tried(
    slow: Slow, fault: Exception, code: str
) -> None:
    writer = Writer(slow.take)
    slow.fault = fault
    found = played(writer, slow, calls(3))
    assert [one.code for one in found] == ["service.storage"] * 3 and writer.fault == code
    slow.fault = None
    assert asyncio.run(writer.submit(calls(1)[0])) == Outcome() and writer.fault == ""
    writer.stop()


def test_a_stop_commits_what_waits_and_takes_nothing_more(slow: Slow) -> None:
    writer = Writer(slow.take)
    waiting = calls(5)

    async def play() -> list[Outcome]:
        tasks = [asyncio.create_task(writer.submit(one)) for one in waiting]
        await asyncio.sleep(0.05)
        tasks[1].cancel()  # its sender has hung up
        slow.gate.set()
        await asyncio.to_thread(writer.stop)
        late = await writer.submit(calls(1)[0])
        return [*await asyncio.gather(*(tasks[:1] + tasks[2:])), late]

    assert [one.code for one in asyncio.run(play())] == [""] * 4 + ["service.busy"]
    assert {one.code for one in slow.take(waiting)} == {"request.replayed"}
