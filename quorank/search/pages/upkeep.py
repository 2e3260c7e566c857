"""Work in the background of the pages: sources are read again when they change, and the service is asked when it is time.

One thread reads sources, one watches them, one talks to the federation. Whoever else wants to write to the index
(forget a document, add or remove a source) does so inside `writing()`: a reading that is under way stops at the next
document, and goes on afterwards from where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Event, Thread

from quorank.errors import BadInput, first_line
from quorank.search.index import UpdateReport
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources.watching import SourceWatcher

AGAIN = 10.0
"""Seconds after a reading, or a talk to the service, that failed."""
LONGEST_WAIT = 3600.0
_GOODBYE_SECONDS = 5.0


@dataclass(frozen=True)
class ReadingProgress:
    """How far the reading of a source is."""

    source: int
    done: int = 0  # documents that were looked at
    added: int = 0  # of these, new or changed ones
    skipped: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class LastTalk:
    """What came of the last talk to the service."""

    at: float  # Unix seconds
    outcome: str
    sentence: str
    next: float  # seconds


class Upkeep:
    """Background work of one search: `start`, and `close`."""

    def __init__(
        self, search: PersonalSearch, *, watch: bool = True, say: Callable[[str], object] = lambda _: None
    ) -> None:
        self._search, self._watch, self._say = search, watch, say
        self._turn = Condition()
        self._queue: list[int] = []
        self._others, self._busy, self._stopping = 0, False, False
        self._sources_changed, self._talk_now = Event(), Event()
        self._threads: list[Thread] = []
        self.progress: ReadingProgress | None = None
        self.problems: dict[int, str] = {}
        """Why a source could not be read, by its number."""
        self.last_talk: LastTalk | None = None

    def start(self) -> None:
        """Read all sources once, and go on from there."""
        for stored in self._search.index.sources():
            self.read_soon(stored.id)
        works = [self._read_sources, self._talk, *([self._watch_sources] if self._watch else [])]
        self._threads = [Thread(target=work, daemon=True, name=work.__name__) for work in works]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop all of it; what was read is kept."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        self._sources_changed.set()
        self._talk_now.set()
        for thread in self._threads:
            thread.join(_GOODBYE_SECONDS)

    # what pages ask for

    def read_soon(self, number: int) -> None:
        """Read a source again, after those that wait already."""
        with self._turn:
            if number not in self._queue:
                self._queue.append(number)
            self._turn.notify_all()

    def watch_again(self) -> None:
        """Take notice that there are other sources now."""
        self._sources_changed.set()

    def talk_soon(self) -> None:
        """Ask the service as soon as it may be asked."""
        self._talk_now.set()

    @property
    def waiting(self) -> tuple[int, ...]:
        """Sources that are to be read, in their order."""
        with self._turn:
            return tuple(self._queue)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write to the index inside the block, while no source is read."""
        with self._turn:
            self._others += 1
            try:
                self._turn.wait_for(lambda: not self._busy)
                yield
            finally:
                self._others -= 1
                self._turn.notify_all()

    # reading

    def _interrupted(self) -> bool:
        return self._stopping or self._others > 0

    def _read_sources(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._stopping or (self._queue and not self._others))
                if self._stopping:
                    return
                number, self._busy = self._queue.pop(0), True
            again = False
            try:
                again = not self._read(number)
            finally:
                with self._turn:
                    self._busy, self.progress = False, None
                    if again and number not in self._queue:
                        self._queue.insert(0, number)
                    self._turn.notify_all()

    def _read(self, number: int) -> bool:
        """Read a source; False where it is to be read again."""
        self.progress = ReadingProgress(number)

        def note(report: UpdateReport) -> None:
            done = report.added + report.changed + report.unchanged
            new = report.added + report.changed
            self.progress = ReadingProgress(number, done, new, report.skipped, report.seconds)

        try:
            finished = self._search.update(number, note, self._interrupted).finished
        except BadInput as error:
            if error.code in ("source.unknown", "source.missing"):
                self.problems.pop(number, None)
                return True
            return not self._failed(number, str(error), error.code == "folder.busy")
        except OSError as error:
            return not self._failed(number, f"cannot be read or written now ({first_line(error)})", True)
        self.problems.pop(number, None)
        return finished

    def _failed(self, number: int, sentence: str, again: bool) -> bool:
        """Note why a source was not read, and wait where it is to be tried again."""
        self.problems[number] = sentence
        self._say(f"source {number}: {sentence}")
        if again:
            with self._turn:
                self._busy, self.progress = False, None
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._stopping, AGAIN)
        return again

    # watching

    def _watch_sources(self) -> None:
        while not self._stopping:
            self._sources_changed.clear()
            numbers, sources = [], []
            for stored in self._search.index.sources():
                try:
                    sources.append(self._search.source(stored.id))
                    numbers.append(stored.id)
                except BadInput as error:  # of a package that is not installed any more
                    self.problems[stored.id] = str(error)
            if not sources:
                self._sources_changed.wait()
                continue
            for places in SourceWatcher(sources, say=self._say).changes(self._sources_changed):
                for place in places:
                    self.read_soon(numbers[place])

    # the federation

    def _talk(self) -> None:
        while not self._stopping:
            self._talk_now.clear()
            self._talk_now.wait(self.talk() if self._search.membership.joined else LONGEST_WAIT)

    def talk(self, *, force: bool = False) -> float:
        """Ask the service once, where it is time or forced; returns the seconds until it is worth asking again."""
        try:
            report = self._search.membership.sync(force=force)
        except (BadInput, OSError) as error:
            sentence = str(error) if isinstance(error, BadInput) else f"files cannot be written ({first_line(error)})"
            self.last_talk = LastTalk(time.time(), "failed", sentence, AGAIN)
            return AGAIN
        if report.outcome not in ("early", "busy"):
            self.last_talk = LastTalk(time.time(), report.outcome, report.sentence, report.next)
        return min(max(report.next, 1.0), LONGEST_WAIT)
