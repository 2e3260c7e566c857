"""Gate for files of others: bounded sizes, ratios, nesting and time, and one sentence for whatever a library raises.

Collections, mailboxes and browsers' databases come from elsewhere. Whatever reads them opens files, unpacks archives,
parses JSON and asks SQLite through this module alone, so that a small file cannot cost much memory, disk or time, and
a damaged one ends in a `BadInput` that names the file and the place. Files that Quorank wrote are not read here.

Two limits can be raised by those who trust a file: QUORANK_UNPACKED_RATIO, how many times its own size a packed file
may hold (100; 256 MiB are always allowed), and QUORANK_UNPACKED_BYTES, how many bytes in all (16 GiB).
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole

if TYPE_CHECKING:
    import sqlite3
    import zipfile

RATIO_VARIABLE, BYTES_VARIABLE = "QUORANK_UNPACKED_RATIO", "QUORANK_UNPACKED_BYTES"
FREE = 1 << 28
"""Bytes that any file may unpack to, whatever its size."""
MOST_MEMBERS = 100_000
"""Members of an archive."""
MOST_LINE = 1 << 24
"""Bytes of a line of text that is parsed as a whole, such as a JSON record."""
MOST_SECONDS = 60.0
"""Time that a database of others may take to answer."""

_BLOCK, _PIECE = 1 << 20, 1 << 16  # bytes that are unpacked at once, and that are read for it
_MOST_NAME, _MOST_PATH = 255, 4096  # bytes that file systems take
_MOST_DIRECTORY = 1 << 24  # bytes of a zip file's list of members, which is read as a whole
_MOST_TAR_HEADER = 1 << 20  # bytes between two members of a tar file
_XZ_MEMORY = 1 << 28  # an xz file says itself how much memory unpacking takes, up to 4 GiB
_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")
_MOST_VALUE = 1 << 26  # bytes of a value, or a row, of a database
_STEPS = 20_000  # of SQLite's machine between two looks at the clock


@dataclass(frozen=True)
class UnpackLimits:
    """How much a packed file may hold: `most(size)` bytes for a file of so many."""

    unpacked: int = 16 << 30
    ratio: int = 100

    def most(self, size: int) -> int:
        """Return how many bytes a file of `size` bytes may be unpacked to."""
        return min(self.unpacked, max(FREE, self.ratio * size))


def limits_from_environment() -> UnpackLimits:
    """Return the limits, raised or lowered by QUORANK_UNPACKED_BYTES and QUORANK_UNPACKED_RATIO."""
    found = {}
    for field, variable in (("unpacked", BYTES_VARIABLE), ("ratio", RATIO_VARIABLE)):
        text = os.environ.get(variable, "").strip()
        if text:
            sound = text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= 1
            require(sound, "value.out-of-range", f"must be an integer from 1, got {excerpt(text)}", variable)
            found[field] = int(text)
    return UnpackLimits(**found)


def excerpt(text: object, most: int = 60) -> str:
    """Return the beginning of a foreign text on one line, quoted, with what does not print escaped."""
    found = str(text)
    shown = repr(found[:most])
    return f"{shown[:-1]}…{shown[-1]}" if len(found) > most else shown


def printable(text: str) -> str:
    """Return a foreign text for a terminal, which would obey control characters: they become question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def reason(error: BaseException) -> str:
    """Return what a library says of an error, on one line and not too long."""
    said = printable(" ".join(f"{error}".split()))
    return (said[:160] + "…" if len(said) > 160 else said) or type(error).__name__


@contextmanager
def sound(where: object, what: str) -> Iterator[None]:
    """Turn whatever a library raises over foreign content into `BadInput("file.damaged")`; `what` it should have been.

    Only calls of libraries stand in such a block: an error of our own would be taken for a damaged file.
    """
    try:
        yield
    except BadInput:
        raise
    except MemoryError:
        sentence = f"needs more memory than there is to be read as {what}"
        raise BadInput("file.too-large", sentence, f"{where}") from None
    except OSError as error:
        if error.errno is None:  # gzip, bz2 and zipfile raise OSError for damaged data too
            raise _damaged(where, what, error) from None
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", f"{where}") from None
    except Exception as error:
        raise _damaged(where, what, error) from None


def _damaged(where: object, what: str, error: BaseException) -> BadInput:
    return BadInput("file.damaged", f"is not {what} ({reason(error)}); fetch it again", f"{where}")


# ------------------------------------------------------------ files


def home_expanded(path: Path | str) -> Path:
    """Return a path with its ~ replaced; one of a person who is not here stays as it is, and leads nowhere."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def ordinary_size(path: Path, expected: str = "expected a file") -> int:
    """Return the size of an ordinary file; a folder, a pipe or a device, which might never end, is refused."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise BadInput("file.missing", f"does not exist; {expected}", f"{path}") from None
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = getattr(error, "strerror", None) or reason(error)
        raise BadInput("file.unreadable", f"cannot be read: {why}", f"{path}") from None
    kind = "is a folder" if stat.S_ISDIR(status.st_mode) else "is no ordinary file"
    require(stat.S_ISREG(status.st_mode), "file.unreadable", f"{kind}; {expected}", f"{path}")
    return status.st_size


class UnpackBudget:
    """Count of the bytes that were read of one packed file and of those that came out of it; too many are refused.

    The ratio is held at any moment, so that a small file costs no more than `FREE` bytes before it is refused.
    """

    def __init__(self, where: object, limits: UnpackLimits | None = None) -> None:
        self.where, self.packed, self.unpacked = where, 0, 0
        self.limits = limits or limits_from_environment()

    def take(self, count: int) -> None:
        """Count `count` more bytes that were read."""
        self.packed += count

    def spend(self, count: int) -> None:
        """Count `count` more bytes that came out."""
        self.unpacked += count
        if self.unpacked > self.limits.most(self.packed):
            whole = self.unpacked > self.limits.unpacked
            bound = f"{self.limits.unpacked:,} bytes" if whole else f"{self.limits.ratio} times its own bytes"
            variable = BYTES_VARIABLE if whole else RATIO_VARIABLE
            sentence = f"unpacks to more than {bound}; if you trust it, raise {variable}"
            raise BadInput("file.too-large", sentence, f"{self.where}")


class _UnpackedStream(io.RawIOBase):
    """Stream of what a packed file holds: unpacked as it is read, counted, and checked up to its end mark."""

    def __init__(self, file: IO[bytes], what: str, unpacker: Callable[[], Any], budget: UnpackBudget) -> None:
        super().__init__()
        self._file, self._what, self._new, self._budget = file, what, unpacker, budget
        self._unpacker, self._ahead = unpacker(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with sound(self._budget.where, f"sound {self._what} data"):
            content = self._next(len(buffer))
        buffer[: len(content)] = content
        self._budget.spend(len(content))
        return len(content)

    def _piece(self) -> bytes:
        piece = self._file.read(_PIECE)
        self._budget.take(len(piece))
        return piece

    def _next(self, most: int) -> bytes:
        while True:
            if self._unpacker.eof:  # another packed stream, or zeros that fill up a block, may follow
                rest = self._unpacker.unused_data or self._piece()
                while rest and not rest.strip(b"\0"):
                    rest = self._piece()
                if not rest:
                    return b""
                self._unpacker, self._ahead = self._new(), rest
            if not self._ahead and self._unpacker.needs_input:
                self._ahead = self._piece()
                if not self._ahead:
                    raise EOFError("it is cut off: the data ends before its end mark")
            given, self._ahead = self._ahead, b""
            content: bytes = self._unpacker.decompress(given, most)
            if content:
                return content

    def close(self) -> None:
        self._file.close()
        super().close()


class _Gunzip:
    """Unpacker of one gzip member with the methods of bz2's and lzma's."""

    def __init__(self) -> None:
        self._inner, self._full = zlib.decompressobj(wbits=31), False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not (self._full or self._inner.unconsumed_tail)

    def decompress(self, content: bytes, most: int) -> bytes:
        found = self._inner.decompress(self._inner.unconsumed_tail + content, most)
        self._full = len(found) == most  # there may be more of it without more input
        return found


def _unbzip() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _unxz() -> Any:
    import lzma

    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)


_PACKINGS: tuple[tuple[bytes, str, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", "gzip", _Gunzip),
    (b"BZh", "bzip2", _unbzip),
    (b"\xfd7zXZ\0", "xz", _unxz),
)


def packing_of(path: Path, expected: str = "expected a file") -> str | None:
    """Return how an ordinary file is packed (gzip, bzip2, xz), told by its first bytes; None for a plain one."""
    with open_plain(path, expected) as file, sound(path, "a readable file"):
        head = file.read(6)
    return next((name for magic, name, _ in _PACKINGS if head.startswith(magic)), None)


def open_plain(path: Path, expected: str = "expected a file") -> IO[bytes]:
    """Open an ordinary file as it lies there."""
    ordinary_size(path, expected)
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read: {error.strerror}", f"{path}") from None


def open_bounded(path: Path, limits: UnpackLimits | None = None, expected: str = "expected a file") -> IO[bytes]:
    """Open an ordinary file for reading, unpacked if it is gzip, bzip2 or xz data, within the limits."""
    name = packing_of(path, expected)
    file = open_plain(path, expected)
    unpacker = next((new for _, known, new in _PACKINGS if known == name), None)
    if unpacker is None or name is None:
        return file
    return io.BufferedReader(_UnpackedStream(file, name, unpacker, UnpackBudget(path, limits)), _BLOCK)


def read_bounded(
    path: Path, most: int | None = None, limits: UnpackLimits | None = None, expected: str = "expected a file"
) -> bytearray:
    """Return what a file holds, unpacked; more than `most` bytes are refused where that is given."""
    known = limits or limits_from_environment()
    bound = known.unpacked if most is None else most
    content = bytearray()
    with open_bounded(path, known, expected) as file, sound(path, "a readable file"):
        while block := file.read(_BLOCK):
            content += block
            hint = "" if most is not None else f"; if you trust it, raise {BYTES_VARIABLE}"
            require(len(content) <= bound, "file.too-large", f"holds more than {bound:,} bytes{hint}", f"{path}")
    return content


def read_ordinary(path: Path | str, most: int) -> bytes:
    """Return what an ordinary file of at most `most` bytes holds, as it lies there; nothing else is ever waited for."""
    return read_whole(path, most, code="file.unreadable")


def read_head(path: Path, count: int) -> bytes:
    """Return the first bytes of what a file holds, unpacked."""
    with open_bounded(path) as file, sound(path, "a readable file"):
        return file.read(count)


def bounded_lines(content: bytes | bytearray, where: object, most: int = MOST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each line; one that is too long to be parsed as a whole is refused."""
    at, number = 0, 0
    while at <= len(content):
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        number += 1
        sentence = f"this line has {end - at:,} bytes; expected at most {most:,}"
        require(end - at <= most, "file.line-too-long", sentence, f"{where}, line {number}")
        yield number, bytes(content[at:end])
        at = end + 1


def line_blocks(file: IO[bytes], where: object, size: int = 1 << 22, most: int = MOST_LINE) -> Iterator[bytes]:
    """Yield an open file in pieces of whole lines of about `size` bytes; a line that is too long is refused."""
    rest = b""
    while True:
        with sound(where, "a readable file"):
            piece = file.read(size)
        cut = piece.rfind(b"\n") + 1
        if cut or not piece:
            whole = rest + piece[:cut]
            rest = piece[cut:]
            if whole:
                yield whole
        else:
            rest += piece
        require(len(rest) <= most, "file.line-too-long", f"has a line of more than {most:,} bytes", f"{where}")
        if not piece:
            if rest:
                yield rest
            return


def numbered_lines(path: Path, expected: str, most: int = MOST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each line of a file, unpacked, without holding more of it than a piece."""
    number = 0
    with open_bounded(path, expected=expected) as file:
        for block in line_blocks(file, path, 1 << 20, most):
            for line in block.split(b"\n")[: -1 if block.endswith(b"\n") else None]:
                number += 1
                sentence = f"this line has {len(line):,} bytes; expected at most {most:,}"
                require(len(line) <= most, "file.line-too-long", sentence, f"{path}:{number}")
                yield number, line


# ------------------------------------------------------------ CSV

MOST_RECORD = 1 << 22
"""Bytes of a record of a CSV file; a quote that is never closed would take in all the rest of it."""


def csv_records(path: Path, expected: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a CSV file (UTF-8, RFC 4180) with the number of its first line, unpacked, piece by piece."""
    import csv

    taken = 0

    def texts() -> Iterator[str]:
        nonlocal taken
        for number, line in numbered_lines(path, expected, MOST_RECORD):
            taken += len(line)
            sentence = f"this record has more than {MOST_RECORD:,} bytes; is a quote left open?"
            require(taken <= MOST_RECORD, "csv.record-too-long", sentence, f"{path}:{number}")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"
            except UnicodeDecodeError:
                sentence = f"holds {excerpt(line)}; expected UTF-8 text"
                raise BadInput("csv.not-utf-8", sentence, f"{path}:{number}") from None

    reader = csv.reader(texts(), strict=True)
    first = 1
    while True:
        taken = 0
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise BadInput("csv.malformed", f"is no CSV record ({reason(error)})", f"{path}:{first}") from None
        if record is None:
            return
        if record:  # not a blank line
            yield first, record
        first = reader.line_num + 1


# ------------------------------------------------------------ Arrow


def arrow_batches(path: Path, columns: Callable[[Any], list[str]]) -> Iterator[Any]:
    """Yield the record batches of an Arrow file (Feather version 2), one at a time, with the columns that are asked for.

    `columns` gets the schema and returns their names. What a packed batch unpacks to is counted before it is unpacked.
    """
    import mmap

    import pyarrow as pa

    what = "an Arrow file"
    limits, size = limits_from_environment(), ordinary_size(path, f"expected {what}")
    with open_plain(path) as file, sound(path, what):
        require(file.read(6) == b"ARROW1", "file.damaged", f"is not {what} (Feather version 2)", f"{path}")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        source = pa.BufferReader(pa.py_buffer(mapped))
        source.seek(8)
        messages = pa.ipc.MessageReader.open_stream(source)
        first = messages.read_next_message()
        # the library takes any message for a schema, and dies of it
        require(first.type == "schema", "file.damaged", f"is not {what}: it does not begin with a schema", f"{path}")
        schema = pa.ipc.read_schema(first)
        names = set(schema.names)  # raises where one is no UTF-8
    require(len(names) == len(schema), "arrow.column-twice", "has two columns of one name", f"{path}")
    wanted = columns(schema)
    while True:
        with sound(path, what):
            try:
                message = messages.read_next_message()
            except StopIteration:
                return
            if message.type != "record batch":
                sentence = "holds a column of dictionary codes; expected plain columns"
                raise BadInput("arrow.unsupported", sentence, f"{path}")
            unpacked = _unpacked_size(message.metadata.to_pybytes(), message.body)
        sentence = f"holds a part that unpacks to {unpacked:,} bytes, far more than its size"
        hint = f"if you trust it, raise {RATIO_VARIABLE} or {BYTES_VARIABLE}"
        require(unpacked <= limits.most(size), "file.too-large", f"{sentence}; {hint}", f"{path}")
        with sound(path, what):
            batch = pa.ipc.read_record_batch(message, schema).select(wanted)
            batch.validate(full=True)
        yield batch


def _unpacked_size(metadata: bytes, body: Any) -> int:
    """Return what the buffers of a record batch unpack to, by what stands before each where they are packed.

    The message is a flatbuffer: tables whose first word leads back to a list of where each field stands.
    """

    def field(table: int, number: int) -> int:
        listed = table - int.from_bytes(metadata[table : table + 4], "little", signed=True)
        length = int.from_bytes(metadata[listed : listed + 2], "little")
        at = listed + 4 + 2 * number
        offset = int.from_bytes(metadata[at : at + 2], "little") if at + 2 <= listed + length else 0
        return table + offset if offset else 0

    def behind(at: int) -> int:
        return at + int.from_bytes(metadata[at : at + 4], "little")

    message = behind(0)
    batch = behind(field(message, 2))
    if not field(batch, 3):  # no compression
        return int(body.size)
    buffers = behind(field(batch, 2))
    total = 0
    for number in range(int.from_bytes(metadata[buffers : buffers + 4], "little")):
        place = buffers + 4 + 16 * number
        start, length = struct.unpack_from("<qq", metadata, place)
        if length > 0:
            claimed = int.from_bytes(body.slice(start, 8).to_pybytes(), "little", signed=True)
            total += max(length, claimed)
    return total


# ------------------------------------------------------------ archives


def member_path(name: str, archive: object) -> PurePosixPath:
    """Return the path of an archive's member below the folder that it is unpacked into; any other is refused."""
    path = PurePosixPath(name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0])
    sentence = f"holds {excerpt(name)}, which would land outside its folder; nothing was unpacked"
    require(not outside, "archive.unsafe-member", sentence, f"{archive}")
    sizes = [len(part.encode(errors="surrogateescape")) for part in path.parts]
    sentence = f"holds a member {excerpt(name)}, which is no name of a file; nothing was unpacked"
    named = path.parts and max(sizes) <= _MOST_NAME and sum(sizes) + len(sizes) <= _MOST_PATH
    named = named and not name.endswith(("/", "\\", "/.")) and not _CONTROL.search(name)
    require(named, "archive.unsafe-member", sentence, f"{archive}")
    return path


class _MemberStream(io.RawIOBase):
    """Stream of a member of an archive whose bytes are counted for the whole archive."""

    def __init__(self, inner: IO[bytes], budget: UnpackBudget, place: str) -> None:
        super().__init__()
        self._inner, self._budget, self._place = inner, budget, place

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with sound(self._place, "a sound member of its archive"):
            content = self._inner.read(len(buffer))
        buffer[: len(content)] = content
        self._budget.spend(len(content))
        return len(content)

    def close(self) -> None:
        with suppress(Exception):
            self._inner.close()
        super().close()


class ForeignZip:
    """Zip file of others: its members by name, each one once, stored or deflated, within the limits."""

    def __init__(self, path: Path, limits: UnpackLimits | None = None) -> None:
        import zipfile

        self.path = path
        self._budget, self._size = UnpackBudget(path, limits), ordinary_size(path)
        _check_directory(path)
        with sound(path, "a sound zip file"):
            self._zip = zipfile.ZipFile(path)
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            name = info.orig_filename  # `filename` ends at a NUL
            if not name.endswith("/"):
                sentence = f"holds {excerpt(name)} twice; expected each member once"
                require(name not in self.members, "archive.unsafe-member", sentence, f"{path}")
                self.members[name] = info

    def __enter__(self) -> ForeignZip:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def open(self, name: str) -> IO[bytes]:
        """Open a member, which must be an ordinary file."""
        info, place = self.members[name], f"{self.path}, member {excerpt(name)}"
        kind = info.external_attr >> 28  # the file type of a Unix mode; 0 where none is given
        sentence = f"holds {excerpt(name)}, which is not an ordinary file"
        require(kind in (0, 8), "archive.unsafe-member", sentence, f"{self.path}")
        sentence = f"holds {excerpt(name)}, which is under a password; expected a member that can be read"
        require(not info.flag_bits & 1, "archive.unsupported", sentence, f"{self.path}")
        # the others are unpacked by whole blocks, whose size nothing bounds
        sentence = f"holds {excerpt(name)}, packed by method {info.compress_type}; expected stored or deflated members"
        require(info.compress_type in (0, 8), "archive.unsupported", sentence, f"{self.path}")
        self._budget.take(min(info.compress_size, self._size - self._budget.packed))  # members may overlap
        with sound(place, "a sound member of its archive"):
            inner = self._zip.open(info)
        return io.BufferedReader(_MemberStream(inner, self._budget, place), _BLOCK)

    def read(self, name: str) -> bytes:
        """Return what a member holds."""
        with self.open(name) as file:
            return file.read()


def _check_directory(path: Path) -> None:
    """Refuse a zip file whose list of members is too long to be read as a whole, before it is."""
    with open_plain(path) as file, sound(path, "a sound zip file"):
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
    """Return whether an ordinary file begins like a zip file."""
    with open_plain(path) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def archive_members(path: Path, limits: UnpackLimits | None = None) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the path and content of each file of a .zip or .tar, the latter plain or packed by gzip, bzip2 or xz.

    No path leads outside the folder that it is unpacked into, none stands twice, and none is that of a folder of another;
    links, devices and whatever else is no ordinary file are refused.
    """
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for name, content in _zip_members(path, limits) if is_zip(path) else _tar_members(path, limits):
        with content:
            member = member_path(name, path)
            above = set(member.parents)
            clash = member in files or member in folders or bool(above & files)
            sentence = f"holds {excerpt(name)} twice, or as a file and as a folder; expected each member once"
            require(not clash, "archive.unsafe-member", sentence, f"{path}")
            require(len(files) < MOST_MEMBERS, "file.too-large", f"holds more than {MOST_MEMBERS:,} members", f"{path}")
            files.add(member)
            folders |= above
            yield member, content


def _zip_members(path: Path, limits: UnpackLimits | None) -> Iterator[tuple[str, IO[bytes]]]:
    with ForeignZip(path, limits) as packed:
        for name in packed.members:
            yield name, packed.open(name)


class _TarSource:
    """Content of a tar file, of which little may be read between two members: long names are read as a whole."""

    def __init__(self, inner: IO[bytes], path: Path) -> None:
        self._inner, self._path, self.left = inner, path, _MOST_TAR_HEADER

    def read(self, count: int) -> bytes:
        self.left -= count
        sentence = f"describes a member in more than {_MOST_TAR_HEADER:,} bytes"
        require(self.left >= 0, "file.too-large", sentence, f"{self._path}")
        return self._inner.read(count)


def _strict_header() -> Any:
    """Return the class of tar headers that refuses a damaged one, which tarfile takes for the end of the archive."""
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


def _tar_members(path: Path, limits: UnpackLimits | None) -> Iterator[tuple[str, IO[bytes]]]:
    import tarfile

    what = "a sound archive"
    known = limits or limits_from_environment()
    budget = UnpackBudget(path, known)
    budget.take(known.unpacked)  # what is packed around it is counted as it is unpacked, and members are no larger
    with open_bounded(path, known) as inner:
        source = _TarSource(inner, path)
        with sound(path, what):
            packed = tarfile.TarFile.open(fileobj=source, mode="r|", tarinfo=_strict_header())  # type: ignore[call-overload]
        with packed:
            while True:
                source.left = _MOST_TAR_HEADER
                with sound(path, what):
                    member = packed.next()
                    packed.members.clear()  # else each is kept, and all are looked through for a link
                if member is None:
                    break
                if member.isdir():
                    continue
                sentence = f"holds {excerpt(member.name)}, which is not an ordinary file"
                require(member.isreg() and not member.issparse(), "archive.unsafe-member", sentence, f"{path}")
                with sound(path, what):
                    content = packed.extractfile(member)
                assert content is not None
                source.left = sys.maxsize
                place = f"{path}, member {excerpt(member.name)}"
                yield member.name, io.BufferedReader(_MemberStream(content, budget, place), _BLOCK)
        with sound(path, what):  # to the end: a checksum may stand there, and a damaged header looks like an end
            while block := inner.read(_BLOCK):
                require(not block.strip(b"\0"), "file.damaged", "holds something behind its end mark", f"{path}")


# ------------------------------------------------------------ JSON


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text holds; ValueError for anything else and for numbers beyond a double.

    Lists and tables in each other are refused where Python's own limit of nesting is (about a thousand), whole numbers
    where its limit of digits is (4,300). What is parsed takes up to thirty times its text's memory: callers bound that.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError("it holds a number beyond the largest double")
    return value


# ------------------------------------------------------------ XML


class XmlReader:
    """Reader of XML that calls `begin(name)`, `end(name)` and `text(characters)` as it goes; `stop` ends it early.

    A document type, which is where entities that unfold and files of others would come from, is refused. At most
    `most` elements are read; names stand without the address of their namespace. `attributes` are those of the element
    that begins.
    """

    def __init__(self, where: object, most: int = 1_000_000) -> None:
        self.where, self.stop, self._left = where, False, most
        self.attributes: dict[str, str] = {}

    def begin(self, name: str) -> None:
        """Receive the beginning of an element."""

    def end(self, name: str) -> None:
        """Receive the end of an element."""

    def text(self, characters: str) -> None:
        """Receive characters between two of them."""

    def read(self, file: IO[bytes]) -> None:
        """Read a file up to its end, or until `stop` is set."""
        from xml.parsers import expat

        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = lambda name: self.end(name.rpartition(" ")[2])
        parser.CharacterDataHandler = self.text
        while not self.stop:
            with sound(self.where, "a readable file"):
                piece = file.read(_PIECE)
            with sound(self.where, "sound XML"):
                parser.Parse(piece, not piece)
            if not piece:
                break

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._left -= 1
        require(self._left >= 0, "file.too-large", "has more elements than any such document", f"{self.where}")
        self.attributes = attributes
        self.begin(name.rpartition(" ")[2])

    def _refuse(self, *_: object) -> None:
        sentence = "declares a document type, which no such document does"
        raise BadInput("file.damaged", sentence, f"{self.where}")


# ------------------------------------------------------------ databases


class ForeignDatabase:
    """SQLite database of others, in memory: only its own tables are read, and each question has a time limit.

    Views, triggers, virtual tables and functions in the schema could run for ever or touch other files: a question goes
    to ordinary tables alone, the schema is not trusted with functions, and the clock stops what takes too long.
    """

    def __init__(self, copy: Path, seconds: float = MOST_SECONDS) -> None:
        """Load a private copy of a database, whose log SQLite recovers there; sqlite3.Error where it cannot."""
        import sqlite3

        self._end, self._seconds = time.monotonic() + seconds, seconds
        self.connection = sqlite3.connect(":memory:")
        try:
            source = sqlite3.connect(copy)
            try:
                source.backup(self.connection)
            finally:
                source.close()
            self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE)
            self.connection.execute("PRAGMA trusted_schema = OFF")
            self.connection.execute("PRAGMA cell_size_check = ON")
            self.connection.execute("PRAGMA query_only = ON")
            self.connection.set_progress_handler(lambda: time.monotonic() > self._end, _STEPS)
            (found,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(" ".join(str(found).split()))
        except sqlite3.Error as error:
            self.connection.close()
            if time.monotonic() > self._end:
                raise self.refusal(error) from None
            raise
        except (ValueError, OverflowError, MemoryError) as error:  # names that are no text, as the module reads them
            self.connection.close()
            raise sqlite3.DatabaseError(reason(error)) from None

    def close(self) -> None:
        """Give the memory back."""
        self.connection.close()

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """Return the answer to a question; a damaged database and one that takes too long are refused."""
        import sqlite3

        try:
            return self.connection.execute(question).fetchall()
        except sqlite3.Error as error:
            raise self.refusal(error) from None
        except (MemoryError, OverflowError, ValueError) as error:
            raise BadInput("file.damaged", f"the database is damaged ({reason(error)})") from None

    def columns(self) -> dict[str, frozenset[str]]:
        """Return the columns of each ordinary table."""
        listed = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        found = {}
        for name, made in listed:
            plain = isinstance(made, str) and not made.lstrip().upper().startswith("CREATE VIRTUAL")
            if isinstance(name, str) and plain and name.replace("_", "").isalnum():
                found[name] = frozenset(str(row[1]) for row in self.rows(f'PRAGMA table_info("{name}")'))
        return found

    def refusal(self, error: sqlite3.Error) -> BadInput:
        """Return the sentence for an error of SQLite."""
        if time.monotonic() > self._end:
            sentence = f"the database takes longer than {self._seconds:g} s to be read; use another, or a backup of it"
            return BadInput("file.too-slow", sentence)
        return damaged_database(error)


def damaged_database(error: BaseException) -> BadInput:
    """Return the sentence for a database that SQLite cannot read."""
    return BadInput(
        "file.damaged", f"the database is damaged ({reason(error)}); let the browser repair it, or use a backup"
    )
