"""Text files as they come: plain or gzipped, in UTF-8 or, where they are not, in Windows-1252."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from quorank.errors import BadInput

_TITLE_LINES = 4
_TITLE_END = re.compile(r"\s{2,}\S")


def is_gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """What a file holds, unpacked if it is gzipped; with `limit`, its first bytes."""
    try:
        if is_gzipped(path):
            with gzip.open(path) as file:
                return file.read(limit)
        with path.open("rb") as plain:
            return plain.read(limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: not a sound gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None


def decode(content: bytes) -> str:
    """UTF-8 if it is that, else Windows-1252; line ends become \\n."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    return decode(read_bytes(path))


def line_of(text: str, place: int) -> int:
    """The number, from 1, of the line that holds a character."""
    return text.count("\n", 0, place) + 1


def leading_title(text: str) -> str:
    """What stands for the title of a text without one: its beginning up to an indented line or a double space.

    Where neither comes within the first four lines, it is the first line. MED and NPL write title and abstract so.
    """
    lines = [line.rstrip() for line in text.strip().split("\n", _TITLE_LINES)[:_TITLE_LINES]]
    beginning = "\n".join(lines)
    end = _TITLE_END.search(beginning)
    title = beginning[: end.start()] if end else lines[0]
    return " ".join(title.split())
