"""Update of a source's documents from a scan: batches, the log, and removals at the end."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from quorank.search.index.writing import IndexWriter, writable
from quorank.search.sources.source import FoundDocument, SkippedDocument, UnchangedDocument

BATCH_DOCUMENTS, BATCH_CHARACTERS, BATCH_SECONDS = 2000, 1 << 22, 2.0
"""Documents, characters, and waiting seconds of its first document at which a batch is written."""
MOST_SKIPPED = 10_000
"""Maximum number of lines in the log of a source; the oldest are dropped."""

Scan = Iterable[FoundDocument | SkippedDocument | UnchangedDocument]


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


class SourceUpdate:
    """Update of a source."""

    def __init__(self, writer: IndexWriter, source: int) -> None:
        self.writer, self.database, self.source = writer, writer.database, source
        self.report = UpdateReport()
        self.batch: dict[str, tuple[int, FoundDocument]] = {}
        self.skips: list[SkippedDocument] = []
        self.characters = 0
        self.began, self.waiting = time.monotonic(), 0.0
        self.wall = time.time()
        self.seen = array("q")  # ids of documents in the scan
        self.forgotten = {digest for (digest,) in self.database.rows("SELECT digest FROM forgotten")}

    def run(
        self, scan: Scan, progress: Callable[[UpdateReport], object] | None, stop: Callable[[], bool] | None
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

    def _take(self, item: FoundDocument | SkippedDocument | UnchangedDocument) -> None:
        key = writable(item.key)
        if key != item.key and not isinstance(item, SkippedDocument):
            sentence = "its key has characters that UTF-8 cannot encode; its source must write it otherwise"
            item = SkippedDocument(key, "document.unwritable-key", sentence)
        if isinstance(item, SkippedDocument):
            self.skips.append(item)
            self.report.skipped += 1
            return
        if item.key in self.batch:  # twice in one scan: the later item counts
            self._write()
        stored = self.database.rows(
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
        with self.database.transaction():
            written = self.writer.write_batch(self.source, [*batch.values()])
            self.database.database.executemany(
                "INSERT OR REPLACE INTO skipped (source, key, code, at, sentence) VALUES (?, ?, ?, ?, ?)",
                ((self.source, *map(writable, (s.key, s.code)), time.time(), writable(s.sentence)) for s in skips),
            )
        self.seen.extend(written)
        with self.database.transaction():
            self.writer.merge()

    def _finish(self) -> None:
        """Remove documents that the scan did not yield, and lines of the log that it did not write again."""
        stored = self.database.rows("SELECT id FROM documents WHERE source = ?", self.source)
        gone = np.setdiff1d(np.array(stored, dtype=np.int64), np.array(self.seen)).tolist()
        self.writer.remove(gone)
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
        with self.database.transaction():
            self.writer.merge()
