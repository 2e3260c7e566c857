"""Secure sum in one process: every client and the server, message by message, as on a network.

Every message is written to bytes and read again, each client does its own key agreements, and nothing passes between
them but messages, so that the seconds and the bytes are those of the protocol.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, neighbours_for
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import AdvertiseKeys, MaskedInput, SecureSumMessage, ShareKeys, UnmaskReply
from quorank.privacy.secure_sum.server import SecureServer

M = TypeVar("M", bound=SecureSumMessage)
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class SecureSumResult:
    """Result and cost of a secure sum."""

    total: Uint32s  # modulo 2^32
    survivors: tuple[int, ...]  # whose vectors are in the sum
    neighbourhood: Neighbourhood
    sent: dict[str, float]  # bytes of each message, the mean over the clients who sent one
    received: dict[str, float]  # the same for what the server sends
    seconds_clients: float  # of all clients together
    seconds_server: float

    @property
    def bytes_sent(self) -> float:
        """Mean bytes sent by a client that stays to the end."""
        return sum(self.sent.values())

    @property
    def bytes_received(self) -> float:
        """Mean bytes received by a client that stays to the end."""
        return sum(self.received.values())

    @property
    def seconds(self) -> float:
        """Sequential time of all clients and the server."""
        return self.seconds_clients + self.seconds_server


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend garbage collection: a thousand clients are many objects, all needed until the end."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@_uncollected()
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
    occasion = Occasion(session, round_)
    plan = neighbourhood or neighbours_for(len(vectors))
    gone = set(dropped_before_shares)
    leaving = gone | set(dropped_before) | set(dropped_after)
    strangers = sorted(leaving - set(vectors))
    require(not strangers, "secure-sum.strangers", f"clients {strangers[:5]} leave but have no vector")
    started = time.perf_counter()
    post = _Post()
    server = SecureServer(occasion, len(next(iter(vectors.values()))), plan)
    clients = {name: post.timed(SecureClient, name, occasion, plan, entropy) for name in vectors}
    for client in clients.values():
        server.receive_keys(post.send(AdvertiseKeys, client.advertise))
    for name, key_list in server.key_lists().items():
        if name not in gone:
            server.receive_shares(post.send(ShareKeys, clients[name].share, post.hand(key_list)))
    gone |= set(dropped_before)
    for name, delivery in server.deliveries().items():
        if name not in gone:
            server.receive_masked(post.send(MaskedInput, clients[name].mask, post.hand(delivery), vectors[name]))
    gone |= set(dropped_after)
    for name, request in server.unmask_requests().items():
        if name not in gone:
            server.receive_reply(post.send(UnmaskReply, clients[name].unmask, post.hand(request)))
    total = server.total()
    seconds = time.perf_counter() - started
    sent, received = ({w: float(np.mean(sizes)) for w, sizes in way.items()} for way in (post.sent, post.received))
    return SecureSumResult(total, server.survivors, plan, sent, received, post.seconds, seconds - post.seconds)


class _Post:
    """Carries messages as bytes, counts them, and takes the clients' time."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, list[int]] = defaultdict(list)
        self.received: defaultdict[str, list[int]] = defaultdict(list)
        self.seconds = 0.0

    def timed(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a client's work and add its time."""
        started = time.perf_counter()
        result = work(*args, **kwargs)
        self.seconds += time.perf_counter() - started
        return result

    def send(self, kind: type[M], step: Callable[..., M], *args: object) -> M:
        """Run a client's step and decode its message on the server."""
        raw = self.timed(lambda: step(*args).to_bytes())
        self.sent[kind.WORDS].append(len(raw))
        return kind.from_bytes(raw)

    def hand(self, message: M) -> M:
        """Decode the server's message on a client."""
        raw = message.to_bytes()
        self.received[message.WORDS].append(len(raw))
        return self.timed(type(message).from_bytes, raw)
