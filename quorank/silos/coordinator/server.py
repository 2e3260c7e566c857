"""The coordinator of a group of parties: it carries sealed envelopes, adds up masked tables, and hands parameters round.

CS-F-LTR §III and §IV over a network: (a) agreement on keys, (b) the sum of the parties' tables of statistics, (c) the
reverse top-K questions and their answers, (d) the training of one ranker, (e) its handing out (`phases`). It is a
state machine without any engine: `due` says what a party is asked now, `receive` takes its answer. An answer that comes
twice or late changes nothing; all that was accepted is on disk before `receive` returns, and a new `SiloServer` on the
same folder goes on to the same bits.

What it sees: names, sizes and times of envelopes, how many envelopes with questions each party sends, the sum of all
tables of statistics (under a hashing key that it does not have; each party's own only under masks that cancel in the
sum), and in training what `course` says. It never holds a term, a document, a key or one party's table in clear.
"""

from __future__ import annotations

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.silos.coordinator.phases import DONE, PHASES, Phases
from quorank.silos.protocol.records import SiloMessage
from quorank.silos.protocol.stream_store import SiloStreams
from quorank.silos.protocol.terms import SiloTerms


class SiloServer:
    """A run's coordinator; all that must survive is in its streams."""

    def __init__(self, streams: SiloStreams, terms: SiloTerms) -> None:
        self.terms, self._digest, self._store = terms, terms.digest()[:16], streams
        self.refused: dict[str, int] = {}  # code → how often this process refused an answer with it
        known = self._store.fact("terms")
        sentence = "this store belongs to a run with other terms; choose another one"
        require(known is None or known == terms.digest(), "folder.other-run", sentence)
        if known is None:
            with self._store.transaction():
                self._store.set_fact("terms", terms.digest())
        self._run = self._load()

    def _load(self) -> Phases:
        return Phases(self.terms, self._store.note("state", {}), self._store.fact("total"))

    @property
    def phase(self) -> str:
        """Where the run is."""
        return PHASES[self._run.phase]

    @property
    def done(self) -> bool:
        """Every party has the ranker."""
        return self._run.phase == DONE

    @property
    def searches(self) -> bool:
        """Whether parties search each other's documents once they have the ranker."""
        return self.terms.search is not None

    @property
    def ranker(self) -> Doubles | None:
        """The weights that all parties end with, once they are there."""
        return None if self._run.ranker is None else self._run.ranker.copy()

    @property
    def turns(self) -> tuple[int, int]:
        """Turns of training that are done, and how many there are in all."""
        return self._run.turns

    @property
    def gone(self) -> tuple[str, ...]:
        """The parties that have left."""
        return tuple(self.terms.parties[number] for number in sorted(self._run.gone))

    @property
    def blocked(self) -> bool:
        """Whether a party has left without which the session cannot go on; then nobody is asked anything more."""
        return self._run.blocked

    def leave(self, party: str) -> None:
        """A party has left: it is in no later turn, and nothing of it is waited for."""
        number = self.terms.number(party)
        if number in self._run.gone:
            return
        try:
            with self._store.transaction():
                self._run.leave(number, self._put)
                self._store.set_note("state", self._run.table())
        except BaseException:
            self._run = self._load()
            raise

    def traffic(self) -> dict[str, dict[str, int]]:
        """Envelopes and bytes that were handed on, by kind."""
        found: dict[str, dict[str, int]] = {}
        for (_, _, kind), way in self._run.relay.traffic.items():
            entry = found.setdefault(kind.name.lower(), {"envelopes": 0, "bytes": 0})
            entry["envelopes"] += way.envelopes
            entry["bytes"] += way.bytes
        return found

    def waits(self, party: str) -> bool:
        """Whether this party has something to hear or to say."""
        number = self.terms.number(party)
        if self.blocked or number in self._run.gone or (self.done and not self.searches):
            return False
        return bool(self._store.waiting(party) or (not self.done and self._run.owes(number)))

    def standing(self, party: str) -> tuple[int, ...]:
        """How far both streams with a party are: while it does not change, the party is asked the same."""
        return self._store.places(party)

    def due(self, party: str) -> bytes | None:
        """What this party is asked now; None where it has all that it is told and nothing to say.

        While a group searches, every party is asked again and again whether it has a search to send.
        """
        polled = self.done and self.searches and not self.blocked and self.terms.number(party) not in self._run.gone
        if not self.waits(party) and not polled:
            return None
        return self._store.message(party, self.terms.number(party), self._digest).to_bytes(to_party=True)

    def receive(self, party: str, content: bytes) -> None:
        """Take a party's answer; what must be refused raises BadInput and changes nothing."""
        number = self.terms.number(party)
        try:
            message = SiloMessage.from_bytes(content, to_party=False)
            sentence = "an answer of another party came in this one's place; it is refused"
            require(message.number == number, "silo-message.other-party", sentence)
            sentence = "an answer belongs to a run with other terms; it is refused"
            require(message.digest == self._digest, "silo-message.other-run", sentence)
            with self._store.transaction():
                self._take(number, message)
        except BaseException as error:
            self._run = self._load()  # what was changed in memory is not on disk
            if isinstance(error, BadInput):
                self.refused[error.code] = self.refused.get(error.code, 0) + 1
            raise

    def _take(self, number: int, message: SiloMessage) -> None:
        party, before = self.terms.parties[number], self._run.total
        places = self._store.places(party)
        for tag in self._store.take(party, message):
            self._run.delivered(number, tag)
        while (record := self._store.next(party)) is not None:
            self._run.handle(number, record, self._put)
            self._store.finish(party)
        if self._store.places(party) == places:
            return
        self._store.set_note("state", self._run.table())
        if self._run.total is not None and self._run.total is not before:
            self._store.set_fact("total", self._run.total.tobytes())

    def _put(self, number: int, record: bytes) -> None:
        self._store.put(self.terms.parties[number], record)
