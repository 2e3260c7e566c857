"""The replies of the open round on disk: what a coordinator accepted is still there after it was killed.

Every record is its length, a checksum and a reply's bytes, and is on disk before the reply counts as accepted. A record
that broke off was not accepted, so it is left out when the journal is read.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

from quorank.federation.wire import LARGEST

_HEAD = struct.Struct("<I16s")


class Journal:
    """An append-only file of one round's replies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: bytes) -> None:
        """The record is on disk when this returns; when it raises, the journal is as it was."""
        with self.path.open("ab") as file:
            end = file.tell()
            try:
                file.write(_HEAD.pack(len(record), _checksum(record)) + record)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise

    def read(self) -> list[bytes]:
        """All whole records; what broke off behind them is cut from the file."""
        if not self.path.exists():
            return []
        content, records, at = self.path.read_bytes(), [], 0
        while at + _HEAD.size <= len(content):
            length, checksum = _HEAD.unpack_from(content, at)
            record = content[at + _HEAD.size : at + _HEAD.size + length]
            if length > LARGEST or len(record) < length or _checksum(record) != checksum:
                break
            records.append(record)
            at += _HEAD.size + length
        if at < len(content):
            os.truncate(self.path, at)
        return records

    def clear(self) -> None:
        """The round is over."""
        self.path.unlink(missing_ok=True)


def _checksum(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()
