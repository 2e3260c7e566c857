"""A real PostgreSQL for tests: one server a process, started when it is first asked for, on a unix socket.

The package `pgserver` brings it, and gives it a user of its own where tests run as root.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
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
    return pgserver.get_server(folder)


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
