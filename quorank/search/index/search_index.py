"""Index of a person's documents in one SQLite file: schema, writing, forgetting, and the way to `find`.

Tables: `sources`; `documents` with their texts in `texts`; `words`, an FTS5 table without content of its own for phrases
and prefixes of normalised words; `vocabulary`, how many documents hold a word; `segments` and `postings`, counts of stems
for ranking (`postings.py`); `dead`, versions of rows whose document changed or is gone; `skipped`, the log of sources;
`forgotten`, digests of documents that are not to come back; `facts`.

A batch of documents is one transaction over all of them, so that a process that is killed leaves the index as it was before
or after a batch. A scan that did not finish removes nothing, and the next one goes on: what was indexed is unchanged then.
The log is not waited for at each commit (synchronous = NORMAL): after a power cut the last batches may be missing and are
read again. What is forgotten is waited for.

FTS5 without content is told what to delete by giving the words again. So normalised words must stay what they were: the
index has a stamp of the tokeniser and of Unicode's version, and is built again from the stored texts where it differs.
"""

from __future__ import annotations

import json
import os
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import Any

import numpy as np

from quorank.arrays import Booleans
from quorank.documents import Each, parse_json
from quorank.errors import BadInput, require
from quorank.private_file import FileKind, PrivateDatabase
from quorank.search.home import SearchHome
from quorank.search.index.candidates import LONGEST_KEY, CandidateFinder, SearchCandidates
from quorank.search.index.postings import (
    FIELDS,
    LARGEST_SEGMENT,
    ROW,
    BatchCounter,
    CountedWords,
    FieldPostings,
    Segment,
    TermHash,
    merge_segments,
    to_merge,
)
from quorank.search.index.query import SearchQuery
from quorank.search.index.reading import SegmentReader, part_key
from quorank.search.index.snippets import SnippetPiece, make_snippet
from quorank.search.sources.source import FoundDocument, SkippedDocument, UnchangedDocument
from quorank.text.collection import Document
from quorank.text.index import whole_text
from quorank.text.tokens import LONGEST, Tokeniser, normalised_words

FILE = "index.sqlite"
BATCH_DOCUMENTS, BATCH_CHARACTERS, BATCH_SECONDS = 2000, 1 << 22, 2.0
"""A batch is written when it has as many documents or characters, or when its first document waited as long."""
MOST_SKIPPED = 10_000
"""Lines of the log of a source; the oldest go first."""
MOST_DEAD = 0.2
"""Share of dead rows above which a segment is written anew."""

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE sources (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL,
    updated REAL);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL REFERENCES sources (id), key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL, name TEXT NOT NULL,
    modified REAL NOT NULL, visits BLOB NOT NULL, visit_count INTEGER NOT NULL, name_key TEXT NOT NULL,
    stem_key TEXT NOT NULL, title_key TEXT NOT NULL, UNIQUE (source, key)
);
CREATE INDEX documents_by_name ON documents (name_key);
CREATE INDEX documents_by_stem ON documents (stem_key);
CREATE INDEX documents_by_title ON documents (title_key);
CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (name, title, body, content = '', columnsize = 0, tokenize = 'ascii');
CREATE TABLE vocabulary (word TEXT PRIMARY KEY, documents INTEGER NOT NULL, names INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX vocabulary_of_names ON vocabulary (word) WHERE names > 0;
CREATE TABLE segments (id INTEGER PRIMARY KEY AUTOINCREMENT, documents INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE TABLE postings (key INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE dead (version INTEGER PRIMARY KEY);
CREATE TABLE skipped (
    source INTEGER NOT NULL REFERENCES sources (id), key TEXT NOT NULL, code TEXT NOT NULL, at REAL NOT NULL,
    sentence TEXT NOT NULL, PRIMARY KEY (source, key, code)
) WITHOUT ROWID;
CREATE TABLE forgotten (digest INTEGER PRIMARY KEY);
INSERT INTO facts VALUES ('key', randomblob(32)), ('version', 0), ('stamp', '');
"""
INDEX = FileKind(
    0x51524E53,
    1,
    _SCHEMA,
    "this is no index of Quorank's search; choose another folder",
    "the index is damaged; delete it and index again (nothing else than the index is lost)",
)

Scan = Iterable[FoundDocument | SkippedDocument | UnchangedDocument]


@dataclass(frozen=True)
class StoredSource:
    """Source as the index keeps it: `table` is what it is read back from."""

    id: int
    kind: str
    name: str
    table: Mapping[str, Any]
    documents: int
    updated: float | None  # end of the last scan that finished, Unix seconds


@dataclass(frozen=True)
class StoredDocument:
    """Document as the index keeps it."""

    id: int
    source: int
    key: str
    fingerprint: str
    path: str
    title: str
    name: str
    body: str
    modified: float
    visits: tuple[float, ...]
    visit_count: int


@dataclass(frozen=True)
class SkipEntry:
    """Line of the log of a source."""

    key: str
    at: float  # Unix seconds
    code: str
    sentence: str


@dataclass
class UpdateReport:
    """Numbers of documents of one update; `finished` unless it was asked to stop."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    skipped: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    finished: bool = True


@dataclass(frozen=True)
class _Words:
    """Normalised words of a document as FTS5 and the counter take them, and as names are compared."""

    name: str
    title: str
    body: str

    @classmethod
    def of(cls, name: str, title: str, body: str) -> _Words:
        return cls(*map(_normalised, (name, title, body)))

    def distinct(self) -> set[str]:
        return {*self.name.split(), *self.title.split(), *self.body.split()}


def _normalised(text: str) -> str:
    words = normalised_words(text).decode().split()
    return " ".join([word for word in words if len(word) <= LONGEST])


class KnownDocuments(Mapping[str, str]):
    """Fingerprint of each indexed key of a source, read as it is asked for."""

    def __init__(self, database: PrivateDatabase, source: int) -> None:
        self._database, self._source = database, source

    def __getitem__(self, key: str) -> str:
        found = self._database.rows(
            "SELECT fingerprint FROM documents WHERE source = ? AND key = ?", self._source, _writable(key)
        )
        if not found:
            raise KeyError(key)
        return str(found[0][0])

    def __iter__(self) -> Iterator[str]:
        return iter([key for (key,) in self._database.rows("SELECT key FROM documents WHERE source = ?", self._source)])

    def __len__(self) -> int:
        found = self._database.rows("SELECT count(*) FROM documents WHERE source = ?", self._source)
        return int(found[0][0])


class SearchIndex:
    """Documents of a person's sources, searched by `find`. One process writes at a time; others search meanwhile."""

    def __init__(self, home: SearchHome, tokeniser: Tokeniser) -> None:
        self.home, self.tokeniser, self.path = home, tokeniser, home.folder / FILE
        self._mutex = RLock()
        if not self.path.exists() or self.path.stat().st_size == 0:
            with home.writing():
                PrivateDatabase(self.path, INDEX).close()
        self._database = PrivateDatabase(self.path, INDEX)
        for pragma in ("cache_size = -16000", "temp_store = MEMORY", "query_only = ON"):
            self._database.rows(f"PRAGMA {pragma}")

    @classmethod
    def open(cls, folder: Path | str | SearchHome | None = None) -> SearchIndex:
        """Open the index of a search folder, or make an empty one; the language is that of the folder's settings."""
        require_full_text_search()
        home = folder if isinstance(folder, SearchHome) else SearchHome.open(folder)
        return cls(home, home.settings().tokeniser())

    def __enter__(self) -> SearchIndex:
        return self

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
    def _finder(self) -> CandidateFinder:
        return CandidateFinder(SegmentReader(self._database.rows), self.tokeniser, self._hash)

    def find(self, query: SearchQuery, limit: int = 200) -> SearchCandidates:
        """Return the first candidates of a query by (band, BM25, newest, id), with their features."""
        with self._reading():
            return self._finder.find(query, limit)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """See one state of the database inside the block, whatever others write."""
        with self._mutex:
            self._database.rows("BEGIN")
            try:
                yield
            finally:
                self._database.rows("COMMIT")

    def snippet(self, id_: int, query: SearchQuery) -> tuple[SnippetPiece, ...]:
        """Return the part of a document with most of a query's terms, with the words that were searched for marked."""
        return make_snippet(self.document(id_).body, query, self.tokeniser)

    def document(self, id_: int) -> StoredDocument:
        """Return a document; `document.missing` where there is none of this id."""
        found = self._documents("documents.id = ?", id_)
        require(found, "document.missing", f"there is no document {id_} in the index (any more)")
        return found[0]

    def documents(self, source: int, keys: Sequence[str]) -> list[StoredDocument]:
        """Return the documents of a source with these keys, as far as they are indexed, in the order of the keys."""
        return [found for key in keys for found in self._documents("source = ? AND key = ?", source, _writable(key))]

    def _documents(self, condition: str, *values: object) -> list[StoredDocument]:
        found = self._database.rows(
            "SELECT documents.id, source, key, fingerprint, path, title, name, body, modified, visits, visit_count"
            f" FROM documents JOIN texts ON texts.id = documents.id WHERE {condition}",
            *values,
        )
        return [StoredDocument(*row[:9], _visits(row[9]), row[10]) for row in found]

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._database.rows("SELECT count(*) FROM documents")[0][0])

    # sources

    def add_source(self, table: Mapping[str, Any], name: str = "") -> int:
        """Keep a source by the table that it is read back from; the id of one that is there already is the same."""
        content = json.dumps(table, sort_keys=True)
        with self._writing() as database, database.transaction():
            found = database.rows("SELECT id FROM sources WHERE content = ?", content)
            if found:
                return int(found[0][0])
            kind = str(table.get("kind", ""))
            added = database.database.execute(
                "INSERT INTO sources (kind, name, content) VALUES (?, ?, ?)", (kind, name or kind, content)
            )
            return int(added.lastrowid or 0)

    def sources(self) -> list[StoredSource]:
        """Return all sources in the order in which they were added."""
        rows = self._database.rows(
            "SELECT id, kind, name, content, (SELECT count(*) FROM documents WHERE source = sources.id), updated"
            " FROM sources ORDER BY id"
        )
        return [StoredSource(r[0], r[1], r[2], parse_json(r[3], Each(), f"{self.path}"), r[4], r[5]) for r in rows]

    def remove_source(self, source: int) -> int:
        """Forget a source and erase all of its documents; return how many there were."""
        with self._writing() as database:
            _require_source(database, source)
            ids = [id_ for (id_,) in database.rows("SELECT id FROM documents WHERE source = ?", source)]
            self._remove(database, ids)
            with database.transaction():
                database.database.execute("DELETE FROM skipped WHERE source = ?", (source,))
                database.database.execute("DELETE FROM sources WHERE id = ?", (source,))
            self._erase(database)
        return len(ids)

    def known(self, source: int) -> KnownDocuments:
        """Return the fingerprints of a source's documents, which its scan asks for."""
        return KnownDocuments(self._database, source)

    def skipped(self, source: int) -> list[SkipEntry]:
        """Return the log of a source, newest first: what the last scan did not read, and why."""
        rows = self._database.rows(
            "SELECT key, at, code, sentence FROM skipped WHERE source = ? ORDER BY at DESC, key, code", source
        )
        return [SkipEntry(*row) for row in rows]

    # writing

    @contextmanager
    def _writing(self) -> Iterator[PrivateDatabase]:
        """Hold the folder's lock and a connection of the writer's own; an index of another stamp is built again first."""
        with self.home.writing():
            database = PrivateDatabase(self.path, INDEX)
            try:
                for pragma in (
                    "synchronous = NORMAL",
                    "cache_size = -32000",
                    "temp_store = MEMORY",
                    "wal_autocheckpoint = 4000",
                    "journal_size_limit = 67108864",
                ):
                    database.rows(f"PRAGMA {pragma}")
                self._bring_up_to_date(database)
                yield database
            finally:
                database.close()

    @property
    def _stamp(self) -> str:
        """What normalised words and terms depend on."""
        return f"{self.tokeniser.fingerprint()} {unicodedata.unidata_version}"

    def _bring_up_to_date(self, database: PrivateDatabase) -> None:
        stamp = self._stamp
        if database.rows("SELECT value FROM facts WHERE name = 'stamp'")[0][0] == stamp:
            return
        with database.transaction():
            self._build_again(database)
            database.database.execute("UPDATE facts SET value = ? WHERE name = 'stamp'", (stamp,))

    def rebuild(self) -> None:
        """Build words, vocabulary and postings again from the stored texts, in one transaction."""
        with self._writing() as database:
            with database.transaction():
                self._build_again(database)
            self._erase(database)

    def _build_again(self, database: PrivateDatabase) -> None:
        execute = database.database.execute
        execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in ("vocabulary", "segments", "postings", "dead"):
            execute(f"DELETE FROM {table}")
        counter = self._counter()
        columns = "documents.id, source, modified, name, title, body"
        last = 0
        while True:
            rows = database.rows(
                f"SELECT {columns} FROM documents JOIN texts ON texts.id = documents.id WHERE documents.id > ?"
                " ORDER BY documents.id LIMIT ?",
                last, BATCH_DOCUMENTS // 8,
            )  # fmt: skip
            if not rows:
                break
            last = rows[-1][0]
            entries = []
            for id_, source, modified, name, title, body in rows:
                words = _Words.of(name, title, body)
                execute(
                    "UPDATE documents SET name_key = ?, stem_key = ?, title_key = ? WHERE id = ?",
                    (*_keys(name, words), id_),
                )
                entries.append(_Entry(id_, source, modified, name, words, _repeats(title, body)))
            self._add_words(database, counter, entries)
            self._merge(database)

    def _counter(self) -> BatchCounter:
        return BatchCounter(self.tokeniser, self._hash)

    def update(
        self,
        source: int,
        scan: Scan,
        *,
        progress: Callable[[UpdateReport], object] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> UpdateReport:
        """Bring the documents of a source to what a scan of it yields.

        `progress` is called after each batch with the numbers so far. When `stop` says so, or the scan raises, what was
        read until then is kept and nothing is removed.
        """
        with self._writing() as database:
            _require_source(database, source)
            return _Update(self, database, source, self._counter()).run(scan, progress, stop)

    def write_batch(
        self, database: PrivateDatabase, counter: BatchCounter, source: int, batch: Sequence[tuple[int, FoundDocument]]
    ) -> None:
        """Write new documents (id 0) and changed ones, inside a transaction."""
        execute = database.database.execute
        self._take_out(database, [id_ for id_, _ in batch if id_])
        entries = []
        for id_, found in batch:
            name, title, body = map(_writable, (found.name, found.title, found.body))
            words = _Words.of(name, title, body)
            modified = found.modified if np.isfinite(found.modified) else 0.0
            values = (
                found.fingerprint, _writable(found.path), title, name, modified,
                np.array(found.visits, dtype="<f8").tobytes(), found.visit_count, *_keys(name, words),
            )  # fmt: skip
            if id_:
                execute(
                    "UPDATE documents SET fingerprint = ?, path = ?, title = ?, name = ?, modified = ?, visits = ?,"
                    " visit_count = ?, name_key = ?, stem_key = ?, title_key = ? WHERE id = ?",
                    (*values, id_),
                )
            else:
                added = execute(
                    "INSERT INTO documents (fingerprint, path, title, name, modified, visits, visit_count, name_key,"
                    " stem_key, title_key, source, key, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                    (*values, source, found.key),
                )
                id_ = int(added.lastrowid or 0)
            execute("INSERT OR REPLACE INTO texts VALUES (?, ?)", (id_, body))
            entries.append(_Entry(id_, source, modified, name, words, _repeats(title, body)))
        self._add_words(database, counter, entries)

    def _add_words(self, database: PrivateDatabase, counter: BatchCounter, entries: Sequence[_Entry]) -> None:
        """Add the words of documents to FTS5, the vocabulary and a segment of their own."""
        if not entries:
            return
        many = database.database.executemany
        version = int(database.rows("SELECT value FROM facts WHERE name = 'version'")[0][0])
        rows = np.zeros(len(entries), dtype=ROW)
        for row, entry in zip(rows, entries, strict=True):
            version += 1
            row["id"], row["version"], row["modified"], row["source"] = entry.id, version, entry.modified, entry.source
            row["type"] = self._hash(f"type:{_ending(entry.name)}")
            counter.add(entry.words.name, entry.words.title, entry.words.body, repeats=entry.repeats)
        many("UPDATE documents SET version = ? WHERE id = ?", zip(rows["version"].tolist(), rows["id"].tolist()))
        many(
            "INSERT INTO words (rowid, name, title, body) VALUES (?, ?, ?, ?)",
            ((entry.id, entry.words.name, entry.words.title, entry.words.body) for entry in entries),
        )
        segment, words = counter.finish(rows)
        _count_words(database, words)
        _write_segment(database, segment)
        database.database.execute("UPDATE facts SET value = ? WHERE name = 'version'", (version,))

    def _take_out(self, database: PrivateDatabase, ids: Sequence[int]) -> None:
        """Take the words of documents out of FTS5, the vocabulary and the segments, inside a transaction."""
        documents: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for id_ in ids:
            row = database.rows(
                "SELECT name, title, body, version FROM documents JOIN texts ON texts.id = documents.id"
                " WHERE documents.id = ?",
                id_,
            )[0]
            words = _Words.of(*row[:3])
            database.database.execute(
                "INSERT INTO words (words, rowid, name, title, body) VALUES ('delete', ?, ?, ?, ?)",
                (id_, words.name, words.title, words.body),
            )
            documents.update(words.distinct())
            names.update({*words.name.split()})
            database.database.execute("INSERT INTO dead VALUES (?)", (row[3],))
        _count_words(database, [CountedWords(word, -count, -names[word]) for word, count in documents.items()])
        if documents:
            database.database.execute("DELETE FROM vocabulary WHERE documents <= 0")

    def _remove(self, database: PrivateDatabase, ids: Sequence[int]) -> None:
        """Remove documents, a batch a transaction."""
        step = BATCH_DOCUMENTS // 4
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            with database.transaction():
                self._take_out(database, part)
                for table in ("texts", "documents"):
                    database.database.executemany(f"DELETE FROM {table} WHERE id = ?", [(id_,) for id_ in part])

    def forget(self, ids: Sequence[int], *, for_good: bool = True) -> int:
        """Erase documents: of their text no byte stays in any file of the folder. Returns how many there were.

        `for_good`: scans pass them over from now on, known by a keyed digest of their source and key alone.
        """
        with self._writing() as database:
            keys = {}
            for id_ in dict.fromkeys(ids):
                for source, key in database.rows("SELECT source, key FROM documents WHERE id = ?", id_):
                    keys[id_] = (source, key)
            with database.transaction():
                for source, key in keys.values():
                    if for_good:
                        values = (self.digest_of(source, key),)
                        database.database.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", values)
                    database.database.execute("DELETE FROM skipped WHERE source = ? AND key = ?", (source, key))
            self._remove(database, [*keys])
            self._erase(database)
        return len(keys)

    def admit_forgotten(self) -> int:
        """Let documents that were forgotten for good come back with the next scan; return how many there were."""
        with self._writing() as database, database.transaction():
            return int(database.database.execute("DELETE FROM forgotten").rowcount)

    def digest_of(self, source: int, key: str) -> int:
        """Return the keyed digest that a forgotten document is known by."""
        return self._hash(f"{source}:{key}") - (1 << 63)  # SQLite's whole numbers have a sign

    def _erase(self, database: PrivateDatabase) -> None:
        """Leave nothing behind of what was deleted.

        FTS5 keeps deleted words until its segments are merged; pages that were given back are overwritten with zeros
        (secure_delete); the write-ahead log is brought into the database and cut to nothing.
        """
        with database.transaction():
            self._merge(database, all_dead=True)
            database.database.execute("INSERT INTO words (words) VALUES ('optimize')")
        busy = database.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        sentence = "deleted, but another process is still reading the log that holds it; close it and forget again"
        require(not busy, "file.busy", sentence, f"{self.path}")

    def merge(self, database: PrivateDatabase) -> None:
        """Merge segments of about the same size, and those with many dead rows, in a transaction."""
        with database.transaction():
            self._merge(database)

    def _merge(self, database: PrivateDatabase, *, all_dead: bool = False) -> None:
        while True:
            sizes = database.rows("SELECT id, documents FROM segments ORDER BY id")
            chosen = [sizes[number][0] for number in to_merge([size for _, size in sizes])]
            if not chosen:
                break
            _merge_segments(database, chosen)
        dead = int(database.rows("SELECT count(*) FROM dead")[0][0])
        if dead and (all_dead or dead > MOST_DEAD * sum(size for _, size in sizes)):
            for number, size in sizes:
                lost = size - int(_alive(database, number).sum())
                if lost and (all_dead or lost > MOST_DEAD / 2 * size):
                    _merge_segments(database, [number])

    # checking

    def faults(self) -> list[str]:
        """Check the whole index; return what is wrong with it, nothing where it is sound."""
        found = []
        with self._writing() as database:
            for (said,) in database.rows("PRAGMA integrity_check"):
                found += [said] if said != "ok" else []
            try:
                database.rows("INSERT INTO words (words) VALUES ('integrity-check')")
            except BadInput as error:
                found.append(f"{error}")
            living: list[tuple[int, int]] = []
            for (number,) in database.rows("SELECT id FROM segments"):
                rows = _rows_of(database, number)[_alive(database, number)]
                living += zip(rows["id"].tolist(), rows["version"].tolist(), strict=True)
            wanted = database.rows("SELECT id, version FROM documents")
            found += ["segments and documents differ"] if sorted(living) != sorted(wanted) else []
            found += (
                ["a text is missing or left over"]
                if database.rows("SELECT id FROM texts EXCEPT SELECT id FROM documents")
                or database.rows("SELECT id FROM documents EXCEPT SELECT id FROM texts")
                else []
            )
        return found


@dataclass(frozen=True)
class _Entry:
    """Document on its way into the words and the segments."""

    id: int
    source: int
    modified: float
    name: str
    words: _Words
    repeats: bool  # the body begins with the title


class _Update:
    """One update of a source."""

    def __init__(self, index: SearchIndex, database: PrivateDatabase, source: int, counter: BatchCounter) -> None:
        self.index, self.database, self.source, self.counter = index, database, source, counter
        self.report = UpdateReport()
        self.batch: dict[str, tuple[int, FoundDocument]] = {}
        self.skips: list[SkippedDocument] = []
        self.characters = 0
        self.began, self.waiting = time.monotonic(), 0.0
        self.wall = time.time()
        self.seen = _Bits()
        self.forgotten = {digest for (digest,) in database.rows("SELECT digest FROM forgotten")}

    def run(
        self, scan: Scan, progress: Callable[[UpdateReport], object] | None, stop: Callable[[], bool] | None
    ) -> UpdateReport:
        try:
            for item in scan:
                self._take(item)
                if self._full():
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

    def _take(self, item: FoundDocument | SkippedDocument | UnchangedDocument) -> None:
        if isinstance(item, SkippedDocument):
            self.skips.append(item)
            self.report.skipped += 1
            return
        if _writable(item.key) != item.key:
            sentence = "its key holds what cannot be written as UTF-8; its source must write it otherwise"
            return self._take(SkippedDocument(_writable(item.key), "document.unwritable-key", sentence))
        if item.key in self.batch:  # twice in one scan: the later one counts
            self._write()
        stored = self.database.rows(
            "SELECT id, fingerprint FROM documents WHERE source = ? AND key = ?", self.source, item.key
        )
        id_, fingerprint = stored[0] if stored else (0, None)
        if id_:
            self.seen.add(id_)
        if isinstance(item, UnchangedDocument) or fingerprint == item.fingerprint:
            self.report.unchanged += 1
        elif not self.forgotten or self.index.digest_of(self.source, item.key) not in self.forgotten:
            self.waiting = self.waiting or time.monotonic()
            self.batch[item.key] = (id_, item)
            self.characters += len(item.body) + len(item.title)
            if id_:
                self.report.changed += 1
            else:
                self.report.added += 1

    def _full(self) -> bool:
        waited = bool(self.waiting) and time.monotonic() - self.waiting > BATCH_SECONDS
        return waited or len(self.batch) >= BATCH_DOCUMENTS or self.characters >= BATCH_CHARACTERS

    def _write(self) -> None:
        batch, self.batch, skips, self.skips = self.batch, {}, self.skips, []
        self.characters, self.waiting = 0, 0.0
        if not batch and not skips:
            return
        with self.database.transaction():
            self.index.write_batch(self.database, self.counter, self.source, [*batch.values()])
            for id_ in self.database.rows(
                f"SELECT id FROM documents WHERE source = ? AND key IN ({','.join('?' * len(batch))})",
                self.source, *batch,
            ):  # fmt: skip
                self.seen.add(id_[0])
            self.database.database.executemany(
                "INSERT OR REPLACE INTO skipped (source, key, code, at, sentence) VALUES (?, ?, ?, ?, ?)",
                ((self.source, *map(_writable, (s.key, s.code)), time.time(), _writable(s.sentence)) for s in skips),
            )
        self.index.merge(self.database)

    def _finish(self) -> None:
        """Remove what the scan did not yield, and lines of the log that it did not write again."""
        stored = self.database.rows("SELECT id FROM documents WHERE source = ?", self.source)
        gone = [id_ for (id_,) in stored if id_ not in self.seen]
        self.index._remove(self.database, gone)
        self.report.removed = len(gone)
        with self.database.transaction():
            execute = self.database.database.execute
            execute("DELETE FROM skipped WHERE source = ? AND at < ?", (self.source, self.wall))
            execute(
                "DELETE FROM skipped WHERE source = ? AND at < (SELECT min(at) FROM (SELECT at FROM skipped"
                " WHERE source = ? ORDER BY at DESC LIMIT ?))",
                (self.source, self.source, MOST_SKIPPED),
            )
            execute("UPDATE sources SET updated = ? WHERE id = ?", (time.time(), self.source))
        self.index.merge(self.database)


class _Bits:
    """Set of ids, a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> None:
        byte = number >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits), 1024)))
        self._bits[byte] |= 1 << (number & 7)

    def __contains__(self, number: int) -> bool:
        byte = number >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (number & 7) & 1)


def require_full_text_search() -> None:
    """Refuse an SQLite without FTS5."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    finally:
        connection.close()
    sentence = "this Python's SQLite lacks FTS5, which the search needs; install a Python whose SQLite has it"
    require(found, "sqlite.no-fts5", sentence)


def _require_source(database: PrivateDatabase, source: int) -> None:
    found = database.rows("SELECT 1 FROM sources WHERE id = ?", source)
    require(found, "source.missing", f"there is no source {source} in the index")


def _writable(text: str) -> str:
    """A text that SQLite can store."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _visits(blob: bytes) -> tuple[float, ...]:
    return tuple(np.frombuffer(blob, "<f8").tolist())


def _ending(name: str) -> str:
    """The ending of a file name, without its dot, case-folded."""
    return PurePosixPath(name).suffix[1:].casefold()


def _keys(name: str, words: _Words) -> tuple[str, str, str]:
    """Name, name without ending and title as exact matches and beginnings compare them."""
    stem = _normalised(PurePosixPath(name).stem) if name else ""
    return words.name[:LONGEST_KEY], stem[:LONGEST_KEY], words.title[:LONGEST_KEY]


def _repeats(title: str, body: str) -> bool:
    """Whether the body begins with the title, as `whole_text` decides it."""
    return whole_text(Document("", title, body)) is body


def _count_words(database: PrivateDatabase, words: Iterable[CountedWords]) -> None:
    database.database.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT (word) DO UPDATE SET"
        " documents = documents + excluded.documents, names = names + excluded.names",
        sorted((word.word, word.documents, word.names) for word in words),
    )


def _write_segment(database: PrivateDatabase, segment: Segment) -> None:
    rows = segment.rows
    added = database.database.execute(
        "INSERT INTO segments (documents, rows) VALUES (?, ?)", (len(rows), rows.tobytes())
    )
    number = int(added.lastrowid or 0)
    for at, field in enumerate(segment.fields):
        database.database.executemany(
            "INSERT INTO postings VALUES (?, ?)",
            ((part_key(number, at, part), content) for part, content in field.parts()),
        )


def _rows_of(database: PrivateDatabase, number: int) -> Any:
    return np.frombuffer(database.rows("SELECT rows FROM segments WHERE id = ?", number)[0][0], dtype=ROW)


def _alive(database: PrivateDatabase, number: int) -> Booleans:
    """(rows,) which rows of a segment are of documents."""
    dead = [version for (version,) in database.rows("SELECT version FROM dead")]
    return np.asarray(~np.isin(_rows_of(database, number)["version"], dead))


def _merge_segments(database: PrivateDatabase, numbers: Sequence[int]) -> None:
    """Put one segment in the place of several, without their dead rows."""
    segments, alive = [], []
    for number in numbers:
        fields = []
        for at in range(len(FIELDS)):
            first, last = part_key(number, at, 0), part_key(number, at + 1, 0) - 1
            parts = database.rows("SELECT content FROM postings WHERE key BETWEEN ? AND ? ORDER BY key", first, last)
            fields.append(FieldPostings.from_parts([content for (content,) in parts]))
        segments.append(Segment(_rows_of(database, number), tuple(fields)))
        alive.append(_alive(database, number))
    merged = merge_segments(segments, alive)
    execute, many = database.database.execute, database.database.executemany
    for number, segment, living in zip(numbers, segments, alive, strict=True):
        execute("DELETE FROM segments WHERE id = ?", (number,))
        execute("DELETE FROM postings WHERE key >= ? AND key < ?", (part_key(number, 0, 0), part_key(number + 1, 0, 0)))
        many("DELETE FROM dead WHERE version = ?", [(v,) for v in segment.rows["version"][~living].tolist()])
    if len(merged.rows):
        _write_segment(database, merged)


assert BATCH_DOCUMENTS <= LARGEST_SEGMENT
