"""State machine of a group's coordinator: what follows from each record of a party, without disk or network.

Phases: agreement on keys, sum of the term statistics, training by masked sums, distribution of the ranker, done. Every
party takes part in every sum. The coordinator sees the total alone; each part is under masks shared with every other
party. Records that do not fit the phase are refused.

A party may leave. During agreement and statistics the others need its masks, so the session is blocked. From then on it
continues without the leaver: the pending sum is requested again among the others, under other masks, as long as two
are left. A sum over fewer would be one party's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Uint64s
from quorank.silos.envelopes import MOST_BYTES, Envelope, Kind
from quorank.silos.session.records import Record, SumHead, decode_array, decode_sum, enclose, encode, kind_of, tag_of
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.statistics import VECTOR_LENGTH

Put = Callable[[int, bytes], None]
"""Appends a record to the stream for a party."""

PHASES = ("agreement", "statistics", "training", "end", "done")
AGREEMENT, STATISTICS, TRAINING, END, DONE = range(5)
MOST_SEARCHES = 1_000_000
"""Searches that a party may send each other one; owners also count them by day."""
MOST_RELAYED = MOST_BYTES + 1024
"""Largest envelope: its head takes less than 1024 bytes."""
_NOT_NOW = "a party sent a record that does not fit the phase; it is refused"


class Phases:
    """State of a session; `table` is all of it except the sum of the statistics, which is in `total`."""

    def __init__(self, terms: SiloTerms, table: dict[str, Any], total: bytes | None) -> None:
        parties = range(len(terms.parties))
        self.terms = terms
        self.total = None if total is None else np.frombuffer(total, dtype="<u4").astype(np.uint32)
        self.phase: int = table.get("phase", AGREEMENT)
        self.gone: set[int] = set(table.get("gone", []))
        self._heard = [Counter[str](known) for known in table.get("heard", [{} for _ in parties])]
        self._said = [Counter[str](known) for known in table.get("said", [{} for _ in parties])]
        self.traffic: dict[tuple[int, int, Kind], list[int]] = {  # sender, receiver, kind → envelopes and bytes
            (sender, receiver, Kind(kind)): counts for sender, receiver, kind, counts in table.get("traffic", [])
        }
        training, w0 = terms.setting.training, terms.setting.searched.prior_direction()
        self._course = training.course(w0, table.get("course"))
        self._among: list[int] = table.get("among", [])  # parties in the sum, ascending
        self._answered: list[int] = table.get("answered", [])
        self._number: int = table.get("number", 0)  # of the pending sum
        part = table.get("part")
        self._part = None if part is None else np.frombuffer(bytes.fromhex(part), dtype="<u8").astype(np.uint64)
        ranker = table.get("ranker")
        self.ranker = None if ranker is None else np.array(ranker)

    def table(self) -> dict[str, Any]:
        """Return the state as JSON values, exact to the last bit."""
        return {
            "phase": self.phase,
            "gone": sorted(self.gone),
            "heard": self._heard,
            "said": self._said,
            "traffic": [(*way, counts) for way, counts in self.traffic.items()],
            "course": self._course.table(),
            "among": self._among,
            "answered": self._answered,
            "number": self._number,
            "part": None if self._part is None else self._part.astype("<u8").tobytes().hex(),
            "ranker": None if self.ranker is None else self.ranker.tolist(),
        }

    @property
    def turns(self) -> tuple[int, int]:
        """Completed and planned turns of the training."""
        planned = self.terms.setting.training.planned_turns
        return (planned if self.phase >= END else self._course.turn), planned

    # ------------------------------------------------------------ leaving

    @property
    def blocked(self) -> bool:
        """True if the session cannot continue without a party that has left."""
        left = len(self.terms.parties) - len(self.gone)
        needed = self.phase < TRAINING or left < (2 if self.phase == TRAINING else 1)
        return bool(self.gone) and needed

    def leave(self, number: int, put: Put) -> None:
        """Continue without a party."""
        self.gone.add(number)
        if self.phase == TRAINING:
            self._among = [other for other in self._among if other != number]
            self._part, self._answered = None, []
            self._course.restart()
        if self.blocked:
            return
        if self.phase == TRAINING:
            self._ask(put)
        elif self.phase == END:
            self._end()

    # ------------------------------------------------------------ expected records

    def delivered(self, number: int, tag: str) -> None:
        """Note that a party has received a record."""
        self._heard[number][tag] += 1

    def owes(self, number: int) -> bool:
        """Return whether a record of this party is due, after those that it has received."""
        heard, said, others = self._heard[number], self._said[number], len(self.terms.parties) - 1
        return (
            said["HELLO"] < others
            or (heard["HELLO"] == others and said["CONTRIBUTION"] < others)
            or (heard["CONTRIBUTION"] == others and said["STATISTICS"] < 1)
            or said["PART"] < heard["ASK_SUM"]
            or said["KEPT"] < heard["RANKER"]
        )

    def handle(self, number: int, record: bytes, put: Put) -> None:
        """Process one record of a party; after a BadInput this state must be discarded."""
        handlers = {
            Record.ENVELOPE: self._relay,
            Record.STATISTICS: self._add_statistics,
            Record.PART: self._add_part,
            Record.KEPT: self._note_kept,
        }
        kind = kind_of(record)
        require(kind in handlers, "silo-message.kind", "a party sent a record of the coordinator; it is refused")
        handlers[kind](number, record, put)
        self._said[number][tag_of(record)] += 1

    # ------------------------------------------------------------ envelopes

    def _relay(self, number: int, record: bytes, put: Put) -> None:
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
        counts = self.traffic.setdefault(way, [0, 0])
        counts[0], counts[1] = counts[0] + 1, counts[1] + len(raw)
        put(receiver, enclose(raw))
        sent = sum(counts[0] for (_, _, kind), counts in self.traffic.items() if kind is Kind.CONTRIBUTION)
        if self.phase == AGREEMENT and sent == len(parties) * (len(parties) - 1):
            self.phase = STATISTICS

    def _count(self, sender: int, receiver: int, kind: Kind) -> int:
        return self.traffic.get((sender, receiver, kind), [0, 0])[0]

    def _most(self, sender: int, receiver: int, kind: Kind) -> int:
        """Return how many envelopes of a kind a party may send another one in this phase."""
        if kind in (Kind.HELLO, Kind.CONTRIBUTION):
            return 1
        if self.phase != DONE or self.terms.search is None:
            return 0
        if kind in (Kind.FOUND, Kind.REFUSE):  # one answer or refusal for each search
            other = Kind.REFUSE if kind is Kind.FOUND else Kind.FOUND
            return self._count(receiver, sender, Kind.SEARCH) - self._count(sender, receiver, other)
        return MOST_SEARCHES if kind is Kind.SEARCH else 1

    # ------------------------------------------------------------ sums

    def _everyone(self, record: bytes, put: Put) -> None:
        for number in range(len(self.terms.parties)):
            if number not in self.gone:
                put(number, record)

    def _add_statistics(self, number: int, record: bytes, put: Put) -> None:
        due = self.phase in (AGREEMENT, STATISTICS) and not self._said[number]["STATISTICS"]
        require(due, "silo-message.phase", _NOT_NOW)
        part = np.frombuffer(decode_array(record, 4 * VECTOR_LENGTH), dtype="<u4").astype(np.uint32)
        self.total = part if self.total is None else self.total + part
        if sum(said["STATISTICS"] for said in self._said) + 1 < len(self.terms.parties):
            return
        self._everyone(encode(Record.TOTAL, self.total.astype("<u4")), put)
        self.phase, self._among = TRAINING, [n for n in range(len(self.terms.parties)) if n not in self.gone]
        self._ask(put)

    def _ask(self, put: Put) -> None:
        asked = self._course.request
        head = SumHead(self._number, tuple(self._among), asked.judging, dict(asked.head))
        self._everyone(encode(Record.ASK_SUM, asked.numbers.astype("<f8"), head=head), put)

    def _add_part(self, number: int, record: bytes, put: Put) -> None:
        require(self.phase == TRAINING, "silo-message.phase", _NOT_NOW)
        head, raw = decode_sum(record)
        if len(head.among) > len(self._among):
            return  # requested before a party has left
        asked = SumHead(self._number, tuple(self._among), self._course.request.judging)
        due = head == asked and number in self._among and number not in self._answered
        require(due, "silo-message.phase", _NOT_NOW)
        said = "the part of a party has another size than agreed"
        require(len(raw) == 8 * self._course.length, "silo-message.shape", said)
        part: Uint64s = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
        self._part = part if self._part is None else self._part + part
        self._answered.append(number)
        if len(self._answered) < len(self._among):
            return
        total, self._part, self._answered = self._part, None, []
        self._course.advance(total)
        self._number += 1
        if self._course.ranker is None:
            self._ask(put)
            return
        self.phase, self.ranker = END, self._course.ranker
        self._everyone(encode(Record.RANKER, self.ranker.astype("<f8")), put)

    def _note_kept(self, number: int, record: bytes, put: Put) -> None:
        require(self.phase == END and not self._said[number]["KEPT"], "silo-message.phase", _NOT_NOW)
        self._end(number)

    def _end(self, number: int | None = None) -> None:
        """Finish once every party has the ranker; `number` is reporting it now."""
        if all(said["KEPT"] for n, said in enumerate(self._said) if n != number and n not in self.gone):
            self.phase = DONE
