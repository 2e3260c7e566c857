"""Documents for the search index, an index of them, and what it must find, worked out the slow way."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from zlib import crc32

import numpy as np

from quorank.search.index import SearchIndex, UpdateReport
from quorank.search.index.postings import ROW
from quorank.search.sources.source import FoundDocument
from quorank.text import Document, IndexedDocuments, Tokeniser

TOKENISER = Tokeniser.for_language("english")


def thing(key: str, body: str = "", *, title: str = "", name: str = "", modified: float = 0.0, **more) -> FoundDocument:
    """A document whose fingerprint is its content."""
    fingerprint = f"{crc32(repr((body, title, name, modified)).encode())}"
    return FoundDocument(key, fingerprint, f"/people/person/{key}", title, name or key, body, modified, **more)


def made_up_things(count: int, words: int = 300, seed: int = 1) -> list[FoundDocument]:
    """Documents of inflected words by Zipf's law; every fifth body begins with its title, some have no body."""
    random = np.random.default_rng(seed)
    endings = ("", "s", "ing", "ed")
    share = 1.0 / np.arange(1, words + 1)
    share /= share.sum()

    def drawn(size: int) -> list[str]:
        pairs = zip(random.choice(words, size=size, p=share), random.integers(4, size=size), strict=True)
        return [f"w{chr(97 + word % 26)}{word}{chr(97 + word % 7)}{endings[ending]}" for word, ending in pairs]

    things = []
    for number in range(count):
        text = drawn(int(random.integers(0, 60)))
        title = " ".join(text[:3] if number % 5 == 0 else drawn(int(random.integers(0, 4))))
        name = f"{'-'.join(drawn(2))}.{('txt', 'pdf', 'md')[number % 3]}"
        body = f"The {' and '.join(text)}." if number % 5 else " ".join(text)
        things.append(thing(f"{number}/{name}", body, title=title, name=name, modified=float(random.integers(0, 50))))
    return things


def fill(index: SearchIndex, things: Iterable[FoundDocument], source: int = 0) -> UpdateReport:
    """Bring a source, by default the one of all tests, to these documents."""
    return index.update(source or index.add_source({"kind": "folder", "path": "/people/person"}), things)


def ids_of(index: SearchIndex, keys: Iterable[str], source: int = 1) -> list[int]:
    """The ids of documents by their keys."""
    return [label[0] for key in keys if (label := index.label(source, key))]


@contextmanager
def indexed(folder: Path, things: Iterable[FoundDocument]) -> Iterator[SearchIndex]:
    """An index of these documents."""
    with SearchIndex.open(folder) as index:
        fill(index, things)
        yield index


def faults(index: SearchIndex) -> list[str]:
    """What is wrong in the tables of an index."""
    found: list[str] = []
    with closing(sqlite3.connect(index.path)) as database:
        rows = lambda query: database.execute(query).fetchall()  # noqa: E731
        found += [said for (said,) in rows("PRAGMA integrity_check") if said != "ok"]
        rows("INSERT INTO words (words) VALUES ('integrity-check')")  # raises
        dead = {version for (version,) in rows("SELECT version FROM dead")}
        table = np.concatenate(
            [np.zeros(0, ROW), *(np.frombuffer(content, ROW) for (content,) in rows("SELECT rows FROM segments"))]
        )
        living = [(id_, version) for id_, version in table[["id", "version"]].tolist() if version not in dead]
        if sorted(living) != sorted(rows("SELECT id, version FROM documents")):
            found.append("segments and documents differ")
        if sorted(rows("SELECT id FROM texts")) != sorted(rows("SELECT id FROM documents")):
            found.append("texts and documents differ")
    return found


def counted(things: Sequence[FoundDocument]) -> IndexedDocuments:
    """The same documents in the index of quorank.text."""
    return IndexedDocuments.build([Document(t.key, t.title, t.body) for t in things], TOKENISER, whole=True)
