"""A sealed line between two parties: what passes through the server, the server cannot read, alter or repeat unnoticed.

ChaCha20-Poly1305 with a key for each direction, made of the pair's secret (which holds the group key, see
`protocol.keys`). The number of an envelope is its nonce and never repeats under a key; sender, receiver, kind and
number are associated data. Envelopes may arrive in another order, within a window; each is opened at most once.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from quorank.errors import BadInput, require
from quorank.silos.protocol.keys import derive
from quorank.silos.protocol.messages import MOST_BYTES, Envelope, Kind

WINDOW = 1024
TAG = 16


class SealedChannel:
    """One party's end of its line with another; `sent` and `received` go on with a line that was kept."""

    def __init__(self, secret: bytes, me: str, other: str, sent: int = 0, received: int = 0) -> None:
        self.me, self.other = me, other
        self._out = ChaCha20Poly1305(derive(secret, "line", me.encode(), other.encode()))
        self._in = ChaCha20Poly1305(derive(secret, "line", other.encode(), me.encode()))
        self._sent = sent
        self._highest = received
        self._seen = set(range(max(1, received - WINDOW + 1), received + 1))

    def seal(self, kind: Kind, text: bytes) -> Envelope:
        """An envelope with the next number for the other party."""
        require(
            len(text) + TAG <= MOST_BYTES,
            f"a message of {len(text):,} bytes is larger than the protocol's {MOST_BYTES:,}; ask for fewer terms at a time",
        )
        self._sent += 1
        blank = Envelope(kind, self.me, self.other, self._sent, b"")
        body = self._out.encrypt(_nonce(self._sent), text, blank.head())
        return Envelope(kind, self.me, self.other, self._sent, body)

    def open(self, envelope: Envelope) -> bytes:
        """What the other party sealed; an envelope that does not open leaves the line as it was."""
        number = envelope.number
        require(
            (envelope.sender, envelope.receiver) == (self.other, self.me),
            f"this envelope goes from {envelope.sender} to {envelope.receiver}, and not from {self.other} to {self.me}",
        )
        require(
            number > self._highest - WINDOW and number not in self._seen and number >= 1,
            f"envelope {number} of {self.other} was received already, or is far too late: a replay; drop it",
        )
        try:
            text = self._in.decrypt(_nonce(number), envelope.body, envelope.head())
        except InvalidTag:
            raise BadInput(
                f"envelope {number} of {self.other} does not open: it is altered, or sealed with another key; drop it and, "
                "if that happens again, agree on keys anew"
            ) from None
        self._seen.add(number)
        if number > self._highest:
            self._highest = number
            self._seen = {n for n in self._seen if n > number - WINDOW}
        return text


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
