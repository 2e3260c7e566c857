"""A device's socket on its own machine: programs in any language share the device that one process plays.

A Unix socket in the device's folder, for its owner alone (0600, and the peer's user is checked). One JSON object a line,
one line back for each, in order; `docs/devices.md` has all calls. Lines, connections, lists in memory and the time that a
connection may stand still are bounded; whatever is wrong with a line is answered with a code.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.documents import Flag, Items, Maybe, Number, Table, Text, check_shape, parse_json
from quorank.learning import Shown
from quorank.member.client import Client
from quorank.member.device import place_of
from quorank.protocol.requests import refusal

SOCKET = "device.sock"
VERSION = 1
LONGEST_LINE = 1 << 22
"""Bytes: a list of 1,000 documents with 136 features takes two million."""
MOST_CONNECTIONS = 16
MOST_LISTS = 1000
"""Lists that were shown and may still be recorded."""
IDLE_SECONDS = 600.0
_PEER = struct.Struct("3i")  # process, user, group
_MOST_PATH = 100  # bytes of a socket's name that every system takes

_CALLS = {
    "rank": Table({"features": Items(Items(Number(), 100_000), 10_000)}),
    "record": Table(
        {"list": Text(longest=40), "clicks": Items(Flag(), 10_000)}, {"query": Maybe(Text(longest=10_000))}
    ),
    "consent": Table({"given": Flag()}),
    "sync": Table({}, {"force": Flag()}),
    "status": Table({}),
    "log": Table({}),
    "leave": Table({}),
}


class LocalSocket:
    """Serves one client; `woken` is called when a call may have changed when the service is to be asked."""

    def __init__(self, client: Client, woken: Callable[[], None] = lambda: None) -> None:
        self._left = False  # by a call, whose answer goes out first
        self.client, self.path, self._woken = client, client.folder / SOCKET, woken
        self._lists: OrderedDict[str, Shown] = OrderedDict()
        self._mutex, self._open = threading.Lock(), set[socket.socket]()
        self._listening: socket.socket | None = None
        self.ranks = False  # whether a program shows lists by this device

    def __enter__(self) -> LocalSocket:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen; the folder's lock says that nobody else does."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        before = os.umask(0o177)
        try:
            with _short(self.path) as name:
                listening.bind(name)
        except OSError as error:
            listening.close()
            raise BadInput("socket.none", f"no socket can be made here ({error.strerror})", f"{self.path}") from None
        finally:
            os.umask(before)
        listening.listen(MOST_CONNECTIONS)
        self._listening = listening
        threading.Thread(target=self._accept, args=(listening,), daemon=True, name="device socket").start()

    def close(self) -> None:
        """Hang up on everybody, and remove the socket."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)  # else who accepts would not notice
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                self.path.unlink()
        with self._mutex:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with self._mutex:
                full = len(self._open) >= MOST_CONNECTIONS
                if not full:
                    self._open.add(connection)
            if full or not _is_owner(connection):
                code = "socket.full" if full else "socket.other-user"
                with contextlib.suppress(OSError):
                    connection.sendall(_line({"ok": False, "code": code, "sentence": "this socket takes no more"}))
                self._hang_up(connection)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="device caller").start()

    def _hang_up(self, connection: socket.socket) -> None:
        with self._mutex:
            self._open.discard(connection)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(IDLE_SECONDS)
            with connection.makefile("rb") as lines:
                while True:
                    line = lines.readline(LONGEST_LINE + 1)
                    if not line.endswith(b"\n"):
                        if line:
                            long = {
                                "ok": False,
                                "code": "socket.too-long",
                                "sentence": "a line is too long, or cut short",
                            }
                            connection.sendall(_line(long))
                        return
                    connection.sendall(_line(self.answer(line)))
                    if self._left:
                        self._woken()  # whoever waits may end now: the answer is out
        except OSError:
            pass  # it has hung up, or said nothing for too long
        finally:
            self._hang_up(connection)

    # calls

    def answer(self, line: bytes) -> dict[str, Any]:
        """What a line is answered with; it never raises."""
        name: object = None
        try:
            asked = parse_json(line, code="socket.malformed")
            name = asked.get("id")
            require(isinstance(name, str | int | None), "socket.malformed", "an id is a text or a whole number")
            version, call = asked.get("v"), asked.get("call")
            require(version == VERSION, "socket.version", f"expected version {VERSION} in v")
            shape = _CALLS.get(call) if isinstance(call, str) else None
            require(shape is not None, "socket.unknown-call", f"expected one of {', '.join(_CALLS)} in call")
            assert isinstance(call, str)
            check_shape(asked, shape or Table({}), "", code="socket.malformed")
            found: Mapping[str, Any] = getattr(self, f"_{call}")(asked)
            return {"id": name, "ok": True, **found}
        except BadInput as error:
            return {"id": name, "ok": False, "code": error.code, "sentence": error.sentence}
        except Exception as error:
            logging.getLogger(__name__).error("device.fault: a call could not be answered (%s)", place_of(error))
            return {"id": name, "ok": False, "code": "device.fault", "sentence": "the device could not answer"}

    def _rank(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        rows = asked["features"]
        require(
            len({len(row) for row in rows}) == 1, "features.shape", "every document has the same number of features"
        )
        shown, name, self.ranks = self.client.rank(rows), os.urandom(12).hex(), True
        with self._mutex:
            self._lists[name] = shown
            while len(self._lists) > MOST_LISTS:
                self._lists.popitem(last=False)
        return {"list": name, "order": shown.order.tolist()}

    def _record(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._mutex:
            shown = self._lists.pop(asked["list"], None)
        sentence = "this list was recorded already, is too old, or was never shown"
        require(shown is not None, "list.unknown", sentence)
        assert shown is not None
        try:
            self.client.record(shown, asked["clicks"], asked.get("query"))
        except BadInput:
            with self._mutex:
                self._lists[asked["list"]] = shown
            raise
        return {}

    def _consent(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.client.consent(asked["given"])
        self._woken()
        return {}

    def _sync(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        report = self.client.sync(force=asked.get("force", False))
        logging.getLogger(__name__).info("%s %s", report.outcome, report.code)
        return {"sync": report.table()}

    def _status(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"status": self.client.status()}

    def _log(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"log": self.client.log()}

    def _leave(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        report = self.client.leave()
        self._left = True
        return {"sync": report.table()}


def call(folder: Path, name: str, seconds: float = 120.0, **values: Any) -> dict[str, Any] | None:
    """Ask the process that plays a device, by its socket; None where nobody serves one. Refusals are BadInput."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        connection.settimeout(seconds)
        try:
            with _short(folder / SOCKET) as path:
                connection.connect(path)
        except OSError:
            return None
        connection.sendall(_line({"v": VERSION, "call": name, **values}))
        with connection.makefile("rb") as lines:
            line = lines.readline()
    require(line, "socket.closed", "the process that plays the device ended before it answered; try again")
    found: dict[str, Any] = parse_json(line, code="socket.malformed")
    if found.get("ok") is not True:
        raise refusal(str(found.get("code")), str(found.get("sentence")))
    return found


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of the socket that the system takes, however long its folder's is."""
    whole = str(path)
    if len(os.fsencode(whole)) <= _MOST_PATH:
        yield whole
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def _is_owner(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the socket's mode says who may connect
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(found)[1] in (0, os.getuid()))


def _line(table: Mapping[str, Any]) -> bytes:
    return json.dumps({"v": VERSION, **table}).encode() + b"\n"
