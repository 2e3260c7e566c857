"""Process that runs a device, and its socket: programs in any language on this machine share the device.

A Unix socket in the device's folder, for its owner alone (0600, and the peer's user is checked). One JSON object per line
gets one line back, in order; `docs/devices.md` lists the calls. Lines, connections, lists in memory and idle time are
bounded; every invalid line is answered with a code.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from quorank.errors import BadInput, require
from quorank.files.codec import Length
from quorank.files.documents import decode_document, parse_json
from quorank.learning import Shown
from quorank.member.client import Client
from quorank.member.device import error_place
from quorank.member.sync import FINAL, SyncReport
from quorank.protocol.requests import refusal

SOCKET = "device.sock"
VERSION = 1
LONGEST_LINE = 1 << 22  # bytes: a list of 1,000 documents with 136 features takes two million
MOST_CONNECTIONS = 16
MOST_LISTS = 1000  # maximum number of shown lists that can still be recorded
IDLE_SECONDS = 600.0
_PEER = struct.Struct("3i")  # process, user, group
_MOST_PATH = 100  # bytes of a socket's name that every system takes

Search = Callable[[Client], None]  # simulated user: searches with the device until an update can be made


class _Rank(TypedDict):
    features: Annotated[list[Annotated[list[float], Length(100_000)]], Length(10_000)]


class _Record(TypedDict):
    list: Annotated[str, Length(40)]
    clicks: Annotated[Sequence[bool], Length(10_000)]
    query: NotRequired[Annotated[str, Length(10_000)] | None]


class _Consent(TypedDict):
    given: bool


class _Sync(TypedDict, total=False):
    force: bool


_CALLS: dict[str, Any] = {"rank": _Rank, "record": _Record, "consent": _Consent, "sync": _Sync}
_CALLS |= dict.fromkeys(("status", "log", "leave"), dict[str, Any])


class _Server(socketserver.ThreadingUnixStreamServer):
    """Server of the socket: one thread for each connection of the folder's owner, up to a limit."""

    daemon_threads, block_on_close = True, False

    def __init__(self, name: str, device: LocalSocket) -> None:
        self.device, self.open = device, set[socket.socket]()
        super().__init__(name, _Caller)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        full = len(self.open) >= MOST_CONNECTIONS
        if full or not _is_owner(request):
            code = "socket.full" if full else "socket.other-user"
            with contextlib.suppress(OSError):
                request.sendall(_refused(code, "this socket accepts no more connections"))
            return False
        self.open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the peer has closed the connection, or was idle for too long."""


class _Caller(socketserver.StreamRequestHandler):
    """Answers the lines of one connection."""

    server: _Server

    def handle(self) -> None:
        device = self.server.device
        self.connection.settimeout(IDLE_SECONDS)
        while line := self.rfile.readline(LONGEST_LINE + 1):
            if not line.endswith(b"\n"):
                self.wfile.write(_refused("socket.too-long", "a line is too long, or incomplete"))
                return
            self.wfile.write(_line(device.answer(line)))
            if device.left:
                device.woken()  # the process may end now: the answer is out


class LocalSocket:
    """Socket of one client, a context; `woken` is called when a call may have changed the time of the next sync."""

    def __init__(self, client: Client, woken: Callable[[], None] = lambda: None) -> None:
        self.client, self.path, self.woken = client, client.folder / SOCKET, woken
        self._lists: OrderedDict[str, Shown] = OrderedDict()
        self._mutex = threading.Lock()
        self.left = False  # the device has left by a call, whose answer goes out first
        self.ranks = False  # a program shows lists by this device

    def __enter__(self) -> LocalSocket:
        """Listen; the folder's lock excludes other processes."""
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _short_path(self.path) as name:
                self.server = _Server(name, self)
        except OSError as error:
            raise BadInput("socket.none", f"no socket can be made here ({error.strerror})", f"{self.path}") from None
        finally:
            os.umask(before)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True, name="device socket").start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and remove the socket."""
        self.server.shutdown()
        self.server.server_close()
        self.path.unlink(missing_ok=True)
        for connection in [*self.server.open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # ------------------------------------------------------------ calls

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a line; it never raises."""
        name: object = None
        try:
            asked = parse_json(line, dict[str, Any], code="socket.malformed")
            name, call = asked.get("id"), asked.get("call")
            require(isinstance(name, str | int | None), "socket.malformed", "an id is a string or an integer")
            require(asked.get("v") == VERSION, "socket.version", f"expected version {VERSION} in v")
            known = isinstance(call, str) and call in _CALLS
            require(known, "socket.unknown-call", f"expected one of {', '.join(_CALLS)} in call")
            values = decode_document(_CALLS[f"{call}"], asked, "", code="socket.malformed")
            found: Mapping[str, Any] = getattr(self, f"_{call}")(values)
            return {"id": name, "ok": True, **found}
        except BadInput as error:
            return {"id": name, "ok": False, "code": error.code, "sentence": error.sentence}
        except Exception as error:
            logging.getLogger(__name__).error("device.fault: a call could not be answered (%s)", error_place(error))
            return {"id": name, "ok": False, "code": "device.fault", "sentence": "the device could not answer"}

    def _rank(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        rows = asked["features"]
        same = len({len(row) for row in rows}) == 1
        require(same, "features.shape", "every document has the same number of features")
        shown, name, self.ranks = self.client.rank(rows), os.urandom(12).hex(), True
        with self._mutex:
            self._lists[name] = shown
            while len(self._lists) > MOST_LISTS:
                self._lists.popitem(last=False)
        return {"list": name, "order": shown.order.tolist()}

    def _record(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._mutex:
            shown = self._lists.pop(asked["list"], None)
        if shown is None:
            raise BadInput("list.unknown", "this list was recorded already, is too old, or was never shown")
        try:
            self.client.record(shown, asked["clicks"], asked.get("query"))
        except BadInput:
            with self._mutex:
                self._lists[asked["list"]] = shown
            raise
        return {}

    def _consent(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.client.consent(asked["given"])
        self.woken()
        return {}

    def _sync(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"sync": self.client.sync(force=asked.get("force", False)).table()}

    def _status(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"status": self.client.status()}

    def _log(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"log": self.client.log()}

    def _leave(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        report = self.client.leave()
        self.left = True
        return {"sync": report.table()}


def call(folder: Path, name: str, seconds: float = 120.0, **values: Any) -> dict[str, Any] | None:
    """Call the process that runs a device and return its answer; None if no process runs it. Refusals raise BadInput."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        connection.settimeout(seconds)
        try:
            with _short_path(folder / SOCKET) as path:
                connection.connect(path)
        except OSError:
            return None
        try:
            connection.sendall(_line({"v": VERSION, "call": name, **values}))
            with connection.makefile("rb") as lines:
                line = lines.readline()
        except TimeoutError:
            sentence = f"the process that runs the device did not answer within {seconds:g} s; try again"
            raise BadInput("socket.timeout", sentence, f"{folder}") from None
        except OSError:
            line = b""
    require(line, "socket.closed", "the process that runs the device ended before it answered; try again")
    found: dict[str, Any] = parse_json(line, dict[str, Any], code="socket.malformed")
    if found.get("ok") is not True:
        raise refusal(found.get("code"), found.get("sentence"))
    return found


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Return a name of the socket short enough for the system, however long the folder's is."""
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
        return True  # the socket's mode protects it
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(found)[1] in (0, os.getuid()))


def _line(table: Mapping[str, Any]) -> bytes:
    return json.dumps({"v": VERSION, **table}).encode() + b"\n"


def _refused(code: str, sentence: str) -> bytes:
    return _line({"ok": False, "code": code, "sentence": sentence})


# ---------------------------------------------------------------- the process


def run_device(client: Client, notify: Callable[[SyncReport], None], search: Search | None = None) -> SyncReport:
    """Run the device until the run is over or the device has left; final refusals are raised.

    A device that programs use through its socket continues after the run.
    """
    woken = threading.Event()
    with LocalSocket(client, woken.set) as serving:
        while True:
            report = sync_with_search(client, search)
            notify(report)
            if report.outcome == "left" or (report.outcome == "over" and not serving.ranks):
                return report
            if report.code in FINAL:
                raise BadInput(report.code, report.sentence, f"{client.folder}")
            woken.wait(report.next)
            woken.clear()
            if client.closed:
                return SyncReport("left", 0.0)


def sync_with_search(client: Client, search: Search | None = None) -> SyncReport:
    """Sync; where it waits for interactions, let the simulated user search and sync again."""
    report = client.sync()
    if search is not None and report.code == "device.waiting":
        search(client)
        report = client.sync(force=True)
    return report
