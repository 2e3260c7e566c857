"""Secure sum in one process: every client and the server, message by message, as on a network.

Every message is encoded and decoded, each client does its own key agreements, and clients and server share nothing but
messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from quorank.errors import require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, neighbours_for
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import SecureSumMessage
from quorank.privacy.secure_sum.server import SecureServer

M = TypeVar("M", bound=SecureSumMessage)


class SecureSumResult(NamedTuple):
    """Sum of the vectors of all clients that sent a masked input."""

    total: Uint32s  # modulo 2^32
    survivors: tuple[int, ...]  # clients whose vectors are in the sum


def secure_sum(
    vectors: Mapping[int, Uint32s],
    *,
    round_: int,
    session: bytes,
    neighbourhood: Neighbourhood | None = None,
    dropped_before_shares: Collection[int] = (),
    dropped_before: Collection[int] = (),
    dropped_after: Collection[int] = (),
    entropy: Callable[[int], bytes] = os.urandom,
) -> SecureSumResult:
    """Sum vectors (length,) modulo 2^32 by the protocol.

    Args:
        vectors: Input of each client, by number.
        round_: Round of the session.
        session: Name of the session, 1 to 255 bytes.
        neighbourhood: Size of a client's neighbourhood, by default that of `neighbours_for`.
        dropped_before_shares: Clients that leave after they sent their keys.
        dropped_before: Clients that leave after they sent shares; their vectors are not in the sum.
        dropped_after: Clients that leave after they sent the masked input; their vectors are in the sum.
        entropy: Source of random bytes; the system's except in tests, where it makes a round repeatable.

    Raises:
        RoundFailed: Too few clients are left, or their masks do not join them.
    """
    occasion, plan = Occasion(session, round_), neighbourhood or neighbours_for(len(vectors))
    gone = set(dropped_before_shares)
    strangers = sorted({*gone, *dropped_before, *dropped_after} - set(vectors))
    require(not strangers, "secure-sum.strangers", f"clients {strangers[:5]} leave but have no vector")
    server = SecureServer(occasion, len(next(iter(vectors.values()))), plan)
    clients = {name: SecureClient(name, occasion, plan, entropy) for name in vectors}
    for client in clients.values():
        server.receive_keys(_transmit(client.advertise()))
    for name, key_list in server.key_lists().items():
        if name not in gone:
            server.receive_shares(_transmit(clients[name].share(_transmit(key_list))))
    gone |= set(dropped_before)
    for name, delivery in server.deliveries().items():
        if name not in gone:
            server.receive_masked(_transmit(clients[name].mask(_transmit(delivery), vectors[name])))
    gone |= set(dropped_after)
    for name, request in server.unmask_requests().items():
        if name not in gone:
            server.receive_reply(_transmit(clients[name].unmask(_transmit(request))))
    return SecureSumResult(server.total(), server.survivors)


def _transmit(message: M) -> M:
    """Encode and decode a message."""
    return type(message).from_bytes(message.to_bytes())
