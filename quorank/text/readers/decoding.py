"""Decoding of text files for all readers: plain or gzipped, in UTF-8 or, where they are not, in Windows-1252."""

from __future__ import annotations

import gzip
import html
import re
import zlib
from pathlib import Path

from quorank.errors import BadInput

_TITLE_LINES = 4
_TITLE_END = re.compile(r"\s{2,}\S")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def is_gzipped(path: Path) -> bool:
    """Return whether a file begins like gzip data, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return what a file holds, unpacked if it is gzipped; with `limit`, its first bytes."""
    try:
        if is_gzipped(path):
            with gzip.open(path) as file:
                return file.read(limit)
        with path.open("rb") as plain:
            return plain.read(limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput("file.damaged", f"not a sound gzip file ({error}); fetch it again", f"{path}") from None
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror or error})", f"{path}") from None


def decode(content: bytes) -> str:
    """Decode UTF-8 if it is that, else Windows-1252; line ends become \\n."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    """Return the text of a plain or gzipped file."""
    return decode(read_bytes(path))


def line_of(text: str, place: int) -> int:
    """Return the number, from 1, of the line that holds a character."""
    return text.count("\n", 0, place) + 1


def bad_line(where: object, line: int, code: str, sentence: str) -> BadInput:
    """Return the error for a line of a file."""
    return BadInput(code, sentence, f"{where}, line {line}")


def strip_tags(text: str) -> str:
    """Replace SGML tags by spaces and entities by their characters."""
    return html.unescape(_TAG.sub(" ", text)).strip()


def leading_title(text: str) -> str:
    """Return what stands for the title of a text without one: its beginning up to an indented line or a double space.

    Where neither comes within the first four lines, it is the first line. MED and NPL write title and abstract so.
    """
    lines = [line.rstrip() for line in text.strip().split("\n", _TITLE_LINES)[:_TITLE_LINES]]
    beginning = "\n".join(lines)
    end = _TITLE_END.search(beginning)
    title = beginning[: end.start()] if end else lines[0]
    return " ".join(title.split())
