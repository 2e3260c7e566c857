"""Bounded reading of untrusted archives: zip and tar members within limits of size, number and path."""

from __future__ import annotations

import io
import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from quorank.errors import brief, require
from quorank.files.untrusted import (
    BLOCK,
    BoundedStream,
    UnpackBudget,
    UnpackLimits,
    file_size,
    open_bounded,
    open_plain,
    translate_errors,
)

if TYPE_CHECKING:
    import zipfile

MOST_MEMBERS = 100_000  # members of an archive
_MOST_NAME, _MOST_PATH = 255, 4096  # bytes of a name and of a path in file systems
_MOST_DIRECTORY = 1 << 24  # bytes of a zip file's central directory, which is read at once
_MOST_TAR_HEADER = 1 << 20  # bytes between two members of a tar file
_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")


def member_path(name: str, archive: object) -> PurePosixPath:
    """Return the path of a member below the unpacking directory; reject one that leads outside it."""
    path = PurePosixPath(name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0])
    sentence = f"holds {brief(name)}, which leads outside its folder; nothing was unpacked"
    require(not outside, "archive.unsafe-member", sentence, f"{archive}")
    sizes = [len(part.encode(errors="surrogateescape")) for part in path.parts]
    sentence = f"holds a member {brief(name)}, which is not a valid file name; nothing was unpacked"
    named = path.parts and max(sizes) <= _MOST_NAME and sum(sizes) + len(sizes) <= _MOST_PATH
    named = named and not name.endswith(("/", "\\", "/.")) and not _CONTROL.search(name)
    require(named, "archive.unsafe-member", sentence, f"{archive}")
    return path


def _member_stream(inner: IO[bytes], budget: UnpackBudget, name: str) -> IO[bytes]:
    """Return the content of a member, whose bytes count against the budget of the archive."""
    place = f"{budget.where}, member {brief(name)}"
    return io.BufferedReader(BoundedStream(inner, budget, place, "a sound member of its archive"), BLOCK)


class UntrustedZip:
    """Untrusted zip file: distinct members by name, stored or deflated, unpacked within the limits."""

    def __init__(self, path: Path, limits: UnpackLimits | None = None) -> None:
        import zipfile

        self.path = path
        self._budget, self._size = UnpackBudget(path, limits), file_size(path)
        _check_directory(path)
        with translate_errors(path, "a sound zip file"):
            self._zip = zipfile.ZipFile(path)
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            name = info.orig_filename  # `filename` ends at a NUL
            if not name.endswith("/"):
                sentence = f"holds {brief(name)} twice; expected each member once"
                require(name not in self.members, "archive.unsafe-member", sentence, f"{path}")
                self.members[name] = info

    def __enter__(self) -> UntrustedZip:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def open(self, name: str) -> IO[bytes]:
        """Open a member, which must be a regular file."""
        info = self.members[name]
        kind = info.external_attr >> 28  # the file type of a Unix mode; 0 where none is given
        sentence = f"holds {brief(name)}, which is not a regular file"
        require(kind in (0, 8), "archive.unsafe-member", sentence, f"{self.path}")
        sentence = f"holds {brief(name)}, which is encrypted; expected members without a password"
        require(not info.flag_bits & 1, "archive.unsupported", sentence, f"{self.path}")
        # other methods unpack whole blocks of unbounded size
        sentence = f"holds {brief(name)}, packed by method {info.compress_type}; expected stored or deflated members"
        require(info.compress_type in (0, 8), "archive.unsupported", sentence, f"{self.path}")
        self._budget.take(min(info.compress_size, self._size - self._budget.packed))  # members may overlap
        with translate_errors(f"{self.path}, member {brief(name)}", "a sound member of its archive"):
            inner = self._zip.open(info)
        return _member_stream(inner, self._budget, name)

    def read(self, name: str) -> bytes:
        """Return the content of a member."""
        with self.open(name) as file:
            return file.read()


def _check_directory(path: Path) -> None:
    """Reject a zip file with too long a central directory before reading it."""
    with open_plain(path) as file, translate_errors(path, "a sound zip file"):
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - 65_557 - 20)
        file.seek(start)
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        require(at >= 0 and at + 22 <= len(tail), "file.damaged", "is not a sound zip file; fetch it again", f"{path}")
        members, length = struct.unpack_from("<HI", tail, at + 10)
        if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
            (place,) = struct.unpack_from("<Q", tail, at - 12)
            file.seek(min(place, size))
            record = file.read(56)
            if record[:4] == b"PK\x06\x06" and len(record) == 56:
                members, length = struct.unpack_from("<QQ", record, 32)
    sentence = f"lists {members:,} members; expected at most {MOST_MEMBERS:,}"
    require(members <= MOST_MEMBERS and length <= _MOST_DIRECTORY, "file.too-large", sentence, f"{path}")


def is_zip(path: Path) -> bool:
    """Return whether a regular file begins like a zip file."""
    with open_plain(path) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def archive_members(path: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the path and content of each file of a .zip or .tar, the latter plain or packed by gzip, bzip2 or xz.

    Paths outside the unpacking directory, repeated paths, links and devices are rejected.
    """
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for name, content in _zip_members(path) if is_zip(path) else _tar_members(path):
        with content:
            member = member_path(name, path)
            above = set(member.parents)
            clash = member in files or member in folders or bool(above & files)
            sentence = f"holds {brief(name)} twice, or as a file and as a folder; expected each member once"
            require(not clash, "archive.unsafe-member", sentence, f"{path}")
            require(len(files) < MOST_MEMBERS, "file.too-large", f"holds more than {MOST_MEMBERS:,} members", f"{path}")
            files.add(member)
            folders |= above
            yield member, content


def _zip_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with UntrustedZip(path) as packed:
        for name in packed.members:
            yield name, packed.open(name)


class _TarSource:
    """Content of a tar file with a bound on the bytes between two members, since long names are read at once."""

    def __init__(self, inner: IO[bytes], path: Path) -> None:
        self._inner, self._path, self.left = inner, path, _MOST_TAR_HEADER

    def read(self, count: int) -> bytes:
        self.left -= count
        sentence = f"describes a member in more than {_MOST_TAR_HEADER:,} bytes"
        require(self.left >= 0, "file.too-large", sentence, f"{self._path}")
        return self._inner.read(count)


def _strict_header() -> Any:
    """Return a header class that raises on damage, which tarfile takes for the end of the archive."""
    import tarfile

    class StrictHeader(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> StrictHeader:
            try:
                return super().frombuf(buf, encoding, errors)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                raise
            except tarfile.HeaderError as error:
                raise tarfile.ReadError(str(error)) from None

    return StrictHeader


def _tar_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    import tarfile

    what, budget = "a sound archive", UnpackBudget(path)
    budget.take(budget.limits.unpacked)  # `open_bounded` enforces the ratio, and members are no larger than the archive
    with open_bounded(path) as inner:
        source = _TarSource(inner, path)
        with translate_errors(path, what):
            packed = tarfile.TarFile.open(fileobj=source, mode="r|", tarinfo=_strict_header())  # type: ignore[call-overload]
        with packed:
            while True:
                source.left = _MOST_TAR_HEADER
                with translate_errors(path, what):
                    member = packed.next()
                    packed.members.clear()  # tarfile would keep all of them and search them for links
                if member is None:
                    break
                if member.isdir():
                    continue
                sentence = f"holds {brief(member.name)}, which is not a regular file"
                require(member.isreg() and not member.issparse(), "archive.unsafe-member", sentence, f"{path}")
                with translate_errors(path, what):
                    content = packed.extractfile(member)
                assert content is not None
                source.left = sys.maxsize
                yield member.name, _member_stream(content, budget, member.name)
        with translate_errors(path, what):  # read to the end: a checksum may follow, and damage looks like an end
            while block := inner.read(BLOCK):
                require(not block.strip(b"\0"), "file.damaged", "holds data after its end mark", f"{path}")
