"""Watching of sources on the disk: yields the sources to scan again, a moment after changes have settled.

The system's notifications (watchfiles) are used where available. A folder that vanishes, or does not exist yet, is
looked for regularly, and watched when it appears. Where the system has no watches left, or a folder cannot be watched,
its source is scanned at intervals instead. Changes of a source within its `rest` interval are reported later, never
lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

from quorank.errors import first_line
from quorank.search.sources.source import Source

SETTLED = 500
"""Milliseconds without a change after which changes are reported."""
LOOK = 1000
"""Interval between two checks for folders that appeared or vanished, milliseconds."""
WITHOUT_WATCHES = 600.0
"""Interval between two scans of a source that cannot be watched, seconds."""

_Identity = tuple[int, int] | None


class SourceWatcher:
    """Watcher of several sources; `changes()` yields the positions of those to scan again.

    Args:
        sources: The sources to watch.
        say: Called with a sentence when something cannot be watched.
        settled: Milliseconds without a change after which changes are reported.
        look: Interval between two checks for folders that appeared or vanished, milliseconds.
        rest: Minimum interval between two reports of a source, seconds; by default its own `rest`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        say: Callable[[str], object] = lambda sentence: None,
        settled: int = SETTLED,
        look: int = LOOK,
        rest: float | None = None,
    ) -> None:
        self.sources, self._say, self._settled, self._look = tuple(sources), say, settled, look
        self._rests = [source.rest if rest is None else rest for source in sources]
        self._waiting: set[int] = set()  # changed sources that were not reported yet
        self._reported = [-1e9] * len(self.sources)
        self._unwatched: set[int] = set()

    def changes(self, stop: Event) -> Iterator[list[int]]:
        """Yield lists of changed sources until `stop` is set."""
        paths = [source.watch_paths() for source in self.sources]
        places = {path: {number for number, own in enumerate(paths) if path in own} for own in paths for path in own}
        before = {path: _identity(path) for path in places}
        restarted = False
        while not stop.is_set():
            present = [path for path, identity in before.items() if identity is not None]
            for found in self._notifications(present, stop):
                if restarted:  # nothing was watched for a moment
                    self._waiting |= {number for path in present for number in places[path]}
                    restarted = False
                now = {path: _identity(path) for path in places}
                for path in places:
                    if now[path] != before[path]:
                        self._waiting |= places[path]
                for changed in found:
                    self._add(Path(changed), places)
                due = self._due()
                if due:
                    yield due
                if stop.is_set():
                    return
                if now != before:
                    before, restarted = now, True
                    break  # watch new folders from now on

    def _notifications(self, present: list[Path], stop: Event) -> Iterator[set[str]]:
        """Yield sets of changed paths, and an empty set after each `look` interval without changes."""
        watched = list(present)
        while watched and not stop.is_set():
            from watchfiles import watch

            try:
                for changes in watch(
                    *watched,
                    watch_filter=None,
                    debounce=self._settled * 10,
                    step=self._settled,
                    rust_timeout=self._look,
                    yield_on_timeout=True,
                    stop_event=stop,
                    ignore_permission_denied=True,
                ):
                    yield {path for _, path in changes}
                return
            except FileNotFoundError:
                yield set()  # a folder vanished just now
                watched = [path for path in watched if path.exists()]
            except (OSError, RuntimeError) as error:  # no watches left, or a file system without
                every = f"scanning every {WITHOUT_WATCHES:g} s instead"
                self._say(f"changes are not reported by the system ({first_line(error)}); {every}")
                self._unwatched |= set(range(len(self.sources)))
                watched = []
        while not stop.wait(self._look / 1000):
            yield set()

    def _add(self, changed: Path, places: dict[Path, set[int]]) -> None:
        for path, numbers in places.items():
            if changed == path or path in changed.parents:
                self._waiting |= {number for number in numbers if self.sources[number].concerns(changed)}

    def _due(self) -> list[int]:
        """Return the sources to report now."""
        now = time.monotonic()
        self._waiting |= {number for number in self._unwatched if now - self._reported[number] >= WITHOUT_WATCHES}
        due = sorted(number for number in self._waiting if now - self._reported[number] >= self._rests[number])
        for number in due:
            self._reported[number] = now
        self._waiting -= set(due)
        return due


def _identity(path: Path) -> _Identity:
    """Return device and inode of a file or folder; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
