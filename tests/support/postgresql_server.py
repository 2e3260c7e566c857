"""A real PostgreSQL for tests: one server a process, started when it is first asked for, on a unix socket.

The package `pgserver` brings it, and gives it a user of its own where tests run as root.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest


@cache
def _server() -> Any:
    pgserver = pytest.importorskip("pgserver")
    folder = Path(tempfile.mkdtemp(prefix="quorank-pg-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after pgserver's own, which stops it
    server = pgserver.get_server(folder)
    atexit.register(_stop_at_exit)  # pgserver knows only of the process that it has started itself
    return server


def _stop_at_exit() -> None:
    with suppress(Exception):  # it may be stopped already
        stop_server()


def empty_database() -> str:
    """The address of a database with nothing in it: a schema of its own."""
    import psycopg

    name = f"s{secrets.token_hex(6)}"
    with psycopg.connect(_server().get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{_server().get_uri()}&options={quote(f'-csearch_path={name}')}"


def administer(statement: str) -> list[Any]:
    """Rows of a statement of the server's owner."""
    import psycopg

    with psycopg.connect(_server().get_uri(), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def stop_server() -> None:
    """Stop it at once, as a power cut does."""
    _control("-m", "immediate", "stop")


def start_server() -> None:
    """Start it again."""
    server = _server()
    socket = server.get_uri().partition("?host=")[2]
    _control("-o", '-h ""', "-o", f"-k {socket}", "-l", str(server.log), "start")


def _control(*words: str) -> None:
    from pgserver._commands import pg_ctl

    server = _server()
    pg_ctl(["-w", *words], pgdata=server.pgdata, user=server.system_user, timeout=30)


class CuttingLine:
    """A line to the server. Armed, it hangs up when the answer to the next COMMIT has come, and before it is handed on."""

    def __init__(self, folder: Path) -> None:
        self.armed, self.cut = False, 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):  # who hangs up hangs up
            self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        """PostgreSQL answers when it was asked, so one direction at a time will do."""
        server.connect(_server().get_uri().partition("?host=")[2] + "/.s.PGSQL.5432")
        while asked := client.recv(1 << 20):
            server.sendall(asked)
            answer = server.recv(1 << 20)
            while answer[-6:-1] != b"Z\0\0\0\5" and asked[:1] in b"QPBS":  # until it is ready for the next question
                answer += server.recv(1 << 20)
            if self.armed and b"COMMIT" in asked:
                self.armed, self.cut = False, self.cut + 1
                break
            client.sendall(answer)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def cutting_line(url: str) -> Iterator[tuple[str, CuttingLine]]:
    """The address of the same database over a line that can be cut."""
    with tempfile.TemporaryDirectory(prefix="quorank-line-") as folder:
        line = CuttingLine(Path(folder))
        try:
            yield url.replace(_server().get_uri().partition("?host=")[2], folder), line
        finally:
            line.close()
