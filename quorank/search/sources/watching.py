"""Watching of sources on the disk: which of them have to be scanned again, told a moment after things have settled.

The system's own notices (watchfiles) are used where they can be had. A folder that vanishes, or is not there yet, is looked
for again and again, and watched when it comes. Where the system has no more watches to give, or a folder cannot be watched,
its source is scanned from time to time instead. A source that rests (`Source.rest`) is told of later, never lost.
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
"""Milliseconds without a change after which changes are told."""
LOOK = 1000
"""Milliseconds between two looks for folders that came or went."""
WITHOUT_WATCHES = 600.0
"""Seconds between two scans of what cannot be watched."""

_Identity = tuple[int, int] | None


class SourceWatcher:
    """Watcher of several sources: `changes()` yields the places in the list of those that have to be scanned again."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        say: Callable[[str], object] = lambda sentence: None,
        settled: int = SETTLED,
        look: int = LOOK,
        rest: float | None = None,
    ) -> None:
        """`say` is told in a sentence what cannot be watched; `rest` stands for that of every source where it is given."""
        self.sources, self._say, self._settled, self._look = tuple(sources), say, settled, look
        self._rests = [source.rest if rest is None else rest for source in sources]
        self._waiting: set[int] = set()  # sources that changed and were not told of yet
        self._told = [-1e9] * len(self.sources)
        self._unwatched: set[int] = set()

    def changes(self, stop: Event) -> Iterator[list[int]]:
        """Yield lists of sources that changed, until `stop` is set."""
        paths = [source.watch_paths() for source in self.sources]
        places = {path: {number for number, own in enumerate(paths) if path in own} for own in paths for path in own}
        before = {path: _identity(path) for path in places}
        restarted = False
        while not stop.is_set():
            present = [path for path, identity in before.items() if identity is not None]
            for found in self._notices(present, stop):
                if restarted:  # nobody watched for a moment
                    self._waiting |= {number for path in present for number in places[path]}
                    restarted = False
                now = {path: _identity(path) for path in places}
                for path in places:
                    if now[path] != before[path]:
                        self._waiting |= places[path]
                for changed in found:
                    self._add(Path(changed), places)
                told = self._due()
                if told:
                    yield told
                if stop.is_set():
                    return
                if now != before:
                    before, restarted = now, True
                    break  # what came is watched from now on

    def _notices(self, present: list[Path], stop: Event) -> Iterator[set[str]]:
        """Yield sets of changed paths; empty ones when it is time to look around."""
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
                yield set()  # it vanished just now
                watched = [path for path in watched if path.exists()]
            except (OSError, RuntimeError) as error:  # no watches left, or a file system without
                self._say(
                    f"cannot be told of changes ({first_line(error)}); looking every {WITHOUT_WATCHES:g} s instead"
                )
                self._unwatched |= set(range(len(self.sources)))
                watched = []
        while not stop.wait(self._look / 1000):
            yield set()

    def _add(self, changed: Path, places: dict[Path, set[int]]) -> None:
        for path, numbers in places.items():
            if changed == path or path in changed.parents:
                self._waiting |= {number for number in numbers if self.sources[number].concerns(changed)}

    def _due(self) -> list[int]:
        """Return the sources that may be told of now."""
        now = time.monotonic()
        self._waiting |= {number for number in self._unwatched if now - self._told[number] >= WITHOUT_WATCHES}
        told = sorted(number for number in self._waiting if now - self._told[number] >= self._rests[number])
        for number in told:
            self._told[number] = now
        self._waiting -= set(told)
        return told


def _identity(path: Path) -> _Identity:
    """Return what tells a file or folder from another one of the same name; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
