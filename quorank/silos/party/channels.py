"""Sealed channels of a party to the others, on disk: no envelope number is used twice, and none is left out.

The counters are stored in the transaction that stores what was sealed or opened.
"""

from __future__ import annotations

from quorank.errors import require
from quorank.silos.protocol.messages import Envelope, Kind
from quorank.silos.protocol.session import SealedChannel, Session
from quorank.silos.protocol.stream_store import SiloStore

_COUNTERS = "lines"


class SealedChannels:
    """One party's ends; after the agreement."""

    def __init__(self, store: SiloStore, session: Session) -> None:
        self._store, self._session = store, session
        self._counters: dict[str, list[int]] = store.note(_COUNTERS, {})  # other → [sent, received]
        self._open: dict[str, SealedChannel] = {}

    def _channel(self, other: str) -> SealedChannel:
        if other not in self._open:
            keys, name = self._session.keys, self._session.name
            self._open[other] = SealedChannel(keys.pairs[other], name, other, *self._counters.setdefault(other, [0, 0]))
        return self._open[other]

    def seal(self, other: str, kind: Kind, text: bytes) -> Envelope:
        """An envelope with the next number."""
        envelope = self._channel(other).seal(kind, text)
        self._counters[other][0] = envelope.number
        self._store.set_note(_COUNTERS, self._counters)
        return envelope

    def open(self, envelope: Envelope) -> bytes:
        """What another party sealed; each of its envelopes in its turn, so that none can be kept back unnoticed."""
        channel = self._channel(envelope.sender)
        expected = self._counters[envelope.sender][1] + 1
        sentence = (
            f"envelope {envelope.number} of {envelope.sender} came where {expected} was next; something was kept back"
        )
        require(envelope.number == expected, "silo-message.order", sentence)
        text = channel.open(envelope)
        self._counters[envelope.sender][1] = expected
        self._store.set_note(_COUNTERS, self._counters)
        return text

    @staticmethod
    def forget(store: SiloStore) -> None:
        """Inside a transaction: the run is done."""
        store.drop_fact(_COUNTERS)
