"""A party's session with its group: keys agreed through the server, then a sealed line to each other party.

Envelopes may overtake each other: what comes before it can be read is held, and read when it can. Envelopes that cannot
come from the party they name raise `BadInput` and change nothing; one that was held and then does not open is dropped,
with a sentence in `dropped`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from quorank.errors import BadInput, require
from quorank.silos.protocol.group import Group
from quorank.silos.protocol.keys import AgreedKeys, Agreement, Entropy, PartyIdentity, derive
from quorank.silos.protocol.messages import Envelope, Hello, Kind
from quorank.silos.protocol.sealed import SealedChannel
from quorank.silos.sketch.hashing import Hashing

MOST_HELD = 64
"""Envelopes of one sender that wait for the agreement to finish; more are refused."""
_HELLO, _CONTRIBUTION = 0, 1  # the numbers of the two unsealed kinds: each is sent once

Opened = list[tuple[Envelope, bytes]]


class Session:
    """Hello, contributions, then sealing and opening; see `quorank.silos.protocol.keys.Agreement` for the arguments."""

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
        """This party's hello, one for each other party."""
        body = self._agreement.hello.to_bytes()
        return [
            Envelope(Kind.HELLO, self.name, other, _HELLO, body) for other in self.group.others(self.name)
        ]

    @property
    def is_agreed(self) -> bool:
        """Keys are agreed with all parties."""
        return self._agreed is not None

    @property
    def keys(self) -> AgreedKeys:
        """The agreed keys, or a refusal."""
        return self.check_agreed()

    def check_agreed(self) -> AgreedKeys:
        """Refuse what needs keys as long as there are none."""
        if self._agreed is None:
            raise BadInput(
                "keys are not agreed yet; exchange hellos and contributions with all parties first"
            )
        return self._agreed

    def hashing(self, field: str) -> Hashing:
        """How the group hashes a field: with a key of its own, so that fields share no places."""
        if field not in self._hashings:
            shape = self.group.field(field)
            key = derive(self.keys.hashing_key, "field", field.encode())
            self._hashings[field] = Hashing(key, shape.rows, shape.columns)
        return self._hashings[field]

    def seal(self, other: str, kind: Kind, text: bytes) -> Envelope:
        """An envelope for another party."""
        self.check_agreed()
        require(other in self._channels, f"{other} is no other party of this group")
        return self._channels[other].seal(kind, text)

    def take(self, envelope: Envelope) -> tuple[list[Envelope], Opened]:
        """What an envelope calls for in the agreement, and what could be opened: itself, or others that waited for it."""
        require(
            envelope.receiver == self.name, f"this envelope is for {envelope.receiver}, not for {self.name}"
        )
        require(
            envelope.sender in self.group.others(self.name),
            f"{envelope.sender} is no other party of this group; drop its envelope",
        )
        if not self._is_due(envelope):
            held = self._held.setdefault(envelope.sender, [])
            require(
                len(held) < MOST_HELD,
                f"{envelope.sender} sends too much before keys are agreed; drop its envelope",
            )
            held.append(envelope)
            return [], []
        out, opened = self._take(envelope)
        while due := self._next_held():
            try:
                more, others = self._take(due)
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

    def _take(self, envelope: Envelope) -> tuple[list[Envelope], Opened]:
        sender = envelope.sender
        if envelope.kind is Kind.HELLO:
            require(
                envelope.number == _HELLO, f"a hello has number {_HELLO}, and this one of {sender} another"
            )
            self._agreement.receive_hello(sender, Hello.from_bytes(envelope.body, sender))
            return self._contributions() if self._agreement.has_hellos else [], []
        if envelope.kind is Kind.CONTRIBUTION:
            require(
                envelope.number == _CONTRIBUTION,
                f"a contribution has number {_CONTRIBUTION}, and this one of {sender} another",
            )
            self._agreement.receive_contribution(sender, envelope.body)
            if self._agreement.is_complete:
                self._agreed = self._agreement.result()
                self._channels = {o: SealedChannel(s, self.name, o) for o, s in self._agreed.pairs.items()}
            return [], []
        return [], [(envelope, self._channels[sender].open(envelope))]

    def _contributions(self) -> list[Envelope]:
        sealed = self._agreement.contributions()
        return [Envelope(Kind.CONTRIBUTION, self.name, o, _CONTRIBUTION, body) for o, body in sealed.items()]
