"""What a service keeps: members, the task of the moment, replies, messages, leavers, documents of the holder.

Intake workers commit what members send (`take`), in groups, before they say yes. The holder of the coordinator publishes
tasks and takes committed replies; whatever it writes carries its epoch, and is refused once another process holds the
coordinator, so that one that was only asleep cannot undo what its follower did. A round ends in one transaction: the
holder's documents (its checkpoint among them), the next task, and the end of the round's replies.

`SqlStore` is the one implementation; `SQLite` and `PostgreSQL` say how each database is spoken to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from quorank.documents import Each, parse_json
from quorank.errors import require
from quorank.federation.requests import NONCE_SECONDS

FORMAT = 1
EVENTS = 1000
"""So many of the newest events are kept."""

Kind = Literal["round", "secure", "rebuilding", "tuning", "over"]
What = Literal["look", "reply", "mail", "leave"]


class Call(NamedTuple):
    """One signed request whose signature and body were checked, to be committed."""

    member: int
    nonce: bytes
    what: What = "look"
    number: int = 0  # of the publication that a reply answers, or of the message that an answer is for
    content: bytes = b""


class Outcome(NamedTuple):
    """What became of a call: a code where it was refused, else none."""

    code: str = ""
    sentence: str = ""
    again: bool = False  # the same was committed before


@dataclass(frozen=True)
class Publication:
    """The task of the moment: the same bytes for all."""

    kind: Kind
    run: str
    round: int
    content: bytes
    signature: bytes
    next: float  # seconds until it is worth asking again
    number: int = 0  # counts publications; given by the store
    room: int = 0  # replies that the round takes; 0: one of each member that is asked
    most: int = 0  # times that a member may reply in the run; 0: as often as it is asked
    rest: int = 0  # rounds that a member sits out after a reply
    asked: bytes = b""  # numbers of the members that are asked, as little-endian u32 in order; none: everybody
    opened: float = 0.0  # when, by the store's clock


@dataclass(frozen=True)
class Member:
    """One who was invited or has enrolled."""

    number: int
    name: str
    kind: str
    key: bytes | None  # None: not enrolled yet
    invited: float
    enrolled: float | None = None
    revoked: float | None = None
    left: float | None = None
    seen: float | None = None
    taken: int = 0  # replies of this run that were accepted
    last: int = -1  # the round of the last one

    @property
    def admitted(self) -> bool:
        """Whether it may take part."""
        return self.key is not None and self.revoked is None and self.left is None


class StoredReply(NamedTuple):
    """A committed reply."""

    id: int
    member: int
    content: bytes


class Letter(NamedTuple):
    """A message to a member, and its answer once there is one."""

    id: int
    member: int
    content: bytes
    answer: bytes | None = None


class Finished(NamedTuple):
    """The end of a round's replies, and of all before it."""

    run: str
    round: int
    taken: int | None = None  # the last one that the holder has taken in: with a later one the round is not over


class HolderLost(Exception):
    """Another process holds the coordinator."""


class RepliesCame(Exception):
    """Replies were committed to a round after its holder had last looked; it has to take them in before its end."""


class Database(Protocol):
    """How a database is spoken to. Statements have `?` for their values."""

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement; of one that changes rows and returns none, one row with how many it changed."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, and on disk when it ends; nobody else writes meanwhile."""

    def create(self) -> None:
        """Make the tables (`tables`) where they are not there."""

    def try_lock(self) -> bool:
        """Take the lock of the holder, until this process ends or `unlock`; False where another has it."""

    def unlock(self) -> None:
        """Let go of it."""

    def now(self) -> float:
        """Seconds since 1970, by the one clock that all workers and hosts of the store share."""

    def close(self) -> None:
        """Hang up."""


_PUBLICATION = "number, kind, run, round, content, signature, next, room, most, rest, asked, opened"
_MEMBER = "number, name, kind, key, invited, enrolled, revoked, gone, seen, taken, last"


class SqlStore:
    """The store of one service in a database."""

    def __init__(self, database: Database) -> None:
        self.database, self._pruned = database, 0.0
        database.create()
        with database.transaction():
            database.execute("INSERT INTO service VALUES (1, ?, 0, 0) ON CONFLICT DO NOTHING", FORMAT)
        ((found,),) = database.execute("SELECT format FROM service WHERE id = 1")
        sentence = f"the store is of format {found}, and this Quorank reads {FORMAT}; install the newer one"
        require(found == FORMAT, "store.version", sentence)

    def close(self) -> None:
        """Hang up."""
        self.database.close()

    def now(self) -> float:
        """By the clock that all workers and hosts share."""
        return self.database.now()

    def version(self) -> int:
        """Changes whenever what workers look at does: the task, members, messages."""
        return int(self.database.execute("SELECT version FROM service WHERE id = 1")[0][0])

    def _changed(self) -> None:
        self.database.execute("UPDATE service SET version = version + 1 WHERE id = 1")

    # ------------------------------------------------------------ what members send

    def take(self, calls: Sequence[Call]) -> list[Outcome]:
        """Commit calls that came together, in their order; what is accepted is on disk when this returns."""
        now = self.now()
        with self.database.transaction():
            open_ = self.publication()
            room = self._room(open_)
            outcomes = []
            for call in calls:
                outcome = self._take(call, now, open_, room)
                if call.what == "reply" and not outcome.code and not outcome.again:
                    room -= 1
                outcomes.append(outcome)
            if now - self._pruned > NONCE_SECONDS / 10.0:
                self.database.execute("DELETE FROM nonces WHERE at < ?", now - NONCE_SECONDS)
                self._pruned = now
        return outcomes

    def _room(self, open_: Publication | None) -> float:
        """How many replies the open round still takes."""
        if open_ is None or open_.room == 0:
            return float("inf")
        query = "SELECT count(*) FROM replies WHERE run = ? AND round = ?"
        return open_.room - int(self.database.execute(query, open_.run, open_.round)[0][0])

    def _take(self, call: Call, now: float, open_: Publication | None, room: float) -> Outcome:
        row = self.database.execute(f"SELECT {_MEMBER} FROM members WHERE number = ?", call.member)
        member = Member(*row[0]) if row else None
        if member is None or member.key is None:
            return Outcome("request.unknown-member", "no such member has enrolled")
        if member.revoked is not None:
            return Outcome("request.revoked", "the operator has revoked this member")
        if member.left is not None and call.what != "leave":
            return Outcome("request.left", "this member has left")
        new = "INSERT INTO nonces VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self._count(new, call.member, call.nonce, now) == 0:
            return Outcome("request.replayed", "this request was made before")
        if member.seen is None or now - member.seen > 30.0:
            self.database.execute("UPDATE members SET seen = ? WHERE number = ?", now, call.member)
        if call.what == "reply":
            return self._reply(call, member, open_, room)
        if call.what == "mail":
            return self._answer(call)
        if call.what == "leave":
            return self._leave(call, now)
        return Outcome()

    def _count(self, statement: str, *values: Any) -> int:
        """How many rows a statement changed."""
        return int(self.database.execute(statement, *values)[0][0])

    def _reply(self, call: Call, member: Member, open_: Publication | None, room: float) -> Outcome:
        if open_ is None or open_.kind in ("secure", "over"):
            return Outcome("reply.no-open-round", "no round is open that takes replies")
        if call.number != open_.number:
            return Outcome("reply.other-round", "the round of this reply is over")
        if open_.asked and not _is_in(call.member, open_.asked):
            return Outcome("reply.unasked", "this member was not asked in this round")
        known = self.database.execute(
            "SELECT content FROM replies WHERE run = ? AND round = ? AND member = ?",
            open_.run,
            open_.round,
            call.member,
        )
        if known:
            same = bytes(known[0][0]) == call.content
            return (
                Outcome(again=True) if same else Outcome("reply.repeated", "this round was answered before, otherwise")
            )
        if open_.most and member.taken >= open_.most:
            return Outcome("reply.too-often", f"a member takes part {open_.most} times at most")
        if open_.rest and member.last >= 0 and open_.round - member.last <= open_.rest:
            return Outcome("reply.resting", f"a member sits out {open_.rest} rounds after a reply")
        if room <= 0:
            return Outcome("reply.round-full", "the round has all the replies that it takes")
        self.database.execute(
            "INSERT INTO replies (run, round, member, content) VALUES (?, ?, ?, ?)",
            open_.run,
            open_.round,
            call.member,
            call.content,
        )
        if open_.most or open_.rest:
            turn = "UPDATE members SET taken = taken + 1, last = ? WHERE number = ?"
            self.database.execute(turn, open_.round, call.member)
        return Outcome()

    def _answer(self, call: Call) -> Outcome:
        found = self.database.execute("SELECT member, answer FROM letters WHERE id = ?", call.number)
        if not found or found[0][0] != call.member:
            return Outcome("mail.unknown", "there is no such message for this member")
        if found[0][1] is not None:
            same = bytes(found[0][1]) == call.content
            return (
                Outcome(again=True) if same else Outcome("mail.repeated", "this message was answered before, otherwise")
            )
        self.database.execute("UPDATE letters SET answer = ? WHERE id = ?", call.content, call.number)
        return Outcome()

    def _leave(self, call: Call, now: float) -> Outcome:
        if not call.content:
            return Outcome()  # it only asks how far its leaving is
        new = "INSERT INTO leaving (member, request, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self._count(new, call.member, call.content, now) == 0:
            ((kept,),) = self.database.execute("SELECT request FROM leaving WHERE member = ?", call.member)
            if bytes(kept) != call.content:
                return Outcome("leaving.repeated", "this member has asked to leave before, with another request")
        return Outcome()

    # ------------------------------------------------------------ what workers look at

    def publication(self) -> Publication | None:
        """The task of the moment; None before the first."""
        found = self.database.execute(f"SELECT {_PUBLICATION} FROM publication WHERE id = 1")
        if not found:
            return None
        number, kind, run, round_, content, signature, next_, room, most, rest, asked, opened = found[0]
        return Publication(
            kind, run, round_, bytes(content), bytes(signature), next_, number, room, most, rest, bytes(asked), opened
        )

    def member(self, number: int) -> Member | None:
        """One member."""
        found = self.database.execute(f"SELECT {_MEMBER} FROM members WHERE number = ?", number)
        return _member(found[0]) if found else None

    def letter(self, member: int) -> Letter | None:
        """The oldest message to a member that is not answered."""
        query = "SELECT id, member, content FROM letters WHERE member = ? AND answer IS NULL ORDER BY id LIMIT 1"
        found = self.database.execute(query, member)
        return Letter(found[0][0], found[0][1], bytes(found[0][2])) if found else None

    def leaving(self, member: int) -> tuple[bytes, bytes | None] | None:
        """(request, receipt) of a member that has asked to leave; the receipt is None until it is out."""
        found = self.database.execute("SELECT request, receipt FROM leaving WHERE member = ?", member)
        return None if not found else (bytes(found[0][0]), None if found[0][1] is None else bytes(found[0][1]))

    # ------------------------------------------------------------ who may take part

    def invite(self, name: str, kind: str, code: bytes, number: int | None = None) -> Member:
        """A new member, by the code that will enrol it; its number is the next one unless it is given."""
        with self.database.transaction():
            known = self.database.execute("SELECT number FROM members WHERE name = ?", name)
            sentence = "is invited already; revoke it and invite it under a new name if its invitation was lost"
            require(not known, "invitation.repeated", sentence, name)
            number = self._next() if number is None else number
            self.database.execute(
                "INSERT INTO members (number, name, kind, code, invited) VALUES (?, ?, ?, ?, ?)",
                number,
                name,
                kind,
                hashlib.sha256(code).digest(),
                self.now(),
            )
            self._changed()
        found = self.member(number)
        assert found is not None
        return found

    def _next(self) -> int:
        return int(self.database.execute("SELECT coalesce(max(number), -1) + 1 FROM members")[0][0])

    def open_enrolment(self, token: str, quota: int, ends: float) -> None:
        """Let whoever has the token enrol, so many and so long; the same token again changes both."""
        digest = hashlib.sha256(token.encode()).digest()
        with self.database.transaction():
            self.database.execute(
                "INSERT INTO tokens VALUES (?, ?, 0, ?) ON CONFLICT (digest) DO UPDATE SET quota = ?, ends = ?",
                digest,
                quota,
                ends,
                quota,
                ends,
            )

    def enrol(self, key: bytes, code: bytes = b"", token: str = "") -> Member:
        """The member that enrols with this key; the same again gives the same member. BadInput where it may not."""
        with self.database.transaction():
            known = self.database.execute(f"SELECT {_MEMBER}, code FROM members WHERE key = ?", key)
            digest = hashlib.sha256(code or token.encode()).digest()
            if known and (not code or bytes(known[0][-1] or b"") == digest):
                return _member(known[0][:-1])
            require(not known, "enrolment.other-member", "this key is another member's already")
            number = self._with_code(digest) if code else self._with_token(digest)
            changed = "UPDATE members SET key = ?, enrolled = ? WHERE number = ?"
            self.database.execute(changed, key, self.now(), number)
            self._changed()
        found = self.member(number)
        assert found is not None
        return found

    def _with_code(self, digest: bytes) -> int:
        found = self.database.execute("SELECT number, key, revoked FROM members WHERE code = ?", digest)
        require(found, "invitation.unknown", "there is no such invitation; ask the operator for one")
        number, key, revoked = found[0]
        require(revoked is None, "request.revoked", "the operator has revoked this invitation")
        require(key is None, "invitation.used", "this invitation was used before, by another key; ask for a new one")
        return int(number)

    def _with_token(self, digest: bytes) -> int:
        found = self.database.execute("SELECT quota, used, ends FROM tokens WHERE digest = ?", digest)
        require(found, "invitation.unknown", "there is no such enrolment; ask the operator")
        quota, used, ends = found[0]
        require(self.now() < ends, "enrolment.ended", "this enrolment has ended; ask the operator for a new token")
        require(used < quota, "enrolment.full", "all places of this enrolment are taken; ask the operator")
        number = self._next()
        self.database.execute("UPDATE tokens SET used = used + 1 WHERE digest = ?", digest)
        self.database.execute(
            "INSERT INTO members (number, name, kind, invited) VALUES (?, ?, 'device', ?)",
            number,
            f"device-{number}",
            self.now(),
        )
        return number

    def revoke(self, name: str) -> Member:
        """From now on nothing of this member is accepted."""
        with self.database.transaction():
            found = self.database.execute(f"SELECT {_MEMBER} FROM members WHERE name = ?", name)
            require(found, "invitation.unknown", "is not invited; status shows who is", name)
            require(_member(found[0]).revoked is None, "invitation.unknown", "was revoked already", name)
            self.database.execute("UPDATE members SET revoked = ? WHERE name = ?", self.now(), name)
            self._changed()
        return _member(self.database.execute(f"SELECT {_MEMBER} FROM members WHERE name = ?", name)[0])

    def members(self, after: int = -1, most: int = 1000) -> list[Member]:
        """Members with numbers above `after`, in order: a page of them."""
        query = f"SELECT {_MEMBER} FROM members WHERE number > ? ORDER BY number LIMIT ?"
        return [_member(row) for row in self.database.execute(query, after, most)]

    def admitted(self) -> list[int]:
        """The numbers of all who may take part."""
        query = "SELECT number FROM members WHERE key IS NOT NULL AND revoked IS NULL AND gone IS NULL ORDER BY number"
        return [int(number) for (number,) in self.database.execute(query)]

    def counts(self, since: float) -> dict[str, int]:
        """How many are invited, enrolled, revoked, have left, and were seen since a time."""
        names = ("invited", "enrolled", "revoked", "left", "seen")
        query = (
            "SELECT count(*), count(enrolled), count(revoked), count(gone),"
            " coalesce(sum(CASE WHEN seen >= ? THEN 1 ELSE 0 END), 0) FROM members"
        )
        return dict(zip(names, map(int, self.database.execute(query, since)[0]), strict=True))

    # ------------------------------------------------------------ the holder

    def hold(self) -> int | None:
        """Become the holder: its epoch, or None where another process is. It ends with this process, or by `release`."""
        if not self.database.try_lock():
            return None
        with self.database.transaction():
            self.database.execute("UPDATE service SET epoch = epoch + 1 WHERE id = 1")
            return int(self.database.execute("SELECT epoch FROM service WHERE id = 1")[0][0])

    def release(self) -> None:
        """Let another process be the holder."""
        self.database.unlock()

    @contextmanager
    def holding(self, epoch: int) -> Iterator[None]:
        """A transaction of the holder; HolderLost where another has taken over."""
        with self.database.transaction():
            if int(self.database.execute("SELECT epoch FROM service WHERE id = 1")[0][0]) != epoch:
                raise HolderLost
            yield

    def publish(
        self,
        epoch: int,
        publication: Publication,
        documents: Mapping[str, bytes | None] | None = None,
        finished: Finished | None = None,
    ) -> Publication:
        """In one transaction: the next task, the holder's documents (None: removed), the end of a round's replies."""
        with self.holding(epoch):
            self._write(documents or {})
            self._finish(finished)
            number = 1 + int(self.database.execute("SELECT coalesce(max(number), 0) FROM publication")[0][0])
            self.database.execute("DELETE FROM publication")
            one = publication
            self.database.execute(
                f"INSERT INTO publication (id, {_PUBLICATION}) VALUES (1{', ?' * 12})",
                number, one.kind, one.run, one.round, one.content, one.signature, one.next, one.room, one.most,
                one.rest, one.asked, self.now(),
            )  # fmt: skip
            self._changed()
        found = self.publication()
        assert found is not None
        return found

    def keep(self, epoch: int, documents: Mapping[str, bytes | None], finished: Finished | None = None) -> None:
        """The holder's documents (None: removed), and the end of a round's replies, in one transaction."""
        with self.holding(epoch):
            self._write(documents)
            self._finish(finished)

    def _finish(self, finished: Finished | None) -> None:
        if finished is None:
            return
        if finished.taken is not None and self.replies(finished.run, finished.round, finished.taken, 1):
            raise RepliesCame
        self.database.execute("DELETE FROM replies WHERE run = ? AND round <= ?", finished.run, finished.round)

    def _write(self, documents: Mapping[str, bytes | None]) -> None:
        for name, content in documents.items():
            if content is None:
                self.database.execute("DELETE FROM documents WHERE name = ?", name)
            else:
                self.database.execute(
                    "INSERT INTO documents VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET content = excluded.content",
                    name,
                    content,
                )

    def document(self, name: str) -> bytes | None:
        """One of the holder's documents."""
        found = self.database.execute("SELECT content FROM documents WHERE name = ?", name)
        return bytes(found[0][0]) if found else None

    def replies(self, run: str, round_: int, after: int = 0, most: int = 2000) -> list[StoredReply]:
        """Committed replies to a round, in the order of their commits, after the reply with this id."""
        query = "SELECT id, member, content FROM replies WHERE run = ? AND round = ? AND id > ? ORDER BY id LIMIT ?"
        return [StoredReply(i, m, bytes(c)) for i, m, c in self.database.execute(query, run, round_, after, most)]

    def send(self, epoch: int, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        """Messages to members; their numbers."""
        with self.holding(epoch):
            new = "INSERT INTO letters (member, content) VALUES (?, ?) RETURNING id"
            found = [int(self.database.execute(new, *one)[0][0]) for one in letters]
            self._changed()
        return found

    def answers(self, epoch: int, most: int = 2000) -> list[Letter]:
        """Answers that came since the last call; each is handed out once an epoch."""
        with self.holding(epoch):
            query = "SELECT id, member, answer FROM letters WHERE answer IS NOT NULL AND told < ? ORDER BY id LIMIT ?"
            rows = self.database.execute(query, epoch, most)
            for id_, _, _ in rows:
                self.database.execute("UPDATE letters SET told = ? WHERE id = ?", epoch, id_)
        return [Letter(id_, member, b"", bytes(answer)) for id_, member, answer in rows]

    def forget(self, epoch: int, letters: Sequence[int] | None) -> None:
        """Messages that are not wanted any more, with their answers; None: all."""
        with self.holding(epoch):
            if letters is None:
                self.database.execute("DELETE FROM letters")
            for id_ in letters or ():
                self.database.execute("DELETE FROM letters WHERE id = ?", id_)
            self._changed()

    def leavers(self) -> list[tuple[int, bytes, bytes | None]]:
        """(member, request, receipt) of all who have asked to leave, in order."""
        rows = self.database.execute("SELECT member, request, receipt FROM leaving ORDER BY at, member")
        return [(m, bytes(request), None if receipt is None else bytes(receipt)) for m, request, receipt in rows]

    def let_go(self, epoch: int, member: int, receipt: bytes) -> None:
        """The member is out of the run: its confirmation; from now on it can only ask for that."""
        with self.holding(epoch):
            self.database.execute("UPDATE leaving SET receipt = ? WHERE member = ?", receipt, member)
            self.database.execute("UPDATE members SET gone = ? WHERE number = ?", self.now(), member)
            self._changed()

    # ------------------------------------------------------------ events

    def note(self, code: str, **facts: object) -> None:
        """An event, for the page and for status; the newest are kept."""
        with self.database.transaction():
            new = "INSERT INTO events (at, code, content) VALUES (?, ?, ?)"
            self.database.execute(new, self.now(), code, json.dumps(facts))
            self.database.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", EVENTS)

    def events(self, most: int = 200) -> list[dict[str, Any]]:
        """The newest events, newest first."""
        rows = self.database.execute("SELECT at, code, content FROM events ORDER BY id DESC LIMIT ?", most)
        return [{"at": at, "code": code, **parse_json(content.encode(), Each())} for at, code, content in rows]


def _member(row: Sequence[Any]) -> Member:
    number, name, kind, key, *rest = row
    return Member(number, name, kind, None if key is None else bytes(key), *rest)


def _is_in(member: int, asked: bytes) -> bool:
    """Whether a number is in a sorted list of little-endian u32."""
    low, high = 0, len(asked) // 4
    while low < high:
        middle = (low + high) // 2
        found = int.from_bytes(asked[4 * middle : 4 * middle + 4], "little")
        if found == member:
            return True
        low, high = (middle + 1, high) if found < member else (low, middle)
    return False


def open_store(folder: Path, database: str = "") -> SqlStore:
    """The store of a service: in its folder, or at `postgresql://…`."""
    if not database:
        from quorank.service.sqlite import SQLite

        return SqlStore(SQLite(folder / "service.sqlite"))
    require(
        database.startswith(("postgresql://", "postgres://")),
        "database.unknown",
        "expected postgresql://user@host/name",
        "--database",
    )
    from quorank.service.postgresql import PostgreSQL

    return SqlStore(PostgreSQL(database))
