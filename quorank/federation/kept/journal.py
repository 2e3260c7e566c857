"""The journal of a round: every accepted reply, so that a coordinator that is killed loses none of them.

A record is its length, a checksum and a reply's bytes, and is on disk before the reply counts as accepted. A record
that broke off was not accepted, so it is left out when the journal is read. Waiting for the disk costs a hundred times what
checking a reply does, so records that came together are written together and waited for once.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from quorank.errors import require
from quorank.federation.wire import LARGEST
from quorank.files.atomic import sync_to_disk

_HEAD = struct.Struct("<I16s")


class Journal:
    """An append-only file of one round's replies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Sequence[bytes]) -> None:
        """All of the records are on disk when this returns; when it raises, the journal is as it was."""
        if not records:
            return
        new = not self.path.exists()
        with open(self.path, "ab", opener=_own) as file:
            end = file.tell()
            try:
                for record in records:
                    file.write(_HEAD.pack(len(record), _checksum(record)))
                    file.write(record)
                file.flush()
                os.fsync(file.fileno())
                if new:
                    sync_to_disk(self.path.parent)  # its name too
            except OSError:
                if new:
                    self.clear()  # so that its name is waited for the next time
                else:
                    os.ftruncate(file.fileno(), end)
                raise

    def read(self) -> Iterator[bytes]:
        """All whole records, one by one; what broke off behind them is cut from the file."""
        if not (self.path.exists() or self.path.is_symlink()):
            return
        sentence = "this is no ordinary file; restore it from a copy"
        require(self.path.is_file(), "file.damaged", sentence, str(self.path))
        at = 0
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                record = file.read(length) if length <= LARGEST else b""
                if len(record) < length or _checksum(record) != checksum:
                    break
                at += _HEAD.size + length
                yield record
        if at < self.path.stat().st_size:
            os.truncate(self.path, at)

    def clear(self) -> None:
        """The round is over."""
        self.path.unlink(missing_ok=True)


def _own(path: str, flags: int) -> int:
    """Open a file that is its owner's alone where it is new: replies are other people's."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)


def _checksum(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()
