"""Collusion attacks on secure sums: at the stated number of colluders they fail, and with one more they succeed."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from secure_rounds import OCCASION, refused, rows_for

from quorank.errors import BadInput
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, Ring, Roster, neighbours_for, tolerated_colluders
from quorank.privacy.secure_sum.masks import pair_mask, self_mask, shared_secret
from quorank.privacy.secure_sum.messages import UnmaskRequest
from quorank.privacy.secure_sum.server import SecureServer, X25519PrivateKey
from quorank.privacy.secure_sum.shamir import join_shares
from quorank.protocol.keys import MemberKey
from quorank.protocol.secure_identity import GuardedClient

LENGTH = 3


def pinned_clients(server: SecureServer, n: int, least: int) -> dict[int, GuardedClient]:
    """Return clients that have pinned each other's identities, after the phases of keys and of shares."""
    identities = {c: MemberKey(struct.pack("<8I", *[c + 1] * 8)) for c in range(n)}
    clients = {}
    for c, identity in identities.items():
        clients[c] = GuardedClient(SecureClient(c, OCCASION, server.neighbourhood), identity, least)
        clients[c].pinned = {other: known.public for other, known in identities.items()}
    signed = {c: client.advertise() for c, client in clients.items()}
    for one in signed.values():
        server.receive_keys(one.keys)
    for c, keys in server.key_lists().items():
        server.receive_shares(clients[c].share(keys, [signed[other] for other, _ in keys.neighbours]))
    return clients


class LyingServer:
    """A server whose clients have pinned each other, and that knows all that its colluders know.

    It plays by the rules until the masked inputs are in; the colluders sign and tell whatever it wants.
    """

    def __init__(self, n: int, plan: Neighbourhood, least: int, colluders: set[int]) -> None:
        self.rows, self.plan, self.colluders = rows_for(range(n), LENGTH), plan, colluders
        self.server = SecureServer(OCCASION, LENGTH, plan)
        self.clients = pinned_clients(self.server, n, least)
        self.masked = {
            c: self.clients[c].inner.mask(delivery, self.rows[c]) for c, delivery in self.server.deliveries().items()
        }
        self.told: dict[bytes, dict[int, dict[int, bytes]]] = {b"b": {}, b"s": {}}  # by secret, owner and holder
        for spy in colluders:
            for owner, shares in self.clients[spy].inner._held.items():
                self.told[b"b"].setdefault(owner, {})[spy] = shares[:32]
                self.told[b"s"].setdefault(owner, {})[spy] = shares[32:]

    def show(self, survivors: list[int], to: set[int]) -> None:
        """Show a list of survivors to some honest clients, and unmask with what they and the colluders sign of it."""
        signatures = {}
        for c in sorted(to | (self.colluders & set(survivors))):
            guarded = self.clients[c]
            if c in self.colluders:
                guarded._agreed = b""  # it signs any number of lists
            try:
                signatures[c] = guarded.agree(survivors)
            except BadInput:
                continue
        for c in sorted(to):
            owners = self.server._ring.holders(c)
            inside = tuple(o for o in owners if o in survivors)
            outside = tuple(o for o in owners if o not in survivors)
            try:
                request = UnmaskRequest(OCCASION.round, OCCASION.tag, c, inside, outside)
                reply = self.clients[c].unmask(request, signatures)
            except BadInput:
                continue
            for of, shares in ((b"b", reply.seeds), (b"s", reply.keys)):
                for owner, share in shares:
                    self.told[of].setdefault(owner, {})[c] = share

    def secret(self, of: bytes, owner: int) -> bytes | None:
        """A client's seed or mask key, if enough of its holders told their share."""
        holders, told = self.server._ring.holders(owner), self.told[of].get(owner, {})
        known = [(at + 1, told[h]) for at, h in enumerate(holders) if h in told][: self.plan.threshold]
        if len(known) < self.plan.threshold:
            return None
        return join_shares([share for _, share in known], [place for place, _ in known])

    def uncovered(self, victim: int) -> bool:
        """Whether the victim's bare input follows from its two secrets."""
        seed, key = self.secret(b"b", victim), self.secret(b"s", victim)
        if seed is None or key is None:
            return False
        bare = self.masked[victim].vector - self_mask(OCCASION, seed, victim, LENGTH)
        for other in self.server._ring.masked_with(victim):
            if other != victim:
                secret = shared_secret(
                    X25519PrivateKey.from_private_bytes(key), self.server._keys[other].mask_key, other
                )
                bare -= pair_mask(OCCASION, secret, victim, other, LENGTH)
        return bool(np.array_equal(bare, self.rows[victim]))


def split_views(n: int, plan: Neighbourhood, least: int, colluders: set[int]) -> bool:
    """The victim is in the list that one part of the honest clients sees and not in the other's: both secrets are told.

    Every division of the honest clients is tried.
    """
    honest = sorted(set(range(n)) - colluders)
    for size in range(len(honest)):
        server = LyingServer(n, plan, least, colluders)
        victim, first = honest[0], set(honest[: size + 1])
        server.show(sorted(set(range(n))), first)
        server.show([c for c in range(n) if c != victim], set(honest) - first)
        if server.uncovered(victim):
            return True
    return False


CASES = [
    (10, Neighbourhood(9, 6, 9), 10),
    (10, neighbours_for(10), 10),
    (7, Neighbourhood(6, 4, 6), 5),
    (5, Neighbourhood(4, 4, 4), 3),
]


@pytest.mark.parametrize(("n", "plan", "least"), CASES)
def test_the_stated_number_of_colluders_is_the_true_one(n, plan, least) -> None:
    """In a complete graph, for every way to lie about who left: no input shows at the bound, and one does beyond it."""
    bound = tolerated_colluders(n, plan, least)
    assert bound >= 1
    assert not split_views(n, plan, least, set(range(n - bound, n)))
    beyond = bound + 1
    if beyond == least - 1:  # what is left of the smallest sum without the colluders' inputs is one client's
        return
    assert split_views(n, plan, least, set(range(n - beyond, n)))


def test_a_server_cannot_choose_a_victim_s_neighbours() -> None:
    """Fifteen of two hundred clients that have pinned each other collude; the server puts them round the victim."""
    n, spies, victim = 200, range(1, 16), 0
    plan = neighbours_for(n)
    assert plan.neighbours < n - 1 and tolerated_colluders(n, plan, n) >= 10
    server = SecureServer(OCCASION, LENGTH, plan)
    clients = {c: SecureClient(c, OCCASION, plan) for c in range(n)}
    for client in clients.values():
        server.receive_keys(client.advertise())
    keys = server.key_lists()[victim]
    near = [*spies, *range(16, 200)]
    half = plan.masks // 2
    wanted = [*near[:half], victim, *near[half : 2 * half]]
    pairs = {c: server._keys[c].channel_key + server._keys[c].mask_key for c in range(n)}
    with refused("neighbours", "do not follow from the roster"):
        clients[victim].share(replace(keys, neighbours=tuple((c, pairs[c]) for c in wanted)))
    few = Roster.of(server._keys[c] for c in [victim, *near[: plan.masks]])  # a roster of the victim and colluders
    guarded = GuardedClient(clients[victim], MemberKey(bytes(31) + b"1"), n)
    with refused("roster", "roster of .*, and it is summed with at least 200"):
        guarded.share(replace(keys, roster=few.raw), [])
    clients[victim].share(keys)


def test_colluders_on_a_ring_come_near_a_victim_by_chance_only() -> None:
    """At the stated number no ring of many has a threshold of them beside anybody, and a threshold beside one is enough."""
    n = 200
    plan = neighbours_for(n)
    bound = tolerated_colluders(n, plan, n)
    random, spies = np.random.default_rng(5), set(range(bound))
    for _ in range(60):
        ring = Ring.drawn(range(n), plan, random.bytes)
        assert max(len(spies.intersection(ring.holders(c)) - {c}) for c in range(bound, n)) < plan.threshold
        # and a list on which nobody but they keeps two gaps from being empty is signed by no client
        for start in range(0, n, 23):
            gaps = {ring.order[(start + shift + step) % n] for shift in (0, 60) for step in range(plan.masks // 2)}
            assert not ring.joins(set(range(n)) - (gaps - spies))
    server = LyingServer(140, neighbours_for(140), 140, set())
    ring, plan = server.server._ring, neighbours_for(140)
    for count, found in ((plan.threshold, True), (plan.threshold - 1, False)):
        spies = set([c for c in ring.holders(0) if c != 0][:count])
        for spy in spies:
            shares = server.clients[spy].inner._held[0]
            server.told[b"b"].setdefault(0, {})[spy] = shares[:32]
            server.told[b"s"].setdefault(0, {})[spy] = shares[32:]
        assert server.uncovered(0) == found
        server.told = {b"b": {}, b"s": {}}


def test_a_server_cannot_cut_a_ring_by_saying_who_left() -> None:
    """Without any colluder: all whom the victim shares masks with are said to have left, and nobody signs that."""
    server = LyingServer(140, neighbours_for(140), 100, set())
    ring = server.server._ring
    survivors = [c for c in range(140) if c == 0 or c not in ring.masked_with(0)]
    with refused("disconnected", "more than one group"):
        server.clients[survivors[0]].agree(survivors)


def test_a_server_cannot_cut_a_cohort_by_withholding_shares() -> None:
    """Without any colluder: each half is delivered its own shares alone and would mask with itself alone.

    Clients mask with all who are said to have shared, and sign who that is: two halves sign different things.
    """
    n, rows = 10, rows_for(range(10), LENGTH)
    server = SecureServer(OCCASION, LENGTH, Neighbourhood(9, 6, 9))
    clients = pinned_clients(server, n, n)
    some = set(range(6))  # as many as the threshold, fewer than all who must be in a sum
    for c, delivery in server.deliveries().items():
        if c in some:
            assert server.roster is not None
            withheld = tuple((s, sealed) for s, sealed in delivery.sealed if s in some)
            delivery = replace(delivery, sharers=server.roster.pack(some), sealed=withheld)
        clients[c].inner.mask(delivery, rows[c])
    everyone = list(range(n))
    signatures = {c: clients[c].agree(everyone) for c in range(6, n)}
    for c in some:
        with refused("strangers", "have not shared"):
            clients[c].agree(everyone)
    request = UnmaskRequest(OCCASION.round, OCCASION.tag, 6, tuple(everyone), ())
    with refused("too-few", "signatures of 4 clients"):
        clients[6].unmask(request, signatures)


def test_every_choice_of_two_lists_is_covered_by_the_bound() -> None:
    """The formula against all ways to divide holders and signers, for small cohorts."""
    for n in range(3, 9):
        for least in range(n // 2 + 1, n + 1):
            for t in range(n // 2 + 1, n + 1):
                bound = tolerated_colluders(n, Neighbourhood(n - 1, t, n - 1), least)
                safe = [c for c in range(n - 1) if not _breakable(n, t, least, c)]
                assert bound == max(c for c in range(n - 1) if set(range(c + 1)) <= set(safe)) or bound == 0


def _breakable(n: int, t: int, least: int, c: int) -> bool:
    """Whether c colluders and a lying server can have an input: by shares, by two signed lists, or by subtraction."""
    if c >= t or least - c <= 1:
        return True
    honest = n - c
    return any(
        a + c >= least and honest - a + c >= least and a + c >= t and honest - a + c >= t for a in range(honest + 1)
    )


def test_noise_of_colluders_is_taken_off() -> None:
    from quorank.privacy import ClippedGaussian, Setting

    mechanism = ClippedGaussian(epsilon=4.0, sum="secure", masks=False).mechanism(
        Setting(100, 100, 50, parameters=8), 1
    )
    stated = mechanism.statement()
    assert mechanism.epsilon(50) == pytest.approx(stated["epsilon"])
    found = stated["collusion"]["epsilon_if"]
    assert found[0]["colluders"] == 1 and found[0]["epsilon"] > stated["epsilon"]
    for one in found:
        less = replace(mechanism, variance=mechanism.variance * (100 - one["colluders"]) / 100)
        assert one["epsilon"] == pytest.approx(less.epsilon(50))
    assert mechanism.epsilon(50, 100) == np.inf
    assert stated["collusion"]["with_server"] == found[-1]["colluders"] == 94
