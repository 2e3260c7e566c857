"""Client of a secure sum against a malicious server: signed keys, and a minimum number of survivors.

Bonawitz et al. 2017, fig. 4, with the additions for active servers. Every client signs its two public keys with a
long-term identity (Ed25519). A client that has pinned the identities of the others refuses keys that they did not sign, so
a server cannot invent clients or impersonate them. Before unmasking, every client signs the one list of survivors that it
was shown, with the round's roster and the clients that shared. It refuses a list that is shorter than `least` or has a
disconnected mask graph, and unmasks only where `least` clients have signed the same list. A client signs once, `least` is
more than half of the roster, and a client reveals one of another's two secrets, never both. Every unmasked sum is therefore
over at least `least` clients, as long as no more than `graph.tolerated_colluders` of them collude with the server.

Pinned identities are as trustworthy as their channel: from the coordinator alone they prove nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorank.errors import require
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Roster
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import AdvertiseKeys, KeyList, ShareKeys, UnmaskReply, UnmaskRequest
from quorank.protocol.keys import SIGNATURE, MemberKey, is_signed

_PLACE = struct.Struct("<II")
_KEYS, SURVIVORS = b"quorank secure sum: keys", b"quorank secure sum: survivors"  # purposes of signatures

Pinned = Mapping[int, bytes]  # public keys of identities by client


def signed_content(purpose: bytes, occasion: Occasion, client: int, content: bytes) -> bytes:
    """Return the signed content, bound to its purpose, session, round and client."""
    return purpose + occasion.digest + _PLACE.pack(occasion.round, client) + content


def is_signed_by(
    pinned: Pinned, purpose: bytes, occasion: Occasion, client: int, content: bytes, signature: bytes
) -> bool:
    """Return whether the client has signed these keys, or this list of survivors (`listed_bytes`)."""
    return client in pinned and is_signed(pinned[client], signed_content(purpose, occasion, client, content), signature)


@dataclass(frozen=True)
class SignedKeys:
    """Two public keys of a client with its signature."""

    keys: AdvertiseKeys
    signature: bytes

    def to_bytes(self) -> bytes:
        """Encode the keys, followed by the signature."""
        return self.keys.to_bytes() + self.signature

    @classmethod
    def from_bytes(cls, raw: bytes) -> SignedKeys:
        """Decode `to_bytes`; reject everything else."""
        sentence = "the signed keys are truncated; have them sent again"
        require(len(raw) > SIGNATURE, "secure-sum.malformed", sentence)
        return cls(AdvertiseKeys.from_bytes(raw[:-SIGNATURE]), raw[-SIGNATURE:])

    def is_genuine(self, pinned: Pinned, occasion: Occasion) -> bool:
        """Return whether the named client has signed them for this occasion."""
        self.keys.check_occasion(occasion)
        return is_signed_by(pinned, _KEYS, occasion, self.keys.client, self.keys.to_bytes(), self.signature)


class GuardedClient:
    """Client of a secure sum that checks the members of the round and their number."""

    def __init__(self, client: SecureClient, identity: MemberKey, least: int) -> None:
        require(least >= 2, "secure-sum.least", f"a sum of fewer than 2 clients is an update, got least = {least}")
        self.inner, self.identity, self.least = client, identity, least
        self.pinned: Pinned | None = None  # identities of the round's members; None: no signature is checked
        self._agreed = b""  # the signed list of survivors, this client among them
        self._survivors: frozenset[int] = frozenset()

    def advertise(self) -> SignedKeys:
        """Return the client's two public keys under its signature."""
        keys = self.inner.advertise()
        return SignedKeys(keys, self._sign(_KEYS, keys.to_bytes()))

    def _sign(self, purpose: bytes, content: bytes) -> bytes:
        return self.identity.sign(signed_content(purpose, self.inner.occasion, self.inner.client, content))

    def share(self, keys: KeyList, signed: Sequence[SignedKeys]) -> ShareKeys:
        """Return the shares of `SecureClient.share` if every key in the list is signed by its owner."""
        if self.pinned is not None:
            found = {one.keys.client: one.keys for one in signed if one.is_genuine(self.pinned, self.inner.occasion)}
            pairs = {client: one.channel_key + one.mask_key for client, one in found.items()}
            false = sorted(client for client, pair in keys.neighbours if pairs.get(client) != pair)
            self._require(not false, "secure-sum.unsigned", f"was offered keys of {false} that are not signed by them")
            strangers = [client for client in Roster(keys.roster).clients if client not in self.pinned]
            shown = f"was shown a roster with clients that it does not know: {strangers[:5]}"
            self._require(not strangers, "secure-sum.strangers", shown)
        clients = Roster(keys.roster).clients
        # in a larger roster, enough clients could sign each of two lists of survivors
        fits = self.least <= len(clients) < 2 * self.least
        shown = f"was shown a roster of {len(clients)}, and it is summed with at least {self.least}, more than half"
        self._require(fits, "secure-sum.roster", shown)
        return self.inner.share(keys)

    def agree(self, survivors: Sequence[int]) -> bytes:
        """Sign the list of survivors, once, and only if they are enough."""
        own, listed = self.inner.client, list(survivors)
        self._require(not self._agreed, "secure-sum.second-list", "was shown a second list of survivors")
        shown = "was shown a list of survivors that is not in order, or without itself"
        self._require(listed == sorted(set(listed)) and own in listed, "secure-sum.survivors", shown)
        shown = f"was shown {len(listed)} survivors, and it is summed with at least {self.least}"
        self._require(len(listed) >= self.least, "secure-sum.too-few", shown)
        ring, roster = self.inner.ring, self.inner.roster
        self._require(self.inner.sharers, "secure-sum.phase", "was not told who has shared")
        assert ring is not None and roster is not None
        shown = "was shown survivors who have not shared"
        self._require(roster.unpack(self.inner.sharers).issuperset(listed), "secure-sum.strangers", shown)
        shown = "was shown survivors whose mask graph may have more than one group"
        self._require(ring.joins(listed), "secure-sum.disconnected", shown)
        self._agreed, self._survivors = listed_bytes(roster, self.inner.sharers, listed), frozenset(listed)
        return self._sign(SURVIVORS, self._agreed)

    def unmask(self, request: UnmaskRequest, signatures: Mapping[int, bytes]) -> UnmaskReply:
        """Return the reply of `SecureClient.unmask` if enough clients have signed the requested list."""
        self._require(self._agreed, "secure-sum.phase", "was shown no list of survivors")
        same = set(request.survivors) <= self._survivors and not self._survivors & set(request.dropped)
        self._require(same, "secure-sum.survivors", "was asked to unmask another list than it has signed")
        if self.pinned is not None:
            count = sum(
                is_signed_by(self.pinned, SURVIVORS, self.inner.occasion, client, self._agreed, signature)
                for client, signature in signatures.items()
                if client in self._survivors
            )
            signed = f"has the signatures of {count} clients under the list of survivors, and it takes {self.least}"
            self._require(count >= self.least, "secure-sum.too-few", signed)
        return self.inner.unmask(request)

    def _require(self, condition: object, code: str, fault: str) -> None:
        require(condition, code, f"client {self.inner.client} {fault}; it refuses")


def listed_bytes(roster: Roster, sharers: bytes, survivors: Sequence[int]) -> bytes:
    """Return the signed content of a list of survivors: roster, sharers, survivors."""
    return roster.digest + sharers + pack_clients(survivors)


def pack_clients(clients: Sequence[int]) -> bytes:
    """Encode a list of clients, four bytes each."""
    return struct.pack(f"<{len(clients)}I", *clients)


def unpack_clients(raw: bytes) -> tuple[int, ...]:
    """Decode `pack_clients`."""
    sentence = "a list of clients is truncated; have it sent again"
    require(len(raw) % 4 == 0, "secure-sum.malformed", sentence)
    return struct.unpack(f"<{len(raw) // 4}I", raw)
