"""Index of a person's documents in one SQLite file: opening, finding, updating from sources, forgetting.

A batch of documents is one transaction over all tables (`writing.py`): a killed process leaves the index as it was
before or after a batch. A scan that did not finish removes nothing, and the next one continues, with the indexed
documents unchanged. Commits do not wait for the disk (synchronous = NORMAL): after a power cut the last batches may be
missing and are read again. Forgetting does wait.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.files.documents import parse_json
from quorank.files.private_database import PrivateDatabase
from quorank.search.home import SearchHome
from quorank.search.index.candidates import CandidateSearch, SearchCandidates
from quorank.search.index.postings import TermHash
from quorank.search.index.query import SearchQuery
from quorank.search.index.reading import SegmentReader
from quorank.search.index.snippets import SnippetPiece, make_snippet
from quorank.search.index.writing import INDEX, IndexWriter
from quorank.search.sources.source import FoundDocument, Scanned, SkippedDocument, UnchangedDocument, plain_text
from quorank.text.tokens import Tokeniser

FILE = "index.sqlite"
BATCH_DOCUMENTS, BATCH_CHARACTERS, BATCH_SECONDS = 2000, 1 << 22, 2.0
"""Documents, characters, and waiting seconds of its first document at which a batch is written."""
MOST_SKIPPED = 10_000  # maximum number of lines in the log of a source; the oldest are dropped
_READER = ("cache_size = -16000", "temp_store = MEMORY", "query_only = ON")
_WRITER = (
    "synchronous = NORMAL", "cache_size = -32000", "temp_store = MEMORY", "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
)  # fmt: skip


@dataclass
class UpdateReport:
    """Counts of documents of one update; `finished` is false after a stop."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    skipped: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    finished: bool = True


@dataclass(frozen=True)
class StoredSource:
    """Stored source; `table` is its configuration."""

    id: int
    kind: str
    name: str
    table: Mapping[str, Any]
    documents: int
    updated: float | None  # end of the last scan that finished, Unix seconds


class SearchIndex(AbstractContextManager["SearchIndex"]):
    """Index of the documents of a person's sources. One process writes at a time; others search meanwhile."""

    def __init__(self, home: SearchHome) -> None:
        self.home, self.path = home, home.folder / FILE
        self.tokeniser = Tokeniser.for_language(home.settings().language)
        self._mutex = RLock()
        if not self.path.exists() or self.path.stat().st_size == 0:
            with home.writing():
                PrivateDatabase(self.path, INDEX).close()
        self._database = PrivateDatabase(self.path, INDEX)
        for pragma in _READER:
            self._database.rows(f"PRAGMA {pragma}")

    @classmethod
    def open(cls, folder: Path | str | None = None) -> SearchIndex:
        """Open the index of a search folder, or create an empty one in the language of the folder's settings."""
        return cls(SearchHome.open(folder))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        with self._mutex:
            self._database.close()

    # searching

    @cached_property
    def _hash(self) -> TermHash:
        return TermHash(self._database.rows("SELECT value FROM facts WHERE name = 'key'")[0][0])

    @cached_property
    def _reader(self) -> SegmentReader:
        return SegmentReader(self._database.rows, self.tokeniser, self._hash)

    def find(self, query: SearchQuery, limit: int = 200) -> SearchCandidates:
        """Return the first candidates of a query by (band, BM25, newest, id), with their features."""
        with self.reading():
            return CandidateSearch(self._reader, query).run(limit)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one state of the database inside the block."""
        with self._mutex:
            if self._database.database.in_transaction:
                yield
                return
            self._database.rows("BEGIN")
            try:
                yield
            finally:
                self._database.rows("COMMIT")

    def snippet(self, id_: int, query: SearchQuery) -> tuple[SnippetPiece, ...]:
        """Return the part of a document with most terms of a query, with the matching words marked."""
        return make_snippet(self.document(id_)[1].body, query, self.tokeniser)

    def document(self, id_: int) -> tuple[int, FoundDocument]:
        """Return the source of a document, and the document as it was found.

        Raises:
            BadInput: `document.missing`.
        """
        found = self._database.rows(
            "SELECT source, key, fingerprint, path, title, name, body, modified, visits"
            " FROM documents JOIN texts ON texts.id = documents.id WHERE documents.id = ?",
            id_,
        )
        require(found, "document.missing", f"the index has no document {id_} (any more)")
        source, *columns, visits = found[0]
        columns.append(tuple(np.frombuffer(visits, "<f8").tolist()))
        return source, FoundDocument(*columns)

    def label(self, source: int, key: str) -> tuple[int, str, str] | None:
        """Return id, title (else name) and path of a document; None for one that is not indexed."""
        columns, values = "id, coalesce(nullif(title, ''), name), path", (source, plain_text(key))
        found = self._database.rows(f"SELECT {columns} FROM documents WHERE source = ? AND key = ?", *values)
        return found[0] if found else None

    def at_path(self, path: str) -> list[int]:
        """Return the documents of a path or address; of a mailbox all messages."""
        return [id_ for (id_,) in self._database.rows("SELECT id FROM documents WHERE path = ?", plain_text(path))]

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._database.rows("SELECT count(*) FROM documents")[0][0])

    # sources

    def add_source(self, table: Mapping[str, Any], name: str = "") -> int:
        """Store a source by its configuration; return its id, also of one that is stored already."""
        content = json.dumps(table, sort_keys=True)
        with self._writing() as writer, writer.transaction():
            if found := writer.rows("SELECT id FROM sources WHERE content = ?", content):
                return int(found[0][0])
            kind = str(table.get("kind", ""))
            row = kind, plain_text(name or kind), content
            added = writer.execute("INSERT INTO sources (kind, name, content) VALUES (?, ?, ?)", row)
            return int(added.lastrowid or 0)

    def sources(self) -> list[StoredSource]:
        """Return all sources in the order in which they were added."""
        rows = self._database.rows(
            "SELECT id, kind, name, content, (SELECT count(*) FROM documents WHERE source = sources.id), updated"
            " FROM sources ORDER BY id"
        )
        return [StoredSource(r[0], r[1], r[2], parse_json(r[3], where=f"{self.path}"), r[4], r[5]) for r in rows]

    def kinds(self) -> list[str]:
        """Return the kinds of all sources."""
        return [kind for (kind,) in self._database.rows("SELECT DISTINCT kind FROM sources ORDER BY kind")]

    def remove_source(self, source: int) -> int:
        """Remove a source and erase its documents; return their number."""
        with self._writing() as writer:
            _require_source(writer, source)
            ids = [id_ for (id_,) in writer.rows("SELECT id FROM documents WHERE source = ?", source)]
            writer.remove(ids)
            with writer.transaction():
                writer.execute("DELETE FROM skipped WHERE source = ?", (source,))
                writer.execute("DELETE FROM sources WHERE id = ?", (source,))
            writer.erase()
        return len(ids)

    def known(self, source: int) -> dict[str, str]:
        """Return the fingerprints of a source's documents by their keys, for its scan."""
        return dict(self._database.rows("SELECT key, fingerprint FROM documents WHERE source = ?", source))

    def skipped(self, source: int) -> list[SkippedDocument]:
        """Return the log of a source, newest first: content that the last scan did not read, with the reasons."""
        rows = self._database.rows(
            "SELECT key, code, sentence FROM skipped WHERE source = ? ORDER BY at DESC, key, code", source
        )
        return [SkippedDocument(*row) for row in rows]

    # writing

    @contextmanager
    def _writing(self) -> Iterator[IndexWriter]:
        """Hold the folder's lock and a separate connection; an outdated index is rebuilt first."""
        with self.home.writing():
            database = PrivateDatabase(self.path, INDEX)
            try:
                for pragma in _WRITER:
                    database.rows(f"PRAGMA {pragma}")
                database.remove_copy()
                writer = IndexWriter(database, self.tokeniser, self._hash)
                writer.rebuild_if_outdated()
                yield writer
            finally:
                database.close()

    def update(
        self,
        source: int,
        scan: Iterable[Scanned],
        *,
        progress: Callable[[UpdateReport], object] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> UpdateReport:
        """Update the documents of a source from a scan of it.

        Args:
            source: Id of the source.
            scan: Items of the scan.
            progress: Called after each batch with the counts so far.
            stop: Ends the update when it returns true. Then, and when the scan raises, the documents read until then
                are kept and nothing is removed.
        """
        with self._writing() as writer:
            _require_source(writer, source)
            return SourceUpdate(writer, source).run(scan, progress, stop)

    def forget(self, ids: Sequence[int]) -> int:
        """Erase documents, so that no byte of their text stays in any file of the folder; return their number.

        Later scans ignore them; only a keyed digest of their source and key is kept for that.
        """
        with self._writing() as writer:
            listed = ",".join(map(str, map(int, ids)))
            found = writer.rows(f"SELECT id, source, key FROM documents WHERE id IN ({listed})")
            with writer.transaction():
                for _, source, key in found:
                    writer.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (writer.digest_of(source, key),))
                    writer.execute("DELETE FROM skipped WHERE source = ? AND key = ?", (source, key))
            writer.remove([id_ for id_, _, _ in found])
            writer.erase()
        return len(found)

    def admit_forgotten(self) -> int:
        """Admit forgotten documents with the next scan; return their number."""
        with self._writing() as writer, writer.transaction():
            return int(writer.execute("DELETE FROM forgotten").rowcount)


class SourceUpdate:
    """Update of a source."""

    def __init__(self, writer: IndexWriter, source: int) -> None:
        self.writer, self.source = writer, source
        self.report = UpdateReport()
        self.batch: dict[str, tuple[int, FoundDocument]] = {}
        self.skips: list[SkippedDocument] = []
        self.characters = 0
        self.began, self.waiting = time.monotonic(), 0.0
        self.wall = time.time()
        self.seen = array("q")  # ids of documents in the scan
        self.forgotten = {digest for (digest,) in writer.rows("SELECT digest FROM forgotten")}

    def run(
        self,
        scan: Iterable[Scanned],
        progress: Callable[[UpdateReport], object] | None,
        stop: Callable[[], bool] | None,
    ) -> UpdateReport:
        try:
            for item in scan:
                self._take(item)
                waited = bool(self.waiting) and time.monotonic() - self.waiting > BATCH_SECONDS
                full = len(self.batch) + len(self.skips) >= BATCH_DOCUMENTS or self.characters >= BATCH_CHARACTERS
                if waited or full:
                    self._write()
                    if progress is not None:
                        progress(self._numbers())
                if stop is not None and stop():
                    self.report.finished = False
                    break
        finally:
            self._write()
        if self.report.finished:
            self._finish()
        if progress is not None:
            progress(self._numbers())
        return self._numbers()

    def _numbers(self) -> UpdateReport:
        self.report.seconds = time.monotonic() - self.began
        return self.report

    def _take(self, item: Scanned) -> None:
        key = plain_text(item.key)
        if key != item.key and not isinstance(item, SkippedDocument):
            sentence = "its key has NUL or characters that UTF-8 cannot encode; change the source that yields it"
            item = SkippedDocument(key, "document.unwritable-key", sentence)
        if isinstance(item, SkippedDocument):
            self.skips.append(item)
            self.report.skipped += 1
            return
        if item.key in self.batch:  # twice in one scan: the later item counts
            self._write()
        stored = self.writer.rows(
            "SELECT id, fingerprint FROM documents WHERE source = ? AND key = ?", self.source, item.key
        )
        id_, fingerprint = stored[0] if stored else (0, None)
        if id_:
            self.seen.append(id_)
        if isinstance(item, UnchangedDocument) or fingerprint == item.fingerprint:
            self.report.unchanged += 1
        elif not self.forgotten or self.writer.digest_of(self.source, item.key) not in self.forgotten:
            self.waiting = self.waiting or time.monotonic()
            self.batch[item.key] = (id_, item)
            self.characters += len(item.body) + len(item.title)
            if id_:
                self.report.changed += 1
            else:
                self.report.added += 1

    def _write(self) -> None:
        batch, self.batch, skips, self.skips = self.batch, {}, self.skips, []
        self.characters, self.waiting = 0, 0.0
        if not batch and not skips:
            return
        with self.writer.transaction():
            written = self.writer.write_batch(self.source, [*batch.values()])
            self.writer.executemany(
                "INSERT OR REPLACE INTO skipped (source, key, code, at, sentence) VALUES (?, ?, ?, ?, ?)",
                ((self.source, *map(plain_text, (s.key, s.code)), time.time(), plain_text(s.sentence)) for s in skips),
            )
        self.seen.extend(written)
        with self.writer.transaction():
            self.writer.merge()

    def _finish(self) -> None:
        """Remove documents that the scan did not yield, and lines of the log that it did not write again."""
        stored = self.writer.rows("SELECT id FROM documents WHERE source = ?", self.source)
        gone = np.setdiff1d(np.array(stored, dtype=np.int64), np.array(self.seen)).tolist()
        self.writer.remove(gone)
        self.report.removed = len(gone)
        with self.writer.transaction():
            execute = self.writer.execute
            execute("DELETE FROM skipped WHERE source = ? AND at < ?", (self.source, self.wall))
            execute(
                "DELETE FROM skipped WHERE source = ? AND at < (SELECT min(at) FROM (SELECT at FROM skipped"
                " WHERE source = ? ORDER BY at DESC LIMIT ?))",
                (self.source, self.source, MOST_SKIPPED),
            )
            execute("UPDATE sources SET updated = ? WHERE id = ?", (time.time(), self.source))
        with self.writer.transaction():
            self.writer.merge()


def _require_source(writer: IndexWriter, source: int) -> None:
    found = writer.rows("SELECT 1 FROM sources WHERE id = ?", source)
    require(found, "source.missing", f"there is no source {source} in the index")
