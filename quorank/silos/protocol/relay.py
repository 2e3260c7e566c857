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
from quorank.silos.protocol.group import check_name
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
        self.parties = tuple(check_name(name) for name in parties)
        require(
            len(set(self.parties)) == len(self.parties),
            "silo-group.repeated-name",
            "a party stands twice in the relay's list",
        )
        self.traffic: dict[tuple[str, str, Kind], RelayTraffic] = {}

    def pass_on(self, raw: bytes, sender: str | None = None) -> tuple[str, bytes]:
        """Return the receiver of an envelope, and its bytes as they came; `sender` is whom the transport names."""
        require(
            len(raw) <= MOST_RELAYED,
            "silo-message.too-large",
            f"an envelope of {len(raw):,} bytes is larger than the {MOST_RELAYED:,} that are relayed; send less at once",
        )
        envelope = Envelope.from_bytes(raw)
        for name in (envelope.sender, envelope.receiver):
            require(
                name in self.parties,
                "silo-group.unknown-party",
                f"{name} is not known to this relay; it serves {', '.join(self.parties)}",
            )
        require(
            sender is None or sender == envelope.sender,
            "silo-message.other-sender",
            f"{sender} sent an envelope in the name of {envelope.sender}; it is not relayed",
        )
        require(
            envelope.sender != envelope.receiver,
            "silo-message.misdirected",
            f"{envelope.sender} wrote to itself; it is not relayed",
        )
        way = self.traffic.setdefault((envelope.sender, envelope.receiver, envelope.kind), RelayTraffic())
        way.envelopes += 1
        way.bytes += len(raw)
        return envelope.receiver, raw

    def total(self) -> RelayTraffic:
        """Return the sum of all traffic."""
        return RelayTraffic(
            sum(way.envelopes for way in self.traffic.values()), sum(way.bytes for way in self.traffic.values())
        )


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
