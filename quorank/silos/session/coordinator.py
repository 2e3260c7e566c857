"""Coordinator of a group of parties: `SiloServer` is independent of any transport, `SiloPost` runs it over mailboxes.

It relays sealed envelopes, adds up masked statistics and masked sums of the training, and distributes the ranker. Phases:
agreement on keys, sum of the term statistics, training by masked sums, distribution of the ranker, done. Every party takes
part in every sum; each part is under masks shared with every other party. Records that do not fit the phase are refused.

The coordinator sees names, sizes and times of envelopes, the sum of all parties' statistics (under a hashing key that it
does not have), parameters, and sums of the training. It never holds a term, a document, a key or one party's part of a sum.

A party may leave. During agreement and statistics the others need its masks, so the session is blocked. From then on it
continues without the leaver: the pending sum is requested again among the others, under other masks, as long as two
are left. A sum over fewer would be one party's own.

Everything accepted is on disk before `receive` returns; repeated and late answers change nothing, and a new `SiloServer` on
the same streams, also in another process, continues to the same bits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles, Uint64s
from quorank.protocol.transport import Mailboxes, Message
from quorank.silos.envelopes import MOST_BYTES, Envelope, Kind
from quorank.silos.session.records import (
    Record,
    SiloMessage,
    SumHead,
    decode_array,
    decode_sum,
    enclose,
    encode,
    kind_of,
    tag_of,
)
from quorank.silos.session.streams import SiloStreams
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.statistics import VECTOR_LENGTH

PHASES = ("agreement", "statistics", "training", "end", "done")
AGREEMENT, STATISTICS, TRAINING, END, DONE = range(5)
MOST_SEARCHES = 1_000_000  # searches that a party may send each other one; owners also count them by day
MOST_RELAYED = MOST_BYTES + 1024  # largest envelope: its head takes less than 1024 bytes
SEARCHING = 0.5  # polling interval for searches, seconds
_NOT_NOW = "a party sent a record that does not fit the phase; it is refused"


class SiloServer:
    """A session's coordinator; everything that must survive is in its streams.

    Attributes:
        refused: Answers that this process has refused, by code.
        ranker: Final parameters, once they are known.
    """

    def __init__(self, streams: SiloStreams, terms: SiloTerms) -> None:
        self.terms, self._digest, self._store = terms, terms.digest[:16], streams
        self.refused: Counter[str] = Counter()
        known = self._store.fact("terms")
        said = "this store belongs to a session with other terms; choose another one"
        require(known is None or known == terms.digest, "folder.other-run", said)
        if known is None:
            with self._store.transaction():
                self._store.set_fact("terms", terms.digest)
        self._load()

    def _load(self) -> None:
        """Take the stored state, exact to the last bit."""
        table, parties = self._store.note("state", default={}), self.terms.parties
        self._phase: int = table.get("phase", AGREEMENT)
        self._gone: set[int] = set(table.get("gone", []))
        # records that each party has received, and sent, by tag
        self._delivered_counts = [Counter[str](counts) for counts in table.get("heard", [{} for _ in parties])]
        self._received_counts = [Counter[str](counts) for counts in table.get("said", [{} for _ in parties])]
        self._relayed: dict[tuple[int, int, Kind], list[int]] = {  # sender, receiver, kind → envelopes and bytes
            (sender, receiver, Kind(kind)): counts for sender, receiver, kind, counts in table.get("relayed", [])
        }
        training, w0 = self.terms.setting.training, self.terms.setting.searched.prior_direction()
        self._course = training.course(w0, table.get("course"))
        self._among: list[int] = table.get("among", [])  # parties in the sum, ascending
        self._answered: list[int] = table.get("answered", [])
        self._number: int = table.get("number", 0)  # of the pending sum
        part, ranker = table.get("part"), table.get("ranker")
        self._part = None if part is None else np.frombuffer(bytes.fromhex(part), dtype="<u8").astype(np.uint64)
        self.ranker: Doubles | None = None if ranker is None else np.array(ranker)

    def _save(self) -> None:
        table = {
            "phase": self._phase,
            "gone": sorted(self._gone),
            "heard": self._delivered_counts,
            "said": self._received_counts,
            "relayed": [(*way, counts) for way, counts in self._relayed.items()],
            "course": self._course.table(),
            "among": self._among,
            "answered": self._answered,
            "number": self._number,
            "part": None if self._part is None else self._part.astype("<u8").tobytes().hex(),
            "ranker": None if self.ranker is None else self.ranker.tolist(),
        }
        self._store.set_note("state", table)

    # ------------------------------------------------------------ state

    @property
    def phase(self) -> str:
        """Name of the current phase."""
        return PHASES[self._phase]

    @property
    def done(self) -> bool:
        """True once every party has the ranker."""
        return self._phase == DONE

    @property
    def searches(self) -> bool:
        """True if parties search each other's documents after the training."""
        return self.terms.search is not None

    @property
    def turns(self) -> tuple[int, int]:
        """Completed and planned turns of the training."""
        planned = self.terms.setting.training.planned_turns
        return (planned if self._phase >= END else self._course.turn), planned

    @property
    def gone(self) -> tuple[str, ...]:
        """Parties that have left."""
        return tuple(self.terms.parties[number] for number in sorted(self._gone))

    @property
    def blocked(self) -> bool:
        """True if the session cannot continue without a party that has left."""
        left = len(self.terms.parties) - len(self._gone)
        needed = self._phase < TRAINING or left < (2 if self._phase == TRAINING else 1)
        return bool(self._gone) and needed

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return relayed envelopes and bytes by kind."""
        found: dict[str, dict[str, int]] = {}
        for (_, _, kind), (envelopes, size) in self._relayed.items():
            entry = found.setdefault(kind.name.lower(), {"envelopes": 0, "bytes": 0})
            entry["envelopes"] += envelopes
            entry["bytes"] += size
        return found

    def waits(self, party: str) -> bool:
        """Return whether this party has records to receive or to send."""
        number = self.terms.number(party)
        if self.blocked or number in self._gone or (self.done and not self.searches):
            return False
        return bool(self._store.waiting(party) or (not self.done and self._owes(number)))

    def _owes(self, number: int) -> bool:
        """Return whether a record of this party is due, after those that it has received."""
        delivered, received = self._delivered_counts[number], self._received_counts[number]
        others = len(self.terms.parties) - 1
        return (
            received["HELLO"] < others
            or (delivered["HELLO"] == others and received["CONTRIBUTION"] < others)
            or (delivered["CONTRIBUTION"] == others and received["STATISTICS"] < 1)
            or received["PART"] < delivered["ASK_SUM"]
            or received["KEPT"] < delivered["RANKER"]
        )

    def standing(self, party: str) -> tuple[int, ...]:
        """Return the positions in both streams with a party; while they do not change, it is asked the same."""
        return self._store.places(party)

    # ------------------------------------------------------------ messages

    def due(self, party: str) -> bytes | None:
        """Return the message for a party; None where it has nothing to receive or to send.

        While a group searches, every party is polled for searches.
        """
        number = self.terms.number(party)
        polled = self.done and self.searches and not self.blocked and number not in self._gone
        if not self.waits(party) and not polled:
            return None
        return self._store.message(party, number, self._digest).to_bytes(to_party=True)

    def receive(self, party: str, content: bytes) -> None:
        """Process a party's answer.

        Raises:
            BadInput: The answer is refused, and nothing has changed.
        """
        number = self.terms.number(party)
        try:
            message = SiloMessage.from_bytes(content, to_party=False)
            said = "an answer of another party arrived in this one's place; it is refused"
            require(message.number == number, "silo-message.other-party", said)
            said = "an answer belongs to a session with other terms; it is refused"
            require(message.digest == self._digest, "silo-message.other-run", said)
            with self._store.transaction():
                places = self._store.places(party)
                self._delivered_counts[number].update(self._store.take(party, message))
                while (record := self._store.next(party)) is not None:
                    self._handle(number, record)
                    self._store.finish(party)
                if self._store.places(party) != places:
                    self._save()
        except BaseException as error:
            self._load()  # what was changed in memory is not on disk
            if isinstance(error, BadInput):
                self.refused[error.code] += 1
            raise

    def leave(self, party: str) -> None:
        """Continue without a party."""
        number = self.terms.number(party)
        if number in self._gone:
            return
        try:
            with self._store.transaction():
                self._gone.add(number)
                if self._phase == TRAINING:
                    self._among = [other for other in self._among if other != number]
                    self._part, self._answered = None, []
                    self._course.restart()
                    if not self.blocked:
                        self._ask()
                elif self._phase == END:
                    self._end()
                self._save()
        except BaseException:
            self._load()
            raise

    def _everyone(self, record: bytes) -> None:
        for number, party in enumerate(self.terms.parties):
            if number not in self._gone:
                self._store.put(party, record)

    # ------------------------------------------------------------ records

    def _handle(self, number: int, record: bytes) -> None:
        handlers = {
            Record.ENVELOPE: self._relay,
            Record.STATISTICS: self._add_statistics,
            Record.PART: self._add_part,
            Record.KEPT: self._note_kept,
        }
        kind = kind_of(record)
        require(kind in handlers, "silo-message.kind", "a party sent a record of the coordinator; it is refused")
        handlers[kind](number, record)
        self._received_counts[number][tag_of(record)] += 1

    def _relay(self, number: int, record: bytes) -> None:
        raw, parties = record[1:], self.terms.parties
        said = f"an envelope of {len(raw):,} bytes is larger than the {MOST_RELAYED:,} that are relayed"
        require(len(raw) <= MOST_RELAYED, "silo-message.too-large", said)
        envelope = Envelope.from_bytes(raw)
        for name in (envelope.sender, envelope.receiver):
            require(name in parties, "silo-group.unknown-party", f"{name} is not a party of this group")
        said = f"{parties[number]} sent an envelope in the name of {envelope.sender}; it is not relayed"
        require(envelope.sender == parties[number], "silo-message.other-sender", said)
        receiver = parties.index(envelope.receiver)
        require(receiver != number, "silo-message.misdirected", f"{parties[number]} wrote to itself; it is not relayed")
        way = number, receiver, envelope.kind
        require(self._count(*way) < self._most(*way), "silo-message.phase", _NOT_NOW)
        counts = self._relayed.setdefault(way, [0, 0])
        counts[0], counts[1] = counts[0] + 1, counts[1] + len(raw)
        self._store.put(envelope.receiver, enclose(raw))
        sent = sum(counts[0] for (_, _, kind), counts in self._relayed.items() if kind is Kind.CONTRIBUTION)
        if self._phase == AGREEMENT and sent == len(parties) * (len(parties) - 1):
            self._phase = STATISTICS

    def _count(self, sender: int, receiver: int, kind: Kind) -> int:
        return self._relayed.get((sender, receiver, kind), [0, 0])[0]

    def _most(self, sender: int, receiver: int, kind: Kind) -> int:
        """Return how many envelopes of a kind a party may send another one in this phase."""
        if kind in (Kind.HELLO, Kind.CONTRIBUTION):
            return 1
        if self._phase != DONE or self.terms.search is None:
            return 0
        if kind in (Kind.FOUND, Kind.REFUSE):  # one answer or refusal for each search
            other = Kind.REFUSE if kind is Kind.FOUND else Kind.FOUND
            return self._count(receiver, sender, Kind.SEARCH) - self._count(sender, receiver, other)
        return MOST_SEARCHES if kind is Kind.SEARCH else 1

    def _add_statistics(self, number: int, record: bytes) -> None:
        due = self._phase in (AGREEMENT, STATISTICS) and not self._received_counts[number]["STATISTICS"]
        require(due, "silo-message.phase", _NOT_NOW)
        total = np.frombuffer(decode_array(record, 4 * VECTOR_LENGTH), dtype="<u4")
        if (known := self._store.fact("total")) is not None:
            total = total + np.frombuffer(known, dtype="<u4")
        self._store.set_fact("total", total.tobytes())
        if sum(received["STATISTICS"] for received in self._received_counts) + 1 < len(self.terms.parties):
            return
        self._everyone(encode(Record.TOTAL, total))
        self._phase, self._among = TRAINING, [n for n in range(len(self.terms.parties)) if n not in self._gone]
        self._ask()

    def _ask(self) -> None:
        asked = self._course.request
        head = SumHead(self._number, tuple(self._among), asked.judging, dict(asked.head))
        self._everyone(encode(Record.ASK_SUM, asked.numbers.astype("<f8"), head=head))

    def _add_part(self, number: int, record: bytes) -> None:
        require(self._phase == TRAINING, "silo-message.phase", _NOT_NOW)
        head, raw = decode_sum(record)
        if len(head.among) > len(self._among):
            return  # requested before a party has left
        asked = SumHead(self._number, tuple(self._among), self._course.request.judging)
        due = head == asked and number in self._among and number not in self._answered
        require(due, "silo-message.phase", _NOT_NOW)
        said = "the part of a party has another size than agreed"
        require(len(raw) == 8 * self._course.length, "silo-message.shape", said)
        part: Uint64s = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
        total = part if self._part is None else self._part + part
        self._part = total
        self._answered.append(number)
        if len(self._answered) < len(self._among):
            return
        self._part, self._answered = None, []
        self._course.advance(total)
        self._number += 1
        self.ranker = self._course.ranker
        if self.ranker is None:
            self._ask()
            return
        self._phase = END
        self._everyone(encode(Record.RANKER, self.ranker.astype("<f8")))

    def _note_kept(self, number: int, record: bytes) -> None:
        require(self._phase == END and not self._received_counts[number]["KEPT"], "silo-message.phase", _NOT_NOW)
        self._end(number)

    def _end(self, number: int | None = None) -> None:
        """Finish once every party has the ranker; `number` is reporting it now."""
        if all(
            received["KEPT"] for n, received in enumerate(self._received_counts) if n != number and n not in self._gone
        ):
            self._phase = DONE


class SiloPost:
    """Letters of a session in the parties' mailboxes at the service; the holder calls `turn` in a loop.

    Every party has at most one open letter. Its answer counts as coming from the member that the letter was for. An empty
    answer means that the party cannot answer now: it is asked again after `pause` seconds.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        streams: SiloStreams,
        terms: SiloTerms,
        pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mailboxes, self.terms, self.server = mailboxes, terms, SiloServer(streams, terms)
        self.sent = self.received = 0  # bytes
        self._pause, self._clock = pause, clock
        self._open: dict[str, tuple[int, ...]] = {}  # party with a letter → stream positions when it was sent
        self._rests: dict[str, float] = {}  # party → time before which it is not asked
        for _, number in mailboxes.unanswered():  # letters of an earlier holder
            self._open[terms.parties[number]] = ()

    def turn(self) -> bool:
        """Process answers and send due letters; return whether there were any."""
        answers = self.mailboxes.answers()
        for answer in answers:
            self._take(answer)
        if answers:
            self.mailboxes.forget([answer.id for answer in answers])
        return bool(self._ask()) or bool(answers)

    def leave(self, member: int) -> None:
        """Continue without a party and withdraw its letter."""
        party = self.terms.parties[member]
        self.server.leave(party)
        self.mailboxes.forget([letter for letter, whom in self.mailboxes.unanswered() if whom == member])
        self._open.pop(party, None)

    def _take(self, found: Message) -> None:
        party, answer = self.terms.parties[found.member], found.content
        self.received += len(answer)
        asked = self._open.pop(party, None)
        if party in self.server.gone:
            return
        try:
            if answer:
                self.server.receive(party, answer)
        except BadInput:
            answer = b""  # the coordinator counts it
        if not answer or self.server.standing(party) == asked:
            self._rests[party] = self._clock() + (min(self._pause, SEARCHING) if self.server.done else self._pause)

    def _ask(self) -> int:
        now, letters = self._clock(), []
        for number, party in enumerate(self.terms.parties):
            rested = self._rests.get(party, now) <= now or (self.server.done and self.server.waits(party))
            if party not in self._open and rested and (content := self.server.due(party)) is not None:
                letters.append((number, content))
        if letters:
            self.mailboxes.send(letters)
        for number, content in letters:
            party = self.terms.parties[number]
            self._open[party] = self.server.standing(party)
            self.sent += len(content)
        return len(letters)
