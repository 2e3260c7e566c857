"""Server of a secure sum, without any transport; it learns the sum and the clients in it.

Bonawitz et al. 2017, fig. 4, on the neighbours of Bell et al. 2020, in four phases: keys (of the clients U1), shares (U2),
masked inputs (U3) and unmask replies (U4). The call that makes the next messages closes a phase. Later messages of it are
refused: a late masked input could be unmasked by the secrets that were rebuilt because it was missing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum import masks
from quorank.privacy.secure_sum.graph import Neighbourhood, Ring, Roster, neighbours_for, roster_and_ring
from quorank.privacy.secure_sum.masks import Occasion
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
from quorank.privacy.secure_sum.shamir import join_shares


class RoundFailed(BadInput):
    """End of a round without a sum: too few clients, masks that do not connect them, or false shares."""


class SecureServer:
    """Server of one round, called phase by phase.

    receive_keys … key_lists, receive_shares … deliveries, receive_masked … unmask_requests, receive_reply … total.
    `neighbourhood` is by default that of `neighbours_for` for the clients who sent keys.
    """

    def __init__(self, occasion: Occasion, length: int, neighbourhood: Neighbourhood | None = None) -> None:
        self.occasion, self.length, self.neighbourhood = occasion, length, neighbourhood
        self._phase = "keys"
        self._keys: dict[int, AdvertiseKeys] = {}
        self._shares: dict[int, dict[int, bytes]] = {}  # by sender, then by receiver
        self._commitments: dict[int, dict[int, bytes]] = {}  # by owner, then by holder: to its two shares
        self._seed_commitments: dict[int, bytes] = {}
        self.liars: dict[int, str] = {}  # clients that sent false shares, with the code of what they did
        self.roster: Roster | None = None
        self.sharers = b""  # U2, as bits of the roster
        self._masked: dict[int, Uint32s] = {}
        self._seeds: dict[int, dict[int, bytes]] = {}  # by owner, then by holder
        self._mask_keys: dict[int, dict[int, bytes]] = {}
        self._replied: set[int] = set()
        self._ring = Ring((0, 1), Neighbourhood(1, 2, 1))
        self._holders: dict[int, list[int]] = {}

    @property
    def survivors(self) -> tuple[int, ...]:
        """U3: the clients whose input is in the sum."""
        return tuple(sorted(self._masked))

    def receive_keys(self, message: AdvertiseKeys) -> None:
        """Accept a client's public keys (phase 1)."""
        self._accept(message, "keys", message.client not in self._keys)
        self._keys[message.client] = message

    def key_lists(self) -> dict[int, KeyList]:
        """Close the roster and return it for each client, with the keys of its neighbours."""
        n = len(self._keys)
        self.require_enough(n, "clients sent keys", least=2)
        plan = self.neighbourhood = self.neighbourhood or neighbours_for(n)
        self.require_enough(n, "clients sent keys")
        self._close("keys", "shares")
        raw = Roster.of(self._keys.values()).raw
        self.roster, self._ring = roster_and_ring(raw, self.occasion, plan)
        self._holders = {client: self._ring.holders(client) for client in self._keys}
        pairs = {client: message.channel_key + message.mask_key for client, message in self._keys.items()}
        lists = {}
        for client in self._keys:
            listed = tuple((other, pairs[other]) for other in self._ring.masked_with(client))
            lists[client] = KeyList(*self._head(client), plan.threshold, raw, listed)
        return lists

    def receive_shares(self, message: ShareKeys) -> None:
        """Accept a client's sealed shares (phase 2)."""
        self._accept(message, "shares", message.client in self._keys and message.client not in self._shares)
        sealed = dict(message.sealed)
        others = set(self._holders[message.client]) - {message.client}
        sent = f"client {message.client} sent shares to {len(sealed)} clients that are not its {len(others)} neighbours"
        require(set(sealed) == others, "secure-sum.shares", f"{sent}; leave it out")
        committed = dict(message.commitments)
        sent = f"client {message.client} did not commit itself to the share of each holder"
        require(set(committed) == {*others, message.client}, "secure-sum.shares", f"{sent}; leave it out")
        self._shares[message.client] = sealed
        self._commitments[message.client] = committed
        self._seed_commitments[message.client] = message.seed

    def deliveries(self) -> dict[int, ShareDelivery]:
        """Return, for each client of U2, the shares that its neighbours in U2 sealed for it."""
        self._check_holders(self._shares, "sent shares")
        self._close("shares", "masked inputs")
        assert self.roster is not None
        found, self.sharers = {}, self.roster.pack(self._shares)
        for client in self._shares:
            senders = [other for other in self._holders[client] if other != client and other in self._shares]
            sealed = tuple((s, self._shares[s][client] + self._commitments[s][client]) for s in senders)
            found[client] = ShareDelivery(*self._head(client), self.sharers, sealed)
        return found

    def receive_masked(self, message: MaskedInput) -> None:
        """Accept a client's masked input (phase 3)."""
        fresh = message.client in self._shares and message.client not in self._masked
        self._accept(message, "masked inputs", fresh)
        vector = message.vector
        sent = f"client {message.client} sent {len(vector)} numbers, expected {self.length}; leave it out"
        require(len(vector) == self.length, "secure-sum.shape", sent)
        self._masked[message.client] = vector

    def unmask_requests(self) -> dict[int, UnmaskRequest]:
        """Return the request to each survivor; fail if shares are missing or masks do not connect the survivors."""
        self._check_holders(self._masked, "sent masked inputs")
        if not self._ring.joins(self._masked):
            groups = "the masks of those who stayed may join them in more than one group, whose sums would be seen"
            sentence = f"round {self.occasion.round} has no secure sum: {groups}; repeat it with more neighbours"
            raise RoundFailed("secure-sum.disconnected", sentence)
        self._close("masked inputs", "unmask replies")
        requests = {}
        for client in self._masked:
            owners = [owner for owner in self._holders[client] if owner in self._shares]
            survivors = tuple(owner for owner in owners if owner in self._masked)
            dropped = tuple(owner for owner in owners if owner not in self._masked)
            requests[client] = UnmaskRequest(*self._head(client), survivors, dropped)
        return requests

    def receive_reply(self, message: UnmaskReply) -> None:
        """Accept a survivor's shares (phase 4)."""
        holder = message.client
        self._accept(message, "unmask replies", holder in self._masked and holder not in self._replied)
        owners = set(self._holders[holder]) & set(self._shares)
        seeds, keys = dict(message.seeds), dict(message.keys)
        asked = set(seeds) <= owners & set(self._masked) and set(keys) <= owners - set(self._masked)
        sentence = f"client {holder} sent shares that it was not asked for; leave its reply out"
        require(asked, "secure-sum.shares", sentence)
        self._replied.add(holder)
        for owner, share in seeds.items():
            if self._true(owner, holder, b"b", share):
                self._seeds.setdefault(owner, {})[holder] = share
        for owner, share in keys.items():
            if self._true(owner, holder, b"s", share):
                self._mask_keys.setdefault(owner, {})[holder] = share

    def _true(self, owner: int, holder: int, of: bytes, share: bytes) -> bool:
        """Return whether a share matches its owner's commitment; else record the holder as a liar."""
        true = masks.is_committed(self.occasion, owner, holder, of, share, self._commitments[owner][holder])
        if not true:
            self.liars[holder] = "secure-sum.false-share"
        return true

    def total(self) -> Uint32s:
        """Compute Σ x_u over U3 = Σ y_u − Σ PRG(b_u) − Σ ±PRG(s_uv) over survivors u and dropped v, modulo 2^32."""
        for owner in self._shares:
            came = (self._seeds if owner in self._masked else self._mask_keys).get(owner, {})
            self.require_enough(len(came), f"shares of client {owner} came back")
        self._close("unmask replies", "nothing more")
        total = np.zeros(self.length, dtype=np.uint32)
        for client, masked in self._masked.items():
            total += masked
            seed = self._rebuilt(client, self._seeds[client])
            kept = masks.seed_commitment(self.occasion, client, seed) == self._seed_commitments[client]
            self._require_honest(client, kept)
            total -= masks.self_mask(self.occasion, seed, client, self.length)
        for dropped in self._shares:
            if dropped not in self._masked:
                self._add_back(total, dropped)
        return total

    def _add_back(self, total: Uint32s, dropped: int) -> None:
        """Add the pair masks of a dropped client, which cancel those of the survivors."""
        private = X25519PrivateKey.from_private_bytes(self._rebuilt(dropped, self._mask_keys[dropped]))
        self._require_honest(dropped, private.public_key().public_bytes_raw() == self._keys[dropped].mask_key)
        for other in self._ring.masked_with(dropped):
            if other in self._masked:
                secret = masks.shared_secret(private, self._keys[other].mask_key, other)
                total += masks.pair_mask(self.occasion, secret, dropped, other, self.length)

    def _require_honest(self, owner: int, true: bool) -> None:
        """Fail the round if an owner's shares match its commitments but not its secret."""
        if not true:
            self.liars[owner] = "secure-sum.false-dealing"
            fault = (
                f"has no secure sum: the shares of client {owner} do not belong together; repeat it without the client"
            )
            raise RoundFailed("secure-sum.false-dealing", f"round {self.occasion.round} {fault}")

    def _rebuilt(self, owner: int, shares: dict[int, bytes]) -> bytes:
        chosen = [(at + 1, shares[holder]) for at, holder in enumerate(self._holders[owner]) if holder in shares]
        chosen = chosen[: self._threshold]
        return join_shares([share for _, share in chosen], [place for place, _ in chosen])

    def require_enough(self, count: int, what: str, least: int = 0) -> None:
        """Fail the round if fewer than `least` (by default the threshold) are left."""
        least = least or self._threshold
        if count < least:
            fault = f"has no secure sum: {count} {what}, and it takes {least}; repeat it with more clients"
            raise RoundFailed("secure-sum.too-few", f"round {self.occasion.round} {fault}")

    def _check_holders(self, staying: Collection[int], what: str) -> None:
        """Fail the round unless each client who shared its secrets keeps a threshold of holders."""
        holders = [sum(h in staying for h in self._holders[owner]) for owner in self._shares]
        self.require_enough(min(holders, default=0), f"holders of some client's shares {what}")

    @property
    def _threshold(self) -> int:
        return self.neighbourhood.threshold if self.neighbourhood else 2

    def _accept(self, message: SecureSumMessage, phase: str, expected: bool) -> None:
        message.check_occasion(self.occasion)
        what = f"{message.WORDS} of client {message.client}"
        require(self._phase == phase, "secure-sum.phase", f"{what} came in the phase of {self._phase}; drop it")
        require(expected, "secure-sum.repeated", f"{what} came twice or without the message before; drop it")

    def _close(self, phase: str, then: str) -> None:
        require(self._phase == phase, "secure-sum.phase", f"the phase of {phase} is over: it is that of {self._phase}")
        self._phase = then

    def _head(self, client: int) -> tuple[int, bytes, int]:
        return self.occasion.round, self.occasion.tag, client
