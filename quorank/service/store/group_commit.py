"""Group commit of members' calls: calls that arrive during one transaction are decided and committed by the next one.

A group reads at once all rows that its calls touch, decides them in order, and writes all changes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from quorank.errors import BadInput, require
from quorank.federation.unlearning import NOTHING
from quorank.protocol.messages import Publication
from quorank.protocol.requests import NONCE_SECONDS
from quorank.service.store.database import Database

NONCE_SLOT = 300.0  # seconds whose nonces expire together
SEEN_SECONDS = 30.0  # minimum seconds between two updates of a member's `seen`
MOST_CALLS = 10_000  # maximum number of calls that wait for a transaction
MOST_BYTES = 1 << 26  # maximum bytes of their bodies
GROUP = 1000  # maximum number of calls in one transaction, so that other workers and the holder get their turn

CallKind = Literal["look", "reply", "mail", "leave"]


class Call(NamedTuple):
    """Signed request whose signature and body are valid, to be committed."""

    member: int
    nonce: bytes
    kind: CallKind = "look"
    number: int = 0  # of the publication that a reply answers, or of the letter
    content: bytes = b""
    program: str = ""  # version of the member's program


class EnrolmentCall(NamedTuple):
    """Enrolment of a key by the code of an invitation or the token of an open enrolment."""

    key: bytes
    code: bytes = b""
    token: str = ""
    attestation: bytes = b""
    content: bytes = b""


class Outcome(NamedTuple):
    """Result of a call; `code` is empty where it was accepted."""

    code: str = ""
    sentence: str = ""
    again: bool = False  # the same call was committed before
    member: int = -1  # number of the enrolled member


def oldest_slot(now: float) -> int:
    """Return the first slot of nonces that must still be kept."""
    return int((now - NONCE_SECONDS) // NONCE_SLOT)


_REFUSALS = {
    "request.unknown-member": "no such member has enrolled",
    "request.revoked": "the operator has revoked this member",
    "request.left": "this member has left",
    "request.replayed": "this request was made before",
}


class CallGroup:
    """Calls of one transaction; `filled` counts the replies of the open round, `turns` all answers to letters."""

    def __init__(self, database: Database, open_: Publication | None, now: float, filled: int, turns: int) -> None:
        self._each, self._open, self._now, self.filled, self.turns = database.each, open_, now, filled, turns
        self._replies: list[tuple[str, int, int, bytes]] = []
        self._answers: list[tuple[int, int, bytes]] = []
        self._requests: list[tuple[int, float, bytes]] = []

    def take(self, calls: Sequence[Call]) -> list[Outcome]:
        """Decide the calls and write their changes; returns their outcomes in order."""
        query = (
            "SELECT number, key IS NOT NULL, revoked IS NOT NULL, gone IS NOT NULL, seen, program"
            " FROM {given} JOIN members ON number = given.id"
        )
        members = {row[0]: row[1:] for row in self._among(query, (call.member for call in calls))}
        barred = [self._barred(call, members.get(call.member)) for call in calls]
        allowed = [call for call, code in zip(calls, barred, strict=True) if not code]
        fresh = self._spend_nonces(allowed)
        self._read(allowed)
        outcomes = []
        for call, code in zip(calls, barred, strict=True):
            if not code and (call.member, call.nonce) not in fresh:
                code = "request.replayed"
            fresh.discard((call.member, call.nonce))
            outcomes.append(Outcome(code, _REFUSALS[code]) if code else self._decide(call))
        seen: dict[int, str | None] = {}
        for call in allowed:
            *_, before, program = members[call.member]
            version = call.program or program
            if before is None or before < self._now - SEEN_SECONDS or version != program:
                seen[call.member] = version
        self._write(seen)
        return outcomes

    def _among(self, query: str, numbers: Iterable[int]) -> list[Any]:
        """Return the rows of a query over a table `{given}` of numbers, `given.id`."""
        return self._each(query, ("id",), [(number,) for number in sorted(set(numbers))])

    @staticmethod
    def _barred(call: Call, member: tuple[Any, ...] | None) -> str:
        if member is None or not member[0]:
            return "request.unknown-member"
        if member[1]:
            return "request.revoked"
        return "request.left" if member[2] and call.kind != "leave" else ""

    def _spend_nonces(self, calls: Sequence[Call]) -> set[tuple[int, bytes]]:
        """Store the nonces; return those that were not stored before."""
        slot = int(self._now // NONCE_SLOT)
        near = range(oldest_slot(self._now) - slot, 2)  # one future slot: the clock may have been set back
        statement = (
            "INSERT INTO nonces SELECT given.slot, given.member, given.nonce FROM {given} WHERE NOT EXISTS"
            f" (SELECT 1 FROM nonces WHERE slot IN ({', '.join(f'given.slot + {step}' for step in near)})"
            " AND member = given.member AND nonce = given.nonce) RETURNING member, nonce"
        )
        rows = [(slot, *one) for one in dict.fromkeys((call.member, call.nonce) for call in calls)]
        return {(member, nonce) for member, nonce in self._each(statement, ("slot", "member", "nonce"), rows)}

    def _read(self, calls: Sequence[Call]) -> None:
        """Read the rows that the calls may touch: replies of the open round, turns, letters, requests to leave."""
        self._known: dict[int, bytes] = {}
        self._taken: dict[int, tuple[int, int]] = {}
        if self._open is not None:
            repliers = sorted({call.member for call in calls if call.kind == "reply"})
            columns, rows = ("run", "round", "member"), [(self._open.run, self._open.round, one) for one in repliers]
            query = "SELECT replies.member, content FROM {given} JOIN replies USING (run, round, member)"
            self._known = dict(self._each(query, columns, rows))
            if self._open.most or self._open.rest:
                query = "SELECT turns.member, taken, last FROM {given} JOIN turns USING (run, member)"
                self._taken = {member: (taken, last) for member, taken, last in self._each(query, columns, rows)}
        query = "SELECT letters.id, member, answer FROM {given} JOIN letters ON letters.id = given.id"
        wanted = (call.number for call in calls if call.kind == "mail" and 0 <= call.number < 1 << 63)
        self._letters = {row[0]: row[1:] for row in self._among(query, wanted)}
        query = "SELECT member, request FROM {given} JOIN leaving ON member = given.id"
        leavers = (call.member for call in calls if call.kind == "leave" and call.content)
        self._leavers = dict(self._among(query, leavers))

    def _decide(self, call: Call) -> Outcome:
        try:
            if call.kind == "reply":
                return self._reply(call)
            if call.kind == "mail":
                return self._answer(call)
            if call.kind == "leave" and call.content:  # without content it only asks for the state
                return self._leave(call)
        except BadInput as error:
            return Outcome(error.code, error.sentence)
        return Outcome()

    def _reply(self, call: Call) -> Outcome:
        open_, member = self._open, call.member
        if open_ is None:
            raise BadInput("reply.no-open-round", "no round is open for replies")
        open_.check_answers(member, call.number)
        if member in self._known:
            same = self._known[member] == call.content
            return _again(same, "reply.repeated", "this round was answered before with other bytes")
        open_.check_turn(*self._taken.get(member, (0, -1)), self.filled)
        self._known[member] = call.content
        self._replies.append((open_.run, open_.round, member, call.content))
        self.filled += call.content != NOTHING  # an empty reply does not count
        return Outcome()

    def _answer(self, call: Call) -> Outcome:
        member, answer = self._letters.get(call.number, (None, None))
        require(member == call.member, "mail.unknown", "there is no such message for this member")
        if answer is not None:
            return _again(answer == call.content, "mail.repeated", "this message was answered before with other bytes")
        self._letters[call.number] = (member, call.content)
        self.turns += 1
        self._answers.append((call.number, self.turns, call.content))
        return Outcome()

    def _leave(self, call: Call) -> Outcome:
        if call.member in self._leavers:
            same = self._leavers[call.member] == call.content
            return _again(same, "leaving.repeated", "this member has asked to leave before, with another request")
        self._leavers[call.member] = call.content
        self._requests.append((call.member, self._now, call.content))
        return Outcome()

    def _write(self, seen: Mapping[int, str | None]) -> None:
        self._each(
            "UPDATE members SET seen = given.seen, program = given.program FROM {given} WHERE number = given.member",
            ("member", "seen", "program"),
            [(member, self._now, program) for member, program in sorted(seen.items())],
        )
        columns = ("run", "round", "member", "content")
        new = "INSERT INTO replies (run, round, member, content) SELECT run, round, member, content FROM {given}"
        self._each(new, columns, self._replies)
        if self._open is not None and (self._open.most or self._open.rest):
            self._each(
                "INSERT INTO turns SELECT run, member, 1, round FROM {given} WHERE true"
                " ON CONFLICT (run, member) DO UPDATE SET taken = turns.taken + 1, last = excluded.last",
                columns[:3],
                [reply[:3] for reply in self._replies],
            )
        change = "UPDATE letters SET turn = given.turn, answer = given.answer FROM {given} WHERE letters.id = given.id"
        self._each(change, ("id", "turn", "answer"), self._answers)
        new = "INSERT INTO leaving (member, at, request) SELECT member, at, request FROM {given}"
        self._each(new, ("member", "at", "request"), self._requests)


def _again(same: bool, code: str, sentence: str) -> Outcome:
    require(same, code, sentence)
    return Outcome(again=True)


_BUSY = Outcome("service.busy", "the service has more requests than it can write; ask again later")
_STORAGE = Outcome("service.storage", "the service cannot write at the moment; nothing was accepted, ask again later")


class Writer:
    """Thread that commits calls by `SqlStore.take`: `outcome = await writer.submit(call)`."""

    def __init__(self, take: Callable[[Sequence[Call | EnrolmentCall]], list[Outcome]]) -> None:
        self.fault = ""  # code of the store's failure, for /healthz; empty once a transaction succeeds
        self._take, self._thread = take, ThreadPoolExecutor(1, "writer")
        self._waiting: list[tuple[Call | EnrolmentCall, asyncio.Future[Outcome]]] = []
        self._bytes, self._stopping = 0, False
        self._writing: asyncio.Task[None] | None = None

    async def submit(self, call: Call | EnrolmentCall) -> Outcome:
        """Commit a call; `service.busy` where too many wait, `service.storage` where the store cannot be written."""
        full = len(self._waiting) >= MOST_CALLS or (self._bytes and self._bytes + len(call.content) > MOST_BYTES)
        if self._stopping or full:
            return _BUSY
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        self._bytes += len(call.content)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_groups())
        return await future

    def later(self, work: Callable[..., object], *values: object, **named: object) -> None:
        """Schedule a less important write to the same store between two groups; failures are ignored."""
        self._thread.submit(work, *values, **named)

    async def stop(self) -> None:
        """Commit waiting calls, reject new ones, and end the thread; the store stays open."""
        self._stopping = True
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
            outcomes = await loop.run_in_executor(self._thread, self._commit, [call for call, _ in group])
            for (call, future), outcome in zip(group, outcomes, strict=True):
                self._bytes -= len(call.content)
                if not future.done():  # the request may have been cancelled
                    future.set_result(outcome)

    def _commit(self, calls: list[Call | EnrolmentCall]) -> list[Outcome]:
        try:
            outcomes = self._take(calls)
            self.fault = ""
        except Exception as error:  # nothing was confirmed, and the next group may succeed
            self.fault = error.code if isinstance(error, BadInput) else "service.storage"
            outcomes = [_STORAGE] * len(calls)
        return outcomes
