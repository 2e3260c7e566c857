"""Writer of the index: schema, batches of documents, removal, merging, erasure.

Tables: `sources`; `documents` with their texts in `texts`; `words`, an FTS5 table without stored content for phrases
and prefixes of normalised words, and `vocabulary`, its words with their numbers of documents; `segments` and `postings`,
counts of stems for ranking (`postings.py`); `dead`, versions of rows whose document changed or was removed; `skipped`,
the log of sources; `forgotten`, digests of documents that must not be indexed again; `facts`.

FTS5 without content needs the words again to delete them, so normalised words must not change: the index has a stamp
of the tokeniser and of Unicode's version, and is rebuilt from the stored texts when it differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Booleans
from quorank.search.index.candidates import LONGEST_KEY
from quorank.search.index.postings import (
    CHUNK,
    FIELDS,
    POSTING,
    ROW,
    BatchCounter,
    FieldPostings,
    Segment,
    TermHash,
    merge_segments,
    to_merge,
)
from quorank.search.index.reading import part_key
from quorank.search.sources.source import FoundDocument, plain_text
from quorank.text.collection import Document
from quorank.text.index import whole_text
from quorank.text.tokens import LONGEST, Tokeniser, normalised_words

MOST_DEAD = 0.2  # share of dead rows above which segments are rewritten
STEP = 500  # documents that are removed, or rebuilt, in one step
_TOO_LONG = re.compile(rf"[^ ]{{{LONGEST + 1},}}")

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE sources (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL,
    updated REAL);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL REFERENCES sources (id), key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL, name TEXT NOT NULL,
    modified REAL NOT NULL, visits BLOB NOT NULL, name_key TEXT NOT NULL,
    stem_key TEXT NOT NULL, title_key TEXT NOT NULL, UNIQUE (source, key)
);
CREATE INDEX documents_by_name ON documents (name_key);
CREATE INDEX documents_by_stem ON documents (stem_key);
CREATE INDEX documents_by_title ON documents (title_key);
CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (name, title, body, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('hashsize', 8388608);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row');
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
    0x51525349,
    1,
    _SCHEMA,
    "this is not an index of Quorank's search; choose another folder",
    "the index is damaged; delete it and index again (only the index is lost)",
)


class _Entry(NamedTuple):
    """Document to be added to the words and the segments."""

    id: int
    version: int
    source: int
    modified: float
    ending: str  # of the file name
    words: tuple[str, str, str]  # of name, title and body
    repeats: bool  # the body begins with the title

    @classmethod
    def of(cls, id_: int, version: int, source: int, modified: float, name: str, title: str, body: str) -> _Entry:
        ending = name.rpartition(".")[2].casefold() if "." in name[1:] else ""
        repeats = whole_text(Document("", title, body)) is body
        words = _normalised(name), _normalised(title), _normalised(body)
        return cls(id_, version, source, modified, ending, words, repeats)

    def keys(self, name: str) -> tuple[str, ...]:
        """Return name, name without ending and title as exact matches and beginnings compare them."""
        stem = _normalised(name.rpartition(".")[0] or name)
        return tuple(" ".join(text.split())[:LONGEST_KEY] for text in (self.words[0], stem, self.words[1]))


def _normalised(text: str) -> str:
    """Return the normalised words, separated by spaces, without overlong ones."""
    words = normalised_words(text).decode()
    return _TOO_LONG.sub(" ", words) if _TOO_LONG.search(words) else words


class IndexWriter:
    """Connection of the writing process. Methods must be called inside a transaction unless they say otherwise."""

    def __init__(self, database: PrivateDatabase, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        self.database, self.rows, self.transaction = database, database.rows, database.transaction
        self.execute, self.executemany = database.database.execute, database.database.executemany
        self._tokeniser, self._hash, self._counter = tokeniser, term_hash, BatchCounter(tokeniser, term_hash)

    def rebuild_if_outdated(self) -> None:
        """Rebuild words and postings made by another tokeniser or version of Unicode, in its own transaction."""
        stamp = f"{self._tokeniser.fingerprint()} {unicodedata.unidata_version}"
        if self.rows("SELECT value FROM facts WHERE name = 'stamp'")[0][0] == stamp:
            return
        with self.transaction():
            self.execute("INSERT INTO words (words) VALUES ('delete-all')")
            for table in ("segments", "postings", "dead"):
                self.execute(f"DELETE FROM {table}")
            last = 0
            while rows := self.rows(
                "SELECT documents.id, version, source, modified, name, title, body FROM documents"
                " JOIN texts ON texts.id = documents.id WHERE documents.id > ? ORDER BY documents.id LIMIT ?",
                last, STEP,
            ):  # fmt: skip
                last, entries = rows[-1][0], [_Entry.of(*row) for row in rows]
                self.executemany(
                    "UPDATE documents SET name_key = ?, stem_key = ?, title_key = ? WHERE id = ?",
                    [(*entry.keys(row[4]), entry.id) for entry, row in zip(entries, rows, strict=True)],
                )
                self._add_words(entries)
                self.merge()
            self.execute("UPDATE facts SET value = ? WHERE name = 'stamp'", (stamp,))

    # documents

    def write_batch(self, source: int, batch: Sequence[tuple[int, FoundDocument]]) -> list[int]:
        """Write new documents (id 0) and changed ones; return the ids of all."""
        first = 1 + int(self.rows("SELECT value FROM facts WHERE name = 'version'")[0][0])
        self._remove_words([id_ for id_, _ in batch if id_])
        entries = []
        for version, (id_, found) in enumerate(batch, first):
            name, title, body = map(plain_text, (found.name, found.title, found.body))
            modified = found.modified if np.isfinite(found.modified) else 0.0
            entry = _Entry.of(id_, version, source, modified, name, title, body)
            row = {
                "version": version, "fingerprint": plain_text(found.fingerprint), "path": plain_text(found.path),
                "title": title, "name": name, "modified": modified,
                "visits": np.array(found.visits, dtype="<f8").tobytes(),
                **dict(zip(("name_key", "stem_key", "title_key"), entry.keys(name), strict=True)),
            }  # fmt: skip
            if id_:
                columns = ", ".join(f"{column} = ?" for column in row)
                self.execute(f"UPDATE documents SET {columns} WHERE id = ?", (*row.values(), id_))
            else:
                row |= {"source": source, "key": found.key}
                statement = f"INSERT INTO documents ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
                entry = entry._replace(id=int(self.execute(statement, (*row.values(),)).lastrowid or 0))
            self.execute("INSERT OR REPLACE INTO texts VALUES (?, ?)", (entry.id, body))
            entries.append(entry)
        self._add_words(entries)
        self.execute("UPDATE facts SET value = ? WHERE name = 'version'", (first + len(batch) - 1,))
        return [entry.id for entry in entries]

    def _add_words(self, entries: Sequence[_Entry]) -> None:
        """Add the words of documents to FTS5 and a new segment."""
        if not entries:
            return
        rows = np.zeros(len(entries), dtype=ROW)
        for name in ("id", "version", "modified", "source"):
            rows[name] = [getattr(entry, name) for entry in entries]
        rows["type"] = [self._hash(f"type:{entry.ending}") for entry in entries]
        for entry in entries:
            self._counter.add(*entry.words, repeats=entry.repeats)
        words = ((entry.id, *entry.words) for entry in entries)
        self.executemany("INSERT INTO words (rowid, name, title, body) VALUES (?, ?, ?, ?)", words)
        self._write_segment(self._counter.finish(rows))

    def _remove_words(self, ids: Sequence[int]) -> None:
        """Remove the words of documents from FTS5 and the segments."""
        joined = "documents JOIN texts ON texts.id = documents.id"
        for id_ in ids:
            ((*texts, version),) = self.rows(
                f"SELECT name, title, body, version FROM {joined} WHERE documents.id = ?", id_
            )
            self.execute(
                "INSERT INTO words (words, rowid, name, title, body) VALUES ('delete', ?, ?, ?, ?)",
                (id_, *map(_normalised, texts)),
            )
            self.execute("INSERT INTO dead VALUES (?)", (version,))

    def remove(self, ids: Sequence[int]) -> None:
        """Remove documents, in its own transactions."""
        for start in range(0, len(ids), STEP):
            part = ids[start : start + STEP]
            with self.transaction():
                self._remove_words(part)
                for table in ("texts", "documents"):
                    self.executemany(f"DELETE FROM {table} WHERE id = ?", [(id_,) for id_ in part])

    def digest_of(self, source: int, key: str) -> int:
        """Return the keyed digest that identifies a forgotten document."""
        return self._hash(f"{source}:{key}") - (1 << 63)  # SQLite's integers are signed

    def erase(self) -> None:
        """Erase all traces of deleted content, in its own transactions.

        FTS5 keeps deleted words until its segments are merged; `overwrite_deleted` erases the rest.
        """
        with self.transaction():
            self.merge(all_dead=True)
            self.execute("INSERT INTO words (words) VALUES ('optimize')")
        self.database.overwrite_deleted()

    def merge(self, *, all_dead: bool = False) -> None:
        """Merge segments of about the same size; rewrite those with many dead rows, or with `all_dead` all with any."""
        while True:
            sizes = self.rows("SELECT id, documents FROM segments ORDER BY id")
            chosen = [sizes[number][0] for number in to_merge([size for _, size in sizes])]
            if not chosen:
                break
            self._merge_segments(chosen)
        dead = int(self.rows("SELECT count(*) FROM dead")[0][0])
        if dead and (all_dead or dead > MOST_DEAD * sum(size for _, size in sizes)):
            for number, size in sizes:
                lost = size - int(self._rows_of(number)[1].sum())
                if lost and (all_dead or lost > MOST_DEAD / 2 * size):
                    self._merge_segments([number])

    def _write_segment(self, segment: Segment) -> None:
        row = len(segment.rows), segment.rows.tobytes()
        number = int(self.execute("INSERT INTO segments (documents, rows) VALUES (?, ?)", row).lastrowid or 0)
        for at, (terms, offsets, postings) in enumerate(segment.fields):
            chunks = [postings[start : start + CHUNK] for start in range(0, len(postings), CHUNK)]
            parts: list[npt.NDArray[Any]] = [terms, offsets, *chunks]
            blobs = [(part_key(number, at, place), part.tobytes()) for place, part in enumerate(parts)]
            self.executemany("INSERT INTO postings VALUES (?, ?)", blobs)

    def _rows_of(self, number: int) -> tuple[Any, Booleans]:
        """Return the rows of a segment, and (rows,) which of them belong to documents."""
        rows = np.frombuffer(self.rows("SELECT rows FROM segments WHERE id = ?", number)[0][0], dtype=ROW)
        dead = [version for (version,) in self.rows("SELECT version FROM dead")]
        return rows, np.asarray(~np.isin(rows["version"], dead))

    def _merge_segments(self, numbers: Sequence[int]) -> None:
        """Replace several segments by one without their dead rows."""
        segments, alive = [], []
        for number in numbers:
            fields = []
            for at in range(len(FIELDS)):
                first, last = part_key(number, at, 0), part_key(number, at + 1, 0) - 1
                (terms,), (offsets,), *chunks = self.rows(
                    "SELECT content FROM postings WHERE key BETWEEN ? AND ? ORDER BY key", first, last
                )
                postings = np.frombuffer(b"".join(chunk for (chunk,) in chunks), POSTING)
                fields.append(FieldPostings(np.frombuffer(terms, "<u8"), np.frombuffer(offsets, "<u4"), postings))
            rows, living = self._rows_of(number)
            segments.append(Segment(rows, fields))
            alive.append(living)
        merged = merge_segments(segments, alive)
        for number, segment, living in zip(numbers, segments, alive, strict=True):
            keys = part_key(number, 0, 0), part_key(number + 1, 0, 0)
            self.execute("DELETE FROM segments WHERE id = ?", (number,))
            self.execute("DELETE FROM postings WHERE key >= ? AND key < ?", keys)
            versions = [(version,) for version in segment.rows["version"][~living].tolist()]
            self.executemany("DELETE FROM dead WHERE version = ?", versions)
        if len(merged.rows):
            self._write_segment(merged)
