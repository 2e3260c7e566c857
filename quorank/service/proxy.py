"""A reverse proxy that lets devices reach the engine's fleet calls and nobody reach anything else.

Flower's administration has no login and shares its port with the nodes, so the engine listens on the loopback interface
and this process stands before it: TLS, POST, and one of ten paths compared letter by letter; everything else is answered
with 403. A request is read whole and written anew, with one Content-Length, so nothing can be smuggled behind it. It
knows the server's TLS key and no other secret, and logs nothing. For the open internet put nginx in its place
(`units`), which bears more connections.

`python -m quorank.service.proxy HOST PORT INSIDE CERTIFICATE KEY AUTHORITY`
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""The fleet calls of a node that was invited; registering and unregistering are the coordinator's own."""

FLEET = "/v1/fleet/"
PATHS = frozenset(FLEET + call for call in CALLS)
LARGEST = 32 << 20
"""Bytes of a request or an answer."""

MOST = 1000
"""Connections at a time; more are closed at once."""

SMALL, MOST_LARGE = 1 << 16, 16
"""Bytes of a request that needs no place of its own in memory, and how many larger ones are read at a time."""

SECONDS = 60.0
HANDSHAKE_SECONDS = 10.0
_HOPS = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host", "content-length"}
)  # fmt: skip


class Proxy(ThreadingHTTPServer):
    """Listens for devices; the engine is at 127.0.0.1:`inside`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, inside: int, certificate: Path, key: Path, authority: Path) -> None:
        self.inside = inside
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.server_context.load_cert_chain(certificate, key)
        self.client_context = ssl.create_default_context(cafile=str(authority))
        self._room, self.large = BoundedSemaphore(MOST), BoundedSemaphore(MOST_LARGE)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The handshake is made here, so that a slow one holds up nobody else."""
        try:
            with contextlib.suppress(OSError):
                request.settimeout(HANDSHAKE_SECONDS)
                secured = self.server_context.wrap_socket(request, server_side=True)
                super().process_request_thread(secured, client_address)
        finally:
            self._room.release()
            with contextlib.suppress(OSError):
                request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version, server_version, sys_version = "HTTP/1.1", "quorank", ""
    timeout, disable_nagle_algorithm = SECONDS, True

    def setup(self) -> None:
        super().setup()
        self._line = http.client.HTTPSConnection(
            "127.0.0.1", self.server.inside, timeout=SECONDS, context=self.server.client_context
        )

    def finish(self) -> None:
        self._line.close()
        super().finish()

    def do_POST(self) -> None:
        lengths = self.headers.get_all("Content-Length", [])
        if self.path not in PATHS:
            self.refuse(403)
        elif "Transfer-Encoding" in self.headers or len(lengths) != 1 or not _decimal(lengths[0]):
            self.refuse(411)
        elif int(lengths[0]) > LARGEST:
            self.refuse(413)
        elif int(lengths[0]) <= SMALL:
            self.pass_on(self.rfile.read(int(lengths[0])), int(lengths[0]))
        elif self.server.large.acquire(timeout=SECONDS):
            try:
                self.pass_on(self.rfile.read(int(lengths[0])), int(lengths[0]))
            finally:
                self.server.large.release()
        else:
            self.refuse(503)

    def pass_on(self, body: bytes, length: int) -> None:
        if len(body) != length:
            self.close_connection = True
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
        try:
            self._line.request("POST", self.path, body, headers)
            answer = self._line.getresponse()
            content = answer.read(LARGEST + 1)
        except (OSError, http.client.HTTPException):
            self._line.close()
            self.refuse(502)
            return
        if len(content) > LARGEST:
            self._line.close()
            self.refuse(502)
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOPS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, code: int) -> None:
        """An answer without a word; the connection ends, since what follows on it may belong to what was refused."""
        self.close_connection = True
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Requests that cannot be read, and methods other than POST, are refused like the rest."""
        self.refuse(403 if int(code) == 501 else int(code))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged: who is there when is nobody's business."""


def _decimal(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12


def main(arguments: list[str]) -> None:
    """Stand before an engine until the process ends."""
    host, port, inside, certificate, key, authority = arguments
    Proxy(host, int(port), int(inside), Path(certificate), Path(key), Path(authority)).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
