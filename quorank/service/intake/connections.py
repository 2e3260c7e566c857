"""Bound on the connections that one address holds at a worker, whatever they say or do not say.

The server bounds how long a handshake and headers may take, and how many connections there are in all; who holds them it
does not ask. A thread looks at the process's own sockets, and hangs up on the oldest of an address that has too many:
requests are short, so those are the ones that keep silent.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from quorank.service.intake.traffic import network_of

PER_ADDRESS = 512
LOOK_SECONDS = 0.5
OWN = 64
"""Files that a worker has open beside connections, or more."""
_DESCRIPTORS = Path("/proc/self/fd")


class ConnectionGuard:
    """Hangs up on addresses that hold too many connections at a local port."""

    def __init__(self, port: int, per_address: int = PER_ADDRESS, clock: Callable[[], float] = time.monotonic) -> None:
        self._port, self._per_address, self._clock = port, per_address, clock
        self._since: dict[tuple[int, str, int], float] = {}  # when (descriptor, address, port) was first seen

    def start(self) -> None:
        """Look again and again, in a thread that ends with the process."""
        if _DESCRIPTORS.is_dir():
            Thread(target=self._look_on, name="connections", daemon=True).start()

    def _look_on(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(OSError):
                self.look()

    def look(self) -> int:
        """Look once; how many connections were ended."""
        numbers = _descriptors()
        if len(numbers) <= self._per_address + OWN:
            self._since.clear()
            return 0
        now, held, before = self._clock(), defaultdict(list), self._since
        self._since = {}
        for number in numbers:
            found = self._peer(number)
            if found is not None:
                key = (number, *found)
                self._since[key] = before.get(key, now)
                held[network_of(found[0])].append(key)
        ended = 0
        for keys in held.values():
            keys.sort(key=self._since.__getitem__)
            ended += sum(self._hang_up(*key) for key in keys[: max(0, len(keys) - self._per_address)])
        return ended

    def count(self) -> int:
        """Connections that are open now."""
        return sum(self._peer(number) is not None for number in _descriptors())

    def _peer(self, number: int) -> tuple[str, int] | None:
        """Who is at the other end, where the descriptor is a connection to our port."""
        with suppress(OSError, IndexError, ValueError), _socket(number) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] == self._port:
                address, port = one.getpeername()[:2]
                return str(address), int(port)
        return None

    def _hang_up(self, number: int, address: str, port: int) -> bool:
        """End a connection, if the descriptor still is that one."""
        with suppress(OSError), _socket(number) as one:
            if one.getpeername()[:2] == (address, port):
                one.shutdown(socket.SHUT_RDWR)  # the server sees its end, and closes it
                return True
        return False


def _descriptors() -> list[int]:
    return [int(path.name) for path in _DESCRIPTORS.iterdir()]


def stop_accepting(listener: int) -> None:
    """Accept no more connections on a listening socket that other processes go on with.

    A socket that nobody can reach takes the descriptor's place: whoever accepts on it is told that there is nothing.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as nobody:
        nobody.bind("")  # Linux gives it a name of its own
        nobody.listen(1)
        nobody.setblocking(False)
        os.dup2(nobody.fileno(), listener, inheritable=False)


def _socket(number: int) -> socket.socket:
    """A descriptor of this process as a socket of its own; OSError where it is none."""
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
