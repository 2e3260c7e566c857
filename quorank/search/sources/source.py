"""Interface of a source: where a person's documents come from, and what a scan of it says of each of them.

A scan is told what the index holds (`known`, the fingerprint of each key) and yields one value for each thing:

- `FoundDocument`: new, or changed since it was indexed;
- `UnchangedDocument`: its fingerprint is the known one, so that it was not opened; or it cannot be looked at now (an
  unmounted disk, a locked database), and what is indexed of it stays;
- `SkippedDocument`: a line for the log of the source, with a stable code and a sentence. It says nothing of whether the
  document is there: of a file whose content cannot be read the scan yields this line and then a `FoundDocument` without a
  body, so that it is found by its name and not opened again until it changes.

What a finished scan yielded neither as found nor as unchanged is gone. A scan never stops at one bad document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from quorank.parts import to_table

GROUP = "quorank.sources"
"""The group of entry points that other packages add sources through; an entry's name is the kind."""
MOST_CHARACTERS = 1_000_000
"""Characters of a document's body that are searched, unless a source says otherwise."""
MOST_VISITS = 10
"""Visits of a page whose times are kept."""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document as the index takes it; all its texts can be written as UTF-8 and hold no NUL."""

    key: str  # unique and stable within its source: relative path, mailbox and message, address
    fingerprint: str  # changes when the content may have changed
    path: str  # what opens it: absolute path (`file_names.opened_path`) or address
    title: str
    name: str  # file name, or host and last part of an address; empty for mail
    body: str  # plain text, cut at a limit
    modified: float  # Unix seconds
    visits: tuple[float, ...] = ()  # times of visits, newest first, at most MOST_VISITS
    visit_count: int = 0


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A line for the log of a source: what was not read, wholly or in part, and why."""

    key: str
    code: str  # stable, such as "file.too-large" or "pdf.encrypted"
    sentence: str


@dataclass(frozen=True, slots=True)
class UnchangedDocument:
    """A document that is as it was indexed, or cannot be looked at now."""

    key: str


Scanned = FoundDocument | SkippedDocument | UnchangedDocument
"""What a scan yields."""


@dataclass(frozen=True)
class Source(ABC):
    """Where documents come from: a part (quorank/parts.py), whose fields say all that there is to know of it."""

    kind: ClassVar[str]
    rest: ClassVar[float] = 2.0
    """Seconds that lie at least between two scans that a change on the disk asks for."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source for people, which stays the same."""

    @abstractmethod
    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield what is there now; `known` has the fingerprint of each indexed key."""

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the files and folders whose changes ask for another scan."""
        return ()

    def concerns(self, path: Path) -> bool:
        """Return whether a change of this path, which lies in one of `watch_paths()`, asks for another scan."""
        return True

    def holds(self, path: Path) -> bool:
        """Return whether a file may be opened as one of this source: links followed, it lies where the source looks."""
        places = self.watch_paths()
        return not places or any(path.resolve().is_relative_to(place.resolve()) for place in places)

    def table(self) -> dict[str, Any]:
        """Return the table that is stored for this source; `SOURCES.read(table, where)` gives it back."""
        return to_table(self)


def unchanged_below(known: Mapping[str, str], prefix: str = "") -> Iterator[UnchangedDocument]:
    """Yield as unchanged whatever is known under keys with this prefix, because it cannot be looked at now."""
    for key in known:
        if key.startswith(prefix):
            yield UnchangedDocument(key)


def plain_text(text: str) -> str:
    """Return a text that can be written as UTF-8 and holds no NUL; what cannot be written becomes a question mark."""
    if "\0" in text:
        text = text.replace("\0", " ")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
