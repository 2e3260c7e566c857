"""Store of a service: members, current task, replies, letters, requests to leave, the holder's documents.

Intake workers commit members' calls in groups (`take`) before they confirm them. The coordinator's holder publishes tasks
and reads committed replies. Its writes carry its epoch and fail once another process holds the coordinator, so a process
that was asleep cannot undo its successor's work.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from quorank.errors import BadInput, require
from quorank.federation.unlearning import NOTHING
from quorank.files.documents import parse_json
from quorank.protocol.member_list import MOST_MEMBERS, PAGE, START, Head, entry_of, first_digest, next_digest
from quorank.protocol.messages import Publication
from quorank.protocol.transport import Message
from quorank.service.store.database import FORMAT, Database
from quorank.service.store.group_commit import NONCE_SLOT, Call, CallGroup, EnrolmentCall, Outcome, oldest_slot

TURN_SECONDS = 0.5  # seconds between two tries to become the holder
EVENTS = 1000  # number of newest events kept
TRAFFIC = ("requests", "request_microseconds")  # counts of answered requests, and of the time that they took
PROGRAMS = 32  # maximum number of distinguished versions of members' programs
MOST_BYTES = 1 << 24  # maximum bytes of replies or answers read at once, beyond the first


@dataclass(frozen=True)
class Member:
    """Invited or enrolled member."""

    number: int
    name: str
    kind: str
    key: bytes | None  # None: not enrolled yet
    invited: float
    enrolled: float | None = None
    revoked: float | None = None
    left: float | None = None
    seen: float | None = None

    @property
    def admitted(self) -> bool:
        """Return whether it may take part."""
        return self.key is not None and self.revoked is None and self.left is None


class Finished(NamedTuple):
    """Deletion of the replies of a round and of all earlier ones."""

    run: str
    round: int
    taken: int | None = None  # id of the holder's last reply; later ones keep the round open


class HolderLost(Exception):
    """Another process holds the coordinator."""


class RepliesCame(Exception):
    """Replies were committed after the holder's last look; it must take them in before the round ends."""


_COLUMNS = [field.name for field in fields(Publication)]
_PUBLICATION = ", ".join(_COLUMNS)
_ADMITTED = "key IS NOT NULL AND revoked IS NULL AND gone IS NULL"
_MEMBER = "SELECT number, name, kind, key, invited, enrolled, revoked, gone, seen FROM members"


class SqlStore:
    """Store of one service in a database."""

    def __init__(self, database: Database) -> None:
        self.database, self._pruned = database, 0.0
        self._open: Publication | None = None  # publication of the last group
        self.epoch, self._heard = -1, 0  # epoch as the holder, and the last turn whose answer it has read
        try:
            found = database.value("SELECT format FROM service WHERE id = 1")
            require(found is not None, "file.damaged", "the store has lost its first row; restore a backup")
            sentence = f"the store has format {found}, this Quorank reads {FORMAT}; install the version that made it"
            require(found == FORMAT, "store.version", sentence)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def now(self) -> float:
        """Return the time by the clock that all workers and hosts share."""
        return self.database.now()

    def version(self) -> int:
        """Return a number that changes with the task, the members or the letters."""
        return int(self.database.value("SELECT version FROM service WHERE id = 1"))

    @contextmanager
    def _changing(self, *, holder: bool = False) -> Iterator[None]:
        """Open a transaction that changes what workers read."""
        with self.holding() if holder else self.database.transaction():
            yield
            self.database.execute("UPDATE service SET version = version + 1 WHERE id = 1")

    def touch(self) -> None:
        """Write something as a test; OSError where that is impossible."""
        with self._changing():
            pass

    # ------------------------------------------------------------ calls of members

    def take(self, calls: Sequence[Call | EnrolmentCall]) -> list[Outcome]:
        """Commit calls in their order; accepted ones are on disk when this returns."""
        now, signed = self.now(), [call for call in calls if isinstance(call, Call)]
        with self.database.transaction() if len(signed) == len(calls) else self._changing():
            query = "SELECT filled, turns, (SELECT number FROM publication WHERE id = 1) FROM service WHERE id = 1"
            ((filled, turns, number),) = self.database.execute(query)
            if number is None or self._open is None or self._open.number != number:  # its content may be long
                self._open = self.publication()
            group = CallGroup(self.database, self._open, now, filled, turns)
            taken = iter(group.take(signed))
            outcomes = [next(taken) if isinstance(call, Call) else self._enrolled(call) for call in calls]
            if (group.filled, group.turns) != (filled, turns):
                change = "UPDATE service SET filled = ?, turns = ? WHERE id = 1"
                self.database.execute(change, group.filled, group.turns)
            if now - self._pruned > NONCE_SLOT:
                self.database.execute("DELETE FROM nonces WHERE slot < ?", oldest_slot(now))
                self._pruned = now
        return outcomes

    # ------------------------------------------------------------ reads of workers

    def publication(self) -> Publication | None:
        """Return the current task; None before the first."""
        found = self.database.execute(f"SELECT {_PUBLICATION} FROM publication WHERE id = 1")
        return Publication(*found[0]) if found else None

    def member(self, number: int) -> Member | None:
        """Return a member."""
        return self._member("number", number)

    def _member(self, by: str, value: object) -> Member | None:
        found = self.database.execute(f"{_MEMBER} WHERE {by} = ?", value)
        return Member(*found[0]) if found else None

    def letter(self, member: int) -> Message | None:
        """Return the oldest unanswered letter to a member."""
        query = "SELECT id, member, content FROM letters WHERE member = ? AND answer IS NULL ORDER BY id LIMIT 1"
        found = self.database.execute(query, member)
        return Message(*found[0]) if found else None

    def leaving(self, member: int) -> tuple[bytes, bytes | None] | None:
        """Return (request, receipt) of a member that has asked to leave; the receipt is None until it has left."""
        found = self.database.execute("SELECT request, receipt FROM leaving WHERE member = ?", member)
        return found[0] if found else None

    # ------------------------------------------------------------ members

    def invite(self, name: str, kind: str, code: bytes, number: int | None = None) -> Member:
        """Add a member with its enrolment code, by default with the next number; a revoked party gets a new code."""
        with self._changing():
            return self._invited(name, kind, code, number)

    def invite_devices(self, codes: Mapping[str, bytes]) -> list[Member]:
        """Add devices with their enrolment codes by name: all or none."""
        with self._changing():
            return [self._invited(name, "device", code) for name, code in codes.items()]

    def _invited(self, name: str, kind: str, code: bytes, number: int | None = None) -> Member:
        digest, known = hashlib.sha256(code).digest(), self._member("name", name)
        if known is None:
            number = self.next_number() if number is None else number
            free = self.member(number) is None
            require(free, "invitation.repeated", f"the number {number} is another member's", name)
            self._add(number, name, kind, digest)
        else:
            again = kind == "party" and known.revoked is not None and known.left is None
            sentence = "is invited already; if its invitation was lost, revoke it, and give a device a new name"
            require(again, "invitation.repeated", sentence, name)
            new = "code = ?, key = NULL, enrolled = NULL, revoked = NULL, invited = ?"
            self.database.execute(f"UPDATE members SET {new} WHERE name = ?", digest, self.now(), name)
        return self._known("name", name)

    def _known(self, by: str, value: object) -> Member:
        found = self._member(by, value)
        assert found is not None
        return found

    def _add(self, number: int, name: str, kind: str, code: bytes | None) -> None:
        new = "INSERT INTO members (number, name, kind, code, invited) VALUES (?, ?, ?, ?, ?)"
        self.database.execute(new, number, name, kind, code, self.now())

    def next_number(self) -> int:
        """Return the number of the next new member."""
        return int(self.database.value("SELECT coalesce(max(number), -1) + 1 FROM members"))

    def open_enrolment(self, token: str, quota: int, ends: float) -> None:
        """Open enrolment by token, with a quota and an end time; repeating the token changes both."""
        new = "ON CONFLICT (digest) DO UPDATE SET quota = excluded.quota, ends = excluded.ends"
        with self._changing():
            digest = hashlib.sha256(token.encode()).digest()
            self.database.execute(f"INSERT INTO tokens VALUES (?, ?, 0, ?) {new}", digest, quota, ends)

    def close_enrolment(self) -> int:
        """End all open enrolment; returns the number of open tokens. Enrolled members stay."""
        with self._changing():
            now = self.now()
            return int(self.database.value("UPDATE tokens SET ends = ? WHERE ends > ?", now, now))

    def is_open(self) -> bool:
        """Return whether a token can enrol now."""
        return bool(self.database.value("SELECT count(*) FROM tokens WHERE ends > ? AND used < quota", self.now()))

    def enrol(self, key: bytes, code: bytes = b"", token: str = "") -> Member:
        """Enrol a key and return its member; repeating the call returns the same member."""
        (outcome,) = self.take([EnrolmentCall(key, code, token)])
        require(not outcome.code, outcome.code, outcome.sentence)
        return self._known("number", outcome.member)

    def _enrolled(self, call: EnrolmentCall) -> Outcome:
        """Decide an enrolment; refusals precede every write."""
        digest = hashlib.sha256(call.code or call.token.encode()).digest()
        known, invited = self._member("key", call.key), self._member("code", digest) if call.code else None
        try:
            if known is not None:
                self._check_again(known, invited, digest)
                return Outcome(again=True, member=known.number)
            number = self._with_code(invited) if call.code else self._with_token(digest)
        except BadInput as error:
            return Outcome(error.code, error.sentence, member=-1 if invited is None else invited.number)
        changed = "UPDATE members SET key = ?, enrolled = ? WHERE number = ?"
        self.database.execute(changed, call.key, self.now(), number)
        if self._known("number", number).kind == "device":
            self._list(entry_of(number, call.key, call.attestation))
        return Outcome(member=number)

    def _list(self, entry: bytes) -> None:
        """Append an entry to the list of members."""
        found = self.database.execute("SELECT position, digest FROM listed ORDER BY position DESC LIMIT 1")
        new = "INSERT INTO listed VALUES (?, ?, ?)"
        if not found:
            start = os.urandom(START)
            found = [(0, first_digest(start))]
            self.database.execute(new, 0, start, found[0][1])
        position, digest = found[0]
        self.database.execute(new, position + 1, entry, next_digest(digest, entry))

    def relist(self) -> None:
        """Begin another list of members, where the last entries of the list are lost."""
        with self._changing():
            entries = [entry for (entry,) in self._listed(1, MOST_MEMBERS)]
            self.database.execute("DELETE FROM listed")
            for entry in entries:
                self._list(entry)

    def member_head(self) -> Head:
        """Return the head of the list of members."""
        found = self.database.execute("SELECT position, digest FROM listed ORDER BY position DESC LIMIT 1")
        return Head(*found[0]) if found else Head(0, first_digest(b""))

    def member_page(self, first: int) -> bytes:
        """Return the bytes that name the list of members, and its next entries from one that is counted from 0."""
        start = self.database.value("SELECT entry FROM listed WHERE position = 0") or bytes(START)
        return start + b"".join(entry for (entry,) in self._listed(1 + first, PAGE))

    def _listed(self, first: int, most: int) -> list[tuple[bytes]]:
        query = "SELECT entry FROM listed WHERE position >= ? ORDER BY position LIMIT ?"
        return self.database.execute(query, first, most)

    def _check_again(self, known: Member, invited: Member | None, digest: bytes) -> None:
        """Reject an enrolled key that enrols in another way than before."""
        require(known.revoked is None, "request.revoked", "the operator has revoked this member")
        require(known.left is None, "request.left", "this member has left")
        by_token = "SELECT 1 FROM members, tokens WHERE number = ? AND code IS NULL AND digest = ?"
        same = invited == known or self.database.execute(by_token, known.number, digest)
        require(same, "enrolment.other-member", "this key belongs to another member")

    def _with_code(self, invited: Member | None) -> int:
        if invited is None:
            raise BadInput("invitation.unknown", "there is no such invitation; ask the operator for one")
        require(invited.revoked is None, "request.revoked", "the operator has revoked this invitation")
        sentence = "this invitation was used with another key before; ask for a new one"
        require(invited.key is None, "invitation.used", sentence)
        return invited.number

    def _with_token(self, digest: bytes) -> int:
        found = self.database.execute("SELECT quota, used, ends FROM tokens WHERE digest = ?", digest)
        require(found, "invitation.unknown", "there is no such enrolment; ask the operator")
        quota, used, ends = found[0]
        require(self.now() < ends, "enrolment.ended", "this enrolment has ended; ask the operator for a new token")
        require(used < quota, "enrolment.full", "the quota of this enrolment is used up; ask the operator")
        self.database.execute("UPDATE tokens SET used = used + 1 WHERE digest = ?", digest)
        number = self.next_number()
        name = f"device-{number}"
        if self._member("name", name) is not None:
            name += f"-{digest.hex()[:8]}"
        self._add(number, name, "device", None)
        return number

    def revoke(self, name: str) -> Member:
        """Revoke a member; its requests are refused from now on."""
        with self._changing():
            found = self._member("name", name)
            if found is None:
                raise BadInput("invitation.unknown", "is not invited; status lists the members", name)
            require(found.revoked is None, "invitation.unknown", "was revoked already", name)
            self.database.execute("UPDATE members SET revoked = ? WHERE name = ?", self.now(), name)
            return self._known("name", name)

    def members(self, most: int = 1000) -> list[Member]:
        """Return the first members by number."""
        return [Member(*row) for row in self.database.execute(f"{_MEMBER} ORDER BY number LIMIT ?", most)]

    def admitted(self) -> list[int]:
        """Return the numbers of the members that may take part."""
        query = f"SELECT number FROM members WHERE {_ADMITTED} ORDER BY number"
        return [number for (number,) in self.database.execute(query)]

    def keys(self) -> dict[int, bytes]:
        """Return the public keys of the members that may take part, by number."""
        return dict(self.database.execute(f"SELECT number, key FROM members WHERE {_ADMITTED} ORDER BY number"))

    def counts(self, since: float) -> dict[str, int]:
        """Return numbers of members: invited, enrolled ones that may take part, left, revoked, seen since a time."""
        sums = {
            "invited": "count(*) FILTER (WHERE key IS NULL AND revoked IS NULL)",
            "enrolled": f"count(*) FILTER (WHERE {_ADMITTED})",
            "left": "count(gone)",
            "revoked": "count(revoked)",
            "seen": "count(*) FILTER (WHERE seen >= ?)",
        }
        found = self.database.execute(f"SELECT {', '.join(sums.values())} FROM members", since)
        return dict(zip(sums, found[0], strict=True))

    def programs(self) -> dict[str, int]:
        """Return the number of members by program version; `other` counts unknown and rare versions."""
        query = f"SELECT coalesce(program, 'other'), count(*) FROM members WHERE seen IS NOT NULL AND {_ADMITTED}"
        found = self.database.execute(f"{query} GROUP BY 1")
        found.sort(key=lambda row: (row[0] == "other", -row[1], row[0]))
        counts = dict(found[: PROGRAMS - 1])
        rest = sum(count for _, count in found[PROGRAMS - 1 :])
        return counts | ({"other": counts.get("other", 0) + rest} if rest else {})

    # ------------------------------------------------------------ the holder

    def hold(self) -> int | None:
        """Become the holder until `release` or the end of the process; return the epoch, None if another holds."""
        if not self.database.try_lock():
            return None
        with self.database.transaction():
            query = "UPDATE service SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch"
            self.epoch, self._heard = int(self.database.value(query)), 0
        return self.epoch

    def hold_in_turn(self, stop: Callable[[], bool], wait: Callable[[], object] = lambda: None) -> int | None:
        """Wait to become the holder, calling `wait` meanwhile; return the epoch, None if `stop` returns true before."""
        while (epoch := self.hold()) is None and not stop():
            wait()
            time.sleep(TURN_SECONDS)
        return epoch

    def release(self) -> None:
        """Stop being the holder."""
        self.database.unlock()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Open a transaction of the holder; HolderLost where another has taken over."""
        with self.database.transaction():
            self.check_holder()
            yield

    def check_holder(self) -> None:
        """Raise HolderLost unless this store is the newest holder's."""
        if self.database.value("SELECT epoch FROM service WHERE id = 1") != self.epoch:
            raise HolderLost

    def publish(
        self,
        publication: Publication,
        documents: Mapping[str, bytes | None] | None = None,
        finished: Finished | None = None,
    ) -> Publication:
        """Publish a task, write the holder's documents (None: removed) and delete a round's replies, in one transaction."""
        with self._changing(holder=True):
            self._write(documents or {}, finished)
            number = 1 + self.database.value("SELECT coalesce(max(number), 0) FROM publication")
            one = replace(publication, number=number, opened=self.now())
            self.database.execute("DELETE FROM publication")
            new = f"INSERT INTO publication (id, {_PUBLICATION}) VALUES (1{', ?' * len(_COLUMNS)})"
            self.database.execute(new, *(getattr(one, name) for name in _COLUMNS))
            filled = "SELECT count(*) FROM replies WHERE run = ? AND round = ? AND content <> ?"
            change = f"UPDATE service SET filled = ({filled}) WHERE id = 1"
            self.database.execute(change, one.run, one.round, NOTHING)
        return one

    def publish_once(self, publication: Publication) -> Publication:
        """Publish a task unless it is the current one."""
        found = self.publication()
        if found is not None and replace(found, number=0, opened=0.0, next=publication.next) == publication:
            return found
        return self.publish(publication)

    def keep(self, documents: Mapping[str, bytes | None], finished: Finished | None = None) -> None:
        """Write the holder's documents (None: removed) and delete a round's replies, in one transaction."""
        with self.holding():
            self._write(documents, finished)

    def _write(self, documents: Mapping[str, bytes | None], finished: Finished | None) -> None:
        if finished is not None:
            if finished.taken is not None and self.replies(finished.run, finished.round, finished.taken, 1):
                raise RepliesCame
            run, round_ = finished.run, finished.round
            later = "EXISTS (SELECT 1 FROM replies WHERE (run, round) > (?, ?))"
            if self.database.value(f"SELECT EXISTS (SELECT 1 FROM replies WHERE run < ?) OR {later}", run, run, round_):
                self.database.execute("DELETE FROM replies WHERE run = ? AND round <= ?", run, round_)
            else:
                self.database.execute("DELETE FROM replies")  # ten times as fast in SQLite
        new = "INSERT INTO documents VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET content = excluded.content"
        for name, content in documents.items():
            if content is None:
                self.database.execute("DELETE FROM documents WHERE name = ?", name)
            else:
                self.database.execute(new, name, content)

    def document(self, name: str) -> bytes | None:
        """Return one of the holder's documents."""
        found: bytes | None = self.database.value("SELECT content FROM documents WHERE name = ?", name)
        return found

    def replies(self, run: str, round_: int, after: int = 0, most: int = 2000) -> list[Message]:
        """Return at most `most` committed replies to a round after the one with id `after`, some 16 MB together."""
        where = "run || '' = ? AND round = ? AND id > ?"  # by ids: another index would be sorted for every batch
        query = f"SELECT id, length(content) FROM replies WHERE {where} ORDER BY id LIMIT ?"
        last = _last(self.database.execute(query, run, round_, after, most))
        query = f"SELECT id, member, content FROM replies WHERE {where} AND id <= ? ORDER BY id"
        return [Message(*row) for row in self.database.execute(query, run, round_, after, last)]

    def send(self, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        """Send letters to members; return their numbers."""
        new = "INSERT INTO letters (member, content) SELECT member, content FROM {given} RETURNING id"
        with self._changing(holder=True):
            return [id_ for (id_,) in self.database.each(new, ("member", "content"), letters)]

    def answers(self, most: int = 2000) -> list[Message]:
        """Return the answers since the last call in the order of their commits; a new holder gets all stored ones."""
        self.check_holder()
        query = "SELECT turn, length(answer) FROM letters WHERE turn > ? ORDER BY turn LIMIT ?"
        last = _last(self.database.execute(query, self._heard, most))
        query = "SELECT id, member, answer FROM letters WHERE turn > ? AND turn <= ? ORDER BY turn"
        found = [Message(*row) for row in self.database.execute(query, self._heard, last)]
        self._heard = max(self._heard, last)
        return found

    def unanswered(self) -> list[tuple[int, int]]:
        """Return (id, member) of all unanswered letters, including those of an earlier holder."""
        return self.database.execute("SELECT id, member FROM letters WHERE answer IS NULL ORDER BY id")

    def forget(self, letters: Sequence[int] | None) -> None:
        """Delete letters with their answers; None: all."""
        with self._changing(holder=True):
            if letters is None:
                self.database.execute("DELETE FROM letters")
            gone = "DELETE FROM letters WHERE id IN (SELECT given.id FROM {given})"
            self.database.each(gone, ("id",), [(id_,) for id_ in letters or ()])

    def leavers(self) -> list[tuple[int, bytes, bytes | None]]:
        """Return (member, request, receipt) of all requests to leave in order; the receipt is None until confirmed."""
        return self.database.execute("SELECT member, request, receipt FROM leaving ORDER BY at, member")

    def let_go(self, member: int, receipt: bytes) -> None:
        """Store the confirmation of a member that has left; from now on it can only fetch it."""
        with self._changing(holder=True):
            self.database.execute("UPDATE leaving SET receipt = ? WHERE member = ?", receipt, member)
            self.database.execute("UPDATE members SET gone = ? WHERE number = ?", self.now(), member)

    # ------------------------------------------------------------ events

    def note(self, event: str, **facts: object) -> None:
        """Store an event for dashboard and status; the newest are kept."""
        with self.database.transaction():
            new = "INSERT INTO events (at, event, facts) VALUES (?, ?, ?)"
            self.database.execute(new, self.now(), event, json.dumps(facts))
            self.database.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", EVENTS)

    def tally(self, counts: Mapping[str, int]) -> None:
        """Add to the counts: refusals by code, and the `TRAFFIC` of members."""
        new = (
            "INSERT INTO tallies SELECT name, count FROM {given} WHERE true"
            " ON CONFLICT (name) DO UPDATE SET count = tallies.count + excluded.count"
        )
        with self.database.transaction():
            self.database.each(new, ("name", "count"), list(counts.items()))

    def tallies(self) -> dict[str, int]:
        """Return the counts: refusals by code, and `TRAFFIC`."""
        return dict(self.database.execute("SELECT name, count FROM tallies"))

    def events(self, most: int = 200) -> list[dict[str, Any]]:
        """Return the newest events, newest first."""
        rows = self.database.execute("SELECT at, event, facts FROM events ORDER BY id DESC LIMIT ?", most)
        return [{"at": at, "code": event, **parse_json(facts.encode())} for at, event, facts in rows]


def _last(rows: Sequence[tuple[int, int]]) -> int:
    """Return the last place of (place, bytes) pairs that fits into one read."""
    total = last = 0
    for place, length in rows:
        total += length
        if last and total > MOST_BYTES:
            break
        last = place
    return last


def open_store(folder: Path, database: str = "") -> SqlStore:
    """Open the store of a service: in its folder, or at `postgresql://…`."""
    if not database:
        from quorank.service.store.sqlite import SQLite

        return SqlStore(SQLite(folder / "service.sqlite"))
    known = database.startswith(("postgresql://", "postgres://"))
    require(known, "database.unknown", "expected postgresql://user@host/name", "--database")
    from quorank.service.store.postgresql import PostgreSQL

    return SqlStore(PostgreSQL(database))
