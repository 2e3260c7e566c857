"""Client of a secure sum, without any transport: messages in, messages out.

Bonawitz et al. 2017, fig. 4, on the neighbours of Bell et al. 2020. The client sends its vector plus a self mask plus
a mask with each mask neighbour; the neighbours hold shares of the self mask's seed b_u and of the private key s_u that
its pair masks come from, and tell one or the other, never both: with b_u alone the pair masks stay, with s_u alone the
self mask stays.

The server is trusted to follow the protocol, though it may remember and compare all that it sees. A client refuses what
would plainly uncover another. It cannot see everything: on a sparse graph a server that tells different neighbourhoods
different stories about who left gets the sum of one neighbourhood instead of that of all, and one that hands on false
public keys gets single inputs (the paper signs keys against that).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quorank.arrays import Uint32s
from quorank.errors import require
from quorank.privacy.secure_sum.graph import Neighbourhood
from quorank.privacy.secure_sum.masks import (
    KEY,
    MOST_CLIENTS,
    Occasion,
    ShareChannel,
    pair_mask,
    self_mask,
    shared_secret,
)
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
    """One client in one round: advertise, share, mask, unmask, each once and in this order.

    `least` is the smallest neighbourhood that the client agrees to; `entropy(n)` gives n random bytes.
    """

    def __init__(
        self,
        client: int,
        occasion: Occasion,
        least: Neighbourhood | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        sentence = f"a client is named by a number from 0 to 2^31 − 1, got {client}"
        require(0 <= client < MOST_CLIENTS, "secure-sum.client-number", sentence)
        self.client, self.occasion = client, occasion
        self._least = least or Neighbourhood(1, 2, 1)
        self._entropy = entropy
        self._next = "advertise"
        self._channel_key = X25519PrivateKey.from_private_bytes(entropy(KEY))
        self._mask_key = X25519PrivateKey.from_private_bytes(entropy(KEY))
        self._self_seed = entropy(KEY)
        self._key_list: KeyList | None = None
        self._channels: dict[int, ShareChannel] = {}
        self._senders = {client}  # U2 as far as this client sees it: who shared with it, and itself
        self._held: dict[int, bytes] = {}  # by owner: a share of b and one of s

    def advertise(self) -> AdvertiseKeys:
        """Return the two public keys."""
        self._check_step("advertise")
        self._next = "share"
        public = (key.public_key().public_bytes_raw() for key in (self._channel_key, self._mask_key))
        return AdvertiseKeys(*self._head, *public)

    def share(self, keys: KeyList) -> ShareKeys:
        """Return sealed shares of the self mask's seed and of the mask key, one pair for each holder."""
        self._check_step("share", keys)
        holders = [holder for holder, _ in keys.holders]
        count, threshold = len(holders), keys.threshold
        listed = dict(keys.holders).get(self.client) == self._channel_key.public_key().public_bytes_raw()
        self._require(listed, "secure-sum.key-list", "is not in its own key list, or with another key")
        accepted = count < 2 * threshold <= 2 * count and threshold >= self._least.threshold
        offered = f"was offered a threshold of {threshold} of {count} shares; it accepts more than half and at least"
        self._require(accepted, "secure-sum.threshold", f"{offered} {self._least.threshold}")
        partners = {partner for partner, _ in keys.masks}
        accepted = partners <= set(holders) - {self.client} and len(partners) >= self._least.masks
        offered = f"was offered masks with {sorted(partners)}; it accepts only holders of its shares, and at least"
        self._require(accepted, "secure-sum.partners", f"{offered} {self._least.masks}")
        self._next, self._key_list = "mask", keys
        secret = self._self_seed + self._mask_key.private_bytes_raw()
        shares = split_secret(secret, threshold, count, self._entropy)
        sealed = []
        for (holder, public), share in zip(keys.holders, shares, strict=True):
            if holder == self.client:
                self._held[holder] = share
                continue
            channel = ShareChannel(self.occasion, shared_secret(self._channel_key, public, holder), self.client, holder)
            self._channels[holder] = channel
            sealed.append((holder, channel.seal(share)))
        return ShareKeys(*self._head, tuple(sealed))

    def mask(self, delivery: ShareDelivery, vector: Uint32s) -> MaskedInput:
        """Return y_u = x_u + PRG(b_u) + Σ ±PRG(s_uv) over the mask neighbours who sent shares."""
        self._check_step("mask", delivery)
        assert self._key_list is not None
        row = vector.dtype == np.uint32 and vector.ndim == 1 and len(vector) > 0
        masked = f"masks one row of uint32 numbers, got {vector.dtype} of shape {vector.shape}"
        self._require(row, "secure-sum.shape", masked)
        senders = [sender for sender, _ in delivery.sealed]
        strangers = set(senders) - set(self._channels)
        came = f"got shares from {sorted(strangers)}, who are not its neighbours"
        self._require(not strangers, "secure-sum.strangers", came)
        came = f"got shares from {len(senders)} neighbours: with itself fewer than the threshold"
        self._require(len(senders) + 1 >= self._key_list.threshold, "secure-sum.too-few", came)
        self._next = "unmask"
        for sender, sealed in delivery.sealed:
            share = self._channels[sender].open(sealed)
            if share is not None:  # a share that cannot be opened counts as not held
                self._held[sender] = share
        self._senders, self._channels = {self.client, *senders}, {}
        total = vector + self_mask(self.occasion, self._self_seed, self.client, len(vector))
        for partner, public in self._key_list.masks:
            if partner in self._senders:
                secret = shared_secret(self._mask_key, public, partner)
                total += pair_mask(self.occasion, secret, self.client, partner, len(vector))
        return MaskedInput(*self._head, total.astype("<u4").tobytes())

    def unmask(self, request: UnmaskRequest) -> UnmaskReply:
        """Return shares of the survivors' seeds and of the dropped clients' mask keys; then all secrets are forgotten."""
        self._check_step("unmask", request)
        assert self._key_list is not None
        self._check_request(set(request.survivors), set(request.dropped), self._key_list.threshold)
        self._next = "nothing more"
        held = self._held
        seeds = tuple((owner, held[owner][:KEY]) for owner in request.survivors if owner in held)
        keys = tuple((owner, held[owner][KEY:]) for owner in request.dropped if owner in held)
        self._held, self._self_seed = {}, b""
        del self._mask_key, self._channel_key
        return UnmaskReply(*self._head, seeds, keys)

    @property
    def _head(self) -> tuple[int, bytes, int]:
        return self.occasion.round, self.occasion.tag, self.client

    def _check_request(self, survivors: set[int], dropped: set[int], threshold: int) -> None:
        both = survivors & dropped
        asked = f"was asked for both shares of {sorted(both)}: that would uncover their input"
        self._require(not both, "secure-sum.both-shares", asked)
        strangers = (survivors | dropped) - self._senders
        asked = f"was asked for shares of {sorted(strangers)}, who sent it none"
        self._require(not strangers, "secure-sum.strangers", asked)
        asked = "was asked to unmask a sum without its own input"
        self._require(self.client in survivors, "secure-sum.without-own-input", asked)
        asked = f"was asked to unmask for {len(survivors)} survivors, fewer than the threshold of {threshold}"
        self._require(len(survivors) >= threshold, "secure-sum.too-few", asked)

    def _check_step(self, step: str, message: SecureSumMessage | None = None) -> None:
        """Each step happens once, in its turn, and for a message of this round to this client."""
        asked = f"was asked to {step} in round {self.occasion.round}, but is ready for: {self._next}"
        self._require(self._next == step, "secure-sum.phase", asked)
        if message is not None:
            message.check_occasion(self.occasion)
            got = f"got {message.WORDS} of client {message.client}"
            self._require(message.client == self.client, "secure-sum.other-client", got)

    def _require(self, condition: object, code: str, fault: str) -> None:
        require(condition, code, f"client {self.client} {fault}; it refuses")
