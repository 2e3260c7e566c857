"""Session of a party with its group: keys agreed through the server, then a sealed channel to each other party.

Envelopes may overtake each other: what comes before it can be read is held, and read when it can. Envelopes that cannot
come from the party they name raise `BadInput` and change nothing; one that was held and then does not open is dropped,
with a sentence in `dropped`.

A sealed channel is ChaCha20-Poly1305 with a key for each direction, made of the pair's secret (which holds the group key,
see `keys`). The number of an envelope is its nonce and never repeats under a key; sender, receiver, kind and number are
associated data. Envelopes may arrive in another order, within a window; each is opened at most once. So the server cannot
read, alter or repeat unnoticed what passes through it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from quorank.errors import BadInput, require
from quorank.silos.protocol.group import Group
from quorank.silos.protocol.keys import AgreedKeys, Agreement, Entropy, PartyIdentity, derive
from quorank.silos.protocol.messages import MOST_BYTES, TAG, Envelope, Hello, Kind
from quorank.silos.sketch.hashing import Hashing

WINDOW = 1024
MOST_HELD = 64
"""Envelopes of one sender that wait for the agreement to finish; more are refused."""
_HELLO, _CONTRIBUTION = 0, 1  # the numbers of the two unsealed kinds: each is sent once

Opened = list[tuple[Envelope, bytes]]


class SealedChannel:
    """One party's end of its channel with another; `sent` and `received` continue a channel that was kept."""

    def __init__(self, secret: bytes, me: str, other: str, sent: int = 0, received: int = 0) -> None:
        self.me, self.other = me, other
        self._out = ChaCha20Poly1305(derive(secret, "line", me.encode(), other.encode()))
        self._in = ChaCha20Poly1305(derive(secret, "line", other.encode(), me.encode()))
        self._sent = sent
        self._highest = received
        self._seen = set(range(max(1, received - WINDOW + 1), received + 1))

    def seal(self, kind: Kind, text: bytes) -> Envelope:
        """Return an envelope with the next number for the other party."""
        said = f"a message of {len(text):,} bytes is larger than the protocol's {MOST_BYTES:,}; ask for fewer terms"
        require(len(text) + TAG <= MOST_BYTES, "silo-message.too-large", said)
        self._sent += 1
        blank = Envelope(kind, self.me, self.other, self._sent, b"")
        return replace(blank, body=self._out.encrypt(_nonce(self._sent), text, blank.head()))

    def open(self, envelope: Envelope) -> bytes:
        """Return what the other party sealed; an envelope that does not open leaves the channel as it was."""
        number = envelope.number
        is_mine = (envelope.sender, envelope.receiver) == (self.other, self.me)
        require(is_mine, "silo-message.misdirected", f"this envelope is not from {self.other} to {self.me}")
        is_new = number > self._highest - WINDOW and number not in self._seen and number >= 1
        words = f"envelope {number} of {self.other}"
        require(is_new, "silo-message.replayed", f"{words} was received already, or is far too late: a replay; drop it")
        try:
            text = self._in.decrypt(_nonce(number), envelope.body, envelope.head())
        except InvalidTag:
            said = f"{words} does not open: it is altered, or sealed with another key"
            hint = "drop it and, if that happens again, agree on keys anew"
            raise BadInput("silo-message.not-authentic", f"{said}; {hint}") from None
        self._seen.add(number)
        if number > self._highest:
            self._highest = number
            self._seen = {n for n in self._seen if n > number - WINDOW}
        return text


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")


class Session:
    """One party's session: hello, contributions, then sealing and opening; `Agreement` explains the arguments."""

    def __init__(
        self,
        identity: PartyIdentity,
        group: Group,
        pins: Mapping[str, bytes] | None = None,
        *,
        hashing_key: bytes | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self.name, self.group = identity.name, group
        self.dropped: list[str] = []
        self._agreement = Agreement(identity, group, pins, hashing_key=hashing_key, entropy=entropy)
        self._agreed: AgreedKeys | None = None
        self._channels: dict[str, SealedChannel] = {}
        self._hashings: dict[str, Hashing] = {}
        self._held: dict[str, list[Envelope]] = {}

    def hello(self) -> list[Envelope]:
        """Return this party's hello, one for each other party."""
        body = self._agreement.hello.to_bytes()
        return [Envelope(Kind.HELLO, self.name, other, _HELLO, body) for other in self.group.others(self.name)]

    @property
    def is_agreed(self) -> bool:
        """Keys are agreed with all parties."""
        return self._agreed is not None

    @property
    def keys(self) -> AgreedKeys:
        """The agreed keys; refused as long as there are none."""
        if self._agreed is None:
            raise BadInput("silo-keys.not-agreed", "keys are not agreed yet; exchange hellos and contributions first")
        return self._agreed

    def hashing(self, field: str) -> Hashing:
        """Return how the group hashes a field: with a key of its own, so that fields share no places."""
        if field not in self._hashings:
            shape = self.group.field(field)
            key = derive(self.keys.hashing_key, "field", field.encode())
            self._hashings[field] = Hashing(key, shape.rows, shape.columns)
        return self._hashings[field]

    def seal(self, other: str, kind: Kind, text: bytes) -> Envelope:
        """Return an envelope for another party."""
        require(other in self.keys.pairs, "silo-group.unknown-party", f"{other} is no other party of this group")
        return self._channels[other].seal(kind, text)

    def receive(self, envelope: Envelope) -> tuple[list[Envelope], Opened]:
        """Return the envelopes that this one calls for in the agreement, and the texts that could be opened.

        The texts are that of the envelope itself, or of others that waited for it.
        """
        sender, receiver = envelope.sender, envelope.receiver
        said = f"this envelope is for {receiver}, not for {self.name}"
        require(receiver == self.name, "silo-message.misdirected", said)
        self.group.check_other(sender, self.name)
        if not self._is_due(envelope):
            held = self._held.setdefault(sender, [])
            said = f"{sender} sends too much before keys are agreed; drop its envelope"
            require(len(held) < MOST_HELD, "silo-message.too-early", said)
            held.append(envelope)
            return [], []
        out, opened = self._process(envelope)
        while due := self._next_held():
            try:
                more, others = self._process(due)
            except BadInput as error:
                self.drop(error)
                continue
            out, opened = out + more, opened + others
        return out, opened

    def drop(self, error: BadInput) -> None:
        """Remember why an envelope that was held could not be used; the last hundred reasons are kept."""
        self.dropped = [*self.dropped[-99:], str(error)]

    def _is_due(self, envelope: Envelope) -> bool:
        if envelope.kind is Kind.HELLO:
            return True
        return self._agreement.has_hellos if envelope.kind is Kind.CONTRIBUTION else self.is_agreed

    def _next_held(self) -> Envelope | None:
        for waiting in self._held.values():
            for at, envelope in enumerate(waiting):
                if self._is_due(envelope):
                    return waiting.pop(at)
        return None

    def _process(self, envelope: Envelope) -> tuple[list[Envelope], Opened]:
        sender = envelope.sender
        if envelope.kind is Kind.HELLO:
            _check_number(envelope, _HELLO)
            self._agreement.receive_hello(sender, Hello.from_bytes(envelope.body, sender))
            sealed = self._agreement.contributions() if self._agreement.has_hellos else {}
            return [Envelope(Kind.CONTRIBUTION, self.name, o, _CONTRIBUTION, body) for o, body in sealed.items()], []
        if envelope.kind is Kind.CONTRIBUTION:
            _check_number(envelope, _CONTRIBUTION)
            self._agreement.receive_contribution(sender, envelope.body)
            if self._agreement.is_complete:
                self._agreed = self._agreement.result()
                self._channels = {o: SealedChannel(s, self.name, o) for o, s in self._agreed.pairs.items()}
            return [], []
        return [], [(envelope, self._channels[sender].open(envelope))]


def _check_number(envelope: Envelope, number: int) -> None:
    said = f"this {envelope.kind.name.lower()} of {envelope.sender} has another number than {number}"
    require(envelope.number == number, "silo-message.malformed", said)
