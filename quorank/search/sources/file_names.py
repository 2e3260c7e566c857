r"""File names of every encoding as strings that can be stored and shown.

A name on a Unix disk is bytes. Python represents bytes that are not UTF-8 as lone surrogates, which neither a database
nor a page accepts. `stored_path` writes such a byte as one character of the private range U+F780 to U+F7FF, and a
character of that range in a name as the characters of its three bytes, so that every path has one string and
`opened_path` inverts it. `shown_name` is for display: a name that is not UTF-8 is read as Windows-1252, and control
characters are replaced.

>>> stored_path("caf\udce9.txt") == "caf\uf7e9.txt"
True
>>> opened_path(stored_path("caf\udce9 \uf7e9")) == "caf\udce9 \uf7e9"
True
>>> shown_name("caf\udce9\n.txt")
'café .txt'
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from quorank.errors import printable
from quorank.files.atomic import expand_home
from quorank.text.readers.decoding import decode

_FIRST = 0xF780
_ESCAPED = re.compile("[\udc80-\udcff\uf780-\uf7ff]")
_STORED = re.compile("[\uf780-\uf7ff]+")


def stored_path(path: str) -> str:
    """Return the storable string of a system path."""
    return path if path.isascii() or not _ESCAPED.search(path) else _ESCAPED.sub(_escaped, path)


def opened_path(text: str) -> str:
    """Return the system path of a string made by `stored_path`."""
    return text if text.isascii() else _STORED.sub(_unescaped, text)


def shown_name(name: str) -> str:
    """Return a file name for display."""
    if name.isprintable():
        return name
    return printable(decode(os.fsencode(name.replace("\r", "?"))))


def absolute_path(text: str) -> Path:
    """Return the absolute path of a string made by `stored_path`, with ~ expanded and links kept."""
    return Path(os.path.abspath(expand_home(opened_path(text))))  # noqa: PTH100, which keeps links


def _escaped(found: re.Match[str]) -> str:
    return "".join(chr(_FIRST - 0x80 + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def _unescaped(found: re.Match[str]) -> str:
    return bytes(ord(letter) - _FIRST + 0x80 for letter in found[0]).decode("utf-8", "surrogateescape")
