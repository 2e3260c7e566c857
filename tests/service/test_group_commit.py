"""Group commit: calls that arrive together are written together, and each gets its own outcome."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorank.errors import BadInput
from quorank.service.store import group_commit
from quorank.service.store.group_commit import Call, EnrolmentCall, Outcome, Writer
from quorank.service.store.sql_store import SqlStore, open_store


class Slow(SqlStore):
    """Store whose transactions wait for a gate, and fail as requested."""

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
    found = Slow(tmp_path)
    found.gate.set()
    found.open_enrolment("word", 100, found.now() + 60.0)
    found.enrol(b"k" * 32, token="word")
    found.gate.clear()
    found.groups.clear()
    return found


def calls(count: int, content: bytes = b"", member: int = 0) -> list[Call]:
    return [Call(member, secrets.token_bytes(16), content=content) for _ in range(count)]


def played(writer: Writer, store: Slow, submitted: Sequence[Call | EnrolmentCall]) -> list[Outcome]:
    """Submit the first call, the others once its transaction has begun, and let it end."""

    async def play() -> list[Outcome]:
        tasks = [asyncio.create_task(writer.submit(submitted[0]))]
        await asyncio.sleep(0.1)
        tasks += [asyncio.create_task(writer.submit(one)) for one in submitted[1:]]
        await asyncio.sleep(0.0)
        store.gate.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(play())


def test_calls_during_a_transaction_are_one_group_and_each_has_its_outcome(slow: Slow) -> None:
    submitted = [*calls(20), *calls(1, member=9)]
    found = played(Writer(slow.take), slow, [*submitted, submitted[3]])
    assert [one.code for one in found] == [""] * 20 + ["request.unknown-member", "request.replayed"]
    assert slow.groups == [1, 21]


def test_enrolments_are_committed_together_with_other_calls(slow: Slow) -> None:
    """A rejected one leaves nothing, and the same key again is the same member."""
    keys = [bytes([number]) * 32 for number in range(5)]
    new = [EnrolmentCall(key, token="word") for key in (*keys, keys[2])]
    wrong = [EnrolmentCall(b"x" * 32, token="other"), EnrolmentCall(b"y" * 32, code=b"c" * 32)]
    found = played(Writer(slow.take), slow, [*calls(2), *new, *wrong])
    assert found[:2] == [Outcome()] * 2 and slow.groups == [1, 9]
    assert [(one.member, one.again) for one in found[2:8]] == [(number, False) for number in range(1, 6)] + [(3, True)]
    assert [one.code for one in found[8:]] == ["invitation.unknown"] * 2
    assert [one.key for one in slow.members()][1:] == keys and slow.next_number() == 6


@pytest.mark.parametrize(
    ("bound", "submitted", "expected"),
    [({"MOST_CALLS": 5}, (9, b""), 6), ({"MOST_BYTES": 100}, (3, b"x" * 60), 1)],
    ids=["calls", "bytes"],
)
def test_a_full_queue_is_busy_but_one_call_is_always_taken(slow: Slow, bound, submitted, expected, monkeypatch) -> None:
    for name, value in bound.items():
        monkeypatch.setattr(group_commit, name, value)
    writer = Writer(slow.take)
    codes = [one.code for one in played(writer, slow, calls(*submitted))]
    assert codes == [""] * expected + ["service.busy"] * (submitted[0] - expected)
    assert asyncio.run(writer.submit(calls(1, b"x" * 200)[0])) == Outcome()


@pytest.mark.parametrize(
    ("fault", "code"), [(OSError(28, "full"), "service.storage"), (BadInput("file.damaged", "x"), "file.damaged")]
)
def test_a_store_that_cannot_be_written_rejects_the_group_and_the_next_one_is_tried(
    slow: Slow, fault: Exception, code: str
) -> None:
    writer, slow.fault = Writer(slow.take), fault
    found = played(writer, slow, calls(3))
    assert [one.code for one in found] == ["service.storage"] * 3 and writer.fault == code
    slow.fault = None
    assert asyncio.run(writer.submit(calls(1)[0])) == Outcome() and writer.fault == ""


def test_a_stop_commits_waiting_calls_and_takes_nothing_more(slow: Slow) -> None:
    writer = Writer(slow.take)
    waiting = calls(5)

    async def play() -> list[Outcome]:
        tasks = [asyncio.create_task(writer.submit(one)) for one in waiting]
        await asyncio.sleep(0.05)
        tasks[1].cancel()  # its sender has disconnected
        writer.later(slow.note, "member_enrolled", client=7)
        slow.gate.set()
        await writer.stop()
        late = await writer.submit(calls(1)[0])
        return [*await asyncio.gather(*(tasks[:1] + tasks[2:])), late]

    assert [one.code for one in asyncio.run(play())] == [""] * 4 + ["service.busy"]
    assert {one.code for one in slow.take(waiting)} == {"request.replayed"}
    assert [one["client"] for one in slow.events()] == [7]
