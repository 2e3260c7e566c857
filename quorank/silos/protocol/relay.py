"""Relaying server between the parties: it carries envelopes, and counts them.

It reads sender, receiver, kind, number and size, refuses what is of no party or too large, and keeps nothing but counts:
envelopes and bytes by sender, receiver and kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorank.errors import require
from quorank.silos.protocol.group import check_names
from quorank.silos.protocol.messages import MOST_BYTES, Envelope, Kind

MOST_RELAYED = MOST_BYTES + 1024
"""The largest envelope: its head takes less than 1024 bytes."""


@dataclass
class RelayTraffic:
    """Envelopes and bytes that passed from one party to another."""

    envelopes: int = 0
    bytes: int = 0


class Relay:
    """Server that hands each envelope to its receiver."""

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = check_names(parties)
        self.traffic: dict[tuple[str, str, Kind], RelayTraffic] = {}

    def pass_on(self, raw: bytes, sender: str | None = None) -> tuple[str, bytes]:
        """Return the receiver of an envelope, and its bytes as they came; `sender` is whom the transport names."""
        said = f"an envelope of {len(raw):,} bytes is larger than the {MOST_RELAYED:,} that are relayed; send less"
        require(len(raw) <= MOST_RELAYED, "silo-message.too-large", said)
        envelope = Envelope.from_bytes(raw)
        named, receiver = envelope.sender, envelope.receiver
        for name in (named, receiver):
            require(name in self.parties, "silo-group.unknown-party", f"{name} is not known to this relay")
        said = f"{sender} sent an envelope in the name of {named}; it is not relayed"
        require(sender in (None, named), "silo-message.other-sender", said)
        require(named != receiver, "silo-message.misdirected", f"{named} wrote to itself; it is not relayed")
        way = self.traffic.setdefault((named, receiver, envelope.kind), RelayTraffic())
        way.envelopes += 1
        way.bytes += len(raw)
        return receiver, raw

    def total(self) -> RelayTraffic:
        """Return the sum of all traffic."""
        ways = self.traffic.values()
        return RelayTraffic(sum(way.envelopes for way in ways), sum(way.bytes for way in ways))


class Receiver(Protocol):
    """Party that accepts an envelope and returns the envelopes that it calls for."""

    def receive(self, envelope: Envelope) -> list[Envelope]: ...


def deliver(
    relay: Relay,
    parties: Mapping[str, Receiver],
    envelopes: Iterable[Envelope],
    watch: Callable[[bytes], object] | None = None,
) -> None:
    """Carry envelopes, and those that answer them, among parties in one process until there are no more."""
    waiting = deque(envelopes)
    while waiting:
        receiver, raw = relay.pass_on(waiting.popleft().to_bytes())
        if watch is not None:
            watch(raw)
        waiting.extend(parties[receiver].receive(Envelope.from_bytes(raw)))
