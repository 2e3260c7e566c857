"""Storage of a coordinator: its checkpoint, and a journal of the accepted replies of the open round.

A journal record is its length, a checksum and the reply's bytes, and is on disk before the reply counts as accepted. A
truncated record was not accepted and is dropped when the journal is read. Synchronising the disk costs a hundred times
more than checking a reply, so replies received together share one synchronisation.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from quorank.errors import require
from quorank.federation.checkpoint import CoordinatorCheckpoint
from quorank.federation.reply import LARGEST_MESSAGE, Reply, encode_reply
from quorank.files.atomic import sync_to_disk, write_whole

CHECKPOINT, JOURNAL, BEGUN = "coordinator.state", "coordinator.journal", "secure.round"
"""Files of a storage directory: checkpoint, replies accepted since, and the last secure round that began."""

_HEAD = struct.Struct("<I16s")


class RoundStorage(Protocol):
    """Durable storage of one run. A call that raises OSError has changed nothing."""

    @property
    def where(self) -> str:
        """Name of the storage in error messages."""

    def load(self) -> CoordinatorCheckpoint | None:
        """Return the last checkpoint."""

    def accepted(self) -> Iterable[bytes]:
        """Return the replies accepted since the checkpoint, unless the sender hands them in again."""

    def append(self, replies: Sequence[Reply]) -> None:
        """Store replies before they count."""

    def save(self, saved: CoordinatorCheckpoint) -> None:
        """Replace the checkpoint and drop the replies of its rounds."""

    def clear(self) -> None:
        """Drop replies of a round that is over."""

    def begin(self, round_: int) -> bool:
        """Record that a secure round begins; return False if it had begun before."""


class DirectoryStorage:
    """CoordinatorCheckpoint and journal in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        """Path of the checkpoint."""
        return f"{self.folder / CHECKPOINT}"

    @property
    def _journal(self) -> Journal:
        return Journal(self.folder / JOURNAL)

    def load(self) -> CoordinatorCheckpoint | None:
        """Return the last checkpoint, if there is one."""
        path = self.folder / CHECKPOINT
        return CoordinatorCheckpoint.read(path) if path.is_file() else None

    def accepted(self) -> Iterable[bytes]:
        """Return the journaled replies."""
        return self._journal.read()

    def append(self, replies: Sequence[Reply]) -> None:
        """Journal replies."""
        self._journal.append([encode_reply(reply) for reply in replies])

    def save(self, saved: CoordinatorCheckpoint) -> None:
        """Replace the checkpoint, then clear the journal of the round before."""
        saved.write(self.folder / CHECKPOINT)
        self.clear()

    def clear(self) -> None:
        """Clear the journal."""
        self._journal.clear()

    def begin(self, round_: int) -> bool:
        """Record that a secure round begins; return False if it had begun before."""
        path, number = self.folder / BEGUN, str(round_)
        if path.is_file() and path.read_text() == number:
            return False
        write_whole(path, number, durable=True)
        return True


class Journal:
    """Append-only file of one round's replies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Sequence[bytes]) -> None:
        """Append records durably; on an OSError the journal is unchanged."""
        if not records:
            return
        new = not self.path.exists()
        with open(self.path, "ab", opener=_open_private) as file:
            end = file.tell()
            try:
                for record in records:
                    file.write(_HEAD.pack(len(record), _checksum(record)))
                    file.write(record)
                file.flush()
                os.fsync(file.fileno())
                if new:
                    sync_to_disk(self.path.parent)  # the directory entry too
            except OSError:
                if new:
                    self.clear()  # so that the next append synchronises the directory entry
                else:
                    os.ftruncate(file.fileno(), end)
                raise

    def read(self) -> Iterator[bytes]:
        """Yield all complete records, then cut a truncated one from the file."""
        if not (self.path.exists() or self.path.is_symlink()):
            return
        sentence = "this is no ordinary file; restore it from a copy"
        require(self.path.is_file(), "file.damaged", sentence, str(self.path))
        at = 0
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                record = file.read(length) if length <= LARGEST_MESSAGE else b""
                if len(record) < length or _checksum(record) != checksum:
                    break
                at += _HEAD.size + length
                yield record
        if at < self.path.stat().st_size:
            os.truncate(self.path, at)

    def clear(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: replies are other people's."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)


def _checksum(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()
