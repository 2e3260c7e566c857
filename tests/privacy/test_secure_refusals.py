"""What clients, server and driver of a secure sum refuse: whatever would uncover one client, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from secure_rounds import OCCASION, refused, rows_for, started, unmasking

from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood
from quorank.privacy.secure_sum.messages import MaskedInput, ShareDelivery, ShareKeys, UnmaskReply
from quorank.privacy.secure_sum.server import RoundFailed, SecureServer


def test_client_refusals() -> None:
    rows = rows_for(range(5), 2)
    _, clients, _, requests = started(rows, plan=Neighbourhood(4, 3, 4))
    client, tag = clients[0], OCCASION.tag
    for survivors, dropped, code, match in (
        ((0, 1, 2, 3), (3, 4), "both-shares", r"both shares of \[3\]"),
        ((0, 1, 2, 9), (), "strangers", r"shares of \[9\], who sent it none"),
        ((0, 1, 2), (9,), "strangers", r"shares of \[9\], who sent it none"),
        ((1, 2, 3, 4), (0,), "without-own-input", "without its own input"),
        ((0, 1), (2, 3, 4), "too-few", "for 2 survivors, fewer than the threshold of 3"),
    ):
        with refused(code, match):
            client.unmask(unmasking(survivors, dropped))
    with refused("other-client", "unmask request of client 1"):
        client.unmask(requests[1])
    reply = client.unmask(requests[0])
    assert dict(reply.seeds).keys() == set(range(5))
    assert reply.keys == ()
    for request in (requests[0], unmasking((0, 1, 2), (3, 4))):
        with refused("phase", "asked to unmask in round 3, but is ready for: nothing more"):
            client.unmask(request)
    with refused("phase", "asked to mask"):
        client.mask(ShareDelivery(3, tag, 0, b"\x1f", ()), rows[0])
    with refused("phase", "asked to advertise"):
        client.advertise()


def test_a_client_that_did_not_mask_unmasks_nothing() -> None:
    client = SecureClient(0, OCCASION)
    with refused("phase", "ready for: advertise"):
        client.unmask(unmasking((0, 1, 2), ()))


def test_a_client_refuses_a_key_list_that_would_uncover_it() -> None:
    rows = rows_for(range(6), 2)
    for change, code, match in (
        (lambda keys: {"threshold": 4}, "threshold", "threshold of 4 shares, and 5 is agreed"),
        (lambda keys: {"neighbours": keys.neighbours[:4]}, "neighbours", "do not follow from the roster"),
        (lambda keys: {"neighbours": keys.neighbours[::-1]}, "neighbours", "do not follow from the roster"),
        (lambda keys: {"neighbours": tuple((c, bytes(64)) for c, _ in keys.neighbours)}, "key-list", "other keys"),
        (lambda keys: {"roster": keys.roster[20:]}, "key-list", "not in the roster"),
        (lambda keys: {"roster": keys.roster[:40]}, "threshold", "and 2 is agreed"),
        (lambda keys: {"roster": keys.roster[:-1]}, "malformed", "roster"),
        (lambda keys: {"roster": keys.roster[20:40] + keys.roster[:20]}, "malformed", "roster"),
    ):
        _, clients, lists = started(rows, until="keys")
        with refused(code, match):
            clients[0].share(replace(lists[0], **change(lists[0])))
        clients[0].share(lists[0])
    _, clients, lists = started(rows, until="keys", agreed=Neighbourhood(5, 6, 5))
    with refused("threshold", "and 6 is agreed"):
        clients[0].share(lists[0])


def test_a_client_refuses_a_key_that_agrees_on_no_secret() -> None:
    rows = rows_for(range(6), 2)
    server, clients, _ = started(rows, until="keys")
    keys = [replace(message, channel_key=bytes(32)) if c == 3 else message for c, message in server._keys.items()]
    server = SecureServer(OCCASION, 2)
    for message in keys:
        server.receive_keys(message)
    with refused("public-key", "client 3 sent a public key that agrees on no secret"):
        clients[0].share(server.key_lists()[0])


def test_a_client_refuses_deliveries_of_strangers_or_of_too_few() -> None:
    rows = rows_for(range(5), 2)
    server, clients, _, _ = started(rows, until="shares")
    delivery = server.deliveries()[0]
    for change, code, match in (
        ({"sharers": b"\x03", "sealed": delivery.sealed[:1]}, "too-few", "2 holders who shared, fewer"),
        ({"sharers": b"\x1e"}, "strangers", "said not to have shared"),
        ({"sharers": b"\x0f"}, "strangers", r"shares from \[4\], who are not its neighbours or did not share"),
        ({"sharers": b"\x3f"}, "malformed", "a choice of the roster's clients"),
        ({"sealed": (*delivery.sealed, (99, bytes(112)))}, "strangers", r"from \[99\], who are not its neighbours"),
    ):
        with refused(code, match):
            clients[0].mask(replace(delivery, **change), rows[0])
    with refused("shape", "one row of uint32"):
        clients[0].mask(delivery, rows[0].astype(np.int64))


def test_server_refusals() -> None:
    rows = rows_for(range(5), 2)
    server, clients, inputs, requests = started(rows, leave=[4])
    late = MaskedInput(3, OCCASION.tag, 4, inputs[0].words)
    with refused("phase", "masked input of client 4 came in the phase of unmask replies"):
        server.receive_masked(late)
    reply = clients[0].unmask(requests[0])
    swapped = UnmaskReply(reply.round, reply.tag, 0, reply.keys, reply.seeds)
    with refused("shares", "was not asked for"):
        server.receive_reply(swapped)
    server.receive_reply(reply)
    with refused("repeated", "came twice"):
        server.receive_reply(reply)
    server, clients, _, _ = started(rows, until="shares")
    with refused("repeated", "came twice"):
        server.receive_shares(ShareKeys(3, OCCASION.tag, 0, (), (), bytes(32)))
    deliveries = server.deliveries()
    with refused("shape", "sent 1 numbers, expected 2"):
        server.receive_masked(clients[0].mask(deliveries[0], rows[0][:1]))
    with refused("phase", "the phase of shares is over"):
        server.deliveries()
    with pytest.raises(RoundFailed, match="1 clients sent keys, and it takes 2"):
        server = SecureServer(OCCASION, 2)
        server.receive_keys(SecureClient(0, OCCASION).advertise())
        server.key_lists()
