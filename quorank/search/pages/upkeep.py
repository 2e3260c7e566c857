"""Background work of the pages: scanning changed sources, watching them, and contacting the service.

One thread scans sources, one watches them, one talks to the federation. Other writers of the index (forgetting a
document, adding or removing a source) write inside `writing()`: a scan in progress stops at the next document, and
continues afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread
from typing import NamedTuple

from quorank.errors import BadInput, first_line
from quorank.search.index import UpdateReport
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources.watching import watch_sources

AGAIN = 10.0  # seconds before a failed scan, or a failed contact with the service, is retried
LONGEST_WAIT = 3600.0
_JOIN_SECONDS = 5.0


class ScanProgress(NamedTuple):
    """Progress of the scan of a source."""

    source: int
    done: int = 0  # documents seen
    added: int = 0  # new or changed ones of these
    skipped: int = 0
    seconds: float = 0.0


class LastContact(NamedTuple):
    """Result of the last contact with the service."""

    at: float  # Unix seconds
    outcome: str
    sentence: str


class Upkeep:
    """Background work of one search, from `start` to `close`.

    Args:
        search: An open search.
        say: Called with messages for the person.
    """

    def __init__(self, search: PersonalSearch, *, say: Callable[[str], object] = lambda _: None) -> None:
        self.search, self._say = search, say
        self._turn = Condition()
        self._queue: list[int] = []
        self._others, self._busy, self._stopping = 0, False, False
        self._sources_changed, self._contact_now = Event(), Event()
        self._threads: list[Thread] = []
        self.progress: ScanProgress | None = None
        self.problems: dict[int, str] = {}
        """Reasons why a source could not be read, by its number."""
        self.last_contact: LastContact | None = None

    def start(self) -> None:
        """Scan all sources once, then whenever they change."""
        for stored in self.search.index.sources():
            self.scan_soon(stored.id)
        works = (self._scan_sources, self._contact_service, self._watch_sources)
        self._threads = [Thread(target=work, daemon=True, name=work.__name__) for work in works]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop all threads; scanned documents are kept."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        self._sources_changed.set()
        self._contact_now.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    # called by pages

    def scan_soon(self, number: int) -> None:
        """Queue a source for a scan."""
        with self._turn:
            if number not in self._queue:
                self._queue.append(number)
            self._turn.notify_all()

    def watch_again(self) -> None:
        """Restart watching after sources were added or removed."""
        self._sources_changed.set()

    def contact_soon(self) -> None:
        """Contact the service as soon as it is allowed."""
        self._contact_now.set()

    @property
    def waiting(self) -> tuple[int, ...]:
        """Sources in the queue, in their order."""
        with self._turn:
            return tuple(self._queue)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Pause scanning inside the block, for another writer of the index."""
        with self._turn:
            self._others += 1
            try:
                self._turn.wait_for(lambda: not self._busy)
                yield
            finally:
                self._others -= 1
                self._turn.notify_all()

    # scanning

    def _interrupted(self) -> bool:
        return self._stopping or self._others > 0

    def _scan_sources(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._stopping or (self._queue and not self._others))
                if self._stopping:
                    return
                number, self._busy = self._queue.pop(0), True
            pause: float | None = None
            try:
                pause = self._scan(number)
            finally:
                with self._turn:
                    self._busy, self.progress = False, None
                    if pause is not None and number not in self._queue:
                        self._queue.insert(0, number)
                    self._turn.notify_all()
                    self._turn.wait_for(lambda: self._stopping, pause or 0.0)

    def _scan(self, number: int) -> float | None:
        """Scan a source; return the seconds before it must be scanned again, None when it is done."""
        self.progress = ScanProgress(number)

        def note(report: UpdateReport) -> None:
            new = report.added + report.changed
            self.progress = ScanProgress(number, new + report.unchanged, new, report.skipped, report.seconds)

        finished = True
        try:
            finished = self.search.update(number, note, self._interrupted).finished
        except (BadInput, OSError) as error:
            code = error.code if isinstance(error, BadInput) else ""
            if code not in ("source.unknown", "source.missing"):
                self.problems[number] = _sentence_of(error)
                self._say(f"source {number}: {self.problems[number]}")
                return AGAIN if code in ("folder.busy", "") else None
        self.problems.pop(number, None)
        return None if finished else 0.0

    # watching

    def _watch_sources(self) -> None:
        while not self._stopping:
            self._sources_changed.clear()
            numbers, sources = [], []
            for stored in self.search.index.sources():
                try:
                    sources.append(self.search.source(stored.id))
                    numbers.append(stored.id)
                except BadInput as error:  # of a package that is no longer installed
                    self.problems[stored.id] = str(error)
            if not sources:
                self._sources_changed.wait()
                continue
            for places in watch_sources(sources, self._sources_changed, say=self._say):
                for place in places:
                    self.scan_soon(numbers[place])

    # the federation

    def _contact_service(self) -> None:
        while not self._stopping:
            self._contact_now.clear()
            self._contact_now.wait(self.contact() if self.search.membership.joined else LONGEST_WAIT)

    def contact(self, *, force: bool = False) -> float:
        """Contact the service once, if due or forced; return the seconds until the next contact."""
        try:
            report = self.search.membership.sync(force=force)
        except (BadInput, OSError) as error:
            self.last_contact = LastContact(time.time(), "failed", _sentence_of(error))
            return AGAIN
        if report.outcome not in ("early", "busy"):
            self.last_contact = LastContact(time.time(), report.outcome, report.sentence)
        return min(max(report.next, 1.0), LONGEST_WAIT)


def _sentence_of(error: BadInput | OSError) -> str:
    return str(error) if isinstance(error, BadInput) else f"files cannot be read or written now ({first_line(error)})"
