"""Interface of a source of documents.

A scan gets the fingerprint of each indexed key (`known`) and yields one item for each thing:

- `FoundDocument`: new, or changed since it was indexed;
- `UnchangedDocument`: its fingerprint is the known one, so it was not opened; or it cannot be read now (an unmounted
  disk, a locked database), and its indexed content stays;
- `SkippedDocument`: a line for the log of the source, with a stable code and a sentence. It does not mean that the
  document is gone: of a file whose content cannot be read the scan yields this line and then a `FoundDocument` without
  a body, so that it is found by its name and not opened again until it changes.

Indexed documents that a finished scan yields neither as found nor as unchanged are removed. A scan never stops at one
bad document.

A file name on a Unix disk is bytes. Python represents bytes that are not UTF-8 as lone surrogates, which neither a
database nor a page accepts. `stored_path` writes such a byte as one character of the private range U+F780 to U+F7FF,
and a character of that range in a name as the characters of its three bytes, so that every path has one string and
`opened_path` inverts it.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from quorank.errors import printable, require
from quorank.files.atomic import expand_home
from quorank.parts import to_table
from quorank.text.readers.decoding import decode

GROUP = "quorank.sources"  # group of entry points by which other packages add sources; the name of an entry is the kind
MOST_CHARACTERS = 1_000_000  # searched characters of a document's body
MOST_VISITS = 10  # number of visits of a page whose times are kept
_FIRST = 0xF780
_ESCAPED = re.compile("[\udc80-\udcff\uf780-\uf7ff]")
_STORED = re.compile("[\uf780-\uf7ff]+")


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """Document for the index; all its strings can be written as UTF-8 and contain no NUL."""

    key: str  # unique and stable within its source: relative path, mailbox and message, address
    fingerprint: str  # changes when the content may have changed
    path: str  # absolute path (as `stored_path` writes it) or address
    title: str
    name: str  # file name, or host and last part of an address; empty for mail
    body: str  # plain text, cut at a limit
    modified: float  # Unix seconds
    visits: tuple[float, ...] = ()  # times of visits, newest first, at most MOST_VISITS


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """Line for the log of a source about content that was not read, wholly or in part."""

    key: str
    code: str  # stable, such as "file.too-large" or "pdf.encrypted"
    sentence: str


@dataclass(frozen=True, slots=True)
class UnchangedDocument:
    """Document that is unchanged since it was indexed, or cannot be read now."""

    key: str


Scanned = FoundDocument | SkippedDocument | UnchangedDocument  # item of a scan


@dataclass(frozen=True)
class Source(ABC):
    """Source of documents: a part (`quorank.parts`) whose fields are its whole configuration.

    Subclasses are frozen dataclasses with a class variable `kind`, a `name` and a `scan`. With `watch_paths`, changes
    on the disk cause another scan.
    """

    kind: ClassVar[str]
    rest: ClassVar[float] = 2.0
    """Minimum interval between two scans caused by changes on the disk, seconds."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Displayed name of the source, which stays the same."""

    @abstractmethod
    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the current content; `known` has the fingerprint of each indexed key."""

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the files and folders whose changes cause another scan."""
        return ()

    def concerns(self, path: Path) -> bool:
        """Return whether a change of this path, which lies in one of `watch_paths()`, causes another scan."""
        return True

    def holds(self, path: Path) -> bool:
        """Return whether a file belongs to this source: with links resolved it lies in one of `watch_paths()`."""
        places = self.watch_paths()
        return not places or any(path.resolve().is_relative_to(place.resolve()) for place in places)

    def table(self) -> dict[str, Any]:
        """Return the table that is stored for this source; `SOURCES.read(table, where)` reads it."""
        return to_table(self)


@dataclass(frozen=True)
class PathSource(Source):
    """Source of a file or folder; its path is kept as `stored_path` writes it."""

    path: str

    def __post_init__(self) -> None:
        valid = self.path and "\0" not in self.path
        require(valid, "path.missing", "expected the path of a file or a folder", "path")
        try:
            self.path.encode()
        except UnicodeEncodeError:  # a system path
            object.__setattr__(self, "path", stored_path(self.path))

    @property
    def place(self) -> Path:
        """The absolute path, with ~ expanded and links kept."""
        return Path(os.path.abspath(expand_home(opened_path(self.path))))  # noqa: PTH100, which keeps links

    @property
    def name(self) -> str:
        """The path for display."""
        return shown_name(opened_path(self.path))

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the file or folder."""
        return (self.place,)


def sorted_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder in the order of their names."""
    with os.scandir(folder) as found:
        return sorted(found, key=attrgetter("name"))


def unchanged_below(known: Mapping[str, str], prefix: str = "") -> Iterator[UnchangedDocument]:
    """Yield as unchanged all known keys with this prefix, because they cannot be read now."""
    for key in known:
        if key.startswith(prefix):
            yield UnchangedDocument(key)


def plain_text(text: str) -> str:
    """Replace NUL by a space, and characters that UTF-8 cannot encode by a question mark."""
    text = text.replace("\0", " ")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def stored_path(path: str) -> str:
    r"""Return the storable string of a system path.

    >>> stored_path("caf\udce9.txt") == "caf\uf7e9.txt"
    True
    """
    return path if path.isascii() else _ESCAPED.sub(_escaped, path)


def opened_path(text: str) -> str:
    r"""Return the system path of a string made by `stored_path`.

    >>> opened_path(stored_path("caf\udce9 \uf7e9")) == "caf\udce9 \uf7e9"
    True
    """
    return text if text.isascii() else _STORED.sub(_unescaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(chr(_FIRST - 0x80 + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def _unescaped(found: re.Match[str]) -> str:
    return bytes(ord(letter) - _FIRST + 0x80 for letter in found[0]).decode("utf-8", "surrogateescape")


def shown_name(name: str) -> str:
    r"""Return a file name for display: Windows-1252 if it is not UTF-8, with control characters replaced.

    >>> shown_name("caf\udce9\n.txt")
    'café .txt'
    """
    return name if name.isprintable() else printable(decode(os.fsencode(name.replace("\r", "?"))))
