"""Writer of the index: schema, batches of documents, removal, merging, erasure.

Tables: `sources`; `documents` with their texts in `texts`; `words`, an FTS5 table without stored content for phrases
and prefixes of normalised words; `vocabulary`, the number of documents with a word; `segments` and `postings`, counts
of stems for ranking (`postings.py`); `dead`, versions of rows whose document changed or was removed; `skipped`, the
log of sources; `forgotten`, digests of documents that must not be indexed again; `facts`.

FTS5 without content needs the words again to delete them, so normalised words must not change: the index has a stamp
of the tokeniser and of Unicode's version, and is rebuilt from the stored texts when it differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorank.errors import BadInput
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Booleans
from quorank.search.index.candidates import LONGEST_KEY
from quorank.search.index.postings import (
    FIELDS,
    ROW,
    BatchCounter,
    CountedWord,
    FieldPostings,
    Segment,
    TermHash,
    merge_segments,
    to_merge,
)
from quorank.search.index.reading import part_key
from quorank.search.sources.source import FoundDocument
from quorank.text.collection import Document
from quorank.text.index import whole_text
from quorank.text.tokens import LONGEST, Tokeniser, normalised_words

MOST_DEAD = 0.2
"""Share of dead rows above which segments are rewritten."""
STEP = 500
"""Documents that are removed, or rebuilt, in one step."""
_TOO_LONG = re.compile(rf"[^ ]{{{LONGEST + 1},}}")

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
INSERT INTO words (words, rank) VALUES ('hashsize', 8388608);
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
    0x51525349,
    1,
    _SCHEMA,
    "this is not an index of Quorank's search; choose another folder",
    "the index is damaged; delete it and index again (only the index is lost)",
)


@dataclass(frozen=True)
class _Words:
    """Normalised words of a document, separated by spaces, for FTS5 and the counter."""

    name: str
    title: str
    body: str

    @classmethod
    def of(cls, name: str, title: str, body: str) -> _Words:
        return cls(*map(_normalised, (name, title, body)))

    def distinct(self) -> set[str]:
        return {*self.name.split(), *self.title.split(), *self.body.split()}


def _normalised(text: str) -> str:
    """Return the normalised words, without overlong ones."""
    words = normalised_words(text).decode()
    if _TOO_LONG.search(words):
        return _TOO_LONG.sub(" ", words)
    return words


@dataclass(frozen=True)
class _Entry:
    """Document to be added to the words and the segments."""

    id: int
    version: int
    source: int
    modified: float
    name: str
    words: _Words
    repeats: bool  # the body begins with the title


class IndexWriter:
    """Connection of the writing process. Methods must be called inside a transaction unless they say otherwise."""

    def __init__(self, database: PrivateDatabase, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        self.database, self._tokeniser, self._hash = database, tokeniser, term_hash
        self._counter = BatchCounter(tokeniser, term_hash)

    # rebuilding

    def rebuild_if_outdated(self) -> None:
        """Rebuild an index made by another tokeniser or version of Unicode, in its own transaction."""
        stamp = f"{self._tokeniser.fingerprint()} {unicodedata.unidata_version}"
        if self.database.rows("SELECT value FROM facts WHERE name = 'stamp'")[0][0] == stamp:
            return
        with self.database.transaction():
            self.rebuild()
            self.database.database.execute("UPDATE facts SET value = ? WHERE name = 'stamp'", (stamp,))

    def rebuild(self) -> None:
        """Rebuild words, vocabulary and postings from the stored texts."""
        execute = self.database.database.execute
        execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in ("vocabulary", "segments", "postings", "dead"):
            execute(f"DELETE FROM {table}")
        columns = "documents.id, version, source, modified, name, title, body"
        last = 0
        while True:
            rows = self.database.rows(
                f"SELECT {columns} FROM documents JOIN texts ON texts.id = documents.id WHERE documents.id > ?"
                " ORDER BY documents.id LIMIT ?",
                last, STEP,
            )  # fmt: skip
            if not rows:
                break
            last = rows[-1][0]
            entries = []
            for id_, version, source, modified, name, title, body in rows:
                words = _Words.of(name, title, body)
                execute(
                    "UPDATE documents SET name_key = ?, stem_key = ?, title_key = ? WHERE id = ?",
                    (*_keys(name, words), id_),
                )
                entries.append(_Entry(id_, version, source, modified, name, words, _repeats(title, body)))
            self._add_words(entries)
            self.merge()

    # documents

    def write_batch(self, source: int, batch: Sequence[tuple[int, FoundDocument]]) -> list[int]:
        """Write new documents (id 0) and changed ones; return the ids of all."""
        execute = self.database.database.execute
        first = 1 + int(self.database.rows("SELECT value FROM facts WHERE name = 'version'")[0][0])
        self._remove_words([id_ for id_, _ in batch if id_])
        entries = []
        for version, (id_, found) in enumerate(batch, first):
            name, title, body = map(writable, (found.name, found.title, found.body))
            words = _Words.of(name, title, body)
            modified = found.modified if np.isfinite(found.modified) else 0.0
            values = (
                version, writable(found.fingerprint), writable(found.path), title, name, modified,
                np.array(found.visits, dtype="<f8").tobytes(), found.visit_count, *_keys(name, words),
            )  # fmt: skip
            if id_:
                execute(
                    "UPDATE documents SET version = ?, fingerprint = ?, path = ?, title = ?, name = ?, modified = ?,"
                    " visits = ?, visit_count = ?, name_key = ?, stem_key = ?, title_key = ? WHERE id = ?",
                    (*values, id_),
                )
            else:
                added = execute(
                    "INSERT INTO documents (version, fingerprint, path, title, name, modified, visits, visit_count,"
                    " name_key, stem_key, title_key, source, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*values, source, found.key),
                )
                id_ = int(added.lastrowid or 0)
            execute("INSERT OR REPLACE INTO texts VALUES (?, ?)", (id_, body))
            entries.append(_Entry(id_, version, source, modified, name, words, _repeats(title, body)))
        self._add_words(entries)
        execute("UPDATE facts SET value = ? WHERE name = 'version'", (first + len(batch) - 1,))
        return [entry.id for entry in entries]

    def _add_words(self, entries: Sequence[_Entry]) -> None:
        """Add the words of documents to FTS5, the vocabulary and a new segment."""
        if not entries:
            return
        rows = np.zeros(len(entries), dtype=ROW)
        for name in ("id", "version", "modified", "source"):
            rows[name] = [getattr(entry, name) for entry in entries]
        endings = [_ending(entry.name) for entry in entries]
        types = {ending: self._hash(f"type:{ending}") for ending in {*endings}}
        rows["type"] = [types[ending] for ending in endings]
        for entry in entries:
            self._counter.add(entry.words.name, entry.words.title, entry.words.body, repeats=entry.repeats)
        self.database.database.executemany(
            "INSERT INTO words (rowid, name, title, body) VALUES (?, ?, ?, ?)",
            ((entry.id, entry.words.name, entry.words.title, entry.words.body) for entry in entries),
        )
        segment, words = self._counter.finish(rows)
        _count_words(self.database, words)
        _write_segment(self.database, segment)

    def _remove_words(self, ids: Sequence[int]) -> None:
        """Remove the words of documents from FTS5, the vocabulary and the segments."""
        documents: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for id_ in ids:
            row = self.database.rows(
                "SELECT name, title, body, version FROM documents JOIN texts ON texts.id = documents.id"
                " WHERE documents.id = ?",
                id_,
            )[0]
            words = _Words.of(*row[:3])
            self.database.database.execute(
                "INSERT INTO words (words, rowid, name, title, body) VALUES ('delete', ?, ?, ?, ?)",
                (id_, words.name, words.title, words.body),
            )
            documents.update(words.distinct())
            names.update({*words.name.split()})
            self.database.database.execute("INSERT INTO dead VALUES (?)", (row[3],))
        words_gone = sorted(documents)
        _count_words(self.database, [(word, -documents[word], -names[word]) for word in words_gone])
        self.database.database.executemany(
            "DELETE FROM vocabulary WHERE word = ? AND documents <= 0", [(word,) for word in words_gone]
        )

    def remove(self, ids: Sequence[int]) -> None:
        """Remove documents, in its own transactions."""
        for start in range(0, len(ids), STEP):
            part = ids[start : start + STEP]
            with self.database.transaction():
                self._remove_words(part)
                for table in ("texts", "documents"):
                    self.database.database.executemany(f"DELETE FROM {table} WHERE id = ?", [(id_,) for id_ in part])

    def digest_of(self, source: int, key: str) -> int:
        """Return the keyed digest that identifies a forgotten document."""
        return self._hash(f"{source}:{key}") - (1 << 63)  # SQLite's integers are signed

    def erase(self) -> None:
        """Erase all traces of deleted content, in its own transactions.

        FTS5 keeps deleted words until its segments are merged; `overwrite_deleted` erases the rest.
        """
        with self.database.transaction():
            self.merge(all_dead=True)
            self.database.database.execute("INSERT INTO words (words) VALUES ('optimize')")
        self.database.overwrite_deleted()

    def merge(self, *, all_dead: bool = False) -> None:
        """Merge segments of about the same size; rewrite those with many dead rows, or with `all_dead` all with any."""
        while True:
            sizes = self.database.rows("SELECT id, documents FROM segments ORDER BY id")
            chosen = [sizes[number][0] for number in to_merge([size for _, size in sizes])]
            if not chosen:
                break
            _merge_segments(self.database, chosen)
        dead = int(self.database.rows("SELECT count(*) FROM dead")[0][0])
        if dead and (all_dead or dead > MOST_DEAD * sum(size for _, size in sizes)):
            for number, size in sizes:
                lost = size - int(_alive(self.database, number).sum())
                if lost and (all_dead or lost > MOST_DEAD / 2 * size):
                    _merge_segments(self.database, [number])

    def faults(self) -> list[str]:
        """Check all tables, outside a transaction; return the faults found."""
        rows = self.database.rows
        found = [said for (said,) in rows("PRAGMA integrity_check") if said != "ok"]
        try:
            rows("INSERT INTO words (words) VALUES ('integrity-check')")
        except BadInput as error:
            found.append(f"{error}")
        living: list[tuple[int, int]] = []
        for (number,) in rows("SELECT id FROM segments"):
            alive = _rows_of(self.database, number)[_alive(self.database, number)]
            living += zip(alive["id"].tolist(), alive["version"].tolist(), strict=True)
        if sorted(living) != sorted(rows("SELECT id, version FROM documents")):
            found.append("segments and documents differ")
        for one, other in (("texts", "documents"), ("documents", "texts")):
            if rows(f"SELECT id FROM {one} EXCEPT SELECT id FROM {other}"):
                found.append(f"{one} without {other}")
        return found


def writable(text: str) -> str:
    """Replace characters that UTF-8, and so SQLite, cannot encode by a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _ending(name: str) -> str:
    """Return the ending of a file name, without its dot, case-folded."""
    return name.rpartition(".")[2].casefold() if "." in name[1:] else ""


def _keys(name: str, words: _Words) -> tuple[str, str, str]:
    """Return name, name without ending and title as exact matches and beginnings compare them."""
    stem = _normalised(name.rpartition(".")[0] or name)
    name_key, stem_key, title_key = (" ".join(text.split())[:LONGEST_KEY] for text in (words.name, stem, words.title))
    return name_key, stem_key, title_key


def _repeats(title: str, body: str) -> bool:
    """Return whether the body begins with the title, as `whole_text` decides."""
    return whole_text(Document("", title, body)) is body


def _count_words(database: PrivateDatabase, words: Iterable[CountedWord]) -> None:
    database.database.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT (word) DO UPDATE SET"
        " documents = documents + excluded.documents, names = names + excluded.names",
        words,
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
    """Return (rows,) which rows of a segment belong to documents."""
    dead = [version for (version,) in database.rows("SELECT version FROM dead")]
    return np.asarray(~np.isin(_rows_of(database, number)["version"], dead))


def _merge_segments(database: PrivateDatabase, numbers: Sequence[int]) -> None:
    """Replace several segments by one without their dead rows."""
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
