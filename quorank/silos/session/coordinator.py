"""Coordinator of a group of parties, independent of any transport.

It relays sealed envelopes, adds up masked statistics and masked sums of the training, and distributes the ranker
(`phases`). `due` returns the message for a party, `receive` takes its answer. Everything accepted is on disk before
`receive` returns; repeated and late answers change nothing, and a new `SiloServer` on the same streams continues to the
same bits.

The coordinator sees names, sizes and times of envelopes, the sum of all parties' statistics (under a hashing key that it
does not have), parameters, and sums of the training. It never holds a term, a document, a key or one party's part of a sum.
"""

from __future__ import annotations

from collections import Counter

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.silos.session.phases import DONE, PHASES, Phases
from quorank.silos.session.records import SiloMessage
from quorank.silos.session.streams import SiloStreams
from quorank.silos.session.terms import SiloTerms


class SiloServer:
    """A session's coordinator; everything that must survive is in its streams."""

    def __init__(self, streams: SiloStreams, terms: SiloTerms) -> None:
        self.terms, self._digest, self._store = terms, terms.digest[:16], streams
        self.refused: Counter[str] = Counter()  # code → answers that this process has refused with it
        known = self._store.fact("terms")
        said = "this store belongs to a session with other terms; choose another one"
        require(known is None or known == terms.digest, "folder.other-run", said)
        if known is None:
            with self._store.transaction():
                self._store.set_fact("terms", terms.digest)
        self._state = self._load()

    def _load(self) -> Phases:
        return Phases(self.terms, self._store.note("state", {}), self._store.fact("total"))

    @property
    def phase(self) -> str:
        """Name of the current phase."""
        return PHASES[self._state.phase]

    @property
    def done(self) -> bool:
        """True once every party has the ranker."""
        return self._state.phase == DONE

    @property
    def searches(self) -> bool:
        """True if parties search each other's documents after the training."""
        return self.terms.search is not None

    @property
    def ranker(self) -> Doubles | None:
        """Final parameters, once they are known."""
        return None if self._state.ranker is None else self._state.ranker.copy()

    @property
    def turns(self) -> tuple[int, int]:
        """Completed and planned turns of the training."""
        return self._state.turns

    @property
    def gone(self) -> tuple[str, ...]:
        """Parties that have left."""
        return tuple(self.terms.parties[number] for number in sorted(self._state.gone))

    @property
    def blocked(self) -> bool:
        """True if the session cannot continue without a party that has left."""
        return self._state.blocked

    def leave(self, party: str) -> None:
        """Continue without a party."""
        number = self.terms.number(party)
        if number in self._state.gone:
            return
        try:
            with self._store.transaction():
                self._state.leave(number, self._put)
                self._store.set_note("state", self._state.table())
        except BaseException:
            self._state = self._load()
            raise

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return relayed envelopes and bytes by kind."""
        found: dict[str, dict[str, int]] = {}
        for (_, _, kind), (envelopes, size) in self._state.traffic.items():
            entry = found.setdefault(kind.name.lower(), {"envelopes": 0, "bytes": 0})
            entry["envelopes"] += envelopes
            entry["bytes"] += size
        return found

    def waits(self, party: str) -> bool:
        """Return whether this party has records to receive or to send."""
        number = self.terms.number(party)
        if self.blocked or number in self._state.gone or (self.done and not self.searches):
            return False
        return bool(self._store.waiting(party) or (not self.done and self._state.owes(number)))

    def standing(self, party: str) -> tuple[int, ...]:
        """Return the positions in both streams with a party; while they do not change, it is asked the same."""
        return self._store.places(party)

    def due(self, party: str) -> bytes | None:
        """Return the message for a party; None where it has nothing to receive or to send.

        While a group searches, every party is polled for searches.
        """
        number = self.terms.number(party)
        polled = self.done and self.searches and not self.blocked and number not in self._state.gone
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
                self._take(number, message)
        except BaseException as error:
            self._state = self._load()  # what was changed in memory is not on disk
            if isinstance(error, BadInput):
                self.refused[error.code] += 1
            raise

    def _take(self, number: int, message: SiloMessage) -> None:
        party, before = self.terms.parties[number], self._state.total
        places = self._store.places(party)
        for tag in self._store.take(party, message):
            self._state.delivered(number, tag)
        while (record := self._store.next(party)) is not None:
            self._state.handle(number, record, self._put)
            self._store.finish(party)
        if self._store.places(party) == places:
            return
        self._store.set_note("state", self._state.table())
        if self._state.total is not None and self._state.total is not before:
            self._store.set_fact("total", self._state.total.astype("<u4").tobytes())

    def _put(self, number: int, record: bytes) -> None:
        self._store.put(self.terms.parties[number], record)
