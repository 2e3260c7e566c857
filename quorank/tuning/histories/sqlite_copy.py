"""A browser's database as a copy in memory: no lock is taken and nothing is written, not even beside it.

A browser keeps its history locked while it runs, and SQLite's own read-only mode leaves files (-shm, -wal) beside a
database with a write-ahead log. Here the bytes are read as they lie there, the log's complete transactions are laid over
them (sqlite.org/fileformat2.html, sections 4.1 to 4.4), and SQLite opens the result in memory.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from quorank.arrays import Uint32s
from quorank.compiled import kernel
from quorank.errors import BadInput, require

_MAGIC = b"SQLite format 3\0"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LOG_LITTLE, _LOG_BIG = 0x377F0682, 0x377F0683
_HEADER, _FRAME = 32, 24  # bytes
_TRIES, _WAIT = 5, 0.2  # seconds between two tries


def open_copy(path: Path, what: str) -> sqlite3.Connection:
    """The database at `path` in memory; `what` says in messages what was expected."""
    content = _snapshot(path, what)
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        connection.close()
        raise _damaged(path, error) from None
    if found != "ok":
        connection.close()
        raise BadInput(
            f"{path}: the database is damaged ({found}); let the browser repair it, or use a backup"
        )
    return connection


def require_columns(
    connection: sqlite3.Connection, path: Path, what: str, tables: Mapping[str, Iterable[str]]
) -> None:
    """Refuse a database that has not these tables with these columns."""
    for table, columns in tables.items():
        found = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        require(found, f"{path}: there is no table {table} in this database; expected {what}")
        for column in columns:
            require(
                column in found,
                f"{path}: the table {table} has no column {column}, so its version is unknown; expected {what}",
            )


def rows(connection: sqlite3.Connection, path: Path, query: str) -> list[tuple[object, ...]]:
    """All rows of a query; a page of the file that cannot be read is a damaged database."""
    try:
        with closing(connection.execute(query)) as cursor:
            return cursor.fetchall()
    except sqlite3.Error as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: sqlite3.Error) -> BadInput:
    return BadInput(f"{path}: the database is damaged ({error}); let the browser repair it, or use a backup")


def _snapshot(path: Path, what: str) -> bytes:
    """The bytes of one state of the database: a write in between is noticed, and waited for."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_WAIT)
        before = _stamp(path, what)
        content, log, journal = _read(path), _read(_beside(path, "-wal")), _read(_beside(path, "-journal"))
        if _stamp(path, what) == before and not journal.startswith(_JOURNAL_MAGIC):
            require(
                content.startswith(_MAGIC),
                f"{path}: this is not an SQLite database; expected {what}",
            )
            return with_log(content, log)
    raise BadInput(f"{path}: the browser is writing to this file; close it, or try again")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _stamp(path: Path, what: str) -> tuple[object, ...]:
    require(path.exists(), f"{path}: no such file; expected {what}")
    require(path.is_file(), f"{path}: this is not a file; expected {what}")
    found: list[object] = []
    for file in (path, _beside(path, "-wal"), _beside(path, "-journal")):
        try:
            status = file.stat()
            found += [status.st_mtime_ns, status.st_size]
        except FileNotFoundError:
            found.append(None)
    return tuple(found)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except PermissionError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror}); close the browser that holds it, or copy the file"
        ) from None


def with_log(content: bytes, log: bytes) -> bytes:
    """A database with the complete transactions of its write-ahead log laid over it.

    A frame counts while its salts are the log's and its checksum follows from all before it; what comes after the last
    frame that ends a transaction does not. The copy says of itself that it has no log.
    """
    copy = bytearray(content)
    if len(log) >= _HEADER:
        magic, _, size, _, *salts = struct.unpack(">6I", log[:24])
        if magic in (_LOG_LITTLE, _LOG_BIG) and size >= 512:
            _lay_over(copy, log, magic == _LOG_BIG, size, tuple(salts))
    if len(copy) >= 20 and copy[18] == 2:
        copy[18] = copy[19] = 1
    return bytes(copy)


def _lay_over(copy: bytearray, log: bytes, big: bool, size: int, salts: tuple[int, ...]) -> None:
    order = ">u4" if big else "<u4"

    def words(start: int, length: int) -> Uint32s:
        return np.frombuffer(log, order, length // 4, start).astype(np.uint32)

    sums = _checksum(words(0, 24), 0, 0)
    if tuple(sums) != struct.unpack(">2I", log[24:32]):
        return
    waiting: dict[int, int] = {}
    for at in range(_HEADER, len(log) - _FRAME - size + 1, _FRAME + size):
        page, pages, salt_1, salt_2, *given = struct.unpack(">6I", log[at : at + _FRAME])
        sums = _checksum(words(at + _FRAME, size), *_checksum(words(at, 8), *sums))
        if (salt_1, salt_2) != salts or tuple(given) != tuple(sums) or page == 0:
            return
        waiting[page] = at + _FRAME
        if pages:
            length = pages * size
            copy.extend(bytes(max(0, length - len(copy))))
            for number, start in waiting.items():
                copy[(number - 1) * size : number * size] = log[start : start + size]
            del copy[length:]
            waiting.clear()


@kernel
def _checksum(words: Uint32s, first: int, second: int) -> tuple[int, int]:
    """The two sums of section 4.2, continued over pairs of words."""
    s, t = np.uint32(first), np.uint32(second)
    for i in range(0, len(words), 2):
        s = np.uint32(s + words[i] + t)
        t = np.uint32(t + words[i + 1] + s)
    return int(s), int(t)
