"""Rounds of a secure sum that tests take apart: the same clients and server, stopped where a test wants to look."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from quorank.errors import BadInput
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import UnmaskRequest
from quorank.privacy.secure_sum.server import SecureServer

OCCASION = Occasion(b"session", 3)


@contextmanager
def refused(code: str, match: str = "") -> Iterator[None]:
    """What runs inside is refused with this code of secure sums and a sentence that matches."""
    with pytest.raises(BadInput, match=match) as caught:
        yield
    assert caught.value.code == f"secure-sum.{code}"


def seeded(name: object) -> Callable[[int], bytes]:
    """Repeatable entropy."""
    return random.Random(repr(name)).randbytes


def rows_for(clients: Iterable[int], length: int) -> dict[int, np.ndarray]:
    """A vector of numbers from the whole range for each client."""
    clients = list(clients)
    matrix = np.random.default_rng(len(clients)).integers(0, 2**32, (len(clients), length), dtype=np.uint32)
    return dict(zip(clients, matrix, strict=True))


def unmasking(survivors: tuple[int, ...], dropped: tuple[int, ...]) -> UnmaskRequest:
    """A request to client 0."""
    return UnmaskRequest(OCCASION.round, OCCASION.tag, 0, survivors, dropped)


def started(
    rows: dict[int, np.ndarray],
    *,
    leave: Iterable[int] = (),
    plan: Neighbourhood | None = None,
    agreed: Neighbourhood | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    occasion: Occasion = OCCASION,
    tamper: Callable[[int, Any], Any] = lambda _, delivery: delivery,
    until: str = "requests",
) -> Any:
    """(server, clients, masked inputs, unmask requests) of a round in which some leave before the server has their
    input; until = "keys": (server, clients, key lists); until = "shares": before the deliveries. The inputs of those who
    leave are made too: they come too late.
    """
    server = SecureServer(occasion, len(next(iter(rows.values()))), plan)
    clients = {name: SecureClient(name, occasion, agreed or plan, entropy) for name in rows}
    for client in clients.values():
        server.receive_keys(client.advertise())
    lists = server.key_lists()
    if until == "keys":
        return server, clients, lists
    for name, key_list in lists.items():
        server.receive_shares(clients[name].share(key_list))
    if until == "shares":
        return server, clients, {}, {}
    inputs = {}
    for name, delivery in server.deliveries().items():
        inputs[name] = clients[name].mask(tamper(name, delivery), rows[name])
        if name not in set(leave):
            server.receive_masked(inputs[name])
    return server, clients, inputs, server.unmask_requests()
