"""Identities of parties, and their agreement on keys that the server between them never learns.

CS-F-LTR §IV-B asks for hash functions whose key is agreed among the parties. Every party has a lasting X25519 key, its
identity, and draws a second one and 32 random bytes, its contribution, for a session. A hello states both public keys
and a digest of the contribution; when all hellos are there, each contribution is sealed for every other party under a
key made of the four Diffie-Hellman secrets of the pair (lasting and ephemeral, as in the KK pattern of the Noise
protocol framework) and of all hellos. The group key is a KDF over the contributions in the order of the parties.

A server that alters anything makes the pair's keys differ, so nothing opens. One that puts its own keys in the place of
a party's is refused where identities are pinned. Where they are not, the parties compare `fingerprint` by voice:
contributions are committed to before any is opened, so a server in between has one guess in 10^12, not a search.
An identity stolen later opens nothing that was sealed before. Every party of the group knows the hashing key: that is
what the group key is for.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quorank.errors import BadInput, require
from quorank.silos.protocol.group import Group, check_name, check_settings
from quorank.silos.protocol.messages import KEY, VERSION, Hello, canonical_settings

Entropy = Callable[[int], bytes]
SEALED_CONTRIBUTION = KEY + 16
_NONCE = bytes(12)  # every contribution key seals once


class PartyIdentity:
    """A party's name and its lasting X25519 key."""

    def __init__(self, name: str, private: bytes | None = None) -> None:
        self.name = check_name(name)
        secret = secrets.token_bytes(KEY) if private is None else private
        _check_length(secret, f"the private key of {name}")
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def private(self) -> bytes:
        """The secret bytes, to be kept in a safe place; `PartyIdentity(name, private)` is the same identity."""
        return self._key.private_bytes_raw()

    def agree(self, public: bytes, whose: str) -> bytes:
        """Return the secret shared with a public key."""
        return agree(self._key, public, whose)

    def __repr__(self) -> str:
        return f"PartyIdentity({self.name!r}, public {self.public.hex()[:16]}…)"


def agree(private: X25519PrivateKey, public: bytes, whose: str) -> bytes:
    """Compute the Diffie-Hellman secret on Curve25519; a point of low order agrees on no secret and is refused."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        said = f"{whose} sent a public key that agrees on no secret (a point of low order); do not continue with it"
        raise BadInput("silo-keys.low-order", said) from None


def derive(secret: bytes, purpose: str, *context: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256; a length precedes every part of the context, so that nothing runs together."""
    info = f"quorank silo {VERSION} {purpose}".encode()
    for part in context:
        info += len(part).to_bytes(4, "little") + part
    return HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(secret)


def commitment(name: str, contribution: bytes) -> bytes:
    """Return a digest that binds to 32 random bytes and hides them."""
    return hashlib.sha256(b"quorank silo commitment " + name.encode() + b" " + contribution).digest()


def checksum(hashing_key: bytes) -> str:
    """Return what parties with a kept hashing key compare in clear: 64 bits that say nothing of 32 random bytes."""
    return hashlib.sha256(b"quorank silo hashing key " + hashing_key).hexdigest()[:16]


def _check_length(given: bytes, what: str, length: int = KEY) -> None:
    said = f"{what} has {len(given)} bytes, expected {length} bytes"
    require(len(given) == length, "silo-keys.bad-length", said)


@dataclass(frozen=True)
class AgreedKeys:
    """Result of a finished agreement: the group's keys, and one secret with each other party."""

    hashing_key: bytes = field(repr=False)  # 32 bytes, the same at all parties: key of the sketches' hash functions
    pairs: Mapping[str, bytes] = field(repr=False)  # a secret of this party with each other one
    fingerprint: str  # the same at all parties, to be compared by voice where identities are not pinned


class Agreement:
    """One party's side of a key agreement: hello, contributions, result; without any transport.

    `pins` are the public keys that parties are known by. `hashing_key` continues with a kept key instead of a new one,
    so that sketches need not be built again; all parties must then have kept the same.
    """

    def __init__(
        self,
        identity: PartyIdentity,
        group: Group,
        pins: Mapping[str, bytes] | None = None,
        *,
        hashing_key: bytes | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self.identity, self.group, self.pins = identity, group, dict(pins or {})
        for name in (identity.name, *self.pins):
            self._check_party(name)
        for name, key in self.pins.items():
            _check_length(key, f"the key that is pinned for {name}")
        if hashing_key is not None:
            _check_length(hashing_key, "the kept hashing key")
        self._kept = hashing_key
        self._ephemeral = X25519PrivateKey.from_private_bytes(entropy(KEY))
        self._contribution = entropy(KEY)
        settings = group.settings() | ({} if hashing_key is None else {"hashing": checksum(hashing_key)})
        self.hello = Hello(
            identity.public,
            self._ephemeral.public_key().public_bytes_raw(),
            commitment(identity.name, self._contribution),
            settings,
        )
        self._hellos = {identity.name: self.hello}
        self._pairs: dict[str, bytes] = {}
        self._contributions = {identity.name: self._contribution}

    @property
    def has_hellos(self) -> bool:
        """All hellos are there: contributions can be sealed and opened."""
        return len(self._hellos) == len(self.group.parties)

    @property
    def is_complete(self) -> bool:
        """All contributions are there."""
        return len(self._contributions) == len(self.group.parties)

    def receive_hello(self, sender: str, hello: Hello) -> None:
        """Accept another party's public keys, once, if they can be those of that party."""
        self._check_other(sender)
        said = f"{sender} said hello already; start the agreement again"
        require(sender not in self._hellos, "silo-keys.repeated", said)
        check_settings(dict(self.hello.settings), dict(hello.settings), sender)
        is_pinned = hmac.compare_digest(self.pins.get(sender, hello.identity), hello.identity)
        said = f"the hello of {sender} has another key than the one pinned for it, maybe the server's"
        require(is_pinned, "silo-keys.not-pinned", f"{said}; stop until {sender} confirms it by another way")
        keys = [key for each in (*self._hellos.values(), hello) for key in (each.identity, each.ephemeral)]
        said = f"the hello of {sender} repeats a public key; every party has keys of its own"
        require(len(set(keys)) == len(keys), "silo-keys.borrowed", said)
        for key in (hello.identity, hello.ephemeral):
            self.identity.agree(key, sender)
        self._hellos[sender] = hello

    def transcript(self) -> bytes:
        """Return a digest of all hellos in the order of the parties."""
        require(self.has_hellos, "silo-keys.too-early", "this takes all hellos; wait for the others")
        digest = hashlib.sha256(b"quorank silo transcript" + bytes([VERSION]))
        for name in self.group.parties:
            raw = self._hellos[name].to_bytes()
            digest.update(len(name).to_bytes(4, "little") + name.encode())
            digest.update(len(raw).to_bytes(4, "little") + raw)
        return digest.digest()

    def contributions(self) -> dict[str, bytes]:
        """Seal this party's contribution for each other party."""
        me, transcript = self.identity.name, self.transcript()
        return {
            other: self._cipher(me, other).encrypt(_NONCE, self._contribution, transcript)
            for other in self.group.others(me)
        }

    def receive_contribution(self, sender: str, sealed: bytes) -> None:
        """Accept another party's contribution, once, if it is what it committed to."""
        self._check_other(sender)
        transcript, words = self.transcript(), f"the contribution of {sender}"
        require(sender not in self._contributions, "silo-keys.repeated", f"{words} came again: a replay; drop it")
        _check_length(sealed, words, SEALED_CONTRIBUTION)
        try:
            contribution = self._cipher(sender, self.identity.name).decrypt(_NONCE, sealed, transcript)
        except InvalidTag:
            said = f"{words} does not open: altered, of another session, or {sender} was shown other hellos"
            raise BadInput("silo-keys.not-authentic", f"{said}; start the agreement again") from None
        as_committed = hmac.compare_digest(commitment(sender, contribution), self._hellos[sender].commitment)
        said = f"{words} is not the one it committed to; do not continue with {sender}"
        require(as_committed, "silo-keys.not-committed", said)
        self._contributions[sender] = contribution

    def result(self) -> AgreedKeys:
        """Return the keys that all contributions give."""
        require(self.is_complete, "silo-keys.too-early", "the key takes all contributions; wait for the others")
        transcript = self.transcript()
        everyone = b"".join(self._contributions[name] for name in self.group.parties)
        group_key = derive(everyone, "group key", transcript)
        digits = int.from_bytes(derive(group_key, "fingerprint")[:16], "little") % 10**12
        return AgreedKeys(
            self._kept or derive(group_key, "hashing key"),
            {
                other: derive(self._pair(other) + group_key, "pair", transcript)
                for other in self.group.others(self.identity.name)
            },
            f"{digits // 10**8:04d} {digits // 10**4 % 10**4:04d} {digits % 10**4:04d}",
        )

    def _check_party(self, name: str) -> None:
        known = ", ".join(self.group.parties)
        require(name in self.group.parties, "silo-group.unknown-party", f"{name} is not of the group {known}")

    def _check_other(self, sender: str) -> None:
        self._check_party(sender)
        is_other = sender != self.identity.name
        require(is_other, "silo-message.misdirected", f"a message of {sender} came back to it; drop it")

    def _pair(self, other: str) -> bytes:
        """Derive KDF(ss ‖ es ‖ se ‖ ee), in the order of the group, of this party and another."""
        if other not in self._pairs:
            theirs, place = self._hellos[other], self.group.parties.index
            first = place(self.identity.name) < place(other)
            cross = (self.identity.agree(theirs.ephemeral, other), agree(self._ephemeral, theirs.identity, other))
            secret = self.identity.agree(theirs.identity, other) + b"".join(cross if first else cross[::-1])
            secret += agree(self._ephemeral, theirs.ephemeral, other)
            self._pairs[other] = derive(secret, "pair secret", canonical_settings(self.hello.settings))
        return self._pairs[other]

    def _cipher(self, sender: str, receiver: str) -> ChaCha20Poly1305:
        """Return the cipher of one contribution, bound to the pair, the direction and all hellos."""
        other = receiver if sender == self.identity.name else sender
        names = (sender.encode(), receiver.encode())
        return ChaCha20Poly1305(derive(self._pair(other), "contribution", self.transcript(), *names))
