"""Client of a secure sum, without any transport: messages in, messages out.

Bonawitz et al. 2017, fig. 4, on the neighbours of Bell et al. 2020. The client sends its vector plus a self mask plus a
mask with each neighbour. The neighbours hold shares of the self mask's seed b_u and of the private key s_u of its pair
masks, and reveal one or the other, never both: without s_u the pair masks stay, without b_u the self mask.

A client computes its neighbours from the roster and refuses others (`graph`). It masks with each of them that the server
names as having shared, even if its shares do not arrive. It reveals only shares that match their owner's commitment, since
the server detects false ones. Consistent rosters and the owners of keys are checked with signatures
(`quorank.protocol.secure_identity`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quorank.errors import require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum import masks
from quorank.privacy.secure_sum.graph import Neighbourhood, Ring, Roster, neighbours_for, roster_and_ring
from quorank.privacy.secure_sum.masks import KEY, SEALED, Occasion
from quorank.privacy.secure_sum.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    SecureSumMessage,
    ShareDelivery,
    ShareKeys,
    UnmaskReply,
    UnmaskRequest,
)
from quorank.privacy.secure_sum.shamir import split_secret


class SecureClient:
    """Client of one round: advertise, share, mask, unmask, each once and in this order.

    `agreed` is the required neighbourhood, by default that of `neighbours_for`; `entropy(n)` returns n random bytes.
    """

    def __init__(
        self,
        client: int,
        occasion: Occasion,
        agreed: Neighbourhood | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        sentence = f"a client is named by a number from 0 to 2^31 − 1, got {client}"
        require(0 <= client < masks.MOST_CLIENTS, "secure-sum.client-number", sentence)
        self.client, self.occasion = client, occasion
        self._agreed = agreed
        self._entropy = entropy
        self._next = "advertise"
        self._channel_key = X25519PrivateKey.from_private_bytes(entropy(KEY))
        self._mask_key = X25519PrivateKey.from_private_bytes(entropy(KEY))
        self._self_seed = entropy(KEY)
        self._key_list: KeyList | None = None
        self.roster: Roster | None = None  # of the round
        self.ring: Ring | None = None
        self._channels: dict[int, masks.ShareChannel] = {}
        self.sharers = b""  # U2 as received, as bits of the roster
        self._owners = frozenset[int]()  # those of U2 whose shares it holds or should hold, itself among them
        self._held: dict[int, bytes] = {}  # by owner: a share of b and one of s
        self._committed: dict[int, bytes] = {}  # by owner: its commitments to them

    def advertise(self) -> AdvertiseKeys:
        """Return the two public keys."""
        self._check_step("advertise")
        self._next = "share"
        public = (key.public_key().public_bytes_raw() for key in (self._channel_key, self._mask_key))
        return AdvertiseKeys(*self._head, *public)

    def share(self, keys: KeyList) -> ShareKeys:
        """Return sealed shares of the self mask's seed and of the mask key, one pair for each holder."""
        self._check_step("share", keys)
        roster, ring = self._neighbours(keys)
        self._next, self._key_list, self.roster, self.ring = "mask", keys, roster, ring
        public, holders = dict(keys.neighbours), ring.holders(self.client)
        secret = self._self_seed + self._mask_key.private_bytes_raw()
        shares = split_secret(secret, keys.threshold, len(holders), self._entropy)
        sealed, committed = [], []
        for holder, share in zip(holders, shares, strict=True):
            committed.append((holder, masks.commitments(self.occasion, self.client, holder, share)))
            if holder == self.client:
                self._held[holder] = share
                continue
            secret = masks.shared_secret(self._channel_key, public[holder][:KEY], holder)
            channel = masks.ShareChannel(self.occasion, secret, self.client, holder, roster.digest)
            self._channels[holder] = channel
            sealed.append((holder, channel.seal(share)))
        seed = masks.seed_commitment(self.occasion, self.client, self._self_seed)
        return ShareKeys(*self._head, tuple(sealed), tuple(committed), seed)

    def _neighbours(self, keys: KeyList) -> tuple[Roster, Ring]:
        """Read the roster and compute the neighbours; refuse a list of others."""
        plan = self._agreed or neighbours_for(len(Roster(keys.roster)))
        roster, ring = roster_and_ring(keys.roster, self.occasion, plan)
        own = [key.public_key().public_bytes_raw() for key in (self._channel_key, self._mask_key)]
        listed = roster.holds(self.client, *own)
        self._require(listed, "secure-sum.key-list", "is not in the roster, or with another key")
        offered = f"was offered a threshold of {keys.threshold} shares, and {plan.threshold} is"
        self._require(keys.threshold == plan.threshold, "secure-sum.threshold", f"{offered} agreed")
        enough = plan.threshold <= len(roster)
        self._require(enough, "secure-sum.too-few", f"is in a roster of {len(roster)}, below the threshold")
        same = [neighbour for neighbour, _ in keys.neighbours] == ring.masked_with(self.client)
        offered = "was offered neighbours that do not follow from the roster"
        self._require(same, "secure-sum.neighbours", offered)
        true = all(roster.holds(neighbour, pair[:KEY], pair[KEY:]) for neighbour, pair in keys.neighbours)
        self._require(true, "secure-sum.key-list", "was offered other keys than those in the roster")
        return roster, ring

    def mask(self, delivery: ShareDelivery, vector: Uint32s) -> MaskedInput:
        """Return y_u = x_u + PRG(b_u) + Σ ±PRG(s_uv) over the neighbours who have shared."""
        self._check_step("mask", delivery)
        assert self._key_list is not None
        row = vector.dtype == np.uint32 and vector.ndim == 1 and len(vector) > 0
        masked = f"masks one row of uint32 numbers, got {vector.dtype} of shape {vector.shape}"
        self._require(row, "secure-sum.shape", masked)
        assert self.ring is not None and self.roster is not None
        shared = self.roster.unpack(delivery.sharers)
        owners = shared.intersection(self.ring.holders(self.client))
        strangers = {sender for sender, _ in delivery.sealed} - (owners - {self.client})
        came = f"got shares from {sorted(strangers)}, who are not its neighbours or did not share"
        self._require(not strangers, "secure-sum.strangers", came)
        self._require(self.client in shared, "secure-sum.strangers", "is said not to have shared")
        came = f"has {len(owners)} holders who shared, fewer than the threshold"
        self._require(len(owners) >= self._key_list.threshold, "secure-sum.too-few", came)
        self._next = "unmask"
        for sender, content in delivery.sealed:
            share = self._channels[sender].open(content[:SEALED])
            if share is not None:  # a share that cannot be opened counts as not held
                self._held[sender] = share
                self._committed[sender] = content[SEALED:]
        self._owners, self._channels, self.sharers = owners, {}, delivery.sharers
        total = vector + masks.self_mask(self.occasion, self._self_seed, self.client, len(vector))
        for partner, public in self._key_list.neighbours:
            if partner != self.client and partner in shared:
                secret = masks.shared_secret(self._mask_key, public[KEY:], partner)
                total += masks.pair_mask(self.occasion, secret, self.client, partner, len(vector))
        return MaskedInput(*self._head, total.astype("<u4").tobytes())

    def unmask(self, request: UnmaskRequest) -> UnmaskReply:
        """Return shares of the survivors' seeds and of the dropped clients' mask keys, and forget all secrets."""
        self._check_step("unmask", request)
        assert self._key_list is not None
        self._check_request(set(request.survivors), set(request.dropped), self._key_list.threshold)
        self._next = "nothing more"
        seeds, keys = self._reveal(request.survivors, b"b"), self._reveal(request.dropped, b"s")
        self._held, self._self_seed = {}, b""
        del self._mask_key, self._channel_key
        return UnmaskReply(*self._head, seeds, keys)

    def _reveal(self, owners: Sequence[int], of: bytes) -> tuple[tuple[int, bytes], ...]:
        """Return the held shares of one secret of these owners, without shares that do not match the commitment."""
        found, part = [], slice(KEY) if of == b"b" else slice(KEY, None)
        for owner in owners:
            share, committed = self._held.get(owner, b"")[part], self._committed.get(owner, b"")
            kept = owner == self.client or masks.is_committed(self.occasion, owner, self.client, of, share, committed)
            if share and kept:
                found.append((owner, share))
        return tuple(found)

    @property
    def _head(self) -> tuple[int, bytes, int]:
        return self.occasion.round, self.occasion.tag, self.client

    def _check_request(self, survivors: set[int], dropped: set[int], threshold: int) -> None:
        both = survivors & dropped
        asked = f"was asked for both shares of {sorted(both)}: that would uncover their input"
        self._require(not both, "secure-sum.both-shares", asked)
        strangers = (survivors | dropped) - self._owners
        asked = f"was asked for shares of {sorted(strangers)}, who sent it none"
        self._require(not strangers, "secure-sum.strangers", asked)
        asked = "was asked to unmask a sum without its own input"
        self._require(self.client in survivors, "secure-sum.without-own-input", asked)
        asked = f"was asked to unmask for {len(survivors)} survivors, fewer than the threshold of {threshold}"
        self._require(len(survivors) >= threshold, "secure-sum.too-few", asked)

    def _check_step(self, step: str, message: SecureSumMessage | None = None) -> None:
        """Check that a step happens once, in order, for a message of this round to this client."""
        asked = f"was asked to {step} in round {self.occasion.round}, but is ready for: {self._next}"
        self._require(self._next == step, "secure-sum.phase", asked)
        if message is not None:
            message.check_occasion(self.occasion)
            got = f"got {message.WORDS} of client {message.client}"
            self._require(message.client == self.client, "secure-sum.other-client", got)

    def _require(self, condition: object, code: str, fault: str) -> None:
        require(condition, code, f"client {self.client} {fault}; it refuses")
