"""Bounds on what one address, and all together, may have under way in a worker.

How long headers may take and how many connections there may be is the server's business (`worker`); here requests are
counted that got past their headers, the bytes of their bodies, and how often an address enrols.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quorank.errors import require

PER_ADDRESS = 64
"""Requests that one address may have under way in a worker."""
IN_ALL = 4000
"""Requests that all may have."""
BODIES = 1 << 26
"""Bytes of bodies under way; a single one may be longer where none other is."""
ADDRESSES = 10_000
"""Addresses whose enrolments are remembered."""


class IntakeTraffic:
    """What is under way in one worker."""

    def __init__(
        self, enrolments: int = 60, per_address: int = PER_ADDRESS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._enrolments, self._per_address, self._clock = enrolments, per_address, clock
        self._open: dict[str, int] = {}
        self._count = self._bytes = 0
        self._enrolled: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → (when, enrolments by then)

    def enter(self, address: str) -> None:
        """A request has come; too many are refused. `leave` ends it."""
        require(self._count < IN_ALL, "service.busy", "the service has more requests than it can take; ask again later")
        mine = self._open.get(address, 0)
        sentence = "this address has too many requests under way; wait for their answers"
        require(mine < self._per_address, "request.too-many", sentence)
        self._open[address] = mine + 1
        self._count += 1

    def leave(self, address: str) -> None:
        """A request has ended."""
        mine = self._open.get(address, 0) - 1
        self._count -= 1
        if mine > 0:
            self._open[address] = mine
        else:
            self._open.pop(address, None)

    @contextmanager
    def body(self, length: int) -> Iterator[None]:
        """Room for a body of at most so many bytes while it is read and judged."""
        fits = self._bytes == 0 or self._bytes + length <= BODIES
        require(fits, "service.busy", "the service has more requests than it can take; ask again later")
        self._bytes += length
        try:
            yield
        finally:
            self._bytes -= length

    def enrol(self, address: str) -> None:
        """An address wants to enrol a member; too many a minute are refused."""
        if self._enrolments == 0:
            return
        now = self._clock()
        at, spent = self._enrolled.pop(address, (now, 0.0))
        spent = max(0.0, spent - (now - at) * self._enrolments / 60.0)
        allowed = spent + 1.0 <= self._enrolments
        self._enrolled[address] = (now, spent + 1.0 if allowed else spent)
        while len(self._enrolled) > ADDRESSES:
            self._enrolled.popitem(last=False)
        require(allowed, "enrolment.too-many", "too many have enrolled from this address; try again in a minute")


def network_of(address: str) -> str:
    """Return the key under which an address is counted: of IPv6 its /64 network, of IPv4 the address.

    >>> network_of("2001:db8::1"), network_of("::ffff:192.0.2.1")
    ('2001:0db8:0000:0000', '192.0.2.1')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.packed[:8].hex(":", 2)
