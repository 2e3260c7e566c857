"""The server between the parties: it carries envelopes, and counts them.

It reads sender, receiver, kind, number and size, refuses what is of no party or too large, and keeps nothing but counts:
envelopes and bytes by sender, receiver and kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorank.errors import require
from quorank.silos.protocol.messages import MOST_BYTES, Envelope, Kind, check_name

_HEADER = 1024  # more than a head can take


@dataclass
class RelayTraffic:
    """What passed on one way."""

    envelopes: int = 0
    bytes: int = 0


class Relay:
    """Hands each envelope to its receiver."""

    def __init__(self, parties: Sequence[str], most_bytes: int = MOST_BYTES + _HEADER) -> None:
        self.parties = tuple(check_name(name) for name in parties)
        require(len(set(self.parties)) == len(self.parties), "a party stands twice in the relay's list")
        self.most_bytes = most_bytes
        self.traffic: dict[tuple[str, str, Kind], RelayTraffic] = {}

    def pass_on(self, raw: bytes, sender: str | None = None) -> tuple[str, bytes]:
        """The receiver of an envelope, and its bytes as they came; `sender` is who the transport says it is from."""
        require(
            len(raw) <= self.most_bytes,
            f"an envelope of {len(raw):,} bytes is larger than the {self.most_bytes:,} that are relayed; send less at once",
        )
        envelope = Envelope.from_bytes(raw)
        for name in (envelope.sender, envelope.receiver):
            require(
                name in self.parties,
                f"{name} is not known to this relay; it serves {', '.join(self.parties)}",
            )
        require(
            sender is None or sender == envelope.sender,
            f"{sender} sent an envelope in the name of {envelope.sender}; it is not relayed",
        )
        require(envelope.sender != envelope.receiver, f"{envelope.sender} wrote to itself; it is not relayed")
        way = self.traffic.setdefault((envelope.sender, envelope.receiver, envelope.kind), RelayTraffic())
        way.envelopes += 1
        way.bytes += len(raw)
        return envelope.receiver, raw

    def total(self) -> RelayTraffic:
        """All that passed."""
        return RelayTraffic(
            sum(way.envelopes for way in self.traffic.values()),
            sum(way.bytes for way in self.traffic.values()),
        )


class Receiver(Protocol):
    """Takes envelopes and answers with envelopes."""

    def receive(self, envelope: Envelope) -> list[Envelope]: ...


def deliver(
    relay: Relay,
    parties: Mapping[str, Receiver],
    envelopes: Iterable[Envelope],
    watch: Callable[[bytes], object] | None = None,
) -> None:
    """Carry envelopes, and those that answer them, until nobody has more to say: all parties in one process."""
    waiting = deque(envelopes)
    while waiting:
        receiver, raw = relay.pass_on(waiting.popleft().to_bytes())
        if watch is not None:
            watch(raw)
        waiting.extend(parties[receiver].receive(Envelope.from_bytes(raw)))
