"""Calls of members, decided and committed in groups: what a group touches is read at once, and so is it written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from quorank.errors import BadInput, require
from quorank.federation.unlearning import NOTHING
from quorank.protocol.messages import Publication
from quorank.protocol.requests import NONCE_SECONDS
from quorank.service.store.database import Database

NONCE_SLOT = 300.0
"""Seconds whose nonces expire together."""
SEEN_SECONDS = 30.0
"""When a member was seen is not written again within these."""

What = Literal["look", "reply", "mail", "leave"]


class Call(NamedTuple):
    """One signed request whose signature and body were checked, to be committed."""

    member: int
    nonce: bytes
    what: What = "look"
    number: int = 0  # of the publication that a reply answers, or of the message that an answer is for
    content: bytes = b""
    program: str = ""  # the version that the member runs, where it says so


class EnrolmentCall(NamedTuple):
    """A key that wants to be a member, by the code of an invitation or the token of an open enrolment."""

    key: bytes
    code: bytes = b""
    token: str = ""
    content: bytes = b""


class Outcome(NamedTuple):
    """What became of a call: a code where it was refused, else none."""

    code: str = ""
    sentence: str = ""
    again: bool = False  # the same was committed before
    member: int = -1  # who has enrolled


def oldest_slot(now: float) -> int:
    """The first slot of nonces that must not be forgotten yet."""
    return int((now - NONCE_SECONDS) // NONCE_SLOT)


_UNKNOWN = Outcome("request.unknown-member", "no such member has enrolled")
_REVOKED = Outcome("request.revoked", "the operator has revoked this member")
_LEFT = Outcome("request.left", "this member has left")
_REPLAYED = Outcome("request.replayed", "this request was made before")


class CallGroup:
    """Calls of one transaction. `filled`: replies that the open round has; `turns`: answers that were ever given."""

    def __init__(self, database: Database, open_: Publication | None, now: float, filled: int, turns: int) -> None:
        self._database, self._open, self._now, self.filled, self.turns = database, open_, now, filled, turns
        self._replies: list[tuple[str, int, int, bytes]] = []
        self._answers: list[tuple[int, int, bytes]] = []
        self._requests: list[tuple[int, float, bytes]] = []

    def take(self, calls: Sequence[Call]) -> list[Outcome]:
        """What becomes of each call, in their order."""
        query = (
            "SELECT number, key IS NOT NULL, revoked IS NOT NULL, gone IS NOT NULL, seen, program"
            " FROM {given} JOIN members ON number = given.id"
        )
        members = {row[0]: row[1:] for row in self._among(query, (call.member for call in calls))}
        barred = [self._barred(call, members.get(call.member)) for call in calls]
        let_in = [call for call, outcome in zip(calls, barred, strict=True) if outcome is None]
        fresh = self._spend_nonces(let_in)
        self._read(let_in)
        outcomes = []
        for call, outcome in zip(calls, barred, strict=True):
            if outcome is None and (call.member, call.nonce) not in fresh:
                outcome = _REPLAYED
            elif outcome is None:
                fresh.discard((call.member, call.nonce))
                outcome = self._decide(call)
            outcomes.append(outcome)
        late, seen = self._now - SEEN_SECONDS, {}
        for call in let_in:
            *_, before, program = members[call.member]
            told = call.program or program
            if before is None or before < late or told != program:
                seen[call.member] = told
        self._write(seen)
        return outcomes

    def _among(self, query: str, numbers: Iterable[int]) -> list[tuple[Any, ...]]:
        """Rows of a query over a table `{given}` of numbers, `given.id`."""
        return self._database.each(query, {"id": "bigint"}, [(number,) for number in sorted(set(numbers))])

    @staticmethod
    def _barred(call: Call, member: tuple[Any, ...] | None) -> Outcome | None:
        if member is None or not member[0]:
            return _UNKNOWN
        if member[1]:
            return _REVOKED
        return _LEFT if member[2] and call.what != "leave" else None

    def _spend_nonces(self, calls: Sequence[Call]) -> set[tuple[int, bytes]]:
        """The nonces that were not spent before."""
        slot = int(self._now // NONCE_SLOT)
        near = range(oldest_slot(self._now) - slot, 2)  # one slot to come: the clock may have been set back
        statement = (
            "INSERT INTO nonces SELECT given.slot, given.member, given.nonce FROM {given} WHERE NOT EXISTS"
            f" (SELECT 1 FROM nonces WHERE slot IN ({', '.join(f'given.slot + {step}' for step in near)})"
            " AND member = given.member AND nonce = given.nonce) RETURNING member, nonce"
        )
        rows = [(slot, *one) for one in dict.fromkeys((call.member, call.nonce) for call in calls)]
        found = self._database.each(statement, {"slot": "bigint", "member": "bigint", "nonce": "bytea"}, rows)
        return {(member, nonce) for member, nonce in found}

    def _read(self, calls: Sequence[Call]) -> None:
        """What the calls may touch: replies of the open round, turns of the run, letters, requests to leave."""
        self._known: dict[int, bytes] = {}
        self._taken: dict[int, tuple[int, int]] = {}
        repliers = sorted({call.member for call in calls if call.what == "reply"})
        if self._open is not None and repliers:
            place = (self._open.run, self._open.round)
            columns = {"run": "text", "round": "bigint", "member": "bigint"}
            rows = [(*place, member) for member in repliers]
            query = (
                "SELECT replies.member, content FROM {given} JOIN replies"
                " ON replies.run = given.run AND replies.round = given.round AND replies.member = given.member"
            )
            self._known = dict(self._database.each(query, columns, rows))
            if self._open.most or self._open.rest:
                query = (
                    "SELECT turns.member, taken, last FROM {given} JOIN turns"
                    " ON turns.run = given.run AND turns.member = given.member"
                )
                self._taken = {m: (taken, last) for m, taken, last in self._database.each(query, columns, rows)}
        query = "SELECT letters.id, member, answer FROM {given} JOIN letters ON letters.id = given.id"
        wanted = (call.number for call in calls if call.what == "mail" and 0 <= call.number < 1 << 63)
        self._letters = {row[0]: row[1:] for row in self._among(query, wanted)}
        query = "SELECT member, request FROM {given} JOIN leaving ON member = given.id"
        leavers = (call.member for call in calls if call.what == "leave" and call.content)
        self._leavers = dict(self._among(query, leavers))

    def _decide(self, call: Call) -> Outcome:
        try:
            if call.what == "reply":
                return self._reply(call)
            if call.what == "mail":
                return self._answer(call)
            if call.what == "leave" and call.content:  # without, it only asks how far its leaving is
                return self._leave(call)
        except BadInput as error:
            return Outcome(error.code, error.sentence)
        return Outcome()

    def _reply(self, call: Call) -> Outcome:
        open_, member = self._open, call.member
        if open_ is None:
            raise BadInput("reply.no-open-round", "no round is open that takes replies")
        open_.check_answers(member, call.number)
        if member in self._known:
            same = self._known[member] == call.content
            return _again(same, "reply.repeated", "this round was answered before, otherwise")
        open_.check_turn(*self._taken.get(member, (0, -1)), self.filled)
        self._known[member] = call.content
        self._replies.append((open_.run, open_.round, member, call.content))
        self.filled += call.content != NOTHING  # one that holds nothing takes nobody's place
        return Outcome()

    def _answer(self, call: Call) -> Outcome:
        member, answer = self._letters.get(call.number, (None, None))
        require(member == call.member, "mail.unknown", "there is no such message for this member")
        if answer is not None:
            return _again(answer == call.content, "mail.repeated", "this message was answered before, otherwise")
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
        each, now = self._database.each, self._now
        each(
            "UPDATE members SET seen = given.at, program = given.program FROM {given} WHERE number = given.member",
            {"member": "bigint", "at": "double precision", "program": "text"},
            [(member, now, program) for member, program in sorted(seen.items())],
        )
        each(
            "INSERT INTO replies (run, round, member, content) SELECT run, round, member, content FROM {given}",
            {"run": "text", "round": "bigint", "member": "bigint", "content": "bytea"},
            self._replies,
        )
        if self._open is not None and (self._open.most or self._open.rest):
            each(
                "INSERT INTO turns SELECT run, member, 1, round FROM {given} WHERE true"
                " ON CONFLICT (run, member) DO UPDATE SET taken = turns.taken + 1, last = excluded.last",
                {"run": "text", "round": "bigint", "member": "bigint"},
                [reply[:3] for reply in self._replies],
            )
        each(
            "UPDATE letters SET turn = given.turn, answer = given.answer FROM {given} WHERE id = given.letter",
            {"letter": "bigint", "turn": "bigint", "answer": "bytea"},
            self._answers,
        )
        each(
            "INSERT INTO leaving (member, at, request) SELECT member, at, request FROM {given}",
            {"member": "bigint", "at": "double precision", "request": "bytea"},
            self._requests,
        )
        if self._replies or self._answers:
            change = "UPDATE service SET filled = ?, turns = ? WHERE id = 1"
            self._database.execute(change, self.filled, self.turns)


def _again(same: bool, code: str, sentence: str) -> Outcome:
    require(same, code, sentence)
    return Outcome(again=True)
