"""The tables of a service's store, in either database."""

from __future__ import annotations

TABLES = (
    "CREATE TABLE IF NOT EXISTS service (id INTEGER PRIMARY KEY, format INTEGER NOT NULL, epoch BIGINT NOT NULL,"
    " version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, content {blob} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS publication (id INTEGER PRIMARY KEY, number BIGINT NOT NULL, kind TEXT NOT NULL,"
    " run TEXT NOT NULL, round BIGINT NOT NULL, content {blob} NOT NULL, signature {blob} NOT NULL,"
    " next DOUBLE PRECISION NOT NULL, room BIGINT NOT NULL, most BIGINT NOT NULL, rest BIGINT NOT NULL,"
    " asked {blob} NOT NULL, opened DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS members (number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " code {blob} UNIQUE, key {blob} UNIQUE, invited DOUBLE PRECISION NOT NULL, enrolled DOUBLE PRECISION,"
    " revoked DOUBLE PRECISION, gone DOUBLE PRECISION, seen DOUBLE PRECISION, taken BIGINT NOT NULL DEFAULT 0,"
    " last BIGINT NOT NULL DEFAULT -1)",
    "CREATE TABLE IF NOT EXISTS tokens (digest {blob} PRIMARY KEY, quota BIGINT NOT NULL, used BIGINT NOT NULL,"
    " ends DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS nonces (member BIGINT NOT NULL, nonce {blob} NOT NULL, at DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (member, nonce))",
    "CREATE TABLE IF NOT EXISTS replies (id {serial}, run TEXT NOT NULL, round BIGINT NOT NULL, member BIGINT NOT NULL,"
    " content {blob} NOT NULL, UNIQUE (run, round, member))",
    "CREATE TABLE IF NOT EXISTS letters (id {serial}, member BIGINT NOT NULL, content {blob} NOT NULL, answer {blob},"
    " told BIGINT NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS open_letters ON letters (member, id)",
    "CREATE TABLE IF NOT EXISTS leaving (member BIGINT PRIMARY KEY, request {blob} NOT NULL, at DOUBLE PRECISION NOT NULL,"
    " receipt {blob})",
    "CREATE TABLE IF NOT EXISTS events (id {serial}, at DOUBLE PRECISION NOT NULL, code TEXT NOT NULL,"
    " content TEXT NOT NULL)",
    # a group's session: facts, and both streams with each party (`silos.protocol.stream_store`)
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value {blob} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS places (peer TEXT PRIMARY KEY, came BIGINT NOT NULL, done BIGINT NOT NULL,"
    " sent BIGINT NOT NULL, heard BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sending (peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL, tag TEXT NOT NULL,"
    " content {blob} NOT NULL, PRIMARY KEY (peer, place))",
    "CREATE TABLE IF NOT EXISTS coming (peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL,"
    " content {blob} NOT NULL, PRIMARY KEY (peer, place))",
)
"""The tables; `{blob}` and `{serial}` are what each database calls bytes and a number of its own for each row."""
