"""Bounded reading of untrusted files: size, unpacking ratio, line length, and one sentence for every library error.

Collections, mailboxes, browser databases and imports are opened through this module, `archives`, `arrow` and
`untrusted_database`. A small file therefore cannot cost much memory, disk or time, and a damaged one raises `BadInput` with
the file and the place.

Environment variables raise two limits for trusted files: QUORANK_UNPACKED_RATIO, unpacked bytes per packed byte (default
100; 256 MiB are always allowed), and QUORANK_UNPACKED_BYTES, unpacked bytes in all (default 16 GiB).
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from quorank.errors import BadInput, brief, first_line, require

RATIO_VARIABLE, BYTES_VARIABLE = "QUORANK_UNPACKED_RATIO", "QUORANK_UNPACKED_BYTES"
FREE = 1 << 28  # unpacked bytes allowed for any file
MOST_LINE = 1 << 24  # bytes of a line that is parsed at once, such as a JSON record
MOST_RECORD = 1 << 22  # bytes of a CSV record, since an unclosed quote extends it to the end of the file
BLOCK = 1 << 20  # bytes unpacked at once
_PIECE = 1 << 16  # packed bytes read at once
_XZ_MEMORY = 1 << 28  # bytes of memory for an xz file, which could demand 4 GiB


@dataclass(frozen=True)
class UnpackLimits:
    """Limits on the unpacked size of a packed file."""

    unpacked: int = 16 << 30
    ratio: int = 100

    def most(self, size: int) -> int:
        """Return the unpacked bytes allowed for a file of `size` packed bytes."""
        return min(self.unpacked, max(FREE, self.ratio * size))


def limits_from_environment() -> UnpackLimits:
    """Return the limits of QUORANK_UNPACKED_BYTES and QUORANK_UNPACKED_RATIO."""
    limits = {}
    for field, variable in (("unpacked", BYTES_VARIABLE), ("ratio", RATIO_VARIABLE)):
        text = os.environ.get(variable, "").strip()
        if text:
            valid = text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= 1
            require(valid, "value.out-of-range", f"must be an integer from 1, got {brief(text)}", variable)
            limits[field] = int(text)
    return UnpackLimits(**limits)


@contextmanager
def translate_errors(where: object, expected: str) -> Iterator[None]:
    """Turn any library error over untrusted content into `BadInput("file.damaged")`; `expected` names the format.

    The block holds library calls only, since a bug in our code would be reported as a damaged file.
    """
    try:
        yield
    except BadInput:
        raise
    except MemoryError:
        sentence = f"needs more memory than available to be read as {expected}"
        raise BadInput("file.too-large", sentence, f"{where}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # gzip, bz2 and zipfile raise it without for damage
            raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", f"{where}") from None
        sentence = f"is not {expected} ({first_line(error)}); fetch it again"
        raise BadInput("file.damaged", sentence, f"{where}") from None


def file_size(path: Path, expected: str = "expected a file") -> int:
    """Return the size of a regular file; reject directories, pipes and devices."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise BadInput("file.missing", f"does not exist; {expected}", f"{path}") from None
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = getattr(error, "strerror", None) or first_line(error)
        raise BadInput("file.unreadable", f"cannot be read: {why}", f"{path}") from None
    kind = "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
    require(stat.S_ISREG(status.st_mode), "file.unreadable", f"{kind}; {expected}", f"{path}")
    return status.st_size


# ------------------------------------------------------------ unpacking


class UnpackBudget:
    """Counter of packed and unpacked bytes of one file, which enforces the limits while the file is read."""

    def __init__(self, where: object, limits: UnpackLimits | None = None) -> None:
        self.where, self.packed, self.unpacked = where, 0, 0
        self.limits = limits or limits_from_environment()

    def take(self, count: int) -> None:
        """Count packed bytes."""
        self.packed += count

    def spend(self, count: int) -> None:
        """Count unpacked bytes; raise `file.too-large` above the limits."""
        self.unpacked += count
        if self.unpacked > self.limits.most(self.packed):
            whole = self.unpacked > self.limits.unpacked
            bound = f"{self.limits.unpacked:,} bytes" if whole else f"{self.limits.ratio} times its own bytes"
            variable = BYTES_VARIABLE if whole else RATIO_VARIABLE
            sentence = f"unpacks to more than {bound}; if you trust it, raise {variable}"
            raise BadInput("file.too-large", sentence, f"{self.where}")


class BoundedStream(io.RawIOBase):
    """Content that counts against a budget while it is read; `expected` names its format for errors."""

    def __init__(self, inner: Any, budget: UnpackBudget, where: object, expected: str) -> None:
        super().__init__()
        self._inner, self._budget, self._where, self._expected = inner, budget, where, expected

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with translate_errors(self._where, self._expected):
            content = self._inner.read(len(buffer))
        buffer[: len(content)] = content
        self._budget.spend(len(content))
        return len(content)

    def close(self) -> None:
        with suppress(Exception):
            self._inner.close()
        super().close()


class _Unpacked:
    """Unpacked content of a packed file, checked up to its end mark."""

    def __init__(self, file: IO[bytes], packing: str, budget: UnpackBudget) -> None:
        self._file, self._packing, self._budget, self.close = file, packing, budget, file.close
        self._unpacker, self._ahead = _unpacker(packing), b""

    def _piece(self) -> bytes:
        piece = self._file.read(_PIECE)
        self._budget.take(len(piece))
        return piece

    def read(self, most: int) -> bytes:
        while True:
            if self._unpacker.eof:  # another packed stream or padding with zeros may follow
                rest = self._unpacker.unused_data or self._piece()
                while rest and not rest.strip(b"\0"):
                    rest = self._piece()
                if not rest:
                    return b""
                self._unpacker, self._ahead = _unpacker(self._packing), rest
            if not self._ahead and self._unpacker.needs_input:
                self._ahead = self._piece()
                if not self._ahead:
                    raise EOFError("it is cut off before its end mark")
            packed, self._ahead = self._ahead, b""
            content: bytes = self._unpacker.decompress(packed, most)
            if content:
                return content


class _GzipDecompressor:
    """Decompressor of one gzip member with the interface of bz2's and lzma's."""

    def __init__(self) -> None:
        self._inner, self.needs_input = zlib.decompressobj(wbits=31), True

    def __getattr__(self, name: str) -> Any:  # eof, unused_data
        return getattr(self._inner, name)

    def decompress(self, content: bytes, most: int) -> bytes:
        unpacked = self._inner.decompress(self._inner.unconsumed_tail + content, most)
        # there may be more of a full block without more input
        self.needs_input = len(unpacked) < most and not self._inner.unconsumed_tail
        return unpacked


_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}


def _unpacker(packing: str) -> Any:
    import bz2
    import lzma

    if packing == "xz":
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    return bz2.BZ2Decompressor() if packing == "bzip2" else _GzipDecompressor()


def packing_of(path: Path, expected: str = "expected a file") -> str | None:
    """Return gzip, bzip2 or xz by a file's first bytes; None for a plain file."""
    with open_plain(path, expected) as file, translate_errors(path, "a readable file"):
        head = file.read(6)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def open_plain(path: Path, expected: str = "expected a file") -> IO[bytes]:
    """Open a regular file without unpacking it."""
    file_size(path, expected)
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read: {error.strerror}", f"{path}") from None


def open_bounded(path: Path, expected: str = "expected a file") -> IO[bytes]:
    """Open a regular file, unpacked within the limits if it is gzip, bzip2 or xz data."""
    packing = packing_of(path, expected)
    file = open_plain(path, expected)
    if packing is None:
        return file
    budget = UnpackBudget(path)
    stream = BoundedStream(_Unpacked(file, packing, budget), budget, path, f"sound {packing} data")
    return io.BufferedReader(stream, BLOCK)


def read_bounded(path: Path, most: int | None = None, expected: str = "expected a file") -> bytearray:
    """Return the unpacked content of a file of at most `most` bytes."""
    bound = limits_from_environment().unpacked if most is None else most
    hint = "" if most is not None else f"; if you trust it, raise {BYTES_VARIABLE}"
    content = bytearray()
    with open_bounded(path, expected) as file, translate_errors(path, "a readable file"):
        while block := file.read(BLOCK):
            content += block
            require(len(content) <= bound, "file.too-large", f"holds more than {bound:,} bytes{hint}", f"{path}")
    return content


def read_head(path: Path, count: int) -> bytes:
    """Return the first bytes of a file's unpacked content."""
    with open_bounded(path) as file, translate_errors(path, "a readable file"):
        return file.read(count)


# ------------------------------------------------------------ lines and records


def line_blocks(file: IO[bytes], where: object, size: int) -> Iterator[memoryview]:
    """Yield an open file in blocks of whole lines of about `size` bytes; lines above `MOST_LINE` bytes are rejected."""
    rest = memoryview(b"")
    while True:
        block = bytearray(len(rest) + size)
        text = memoryview(block)
        text[: len(rest)] = rest
        with translate_errors(where, "a readable file"):
            read: int = file.readinto(text[len(rest) :])  # type: ignore[attr-defined]
        end = len(rest) + read
        cut = block.rfind(b"\n", 0, end) + 1 if read else end
        if cut:
            yield text[:cut]
        if not read:
            return
        rest = text[cut:end]
        sentence = f"has a line of more than {MOST_LINE:,} bytes"
        require(len(rest) <= MOST_LINE, "file.line-too-long", sentence, f"{where}")


def numbered_lines(
    source: Path | bytes | bytearray, where: object, most: int = MOST_LINE, expected: str = "expected a file"
) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each line of a file, unpacked, or of bytes; longer lines are rejected."""
    file = open_bounded(source, expected) if isinstance(source, Path) else io.BytesIO(source)
    with file, translate_errors(where, "a readable file"):
        for number, ended in enumerate(iter(lambda: file.readline(most + 2), b""), 1):
            line = ended.removesuffix(b"\n")
            sentence = f"this line has more than {most:,} bytes, the limit"
            require(len(line) <= most, "file.line-too-long", sentence, f"{where}, line {number}")
            yield number, line


def csv_records(path: Path, expected: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the fields of each record of a CSV file (UTF-8, RFC 4180), unpacked."""
    import csv

    taken = 0

    def decoded_lines() -> Iterator[str]:
        nonlocal taken
        for number, line in numbered_lines(path, path, MOST_RECORD, expected):
            taken += len(line)
            sentence = f"this record has more than {MOST_RECORD:,} bytes; is a quote left open?"
            require(taken <= MOST_RECORD, "csv.record-too-long", sentence, f"{path}:{number}")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"
            except UnicodeDecodeError:
                sentence = f"holds {brief(line)}; expected UTF-8 text"
                raise BadInput("csv.not-utf-8", sentence, f"{path}:{number}") from None

    reader = csv.reader(decoded_lines(), strict=True)
    first = 1
    while True:
        taken = 0
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise BadInput("csv.malformed", f"is not a CSV record ({first_line(error)})", f"{path}:{first}") from None
        if record is None:
            return
        if record:  # not a blank line
            yield first, record
        first = reader.line_num + 1


# ------------------------------------------------------------ XML


def xml_events(file: IO[bytes], where: object, most: int = 1_000_000) -> Iterator[tuple[str, str, Any]]:
    """Yield ("start" or "end", name without namespace, element) for each of at most `most` elements of an XML file.

    Document types are rejected, since they declare expanding entities and references to other files. The text of an element
    is complete at its end, after which its content is freed.
    """
    from defusedxml.ElementTree import iterparse

    events = iter(iterparse(file, events=("start", "end"), forbid_dtd=True))
    left = most
    while True:
        with translate_errors(where, "sound XML"):
            event, element = next(events, ("", None))
        if element is None:
            return
        left -= event == "start"
        require(left >= 0, "file.too-large", f"has more than {most:,} elements", f"{where}")
        yield event, element.tag.rpartition("}")[2], element
        if event == "end":
            element.clear()
