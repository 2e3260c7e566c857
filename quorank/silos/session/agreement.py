"""Key agreement of a group through a coordinator that never learns the keys, and the sealed channels that follow.

CS-F-LTR §IV-B asks for hash functions whose key the parties agree on. Every party has a lasting X25519 key, its
identity, and draws a second one and 32 random bytes, its contribution, for the session. A hello states both public keys
and a digest of the contribution. Once all hellos have arrived, each contribution is sealed for every other party under a
key derived from the four Diffie-Hellman secrets of the pair (lasting and ephemeral, as in the KK pattern of the Noise
protocol framework) and from all hellos. The group key is a KDF over the contributions in the order of the parties.

A coordinator that alters anything makes the pair's keys differ, so nothing opens. One that substitutes its own keys for a
party's is refused where identities are pinned. Otherwise the parties compare `fingerprint` by voice:
contributions are committed to before any is opened, so a man in the middle has one guess in 10^12 and no search.
An identity stolen later opens nothing that was sealed before. Every party of the group has the hashing key: that is
what the group key is for.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quorank.errors import BadInput, require
from quorank.silos.envelopes import (
    KEY,
    MOST_BYTES,
    TAG,
    VERSION,
    Envelope,
    Hello,
    Kind,
    canonical_settings,
    check_name,
    check_names,
    check_settings,
)

Entropy = Callable[[int], bytes]
SEALED_CONTRIBUTION = KEY + TAG
_NUMBERS = {Kind.HELLO: 0, Kind.CONTRIBUTION: 1}  # numbers of the two kinds that are sent once and not over a channel
_NONCE = bytes(12)  # every contribution key seals once


class PartyIdentity:
    """A party's name and an X25519 key of it: its lasting one, or that of a session.

    Args:
        name: Name of the party in its group.
        private: 32 secret bytes; drawn from the system unless given.

    Raises:
        BadInput: `silo-group.bad-name`, `silo-keys.bad-length`.

    >>> PartyIdentity("north", bytes(32)).public.hex()[:16]
    '2fe57da347cd6243'
    """

    def __init__(self, name: str, private: bytes | None = None) -> None:
        self.name = check_name(name)
        secret = secrets.token_bytes(KEY) if private is None else private
        _check_length(secret, f"the private key of {name}")
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def private(self) -> bytes:
        """Secret bytes, to be kept safe; `PartyIdentity(name, private)` is the same identity."""
        return self._key.private_bytes_raw()

    def agree(self, public: bytes, whose: str) -> bytes:
        """Compute the Diffie-Hellman secret with a public key on Curve25519; points of low order are refused."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            said = f"{whose} sent a public key that agrees on no secret (a point of low order); do not continue with it"
            raise BadInput("silo-keys.low-order", said) from None

    def __repr__(self) -> str:
        return f"PartyIdentity({self.name!r}, public {self.public.hex()[:16]}…)"


def derive(secret: bytes, purpose: str, *context: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256; every part of the context is preceded by its length."""
    info = f"quorank silo {VERSION} {purpose}".encode() + _with_lengths(context)
    return HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(secret)


def _with_lengths(parts: Iterable[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def commitment(name: str, contribution: bytes) -> bytes:
    """Return a digest that binds to 32 random bytes and hides them."""
    return hashlib.sha256(b"quorank silo commitment " + name.encode() + b" " + contribution).digest()


def _check_length(given: bytes, what: str, length: int = KEY) -> None:
    said = f"{what} has {len(given)} bytes, expected {length} bytes"
    require(len(given) == length, "silo-keys.bad-length", said)


@dataclass(frozen=True)
class AgreedKeys:
    """Keys of a finished agreement."""

    hashing_key: bytes = field(repr=False)  # 32 bytes, the same at all parties: key of all hash functions of terms
    pairs: Mapping[str, bytes] = field(repr=False)  # a secret of this party with each other one
    fingerprint: str  # the same at all parties, to be compared by voice where identities are not pinned


class Agreement:
    """A party's side of a key agreement, without any transport.

    Args:
        identity: This party.
        parties: Names of all parties, in the order in which their contributions enter the group key.
        settings: Settings that all parties must have in common, stated in every hello.
        pins: Public keys that other parties are known by.
        entropy: Source of the session's secret bytes.
    """

    def __init__(
        self,
        identity: PartyIdentity,
        parties: Sequence[str],
        settings: Mapping[str, str] | None = None,
        pins: Mapping[str, bytes] | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self.identity, self.name, self.parties = identity, identity.name, check_names(parties)
        self.others = tuple(party for party in self.parties if party != self.name)
        self.pins = dict(pins or {})
        for name in (self.name, *self.pins):
            self._check_party(name)
        for name, key in self.pins.items():
            _check_length(key, f"the key that is pinned for {name}")
        self._ephemeral = PartyIdentity(self.name, entropy(KEY))
        self._contributions = {self.name: entropy(KEY)}
        committed = commitment(self.name, self._contributions[self.name])
        stated = {"parties": " ".join(self.parties), **(settings or {})}
        self.hello = Hello(identity.public, self._ephemeral.public, committed, stated)
        self._hellos = {self.name: self.hello}
        self._pair = cache(self._pair_secret)
        self._early: dict[str, Envelope] = {}  # contributions that arrived before all hellos

    @property
    def is_complete(self) -> bool:
        """Keys are agreed with all parties."""
        return len(self._contributions) == len(self.parties)

    @cached_property
    def keys(self) -> AgreedKeys:
        """The agreed keys."""
        said = "keys are not agreed yet; exchange hellos and contributions first"
        require(self.is_complete, "silo-keys.not-agreed", said)
        transcript = self._transcript()
        everyone = b"".join(self._contributions[name] for name in self.parties)
        group_key = derive(everyone, "group key", transcript)
        digits = int.from_bytes(derive(group_key, "fingerprint")[:16], "little") % 10**12
        return AgreedKeys(
            derive(group_key, "hashing key"),
            {other: derive(self._pair(other) + group_key, "pair", transcript) for other in self.others},
            f"{digits // 10**8:04d} {digits // 10**4 % 10**4:04d} {digits % 10**4:04d}",
        )

    @property
    def identities(self) -> dict[str, bytes]:
        """Public identities of the other parties whose hello has arrived."""
        return {name: hello.identity for name, hello in self._hellos.items() if name != self.name}

    def hellos(self) -> list[Envelope]:
        """Return this party's hello, one for each other party."""
        body = self.hello.to_bytes()
        return [Envelope(Kind.HELLO, self.name, other, _NUMBERS[Kind.HELLO], body) for other in self.others]

    def receive(self, envelope: Envelope) -> list[Envelope]:
        """Accept a hello or a contribution, and return this party's contributions once all hellos are here.

        Raises:
            BadInput: The envelope cannot come from the party that it names; the state is then unchanged.
        """
        sender, kind = envelope.sender, envelope.kind
        said = f"this envelope is for {envelope.receiver}, not for {self.name}"
        require(envelope.receiver == self.name, "silo-message.misdirected", said)
        self._check_party(sender)
        require(sender != self.name, "silo-message.misdirected", f"a message of {sender} came back to it; drop it")
        said = f"this {kind.name.lower()} of {sender} is not part of a key agreement; drop it"
        require(envelope.number == _NUMBERS.get(kind), "silo-message.malformed", said)
        if kind is Kind.HELLO:
            self._receive_hello(sender, Hello.from_bytes(envelope.body, sender))
            if not self._has_hellos:
                return []
            early, self._early = self._early, {}
            for each in early.values():
                self._receive_contribution(each.sender, each.body)
            return self._contribute()
        if self._has_hellos:
            self._receive_contribution(sender, envelope.body)
        else:
            said = f"the contribution of {sender} came again: a replay; drop it"
            require(sender not in self._early, "silo-keys.repeated", said)
            _check_length(envelope.body, f"the contribution of {sender}", SEALED_CONTRIBUTION)
            self._early[sender] = envelope
        return []

    @property
    def _has_hellos(self) -> bool:
        return len(self._hellos) == len(self.parties)

    def _receive_hello(self, sender: str, hello: Hello) -> None:
        """Accept another party's public keys, once, if they can be those of that party."""
        said = f"{sender} said hello already; start the agreement again"
        require(sender not in self._hellos, "silo-keys.repeated", said)
        check_settings(self.hello.settings, hello.settings, sender)
        is_pinned = hmac.compare_digest(self.pins.get(sender, hello.identity), hello.identity)
        said = f"the hello of {sender} has another key than the one pinned for it, maybe the coordinator's"
        require(is_pinned, "silo-keys.not-pinned", f"{said}; stop until {sender} confirms it by another way")
        keys = [key for each in (*self._hellos.values(), hello) for key in (each.identity, each.ephemeral)]
        said = f"the hello of {sender} repeats a public key of another party"
        require(len(set(keys)) == len(keys), "silo-keys.borrowed", said)
        for key in (hello.identity, hello.ephemeral):
            self.identity.agree(key, sender)
        self._hellos[sender] = hello

    def _transcript(self) -> bytes:
        """Return a digest of all hellos in the order of the parties."""
        hellos = (part for name in self.parties for part in (name.encode(), self._hellos[name].to_bytes()))
        return hashlib.sha256(b"quorank silo transcript" + bytes([VERSION]) + _with_lengths(hellos)).digest()

    def _contribute(self) -> list[Envelope]:
        """Seal this party's contribution for each other party."""
        transcript, number, found = self._transcript(), _NUMBERS[Kind.CONTRIBUTION], []
        for other in self.others:
            sealed = self._cipher(self.name, other).encrypt(_NONCE, self._contributions[self.name], transcript)
            found.append(Envelope(Kind.CONTRIBUTION, self.name, other, number, sealed))
        return found

    def _receive_contribution(self, sender: str, sealed: bytes) -> None:
        """Accept another party's contribution, once, if it is the committed one."""
        words = f"the contribution of {sender}"
        require(sender not in self._contributions, "silo-keys.repeated", f"{words} came again: a replay; drop it")
        _check_length(sealed, words, SEALED_CONTRIBUTION)
        try:
            contribution = self._cipher(sender, self.name).decrypt(_NONCE, sealed, self._transcript())
        except InvalidTag:
            said = f"{words} does not open: altered, of another session, or {sender} was shown other hellos"
            raise BadInput("silo-keys.not-authentic", f"{said}; start the agreement again") from None
        as_committed = hmac.compare_digest(commitment(sender, contribution), self._hellos[sender].commitment)
        said = f"{words} is not the one it committed to; do not continue with {sender}"
        require(as_committed, "silo-keys.not-committed", said)
        self._contributions[sender] = contribution

    def _check_party(self, name: str) -> None:
        known = ", ".join(self.parties)
        require(name in self.parties, "silo-group.unknown-party", f"{name} is not of the group {known}")

    def _pair_secret(self, other: str) -> bytes:
        """Derive KDF(ss ‖ es ‖ se ‖ ee), in the order of the group, of this party and another."""
        theirs, place = self._hellos[other], self.parties.index
        first = place(self.name) < place(other)
        cross = (self.identity.agree(theirs.ephemeral, other), self._ephemeral.agree(theirs.identity, other))
        secret = self.identity.agree(theirs.identity, other) + b"".join(cross if first else cross[::-1])
        secret += self._ephemeral.agree(theirs.ephemeral, other)
        return derive(secret, "pair secret", canonical_settings(self.hello.settings))

    def _cipher(self, sender: str, receiver: str) -> ChaCha20Poly1305:
        """Return the cipher of one contribution, bound to the pair, the direction and all hellos."""
        other = receiver if sender == self.name else sender
        names = (sender.encode(), receiver.encode())
        return ChaCha20Poly1305(derive(self._pair(other), "contribution", self._transcript(), *names))


class SealedChannel:
    """A party's end of its channel with another, continued after `sent` and `received` envelopes.

    ChaCha20-Poly1305 with a key for each direction, derived from the pair's secret. The number of an envelope is its
    nonce; sender, receiver, kind and number are associated data. Envelopes must arrive in order and each one once, so
    that the coordinator can neither read, alter, repeat, reorder nor withhold one unnoticed.
    """

    def __init__(self, secret: bytes, me: str, other: str, sent: int = 0, received: int = 0) -> None:
        self.me, self.other, self.sent, self.received = me, other, sent, received
        self._out = ChaCha20Poly1305(derive(secret, "line", me.encode(), other.encode()))
        self._in = ChaCha20Poly1305(derive(secret, "line", other.encode(), me.encode()))

    def seal(self, kind: Kind, text: bytes) -> Envelope:
        """Return an envelope with the next number for the other party."""
        said = f"a message of {len(text):,} bytes is larger than the protocol's {MOST_BYTES:,}"
        require(len(text) + TAG <= MOST_BYTES, "silo-message.too-large", said)
        self.sent += 1
        blank = Envelope(kind, self.me, self.other, self.sent, b"")
        return replace(blank, body=self._out.encrypt(_nonce(self.sent), text, blank.head()))

    def open(self, envelope: Envelope) -> bytes:
        """Return the text that the other party sealed; the channel is unchanged where it does not open."""
        is_mine = (envelope.sender, envelope.receiver) == (self.other, self.me)
        require(is_mine, "silo-message.misdirected", f"this envelope is not from {self.other} to {self.me}")
        number, due = envelope.number, self.received + 1
        said = f"envelope {number} of {self.other} came again: a replay; drop it"
        require(number >= due, "silo-message.replayed", said)
        said = f"envelope {number} of {self.other} came where {due} was next; one was withheld"
        require(number == due, "silo-message.order", said)
        try:
            text = self._in.decrypt(_nonce(number), envelope.body, envelope.head())
        except InvalidTag:
            said = f"envelope {number} of {self.other} does not open: it is altered, or sealed with another key"
            hint = "drop it and, if that happens again, agree on keys again"
            raise BadInput("silo-message.not-authentic", f"{said}; {hint}") from None
        self.received = number
        return text


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
