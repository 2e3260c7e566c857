"""Secure sums: exact for every pattern of clients that leave, and no sum at all when too few stay."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_rounds import OCCASION, rows_for, seeded, started

from quorank.privacy.secure_sum import client as secure_client
from quorank.privacy.secure_sum.graph import Neighbourhood, Ring
from quorank.privacy.secure_sum.in_process import secure_sum
from quorank.privacy.secure_sum.masks import Occasion, ShareChannel, shared_secret
from quorank.privacy.secure_sum.server import RoundFailed
from quorank.privacy.secure_sum.shamir import split_secret

STAYS, BEFORE_SHARES, BEFORE_INPUT, AFTER_INPUT = range(4)


def plain(rows, clients) -> list[int]:
    """Σ mod 2^32 in Python's integers."""
    return [sum(int(rows[c][j]) for c in clients) % 2**32 for j in range(len(next(iter(rows.values()))))]


def run(rows, fates, **options):
    """A round in which each client meets its fate; `None` if it fails."""
    who = {f: [c for c, fate in fates.items() if fate == f] for f in range(4)}
    try:
        return secure_sum(
            rows,
            round_=3,
            session=b"s",
            dropped_before_shares=who[BEFORE_SHARES],
            dropped_before=who[BEFORE_INPUT],
            dropped_after=who[AFTER_INPUT],
            **options,
        )
    except RoundFailed:
        return None


@pytest.mark.parametrize(("n", "threshold"), [(2, 2), (3, 2), (4, 3), (4, 4), (5, 3)])
def test_every_pattern_of_leaving(n, threshold) -> None:
    """All 4^n fates: the exact sum if a threshold stays in every phase, else RoundFailed.

    Of five clients, whatever may happen to them together befalls them in one order and in the reverse one.
    """
    rows = rows_for([9, 4, 2**31 - 1, 0, 17][:n], 3)
    sums = 0
    together = list(combinations_with_replacement(range(4), n))
    orders = product(range(4), repeat=n) if n < 5 else {*together, *(fates[::-1] for fates in together)}
    for pattern in sorted(orders):
        fates = dict(zip(rows, pattern, strict=True))
        result = run(rows, fates, neighbourhood=Neighbourhood(n - 1, threshold, n - 1), entropy=seeded(pattern))
        inputs = sorted(c for c, fate in fates.items() if fate in (STAYS, AFTER_INPUT))
        if pattern.count(STAYS) >= threshold:
            assert result is not None, pattern
            assert result.survivors == tuple(inputs)
            assert result.total.tolist() == plain(rows, inputs), pattern
            sums += 1
        else:
            assert result is None, pattern
    assert sums > 0


def in_order(cls, clients, plan, entropy):
    """A ring in the order of names, so that a test knows it."""
    return cls(sorted(clients), plan)


def ring_of(n, k) -> Neighbourhood:
    """The k nearest of n as holders and mask neighbours, and a bare majority as threshold."""
    k = min(k + k % 2, n - 1)
    return Neighbourhood(k, (k + 1) // 2 + 1, k)


def should_succeed(fates, k) -> bool:
    """Bell et al.'s conditions, read off the ring: a threshold for every secret that was shared, and one group."""
    n, t = len(fates), (k + 1) // 2 + 1
    near = {u: {v for v in range(n) if min((u - v) % n, (v - u) % n) <= (k + 1) // 2} for u in range(n)}
    shared = {u for u, fate in enumerate(fates) if fate != BEFORE_SHARES}
    inputs = {u for u in shared if fates[u] != BEFORE_INPUT}
    replies = {u for u in inputs if fates[u] == STAYS}
    group = set(list(inputs)[:1])
    for _ in range(n):
        group |= {v for u in group for v in near[u] & inputs}
    return (
        all(len(near[u] & shared) >= t for u in shared)
        and all(len(near[u] & replies) >= t for u in shared)
        and len(inputs) > 0
        and group == inputs
    )


@settings(max_examples=60)
@given(st.integers(6, 24), st.sampled_from([2, 4, 6, 8]), st.sampled_from([3, 6, 20]), st.data())
def test_on_a_ring_the_sum_is_exact_exactly_when_every_neighbourhood_stays(n, k, stays, data) -> None:
    k = min(k, n - 1)
    rows = rows_for(range(0, 5 * n, 5), 2)
    pattern = [data.draw(st.sampled_from([STAYS] * stays + [1, 2, 3])) for _ in rows]
    fates = dict(zip(rows, pattern, strict=True))
    with mock.patch.object(Ring, "drawn", classmethod(in_order)):
        result = run(rows, fates, neighbourhood=ring_of(n, k), entropy=seeded((n, k)))
    assert (result is not None) == should_succeed(pattern, k)
    if result is not None:
        inputs = [c for c, fate in fates.items() if fate in (STAYS, AFTER_INPUT)]
        assert result.survivors == tuple(inputs)
        assert result.total.tolist() == plain(rows, inputs)


def test_a_reused_key_never_reuses_a_mask_or_a_channel() -> None:
    """The same entropy in another round or session: other masked inputs and other sealed shares, everywhere."""
    rows = rows_for(range(4), 8)
    views = []
    for occasion in (Occasion(b"s", 1), Occasion(b"s", 2), Occasion(b"t", 1)):
        server, _, inputs, _ = started(rows, entropy=seeded(5), occasion=occasion)
        sealed = {(a, b): raw for a, to in server._shares.items() for b, raw in to.items()}
        views.append(({c: m.vector for c, m in inputs.items()}, sealed))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        for c in rows:
            assert np.mean(views[i][0][c] == views[j][0][c]) < 0.5
        assert all(views[i][1][pair] != views[j][1][pair] for pair in views[i][1])


def test_a_rebuilt_mask_key_opens_no_shares() -> None:
    server, clients, _, _ = started(rows_for(range(4), 3))
    sealed = server._shares[1][2]
    channel, mask = clients[1]._channel_key, clients[1]._mask_key
    public = server._keys[2].channel_key
    secret, roster = shared_secret(clients[2]._channel_key, server._keys[1].channel_key, 1), server.roster.digest
    assert ShareChannel(OCCASION, secret, 2, 1, roster).open(sealed) is not None
    assert ShareChannel(OCCASION, secret, 2, 1, bytes(32)).open(sealed) is None  # those of another roster hold nothing
    for private in (mask, channel):
        opened = ShareChannel(OCCASION, shared_secret(private, public, 2), 2, 1, roster).open(sealed)
        assert (opened is None) == (private is mask)
    assert ShareChannel(OCCASION, shared_secret(mask, server._keys[2].mask_key, 2), 2, 1, roster).open(sealed) is None


def test_a_damaged_share_is_not_held_and_the_round_goes_on() -> None:
    rows = rows_for(range(5), 3)

    def damage(name, delivery):
        if name != 2:
            return delivery
        (sender, sealed), *rest = delivery.sealed
        return replace(delivery, sealed=((sender, bytes([sealed[0] ^ 1]) + sealed[1:]), *rest))

    server, clients, _, requests = started(rows, tamper=damage)
    for name, request in requests.items():
        reply = clients[name].unmask(request)
        assert len(reply.seeds) == (4 if name == 2 else 5)
        server.receive_reply(reply)
    assert server.total().tolist() == plain(rows, rows)


@pytest.mark.parametrize("lie", ["a seed's share", "a mask key's share"])
def test_a_false_share_is_left_out_and_its_holder_is_named(lie) -> None:
    """One of five tells a false share: the sum is that of the others' shares, and the liar is known."""
    rows = rows_for(range(5), 3)
    server, clients, _, requests = started(rows, leave=[4], plan=Neighbourhood(4, 3, 4))
    for name, request in requests.items():
        reply = clients[name].unmask(request)
        if name == 0:
            of, shares = ("seeds", reply.seeds) if lie == "a seed's share" else ("keys", reply.keys)
            reply = replace(reply, **{of: tuple((owner, bytes(32)) for owner, _ in shares)})
        server.receive_reply(reply)
    assert server.total().tolist() == plain(rows, range(4))
    assert server.liars == {0: "secure-sum.false-share"}


@pytest.mark.parametrize("left", [False, True], ids=["who stays", "who leaves"])
def test_shares_that_do_not_belong_together_name_their_owner(left) -> None:
    """Client 4 shares other secrets than it masks with; nobody else looks like a liar, and there is no wrong sum."""
    rows = rows_for(range(5), 3)
    server, clients, lists = started(rows, until="keys", plan=Neighbourhood(4, 3, 4))

    def others(secret, *rest):
        return split_secret(bytes(len(secret)), *rest)

    for name, key_list in lists.items():
        with mock.patch.object(secure_client, "split_secret", others if name == 4 else split_secret):
            server.receive_shares(clients[name].share(key_list))
    for name, delivery in server.deliveries().items():
        masked = clients[name].mask(delivery, rows[name])
        if not (left and name == 4):
            server.receive_masked(masked)
    for name, request in server.unmask_requests().items():
        server.receive_reply(clients[name].unmask(request))
    with pytest.raises(RoundFailed, match="shares of client 4 do not belong together"):
        server.total()
    assert server.liars == {4: "secure-sum.false-dealing"}


def test_an_owner_that_commits_itself_to_another_share_frames_nobody() -> None:
    """Client 0 commits itself to other bytes than it gives client 1: client 1 keeps that share back."""
    rows = rows_for(range(5), 3)

    def false(name, delivery):
        if name != 1:
            return delivery
        return replace(delivery, sealed=tuple((s, c[:80] + bytes(32) if s == 0 else c) for s, c in delivery.sealed))

    server, clients, _, requests = started(rows, tamper=false)
    for name, request in requests.items():
        reply = clients[name].unmask(request)
        assert (0 in dict(reply.seeds)) == (name != 1)
        server.receive_reply(reply)
    assert server.total().tolist() == plain(rows, rows)
    assert not server.liars


def test_a_group_that_falls_apart_is_not_summed() -> None:
    """A ring of 8 with masks to the next two only: without 0 and 4 it is two groups of three."""
    rows = rows_for(range(8), 2)
    plan = Neighbourhood(2, 2, 2)
    server, clients, _, _ = started(rows, plan=plan, until="shares")
    order = server._ring.order
    for name, delivery in server.deliveries().items():
        if name not in (order[0], order[4]):
            server.receive_masked(clients[name].mask(delivery, rows[name]))
    with pytest.raises(RoundFailed, match="more than one group"):
        server.unmask_requests()
