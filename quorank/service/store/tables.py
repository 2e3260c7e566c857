"""The tables of a service's store, in either database."""

from __future__ import annotations

import re

FORMAT = 2

TABLES = {
    "service": "id INTEGER PRIMARY KEY, format INTEGER NOT NULL, epoch BIGINT NOT NULL, version BIGINT NOT NULL,"
    " filled BIGINT NOT NULL, turns BIGINT NOT NULL",
    "documents": "name TEXT PRIMARY KEY, content {blob} NOT NULL",
    "publication": "id INTEGER PRIMARY KEY, number BIGINT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,"
    " round BIGINT NOT NULL, next DOUBLE PRECISION NOT NULL, room BIGINT NOT NULL, most BIGINT NOT NULL,"
    " rest BIGINT NOT NULL, opened DOUBLE PRECISION NOT NULL, signature {blob} NOT NULL, content {blob} NOT NULL,"
    " asked {blob} NOT NULL",
    "members": "number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, code {blob} UNIQUE,"
    " key {blob} UNIQUE, invited DOUBLE PRECISION NOT NULL, enrolled DOUBLE PRECISION, revoked DOUBLE PRECISION,"
    " gone DOUBLE PRECISION, seen DOUBLE PRECISION, program TEXT",
    "turns": "run TEXT NOT NULL, member BIGINT NOT NULL, taken BIGINT NOT NULL, last BIGINT NOT NULL,"
    " PRIMARY KEY (run, member)",
    "tokens": "digest {blob} PRIMARY KEY, quota BIGINT NOT NULL, used BIGINT NOT NULL, ends DOUBLE PRECISION NOT NULL",
    "replies": "id {serial}, run TEXT NOT NULL, round BIGINT NOT NULL, member BIGINT NOT NULL, content {blob} NOT NULL,"
    " UNIQUE (run, round, member)",
    "letters": "id {serial}, member BIGINT NOT NULL, turn BIGINT UNIQUE, content {blob} NOT NULL, answer {blob}",
    "leaving": "member BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, request {blob} NOT NULL, receipt {blob}",
    "events": "id {serial}, at DOUBLE PRECISION NOT NULL, code TEXT NOT NULL, content TEXT NOT NULL",
    "tallies": "name TEXT PRIMARY KEY, count BIGINT NOT NULL",
    "nonces": "slot BIGINT NOT NULL, member BIGINT NOT NULL, nonce {blob} NOT NULL, PRIMARY KEY (slot, member, nonce)",
    "facts": "name TEXT PRIMARY KEY, value {blob} NOT NULL",
    "places": "peer TEXT PRIMARY KEY, came BIGINT NOT NULL, done BIGINT NOT NULL, sent BIGINT NOT NULL,"
    " heard BIGINT NOT NULL",
    "sending": "peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL, tag TEXT NOT NULL,"
    " content {blob} NOT NULL, PRIMARY KEY (peer, place)",
    "coming": "peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL, content {blob} NOT NULL,"
    " PRIMARY KEY (peer, place)",
}
"""Columns by table; `{blob}` and `{serial}` are what each database calls bytes and a number of its own for each row.

`service` is one row: the holder's epoch, the version of what workers look at, the replies that the open round has, and
the answers that were ever given, which number them in `letters.turn`. `turns` counts the replies of a member in a run.
`nonces` is cut into slots of time, so that what has expired is deleted as a whole. `facts`, `places`, `sending` and
`coming` are a group's session (`silos.session.streams`).
"""

INDEXES = (
    "CREATE INDEX IF NOT EXISTS open_letters ON letters (member, id) WHERE answer IS NULL",
    "CREATE INDEX IF NOT EXISTS admitted_members ON members (number)"
    " WHERE key IS NOT NULL AND revoked IS NULL AND gone IS NULL",
)


_KINDS = {"{blob}": "bytea", "{serial}": "bigint"}


def columns_of(table: str) -> dict[str, str]:
    """The columns of a table with PostgreSQL's names of their types."""
    found = re.findall(r"(\w+) (\{\w+\}|TEXT|BIGINT|INTEGER|DOUBLE PRECISION)", TABLES[table])
    return {name: _KINDS.get(kind, kind.lower()) for name, kind in found}


def schema(blob: str, serial: str, compact: str) -> list[str]:
    """Statements that make the tables; `compact` follows the columns of a table that is its own index."""
    tables = [
        f"CREATE TABLE IF NOT EXISTS {name} ({columns.format(blob=blob, serial=serial)})"
        + (compact if name in ("nonces", "turns") else "")
        for name, columns in TABLES.items()
    ]
    return [*tables, *INDEXES, f"INSERT INTO service VALUES (1, {FORMAT}, 0, 0, 0, 0) ON CONFLICT DO NOTHING"]
