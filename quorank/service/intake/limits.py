"""Limits on what one address, and all together, may have under way in a worker: requests, bodies, enrolments, connections.

The server limits the time of handshakes and headers and the total number of connections, but not the connections of one
address. A thread therefore watches the process's own sockets and closes the oldest of an address with too many: requests
are short, so the oldest are the silent ones.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from quorank.errors import require

REQUESTS_PER_ADDRESS, REQUESTS = 64, 4000
"""Maximum number of requests under way in a worker: of one address, and of all."""
BODIES = 1 << 26  # maximum bytes of bodies under way; a single body may be longer while there is no other
ADDRESSES = 10_000  # number of addresses whose enrolments are remembered
CONNECTIONS_PER_ADDRESS = 512
LOOK_SECONDS = 0.5  # interval of the watch over connections
OWN_FILES = 64  # minimum number of open files of a worker that are not connections
_DESCRIPTORS = Path("/proc/self/fd")
_BUSY = "the service has more requests than it can take; ask again later"


class IntakeTraffic:
    """Requests, bodies and enrolments under way in one worker."""

    def __init__(
        self,
        enrolments: int = 60,  # per minute and address, of all workers together; 0: unlimited
        per_address: int = REQUESTS_PER_ADDRESS,
        clock: Callable[[], float] = time.monotonic,
        workers: int = 1,
    ) -> None:
        self._enrolments = enrolments // workers
        self._per_address, self._clock = per_address, clock
        self._open, self._count, self._bytes = Counter[str](), 0, 0
        self._enrolled: OrderedDict[str, deque[float]] = OrderedDict()  # address → times within the last minute

    @contextmanager
    def request(self, address: str) -> Iterator[None]:
        """Count a request while it is answered; reject it where there are too many."""
        require(self._count < REQUESTS, "service.busy", _BUSY)
        sentence = "this address has too many requests under way; wait for their answers"
        require(self._open[address] < self._per_address, "request.too-many", sentence)
        self._open[address] += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    @contextmanager
    def body(self, length: int) -> Iterator[None]:
        """Reserve memory for a body of at most `length` bytes while it is read and judged."""
        fits = self._bytes == 0 or self._bytes + length <= BODIES
        require(fits, "service.busy", _BUSY)
        self._bytes += length
        try:
            yield
        finally:
            self._bytes -= length

    def enrol(self, address: str) -> None:
        """Count an enrolment of an address; more than its share of the limit in any minute are rejected."""
        if self._enrolments == 0:
            return
        now, times = self._clock(), self._enrolled.pop(address, deque())
        while times and times[0] <= now - 60.0:
            times.popleft()
        allowed = len(times) < self._enrolments
        if allowed:
            times.append(now)
        self._enrolled[address] = times
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


class ConnectionGuard:
    """Closes connections of addresses with too many at a local port."""

    def __init__(
        self, port: int, per_address: int = CONNECTIONS_PER_ADDRESS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._port, self._per_address, self._clock = port, per_address, clock
        self._since: dict[tuple[int, str, int], float] = {}  # (descriptor, address, port) → first seen

    def start(self) -> None:
        """Watch in a thread that ends with the process."""
        if _DESCRIPTORS.is_dir():
            Thread(target=self._watch, name="connections", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(OSError):
                if len(list(_DESCRIPTORS.iterdir())) > self._per_address + OWN_FILES:
                    self.look()

    def connections(self) -> list[tuple[int, str, int]]:
        """Return descriptor and peer (address, port) of all open connections to the port."""
        found = []
        for path in _DESCRIPTORS.iterdir():
            with suppress(OSError, IndexError, ValueError), _socket(int(path.name)) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] == self._port:
                    address, port = one.getpeername()[:2]
                    found.append((int(path.name), str(address), int(port)))
        return found

    def look(self) -> int:
        """Look once; returns the number of closed connections."""
        now, held = self._clock(), defaultdict(list)
        self._since = {key: self._since.get(key, now) for key in self.connections()}
        for key in sorted(self._since, key=self._since.__getitem__):
            held[network_of(key[1])].append(key)
        too_many = [key for keys in held.values() for key in keys[: max(0, len(keys) - self._per_address)]]
        return sum(self._disconnect(*key) for key in too_many)

    def _disconnect(self, number: int, address: str, port: int) -> bool:
        """Shut a connection down if the descriptor still is that one."""
        with suppress(OSError), _socket(number) as one:
            if one.getpeername()[:2] == (address, port):
                one.shutdown(socket.SHUT_RDWR)  # the server sees its end, and closes it
                return True
        return False


def stop_accepting(listener: int) -> None:
    """Stop accepting connections on a listening socket that other processes keep using.

    An unreachable socket takes the descriptor's place, so accepting on it finds nothing.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unreachable:
        unreachable.bind("")  # Linux assigns a unique name
        unreachable.listen(1)
        unreachable.setblocking(False)
        os.dup2(unreachable.fileno(), listener, inheritable=False)


def _socket(number: int) -> socket.socket:
    """Return a duplicate of this process's descriptor as a socket; OSError for other descriptors."""
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
