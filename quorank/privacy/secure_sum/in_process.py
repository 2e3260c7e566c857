"""Secure sum in one process: every client and the server, message by message, as on a network.

Every message is written to bytes and read again, each client does its own key agreements, and nothing passes between
them but messages, so that the seconds and the bytes are those of the protocol.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, neighbours_for
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import SecureSumMessage
from quorank.privacy.secure_sum.server import SecureServer

M = TypeVar("M", bound=SecureSumMessage)
T = TypeVar("T")


@dataclass(eq=False)
class SecureSumResult:
    """Result and cost of a secure sum."""

    neighbourhood: Neighbourhood
    total: Uint32s = field(init=False)  # modulo 2^32
    survivors: tuple[int, ...] = ()  # whose vectors are in the sum
    seconds: float = 0.0  # of all clients and the server, one after the other
    seconds_clients: float = 0.0
    _sizes: defaultdict[tuple[bool, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def sent(self) -> dict[str, float]:
        """Bytes of each message, the mean over the clients who sent one."""
        return {words: float(np.mean(sizes)) for (own, words), sizes in self._sizes.items() if own}

    @property
    def received(self) -> dict[str, float]:
        """The same for messages of the server."""
        return {words: float(np.mean(sizes)) for (own, words), sizes in self._sizes.items() if not own}

    @property
    def bytes_sent(self) -> float:
        """Mean bytes sent by a client that stays to the end."""
        return sum(self.sent.values())

    def timed(self, work: Callable[..., T], *args: object) -> T:
        """Run a client's work and add its time."""
        started = time.perf_counter()
        result = work(*args)
        self.seconds_clients += time.perf_counter() - started
        return result

    def send(self, step: Callable[..., M], *args: object) -> M:
        """Run a client's step and decode its message on the server."""
        message = self.timed(step, *args)
        raw = self.timed(message.to_bytes)
        self._sizes[True, message.WORDS].append(len(raw))
        return message.from_bytes(raw)

    def hand(self, message: M) -> M:
        """Decode the server's message on a client."""
        raw = message.to_bytes()
        self._sizes[False, message.WORDS].append(len(raw))
        return self.timed(message.from_bytes, raw)


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
    """Sum modulo 2^32 the vectors (length,) of all clients that send a masked input, and nothing else about them.

    Clients leave before they send shares, after that and before the masked input (`dropped_before`), or after it and
    before they help to unmask (`dropped_after`): the last are in the sum. Too few clients raise RoundFailed.
    The neighbourhood is that of `neighbours_for` unless it is given.
    `entropy` is the system's except in tests, where it makes a round repeatable.
    """
    occasion, plan = Occasion(session, round_), neighbourhood or neighbours_for(len(vectors))
    gone = set(dropped_before_shares)
    strangers = sorted({*gone, *dropped_before, *dropped_after} - set(vectors))
    require(not strangers, "secure-sum.strangers", f"clients {strangers[:5]} leave but have no vector")
    started, collecting, post = time.perf_counter(), gc.isenabled(), SecureSumResult(plan)
    gc.disable()  # a thousand clients are many objects, all needed until the end
    try:
        server = SecureServer(occasion, len(next(iter(vectors.values()))), plan)
        clients = {name: post.timed(SecureClient, name, occasion, plan, entropy) for name in vectors}
        for client in clients.values():
            server.receive_keys(post.send(client.advertise))
        for name, key_list in server.key_lists().items():
            if name not in gone:
                server.receive_shares(post.send(clients[name].share, post.hand(key_list)))
        gone |= set(dropped_before)
        for name, delivery in server.deliveries().items():
            if name not in gone:
                server.receive_masked(post.send(clients[name].mask, post.hand(delivery), vectors[name]))
        gone |= set(dropped_after)
        for name, request in server.unmask_requests().items():
            if name not in gone:
                server.receive_reply(post.send(clients[name].unmask, post.hand(request)))
        post.total, post.survivors = server.total(), server.survivors
    finally:
        if collecting:
            gc.enable()
    post.seconds = time.perf_counter() - started
    return post
